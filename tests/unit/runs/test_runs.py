"""The Python interface: what README shows runs, stops keep the state, mistakes are answered, scripts share it."""

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import warm_python
from script_runs import TIMEOUT
from state_facts import differing, facts
from tiny_runs import STEPS, run_to, supersampled, tiny_config, tiny_state, write_tiny_scene

import nerf
from nerf.datasets.readers import read_capture
from nerf.errors import UserError
from nerf.fields.voxel_mlp import VoxelMlpConfig
from nerf.runs.interrupts import StopOnInterrupt
from nerf.runs.run import TrainingRun
from nerf.scene.description import SceneDescription

ROOT = Path(__file__).resolve().parents[3]
MIDDLE = 14  # a step between two looks, doublings and prunings
BUDGET = '"train.max_seconds": 60'


@pytest.fixture
def run(tmp_path: Path) -> TrainingRun:
    write_tiny_scene(tmp_path / "scene")
    config = tiny_config()
    config.device, config.dataset.root = "cpu", str(tmp_path / "scene")
    return nerf.start(config)


def never_stopped() -> dict[str, object]:
    config, state = tiny_state(tiny_config())
    run_to(config, state, STEPS)
    return facts(state)


# README


def readme_code() -> str:
    """The code under "Python"."""
    readme = (ROOT / "README.md").read_text()
    return re.search(r"^## Python\n.*?^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.slow
def test_the_code_in_the_readme_runs(tmp_path: Path) -> None:
    code = readme_code()
    assert len([line for line in code.splitlines() if line.strip()]) <= 30 and BUDGET in code
    program = code.replace(BUDGET, '"train.steps": 60, "train.log_every": 20')  # seconds, however busy the machine is
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    command, no_terminal = [sys.executable, "-c", program], subprocess.DEVNULL
    found = warm_python.run(
        command, cwd=tmp_path, env=env, stdin=no_terminal, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert found.returncode == 0, found.stderr
    *looks, scores = found.stdout.splitlines()
    assert [look.split(" dB")[0].split()[2] for look in looks] == ["1", "10", "20", "40", "60"]
    assert looks[-1].startswith("100%  step 60  ")
    assert len(eval(scores)["psnr"]["per_view"]) == 2 and eval(scores)["psnr"]["mean"] > 15
    made = {path.name for path in (tmp_path / "outputs" / "notebook").iterdir()}
    assert {"view.png", "orbit.mp4"} <= made


def test_import_nerf_alone_imports_nothing_heavy_and_every_name_is_there() -> None:
    program = "import nerf, sys; assert 'torch' not in sys.modules; [getattr(nerf, name) for name in nerf.__all__]"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    with pytest.raises(AttributeError, match="'nerf' has no attribute 'trian'"):
        nerf.trian  # noqa: B018


def test_the_package_imports_neither_hydra_nor_omegaconf() -> None:
    program = "import nerf.runs.run, nerf.diagnostics.doctor, sys; assert not {'hydra', 'omegaconf'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_runs_and_scenes_print_as_one_short_line(run: TrainingRun, tmp_path: Path) -> None:
    """As a notebook prints the last expression of a cell."""
    opened = run.open()
    scores = opened.evaluate("train", every=4)
    description = SceneDescription("unbounded", torch.tensor([[-1.0] * 3, [1.0] * 3]), near=0.25, reasons=("long",))
    expected = [
        (run, ["TrainingRun(", "sphere", "voxel_sh", "8 training views", "step 0, 0%"]),
        (opened, ["LoadedRun(never saved", "sphere", "8 training views"]),
        (nerf.load(run.save(tmp_path / "saved"), device="cpu"), [f"LoadedRun({tmp_path / 'saved'}"]),
        (run.images, ["PosedImages(8 images 20x20", "alpha", "depths", "r_0 ... r_7"]),
        (run.images.cameras, ["Cameras(8, 20x20, pinholes"]),
        (description, ["unbounded", "box -1,-1,-1 to 1,1,1", "near 0.25"]),
        (read_capture(tmp_path / "scene", "blender"), ["Capture(", "8 train"]),
        (scores, ["Scores(PSNR ", "SSIM ", "over 2 views"]),
        (opened.render(run.images.cameras), ["Rendering(rgb [20, 20, 3]"]),
        (run.state, ["TrainState(step 0, grid ", "8 training views"]),
    ]
    for thing, words in expected:
        line = repr(thing)
        assert "\n" not in line and len(line) < 280, line
        assert all(word in line for word in words), line
    assert scores.views == ["r_0", "r_4"]


# Stops


def test_a_run_left_by_break_and_by_an_exception_goes_on_as_if_never_stopped(run: TrainingRun) -> None:
    for look in run.train():  # noqa: B007
        break
    assert look.step == run.state.clock.step == 1 and not run.finished
    with pytest.raises(ZeroDivisionError):
        for look in run.train():
            1 / (look.step - 20)
    assert run.state.clock.step == 20
    assert [look.step for look in run.train()] == [30, 40] and run.finished
    assert differing(never_stopped(), facts(run.state)) == []
    assert list(run.train()) == []


def test_an_interrupt_arrives_between_two_steps_and_loses_nothing(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of step MIDDLE, as from a notebook's stop button."""
    step = run.state.optimizer.__class__.step

    def interrupted(optimizer: object, *arguments: object) -> None:
        if run.state.clock.step == MIDDLE - 1:
            os.kill(os.getpid(), signal.SIGINT)
        step(optimizer, *arguments)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(run.state.optimizer.__class__, "step", interrupted)
        with pytest.raises(KeyboardInterrupt, match=f"stopped after step {MIDDLE}; train.. goes on"):
            list(run.train())
    assert run.state.clock.step == MIDDLE and signal.getsignal(signal.SIGINT) is before
    list(run.train())
    assert differing(never_stopped(), facts(run.state)) == []


def test_while_a_look_is_handled_interrupts_are_as_usual(run: TrainingRun) -> None:
    before = signal.getsignal(signal.SIGINT)
    reports = run.train()
    next(reports)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_interrupt_is_as_usual() -> None:
    with pytest.raises(KeyboardInterrupt), StopOnInterrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.asked
        os.kill(os.getpid(), signal.SIGINT)


def test_training_works_in_another_thread(run: TrainingRun) -> None:
    steps: list[int] = []
    thread = threading.Thread(target=lambda: steps.extend(look.step for look in run.train()))
    thread.start()
    thread.join(60)
    assert steps[-1] == STEPS


# Saved and loaded


def test_a_saved_run_resumes_and_renders_what_the_open_one_does(run: TrainingRun, tmp_path: Path) -> None:
    for look in run.train():
        if look.step == 20:
            break
    folder = run.save(tmp_path / "a" / "b")
    resumed = nerf.resume(folder)
    opened, loaded = run.open(), nerf.load(str(folder), device="cpu")
    assert (opened.folder, loaded.folder) == (None, folder)
    cameras = nerf.orbit(loaded.cameras, views=3).resized(16, 16)
    views = [x.render(cameras, 1) for x in (opened, loaded)]
    assert views[0].rgb.shape == (16, 16, 3) and views[0].opacity.max() > 0.1
    for name in ("rgb", "opacity", "depth"):
        torch.testing.assert_close(getattr(views[0], name), getattr(views[1], name), atol=0.02, rtol=0)  # half
    list(resumed.train())
    assert differing(never_stopped(), facts(resumed.state)) == []
    scores = resumed.open().evaluate("test", every=4)
    assert len(scores.psnr) == 2 and scores.psnr[0] > 12


def test_a_run_is_loaded_with_its_rays_per_pixel_or_with_others(run: TrainingRun, tmp_path: Path) -> None:
    """And nothing else about it changes: the settings are those of the file."""
    next(run.train())
    folder = replace(run, config=supersampled(run.config, 0.0)).save(tmp_path / "run")
    own, one = nerf.load(folder, device="cpu"), nerf.load(folder, device="cpu", rays_per_pixel=1)
    assert (own.config.sampler.rays_per_pixel, one.config.sampler.rays_per_pixel) == (4, 1)
    assert replace(own.config, sampler=one.config.sampler) == one.config
    pictures = [x.render(nerf.orbit(x.cameras, views=1).resized(16, 16), 0).rgb for x in (own, one)]
    assert (pictures[0] - pictures[1]).abs().max() > 1 / 255
    with pytest.raises(UserError, match="sampler.rays_per_pixel=3 is unknown; choose one of 1, 2, 4"):
        nerf.load(folder, rays_per_pixel=3)


def test_the_newest_run_is_loaded_without_a_name(
    run: TrainingRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="there is no trained run in"):
        nerf.load()
    folder = run.save("outputs/one")
    assert nerf.load(device="cpu").folder == folder == nerf.newest_run()


def test_a_folder_that_cannot_be_made_is_named(run: TrainingRun, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/run .*Not a directory"):
        run.save(tmp_path / "file" / "run")


# Settings


def test_settings_take_the_names_of_the_command_line() -> None:
    config = nerf.settings(
        {"dataset": "lego", "field": "voxel_mlp", "field.hidden_width": 32, "train.steps": 7, "seed": 3}
    )
    assert (config.dataset.scene, config.train.steps, config.seed) == ("lego", 7, 3)
    assert isinstance(config.field, VoxelMlpConfig) and config.field.hidden_width == 32
    assert nerf.settings({"dataset.root": "/data/ficus"}).dataset.scene == "ficus"
    assert nerf.settings({}) == nerf.Config()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"train.stps": 3}, "there is no setting 'train.stps'; did you mean 'train.steps'?"),
        ({"steps": 3}, "there is no setting 'steps'; did you mean '"),
        ({"train": 3}, "there is no setting 'train'; did you mean 'train.steps'?"),
        ({"trian.steps": 3}, "there is no setting 'trian.steps'; did you mean 'train.steps'?"),
        ({"train.steps": 0}, "train.steps=0 is out of range, expected at least 1"),
        ({"field": "voxel_mpl"}, "field.name=voxel_mpl is unknown; choose one of auto, voxel_deferred, voxel_mlp"),
    ],
)
def test_mistakes_in_settings_are_answered(values: dict, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        nerf.settings(values)
    assert expected in str(caught.value)


def test_attributes_are_checked_at_the_start() -> None:
    config = nerf.Config()
    config.train.steps = -3
    with pytest.raises(UserError, match="train.steps=-3 is out of range"):
        nerf.start(config)
