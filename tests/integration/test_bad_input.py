"""Bad input and a machine that refuses, as a user meets them: one sentence, status 2, no traceback, nothing lost.

What a loader, a checkpoint or the build answers by itself is tested beside it; here the scripts run.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import warm_python
from fixtures import edit_transforms, look_at_origin, write_split
from PIL import Image
from script_runs import SCRIPTS, TIMEOUT, script_caller
from tiny_runs import run_to, tiny_config, tiny_state, write_tiny_scene

from nerf.cli.failures import explain
from nerf.config.schema import OccupancyConfig
from nerf.ops.backend import select
from nerf.runs import checkpoint
from nerf.runs.notes import JUDGED_STEPS
from nerf.training.capacity import CAPACITY_STEP, plan_capacity, round_up_capacity
from nerf.training.grid_schedule import EmptyGrid
from nerf.training.step import TrainStep

TINY = ("experiment=smoke", "dataset.downscale=1", "dataset.root=scene", "hydra.run.dir=run")


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that runs a script on bad input, in a folder with the tiny scene, and returns its one sentence."""
    call = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))

    def run(script: str, *arguments: str) -> str:
        assert call(script, *arguments) == 2
        message = capsys.readouterr().err
        assert "Traceback" not in message and message.count("error: ") == 1
        return message[message.index("error: ") :]

    return run


def test_images_of_different_sizes(answer: Callable[..., str]) -> None:
    Image.new("RGBA", (19, 20)).save("scene/train/r_3.png")
    message = answer("train", *TINY)
    assert "r_3.png is 19x20" in message and "r_0.png is 20x20" in message and not Path("run").exists()


def test_no_frames(answer: Callable[..., str]) -> None:
    edit_transforms(Path("scene"), lambda transforms: transforms.update(frames=[]))
    message = answer("train", *TINY)
    assert "key 'frames' is []" in message and "expected a list of at least one frame" in message


def test_a_box_that_no_ray_meets(answer: Callable[..., str]) -> None:
    message = answer("train", *TINY, "dataset.aabb=[50,50,50,51,51,51]")
    assert "scene box" in message and "dataset.aabb" in message


# A scene without anything in it


def test_a_grid_that_prunes_itself_empty_stops_with_the_reason(answer: Callable[..., str]) -> None:
    """Opaque white images before a white background: whatever was dense at first fades away."""
    poses = [look_at_origin(0.8 * view, 0.4) for view in range(8)]
    write_split(Path("white"), "train", np.full((8, 20, 20, 3), 255, np.uint8), poses)
    box = ["dataset.aabb=[-1,-1,-1,1,1,1]", "dataset.test_every=0"]
    assert "splits found in its folder: train" in answer("train", *TINY, "dataset.root=white", *box)
    assert not list(Path("run").glob("*.pt"))  # said before training
    settings = ("dataset.root=white", *box, "train.save_every=10", "evaluation.split=train")
    message = answer("train", *TINY, *settings)
    assert "grid is empty" in message and "occupancy.alpha_threshold=" in message
    assert "lower occupancy.alpha_threshold" in message
    assert f"the last good checkpoint is kept in {Path.cwd()}/run" in message
    assert checkpoint.load_resume(Path("run"))["step"] % 10 == 0


def test_an_empty_grid_is_given_half_the_run() -> None:
    config = tiny_config()
    occupancy = OccupancyConfig(alpha_threshold=1, start=config.occupancy.start, min_steps=1, update_interval=0.125)
    config, state = tiny_state(replace(config, occupancy=occupancy))
    everything = state.occupancy.occupied_fraction
    with pytest.raises(EmptyGrid, match="after step 20 the grid is empty"):
        run_to(config, state, 40)
    assert state.num_occupancy_updates > 1 and state.occupancy.occupied_fraction >= 0.5 * everything


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("field", ["voxel_sh", "voxel_mlp"])
def test_a_batch_without_samples_is_a_step_that_changes_nothing(field: str, backend: str) -> None:
    config, state = tiny_state(tiny_config(field), select(backend, "cpu"))
    config.loss.tv_density = config.loss.tv_color = 0.0
    before = {name: value.clone() for name, value in state.field.state_dict().items()}
    state.occupancy.occupied.zero_()
    step = TrainStep(config, state)
    step()
    sums = step.read()
    assert 0 < sums.losses["photometric"] < 1 and sums.samples == sums.skipped == 0
    assert all(torch.equal(value, before[name]) for name, value in state.field.state_dict().items())


def test_a_capacity_is_never_zero() -> None:
    """Zero would ask the device for the number of samples in every step, which a CUDA graph cannot."""
    assert round_up_capacity(0, 0) == round_up_capacity(0, 10**6) == CAPACITY_STEP
    assert round_up_capacity(7000, CAPACITY_STEP) == CAPACITY_STEP


def test_a_batch_without_samples_fits_a_cuda_graph(cuda: str) -> None:
    config, state = tiny_state(tiny_config(steps=30), select("native", cuda))
    state.occupancy.occupied.zero_()
    plan_capacity(config, state)
    config.occupancy.start = config.occupancy.min_steps = 1
    config.field.upsample_at = []
    assert run_to(config, state, 30)[-1].samples_per_ray == 0


def test_opaque_noise_fills_the_box_and_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Images without alpha that no scene explains: whatever is trained, hardly a cell comes out empty."""
    call = script_caller(monkeypatch, tmp_path)
    poses = [look_at_origin(0.8 * view, 0.4) for view in range(8)]
    for split in ("train", "test"):
        write_split(Path("noise"), split, np.random.default_rng(0).integers(0, 256, (8, 20, 20, 3), np.uint8), poses)
    settings = ("dataset.root=noise", "dataset.aabb=[-1,-1,-1,1,1,1]", "occupancy.min_weight=0")
    settings += ("field.num_voxels=27000", "field.min_voxel_pixels=0.1", "train.rays_per_step=128")
    assert call("train", *TINY, *settings) == 0
    assert "% of the cells" not in capsys.readouterr().err  # after 60 steps everything is still fog
    assert call("train", *TINY, *settings, f"train.steps={JUDGED_STEPS}", "overwrite=true") == 0
    message = capsys.readouterr().err
    assert "note: " in message and "% of the cells" in message and "dataset.aabb" in message


def test_a_run_of_a_few_steps_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))
    assert call("train", *TINY, "train.steps=4") == 0
    message = capsys.readouterr().err
    assert all(fact in message for fact in ("note: ", "4 steps", "0 of 1", "train.steps"))
    assert call("train", *TINY[:3], "hydra.run.dir=other") == 0
    assert "note: " not in capsys.readouterr().err


# A machine that refuses


@pytest.mark.parametrize(
    ("script", "folder", "expected"),
    [
        ("train", "file", "file cannot be made or written (File exists)"),
        ("train", "file/run", "file/run cannot be made or written (Not a directory)"),
        ("train", "/proc/nerf/run", "/proc/nerf cannot be made or written (No such file or directory)"),
        ("evaluate", "/proc/nerf", "/proc/nerf cannot be made or written (No such file or directory)"),
    ],
)
def test_a_folder_that_cannot_be_written(answer: Callable[..., str], script: str, folder: str, expected: str) -> None:
    """Cases that hold for root too, whom no permission stops."""
    Path("file").write_text("mine")
    message = answer(script, *(TINY[:3] if script == "train" else ()), f"hydra.run.dir={folder}")
    assert expected in message and "set hydra.run.dir to a folder that you may write" in message
    assert Path("file").read_text() == "mine" and message.count("\n") == 1


def limited(limit: int, name: str, *arguments: str, cwd: Path) -> str:
    """The last line of a script that may write files of so many bytes and ends with status 2."""
    program = "import resource, runpy, sys; sys.argv[:1] = []; "
    program += f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
    program += "runpy.run_path(sys.argv[0], run_name='__main__')"
    words = [sys.executable, "-c", program, str(SCRIPTS / f"{name}.py"), *arguments]
    found = warm_python.run(words, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)
    assert found.returncode == 2, found.stderr
    assert "Traceback" not in found.stderr
    return found.stderr.splitlines()[-1]


def test_a_full_disk_keeps_what_was_saved_and_the_run_goes_on_elsewhere(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; resume.pt outgrows it when the grid doubles."""
    write_tiny_scene(tmp_path / "scene")
    settings = (*TINY, "train.save_every=5", "train.log_every=5", "field=voxel_sh")
    message = limited(1_500_000, "train", *settings, cwd=tmp_path)
    written = f"error: {tmp_path}/run/resume.pt cannot be written: [Errno 27] File too large"
    assert message.startswith(written) and f"{tmp_path}/run/model.pt" in message
    assert "Free some space, or set hydra.run.dir to another disk." in message
    content, model = checkpoint.load_resume(tmp_path / "run"), checkpoint.load(tmp_path / "run")
    assert 0 < content["step"] < 60 == model["step"], "it trained on, and its model is kept"

    message = limited(10, "train", *settings[:3], "hydra.run.dir=other", cwd=tmp_path)
    assert all(fact in message for fact in ("other/config.yaml", "File too large", "free some space"))


# More than any machine has: the grid alone would take terabytes.
HUGE = ("field.num_voxels=10000000000000", "field.min_voxel_pixels=0.01", "field.upsample_at=[]")


def test_memory_that_does_not_suffice(answer: Callable[..., str]) -> None:
    message = answer("train", *TINY, *HUGE, "device=cpu")
    assert "this machine is out of memory: " in message and " GiB more were needed" in message
    assert "lower train.rays_per_step, lower field.num_voxels, raise dataset.downscale" in message


def test_an_operation_that_cannot_allocate_says_what_it_needed(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = select("native", device)
    grid, coords = torch.zeros(2, 2, 2, 10**6, device=device), torch.zeros(10**7, 3, device=device)
    expected = "out of memory: [10000000,1000000] of float32 could not be allocated"
    with pytest.raises(RuntimeError, match=re.escape(expected)) as caught:
        backend.ops.interpolate_trilinear(grid, coords)
    sentence = explain(caught.value, "nowhere", ["train.rays_per_step", "device"])
    start = "this machine is" if device == "cpu" else "the GPU is"
    assert sentence.startswith(f"{start} {expected}; ") and "lower train.rays_per_step" in sentence
    assert ("use device=cpu" in sentence) == (device != "cpu")


def test_a_gpu_that_is_out_of_memory(answer: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's error in its own words, from the first step on."""

    def out_of_memory(*_: object) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 3.25 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.06 GiB "
            "is free. Including non-PyTorch memory, this process has 78.04 GiB memory in use."
        )

    monkeypatch.setattr(TrainStep, "__call__", out_of_memory)
    message = answer("train", *TINY)
    assert "the GPU is out of memory: 3.25 GiB more were needed, 1.06 GiB of its 79.11 GiB are free" in message
    assert "lower train.rays_per_step, lower field.num_voxels, raise dataset.downscale, use device=cpu" in message


def test_a_run_that_no_gpu_holds_is_refused_before_it_trains(answer: Callable[..., str], cuda: str) -> None:
    message = answer("train", *TINY, *HUGE, f"device={cuda}")
    assert "this GPU has " in message and " GiB free and training needs about " in message
    assert re.search(r"field.num_voxels=\d+ would fit, or close other programs", message)


def test_a_first_grid_of_fixed_poses_is_refused_where_poses_are_learned(answer: Callable[..., str]) -> None:
    message = answer("train", *TINY, "poses=refine", "field.initial_num_voxels=900", "device=cpu")
    assert "field.initial_num_voxels=900 has no effect where poses are learned; leave it out, or give poses." in message


def test_doublings_are_refused_where_poses_are_learned(answer: Callable[..., str]) -> None:
    """By the command and by its dry run, whose first remedy is taken."""
    for more in ("dry_run=true", "device=cpu"):
        message = answer("train", *TINY, "poses=refine", more)
        assert "field.upsample_at=[0.4] has no effect where poses are learned; set field.upsample_at=none" in message
    message = answer("train", *TINY, "poses=refine", "field.upsample_at=none", "dataset.downscale=3")
    assert "does not divide the image size" in message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("train.steps=1e3", "expected a whole number, such as 1000."),
        ("field.num_voxels=64^3", "expected a whole number, such as 262144."),
        ("train.steps=many", "expected a whole number."),
        ("train.lr_decay=little", "expected a number."),
        ("field.upsample_at=0.5", "expected a list, such as [0.5]."),
        ("viewer=maybe", "expected true or false."),
    ],
)
def test_a_value_of_another_type(given: str, expected: str, answer: Callable[..., str]) -> None:
    assert answer("train", *TINY, given) == f"error: {given}: {expected}\n"


@pytest.mark.parametrize("given", ["sampler.near=100", "sampler.far=0.01"])
def test_ends_that_no_ray_meets_the_scene_between(given: str, answer: Callable[..., str]) -> None:
    message = answer("train", *TINY, "device=cpu", given)
    assert "no training ray meets the scene between sampler.near=" in message and given in message


def test_a_folder_that_was_there_before_stays(answer: Callable[..., str]) -> None:
    Path("run").mkdir()
    answer("train", *TINY, "dataset.root=nowhere")
    assert Path("run").is_dir()


def test_an_error_of_the_program_keeps_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))

    for error in (RuntimeError("a mistake"), FileNotFoundError(2, "No such file", "gone")):

        def broken(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(TrainStep, "__call__", broken)
        with pytest.raises(type(error), match=str(error.args[-1])):
            call("train", *TINY)
