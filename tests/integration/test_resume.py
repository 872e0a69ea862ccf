"""A run that was stopped and resumed ends as one that never stopped, and only as such a run."""

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fake_time import FakeTime
from resumed_runs import MIDDLE, stop_and_restore
from script_runs import ROOT, TIMEOUT, script_caller, start_script
from state_facts import differing, facts
from tiny_runs import (
    STEPS,
    few_rays_to_prune,
    run_to,
    supersampled,
    tiny_config,
    tiny_images,
    tiny_state,
    write_tiny_scene,
)

from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.runs import checkpoint
from nerf.runs.run import resume


@pytest.fixture(autouse=True)
def pruned_with_few_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    few_rays_to_prune(monkeypatch)


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_mlp", "voxel_deferred"])
def test_resumed_equals_never_stopped_to_the_last_bit(tmp_path: Path, field: str) -> None:
    config, never_stopped = tiny_state(tiny_config(field))
    run_to(config, never_stopped, STEPS)

    config, state = tiny_state(tiny_config(field))
    run_to(config, state, MIDDLE)
    before = (state.num_upsamplings, state.num_occupancy_updates)
    torch.rand(7)  # another process' global random numbers are others
    config, state = stop_and_restore(tmp_path, config, state)
    run_to(config, state, STEPS)
    after = (state.num_upsamplings, state.num_occupancy_updates)

    assert before[0] == 1 and before[1] >= 1 and after[0] == 2 and after[1] > before[1]
    assert differing(facts(never_stopped), facts(state)) == []
    draws = [run.batches.draw(50) for run in (never_stopped, state)]
    assert torch.equal(draws[0].rays.directions, draws[1].rays.directions)
    assert torch.equal(draws[0].rgba, draws[1].rgba) and torch.equal(draws[0].jitter, draws[1].jitter)


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_mlp", "voxel_deferred"])
def test_a_run_stopped_at_every_event_is_the_same_too(tmp_path: Path, field: str) -> None:
    config, never_stopped = tiny_state(tiny_config(field))
    run_to(config, never_stopped, STEPS)
    config, state = tiny_state(tiny_config(field))
    for step in (1, 8, 9, 10, 24, 25, STEPS):
        run_to(config, state, step)
        assert state.clock.step == step
        config, state = stop_and_restore(tmp_path, config, state)
    assert differing(facts(never_stopped), facts(state)) == []


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_mlp", "voxel_deferred"])
def test_a_run_resumes_before_and_after_its_pixels_get_several_rays(tmp_path: Path, field: str) -> None:
    """From the 21st step on they have four. What is saved of one run on its way ends as that run does."""
    config, never_stopped = tiny_state(supersampled(tiny_config(field), 0.5))
    stopped = []
    for stop, per_pixel in ((MIDDLE, 1), (20, 1), (21, 4), (27, 4)):
        run_to(config, never_stopped, stop)
        stopped.append(stop_and_restore(tmp_path, config, never_stopped))
        again = stopped[-1][1]
        assert again.rays_per_pixel == per_pixel and differing(facts(never_stopped), facts(again)) == []
    run_to(config, never_stopped, STEPS)
    for config, again in stopped:
        run_to(config, again, STEPS)
        assert again.rays_per_pixel == 4 and differing(facts(never_stopped), facts(again)) == []


def test_time_that_has_passed_counts_after_a_stop(tmp_path: Path, fake_time: FakeTime) -> None:
    fake_time.every_step_takes(0.125)
    config, state = tiny_state(replace(tiny_config(steps=None, max_seconds=2.0, log_every=1)))
    first = run_to(config, state, 3)[-1]
    fake_time.now += 1000
    config, state = stop_and_restore(tmp_path, config, state)
    assert state.clock.elapsed == first.seconds == 0.375
    last = run_to(config, state, 10**9)[-1]
    assert last.progress == 1 and last.seconds == 2 and last.step == 16


# Which overrides a resumed run takes. The script is asked up to the point where it would train.


@pytest.fixture
def call_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    return script_caller(monkeypatch, tmp_path)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The folder of a tiny run that the script can resume."""
    write_tiny_scene(tmp_path / "scene")
    config, state = tiny_state(tiny_config())
    config.dataset.root = str(tmp_path / "scene")
    run_to(config, state, MIDDLE)
    (tmp_path / "run").mkdir()
    checkpoint.save(tmp_path / "run", config, state, tiny_images().cameras)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("override", "saved"),
    [
        ("train.steps=7", "train.steps=40"),
        ("++train.steps=7", "train.steps=40"),
        ("train.max_seconds=5", "train.max_seconds=None"),
        ("seed=3", "seed=0"),
        ("field=voxel_mlp", "field=voxel_sh"),
        ("field.lr_density=0.1", "field.lr_density=0.5"),
        ("dataset=lego", "dataset=sphere"),
        ("dataset.downscale=2", "dataset.downscale=1"),
        ("loss.opacity_entropy=0.5", "loss.opacity_entropy=0.0"),
        ("backend=torch", "backend=auto"),
        ("experiment=smoke", "train.steps=40"),
        ("hydra.run.dir=elsewhere", "goes on in"),
    ],
)
def test_overrides_that_change_the_result_are_refused_by_name(
    stopped: Path,
    call_script: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    override: str,
    saved: str,
) -> None:
    assert call_script("train", f"resume={stopped}", override) == 2
    message = capsys.readouterr().err
    assert "keeps its" in message and override.lstrip("+") in message and saved in message
    assert sorted(path.name for path in stopped.iterdir()) == ["model.pt", "resume.pt"]
    assert not any(Path.cwd().iterdir())


def test_overrides_that_leave_the_result_alone_are_taken(
    stopped: Path, call_script: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    config, never_stopped = tiny_state(tiny_config())
    run_to(config, never_stopped, STEPS)
    moved = stopped.parent / "moved"
    (stopped.parent / "scene").rename(moved)
    free = ("train.log_every=7", "train.save_every=11", "evaluation.every=5", "log=none", "train.features=device")
    free += (f"dataset.root={moved}", "device=cpu")  # as where the run was made with device=auto
    same = ("train.steps=40", "field=voxel_sh", "seed=0")
    assert call_script("train", f"resume={stopped}", *free, *same) == 0
    content = checkpoint.load_resume(stopped)
    config = checkpoint.restore_config(content)
    assert (config.train.log_every, config.train.save_every, config.evaluation.every) == (7, 11, 5)
    assert config.device == "cpu"
    state = checkpoint.restore_run(content, config, tiny_images(), select("native", "cpu"))
    assert differing(facts(never_stopped), facts(state)) == []
    assert (stopped / "metrics.json").is_file()
    assert not any(Path.cwd().iterdir()), "a resumed run made a folder beside its own"


def test_features_that_cannot_go_to_host_memory_stay_where_they_are(
    stopped: Path, call_script: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Dense grids stay dense: what the message proposes is a setting that a resumed run takes."""
    assert call_script("train", f"resume={stopped}", "train.features=host") == 2
    message = capsys.readouterr().err
    assert "rows of sparse grids" in message and "train.features=device" in message
    assert "field.sparse=true" not in message
    assert call_script("train", f"resume={stopped}", "train.features=device", "evaluation.every=8", "log=none") == 0


def test_a_split_that_is_not_there_is_refused_before_training(
    stopped: Path, call_script: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    before = (stopped / "resume.pt").read_bytes()
    assert call_script("train", f"resume={stopped}", "evaluation.split=val") == 2
    assert "splits found in its folder: test, train" in capsys.readouterr().err
    assert (stopped / "resume.pt").read_bytes() == before
    assert sorted(path.name for path in stopped.iterdir()) == ["model.pt", "resume.pt"]


def test_resume_names_a_folder(
    stopped: Path, call_script: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call_script("train", f"resume={stopped}/resume.pt") == 2
    assert f"give resume={stopped}" in capsys.readouterr().err
    assert call_script("train", "resume=nowhere") == 2
    assert "nowhere does not exist; expected the folder of a training run" in capsys.readouterr().err
    assert not Path("nowhere").exists()


# Ctrl-C


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start_script("train", "experiment=smoke", "train.steps=3000", f"hydra.run.dir={run}", cwd=tmp_path)
    for line in process.stderr:  # the progress bar redraws its line: universal newlines make each a line
        if "step 10/3000" in line:
            process.send_signal(signal.SIGINT)
            break
    output, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    content = checkpoint.load_resume(run)
    assert 10 <= content["step"] < 3000
    assert f"Stopped at step {content['step']}, saved in {run}" in output
    assert f"python {ROOT}/scripts/train.py resume={run}" in output
    assert not (run / "metrics.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# A finished run that trains further


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of a tiny run that has come to its end."""
    write_tiny_scene(tmp_path / "scene")
    config, state = tiny_state(tiny_config(lr_decay=0.01))
    config.dataset.root = str(tmp_path / "scene")
    run_to(config, state, STEPS)
    (tmp_path / "run").mkdir()
    checkpoint.save(tmp_path / "run", config, state, tiny_images().cameras)
    return tmp_path / "run"


def test_a_finished_run_trains_further_and_says_so(
    finished: Path, call_script: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call_script("train", f"resume={finished}", "train.steps=70") == 0
    told = capsys.readouterr().err
    assert f"from step {STEPS} to train.steps=70" in told and "new schedule" in told and "at 0.1 times" in told
    content = checkpoint.load_resume(finished)
    assert content["step"] == 70 and checkpoint.restore_config(content).train.steps == 70


def test_a_run_that_trains_further_resumes_as_if_never_stopped(finished: Path) -> None:
    never_stopped = resume(finished, steps=100)
    assert never_stopped.state.clock.progress == 0.5
    updates = never_stopped.state.num_occupancy_updates
    run_to(never_stopped.config, never_stopped.state, 100)
    assert never_stopped.finished and never_stopped.state.num_occupancy_updates > updates
    assert never_stopped.state.optimizer.decay.item() == pytest.approx(0.01 ** (0.5 + 0.5 * 59 / 60), rel=1e-4)
    run = resume(finished, steps=100)
    run_to(run.config, run.state, 73)
    run.save(finished)
    again = resume(finished)
    run_to(again.config, again.state, 100)
    assert differing(facts(never_stopped.state), facts(again.state)) == []


def test_a_finished_run_takes_seconds_in_place_of_steps(finished: Path) -> None:
    run = resume(finished, max_seconds=1e6)
    assert run.config.train.steps is None and run.config.train.max_seconds == 1e6
    assert run.state.clock.progress == 0.5 and not run.finished


@pytest.mark.parametrize(("name", "value"), [("steps", STEPS - 1), ("max_seconds", 1e-3)])
def test_a_budget_that_is_used_up_is_refused(finished: Path, name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"train.{name}={value:g} is used up"):
        resume(finished, **{name: value})
