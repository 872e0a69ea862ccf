"""Runs save as they go; a save that fails ends none, and a trained model finds another place."""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_time import FakeTime
from script_runs import script_caller, start_script
from state_facts import differing, facts
from tiny_runs import STEPS, few_rays_to_prune, run_to, tiny_config, tiny_images, tiny_state, write_tiny_scene

from nerf.config.schema import Config
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.runs import autosave, checkpoint
from nerf.runs.autosave import AutoSave
from nerf.runs.run_folder import RunLock
from nerf.training import loop
from nerf.training.loop import Callback, train
from nerf.training.state import TrainState


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture(autouse=True)
def pruned_with_few_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    few_rays_to_prune(monkeypatch)


class Trained:
    """A tiny run with its AutoSave: `steps` holds after which ones it was saved, `said` what the user was told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: float) -> None:
        self.config, self.state = tiny_state(tiny_config(log_every=1000, **settings))
        self.folder, self.said, self.steps = folder, [], []
        folder.mkdir()
        self.lock = RunLock(folder)
        self.lock.acquire()
        save = checkpoint.save

        def noted(where: Path, config: Config, state: TrainState, cameras: object) -> None:
            save(where, config, state, cameras)
            self.steps.append(state.clock.step)

        monkeypatch.setattr(checkpoint, "save", noted)
        cameras = tiny_images().cameras
        self.saver = AutoSave(self.config, cameras, folder, self.lock, self.describe, self.said.append)

    def describe(self, folder: Path) -> None:
        (folder / "config.yaml").write_text("settings")

    def train(self) -> None:
        for _ in train(self.config, self.state, [self.saver]):
            pass


@pytest.fixture
def time(fake_time: FakeTime) -> FakeTime:
    fake_time.rule(autosave)
    fake_time.every_step_takes(1.0)
    return fake_time


# When


def test_a_run_is_saved_every_two_minutes_and_a_short_one_at_its_end_alone(
    time: FakeTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = Trained(tmp_path / "long", monkeypatch, steps=300, rays_per_step=32)
    long.train()
    assert long.steps == [120, 240] and long.saver.finish(long.state) == tmp_path / "long"
    assert long.steps == [120, 240, 300] and not long.said
    short = Trained(tmp_path / "short", monkeypatch)
    short.train()
    assert short.steps == []


def test_saving_is_off_the_training_clock_and_takes_a_fiftieth_of_the_time(
    time: FakeTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Trained(tmp_path / "run", monkeypatch, steps=900, save_seconds=10.0, rays_per_step=32)
    slow = checkpoint.save

    def takes_ten_seconds(*arguments: object) -> None:
        slow(*arguments)
        time.wait(10)

    monkeypatch.setattr(checkpoint, "save", takes_ten_seconds)
    before = run.state.clock.elapsed
    run.train()
    assert run.steps == [10, 510]
    assert run.state.clock.elapsed - before == pytest.approx(900)


def test_steps_between_saves_may_be_given_instead(
    time: FakeTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Trained(tmp_path / "run", monkeypatch, save_every=15, save_seconds=1.0)
    run.train()
    assert run.steps == [15, 30]


def test_a_save_that_falls_due_at_a_log_of_others_is_made_at_the_next_step(
    time: FakeTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On several ranks the parts are brought together only where the save had been asked for."""
    run = Trained(tmp_path / "run", monkeypatch, save_seconds=11.5)
    finite = loop.parameters_finite

    def takes_a_second(*arguments: object) -> bool:
        time.wait(1)
        return finite(*arguments)

    monkeypatch.setattr(loop, "parameters_finite", takes_a_second)  # between the question and the log
    run.train()
    assert run.steps[0] == 11  # due 11.5 s after the start: while step 10 was logged, as step 1 had been

    class Asks(Callback):
        def wants_log(self, state: TrainState) -> bool:
            return state.clock.step == 15

    other = Trained(tmp_path / "other", monkeypatch, save_every=15)
    for _ in train(other.config, other.state, [Asks(), other.saver]):
        pass
    assert other.steps == [15, 30]


def test_no_saves_by_time_if_none_are_wanted(time: FakeTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Trained(tmp_path / "run", monkeypatch, steps=200, save_seconds=0.0, rays_per_step=32)
    run.train()
    assert run.steps == []


def test_a_run_that_was_saved_in_between_ends_as_one_that_was_not(
    time: FakeTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Trained(tmp_path / "run", monkeypatch, save_seconds=7.0)
    run.train()
    assert run.steps == [7, 14, 21, 28, 35]
    config, plain = tiny_state(tiny_config())
    run_to(config, plain, STEPS)
    assert differing(facts(plain), facts(run.state)) == []
    content = checkpoint.load_resume(tmp_path / "run")
    again = checkpoint.restore_run(content, run.config, tiny_images(), select("native", "cpu"))
    run_to(run.config, again, STEPS)
    assert content["step"] == 35 and differing(facts(plain), facts(again)) == []


def test_the_last_step_is_not_saved_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Trained(tmp_path / "run", monkeypatch, save_every=STEPS)
    run.train()
    assert run.saver.finish(run.state) == run.folder and run.steps == [STEPS]
    (run.folder / "model.pt").unlink()
    run.saver.finish(run.state)
    assert run.steps == [STEPS, STEPS] and (run.folder / "model.pt").is_file()


# What fails


def test_a_save_that_fails_is_told_and_tried_again(
    time: FakeTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, trouble = Trained(tmp_path / "run", monkeypatch, save_seconds=10.0), [OSError(28, "No space left on device")]
    trouble += [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory"), *[None] * 9]
    save = checkpoint.save

    def fails_thrice(*arguments: object) -> None:
        error = trouble.pop(0)
        if error is not None:
            raise error
        save(*arguments)

    monkeypatch.setattr(checkpoint, "save", fails_thrice)
    run.train()
    assert run.steps == [STEPS] and run.state.clock.finished
    assert len(run.said) == 3 and all("in 10 seconds" in told for told in run.said)
    assert "No space left on device" in run.said[0] and "MemoryError" in run.said[1] and "memory" in run.said[2]


def test_an_error_of_the_program_in_a_save_is_not_hidden(
    time: FakeTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*arguments: object) -> None:
        raise RuntimeError("shapes do not match")

    run = Trained(tmp_path / "run", monkeypatch, save_seconds=10.0)
    monkeypatch.setattr(checkpoint, "save", wrong)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        run.train()


def test_a_folder_that_is_deleted_meanwhile_is_made_again(
    time: FakeTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Trained(tmp_path / "run", monkeypatch, save_seconds=10.0)
    shutil.rmtree(run.folder)
    run.train()
    assert run.steps == [10, 20, 30, 40]
    assert len(run.said) == 1 and str(run.folder) in run.said[0] and "deleted or moved" in run.said[0]
    assert {"config.yaml", "model.pt", "resume.pt", "resume.previous.pt", ".lock"} == names(run.folder)
    with pytest.raises(UserError, match=f"process {os.getpid()}"):
        RunLock(run.folder).acquire()


def unwritable(run: Trained) -> None:
    """A file stands where the folder was: no permission keeps root from writing."""
    shutil.rmtree(run.folder)
    run.folder.write_text("in the way")


def test_a_trained_run_finds_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Trained(tmp_path / "run", monkeypatch)
    run.train()
    unwritable(run)
    (tmp_path / "not a folder").touch()
    monkeypatch.setattr(autosave, "other_places", lambda: [tmp_path / "not a folder", tmp_path / "other"])
    saved = run.saver.finish(run.state)
    assert saved == tmp_path / "other" / "run_rescued"
    assert str(saved) in run.said[0] and f"{run.folder} cannot" in run.said[0]
    assert checkpoint.load_resume(saved)["step"] == checkpoint.load(saved)["step"] == STEPS
    assert (saved / "config.yaml").is_file()


def test_where_no_place_takes_the_state_the_model_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is too full for it everywhere."""
    run, write = Trained(tmp_path / "run", monkeypatch), checkpoint._write

    def no_room_for_states(path: Path, content: dict) -> None:
        if path.name == checkpoint.RESUME_FILE:
            raise checkpoint.NotSaved(f"{path} cannot be written: no space.")
        write(path, content)

    monkeypatch.setattr(checkpoint, "_write", no_room_for_states)
    monkeypatch.setattr(autosave, "other_places", lambda: [tmp_path / "one", tmp_path / "two"])
    run.train()
    with pytest.raises(UserError) as caught:
        run.saver.finish(run.state)
    for named in (run.folder / "resume.pt", tmp_path / "one", tmp_path / "two", run.folder / "model.pt"):
        assert str(named) in str(caught.value)
    assert checkpoint.load(run.folder)["step"] == STEPS
    assert not list(tmp_path.glob("*/*_rescued"))

    unwritable(run)
    with pytest.raises(UserError, match=str(tmp_path / "one" / "run_rescued" / "model.pt")):
        run.saver.finish(run.state)
    assert [path.parts[-3] for path in tmp_path.glob("*/*_rescued/model.pt")] == ["one"]


def test_other_places_are_folders_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert autosave.other_places()[0] == tmp_path / "outputs"
    assert all(place.is_dir() for place in autosave.other_places()[1:])
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert all(place.is_dir() for place in autosave.other_places())


# The script


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    call_script = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))
    return call_script


def test_the_script_goes_on_in_the_other_place(
    call: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of its run is deleted, and a file takes its place."""
    run, finish = Path("run"), AutoSave.finish

    def after_a_mishap(saver: AutoSave, state: TrainState) -> Path:
        shutil.rmtree(run)
        run.write_text("in the way")
        return finish(saver, state)

    monkeypatch.setattr(AutoSave, "finish", after_a_mishap)
    settings = ("experiment=smoke", "dataset.downscale=1", "dataset.root=scene", "device=cpu", "train.steps=2")
    assert call("train", *settings, "hydra.run.dir=run") == 0
    other, printed = Path("outputs/run_rescued").absolute(), capsys.readouterr()
    assert str(other) in printed.err and str(other / "metrics.json") in printed.out
    assert {"config.yaml", "model.pt", "resume.pt", "metrics.json", "contact_sheet.png"} <= names(other)
    assert run.read_text() == "in the way"


def test_a_killed_run_goes_on_from_what_it_saved_by_itself(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("experiment=smoke", "device=cpu", "train.steps=100000", "train.save_seconds=0.05")
    process = start_script("train", *settings, f"hydra.run.dir={run}", cwd=tmp_path)
    for line in process.stderr:
        if "step 10/" in line:
            break
    while not (run / "model.pt").is_file() and process.poll() is None:
        os.sched_yield()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert 0 < checkpoint.load(run)["step"] <= checkpoint.load_resume(run)["step"] < 100000


def test_settings_of_saving_leave_the_result_of_a_resumed_run_alone(call: Callable[..., int]) -> None:
    config, state = tiny_state(tiny_config())
    config = replace(config, dataset=replace(config.dataset, root=str(Path("scene").absolute())))
    run_to(config, state, 2)
    Path("run").mkdir()
    checkpoint.save(Path("run"), config, state, tiny_images().cameras)
    assert call("train", "resume=run", "train.save_seconds=30") == 0
    assert checkpoint.restore_config(checkpoint.load(Path("run"))).train.save_seconds == 30
