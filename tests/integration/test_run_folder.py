"""Run folders: no two runs share one, one process writes to it at a time, and a run is not written over unasked."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm_python
from script_runs import script_caller
from tiny_runs import run_to, tiny_config, tiny_images, tiny_state, write_tiny_scene

from nerf.errors import UserError
from nerf.files import partial_file
from nerf.runs import checkpoint
from nerf.runs.run_folder import RunLock, forget_run, new_folder

THEN = "2026-01-02_03-04-05"
SHORT = ("experiment=smoke", "dataset.downscale=1", "dataset.root=scene", "device=cpu", "train.steps=2")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs a script in a folder with the tiny scene."""
    call_script = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))
    return call_script


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is named by time, is named THEN."""
    then, strftime = datetime(2026, 1, 2, 3, 4, 5), time.strftime
    monkeypatch.setattr("hydra.core.utils.datetime", SimpleNamespace(now=lambda: then))
    monkeypatch.setattr("time.strftime", lambda pattern, *_: strftime(pattern, then.timetuple()))


def save_run(folder: Path) -> None:
    config, state = tiny_state(tiny_config())
    config.dataset.root = str(Path("scene").absolute())
    run_to(config, state, 2)
    folder.mkdir()
    checkpoint.save(folder, config, state, tiny_images().cameras)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Names


def test_folders_are_unique_though_many_ask_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: new_folder(tmp_path / "outputs" / "now"), range(40)))
    assert len(set(made)) == 40 and all(folder.is_dir() for folder in made)
    assert {"now", "now_2", "now_40"} <= {folder.name for folder in made}


def test_two_runs_of_one_second_have_folders_of_their_own(
    call: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_the_clock(monkeypatch)
    for _ in range(2):
        assert call("train", *SHORT) == 0
    assert call("render", f"run=outputs/{THEN}", "frames=1", "width=8") == 0
    assert call("render", f"run=outputs/{THEN}", "frames=1", "width=8") == 0
    assert "no orbit" not in capsys.readouterr().err
    for run in (f"outputs/{THEN}", f"outputs/{THEN}_2"):
        assert (Path(run) / "metrics.json").is_file() and checkpoint.load_resume(Path(run))["step"] == 2
    assert names(Path("outputs")) == [THEN, f"{THEN}_2", "renders"]
    assert names(Path("outputs/renders")) == [THEN, f"{THEN}_2"]


def test_a_sweep_has_a_folder_of_its_own_and_one_for_each_run(
    call: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_the_clock(monkeypatch)
    for _ in range(2):
        assert call("train", "-m", *SHORT, "seed=0,1") == 0
    found = sorted(path.parent.as_posix() for path in Path("multirun").glob("**/model.pt"))
    assert not Path("outputs").exists()
    assert found == [f"multirun/2026-01-02/03-04-05{again}/{seed}" for again in ("", "_2") for seed in (0, 1)]


def test_a_mistake_leaves_no_folder(call: Callable[..., int]) -> None:
    assert call("train", *SHORT, "dataset.aabb=[50,50,50,51,51,51]") == 2
    assert not Path("outputs").exists() or not names(Path("outputs"))


# One writer


def test_a_second_writer_is_refused_with_the_first_ones_name(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    save_run(Path("run"))
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    with RunLock(Path("run")):
        assert call("train", "resume=run") == 2
        assert call("train", *SHORT, "hydra.run.dir=run", "overwrite=true") == 2
        assert call("train", *SHORT, "hydra.run.dir=run") == 2
    for message in capsys.readouterr().err.split("error: ")[1:]:
        assert "run" in message and f"process {os.getpid()}" in message
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before
    assert call("train", "resume=run") == 0


def test_the_lock_of_a_dead_process_is_no_obstacle(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from nerf.runs.run_folder import RunLock;"
        "RunLock(Path(sys.argv[1])).acquire(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = warm_python.run([sys.executable, "-c", program, str(tmp_path)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL and names(tmp_path) == [".lock"]
    with RunLock(tmp_path), pytest.raises(UserError, match=f"process {os.getpid()}"):
        RunLock(tmp_path).acquire()
    assert names(tmp_path) == []


def test_the_lock_is_taken_again_in_a_folder_that_was_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with RunLock(folder) as lock:
        (folder / ".lock").unlink()
        folder.rmdir()
        folder.mkdir()
        lock.acquire()
        with pytest.raises(UserError, match="process"):
            RunLock(folder).acquire()


def test_a_file_that_is_being_written_is_not_removed_as_a_left_over(tmp_path: Path) -> None:
    """Another program's half of model.pt, which does not go through the lock of the folder."""
    config, state = tiny_state(tiny_config())
    (tmp_path / ".model.123-0123abcd.partial.pt").write_bytes(b"half of a dead one")
    with partial_file(tmp_path / "model.pt") as theirs:
        theirs.write(b"theirs")
        checkpoint.save(tmp_path, config, state, tiny_images().cameras)
        assert checkpoint.load(tmp_path)["step"] == 0
        assert len(list(tmp_path.glob(".model.*"))) == 1
    assert (tmp_path / "model.pt").read_bytes() == b"theirs"
    assert names(tmp_path) == ["model.pt", "resume.pt"]


def test_files_may_be_read_by_those_who_could_read_them_before(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with partial_file(tmp_path / "written"):
        pass
    assert (tmp_path / "written").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_interrupt_leaves_no_half_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), partial_file(tmp_path / "model.pt") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert names(tmp_path) == []


# Written over only if asked


def test_a_run_is_not_written_over_unasked(call: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    save_run(Path("run"))
    Path("run/metrics.json").write_text("{}")
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    assert call("train", *SHORT, "hydra.run.dir=run") == 2
    message = capsys.readouterr().err
    assert "run" in message and "overwrite=true" in message and "resume=" in message and "hydra.run.dir" in message
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before

    assert call("train", *SHORT, "hydra.run.dir=run", "overwrite=true", "dataset.aabb=[50,50,50,51,51,51]") == 2
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before, "it did not begin"
    assert call("train", *SHORT, "hydra.run.dir=run", "overwrite=true", "seed=5") == 0
    assert checkpoint.restore_config(checkpoint.load(Path("run"))).seed == 5


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_of_a_run_that_is_written_over_nothing_is_left_but_what_others_wrote(
    call: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nerf.cli.report.write_orbit", lambda *given: given[-1].write_bytes(b"a video"))
    curves = "events.out.tfevents.1.host.2.0"
    more = ("evaluation.every=1", "evaluation.split=train", "log=none", "hydra.run.dir=run")
    assert call("train", *SHORT, *more) == 0
    written = files(Path("run"))
    Path("run", curves).write_bytes(b"curves")
    mine = {"notes.txt", "train/mine.png", "renders/orbit.mp4"}
    for name in mine:
        Path("run", name).parent.mkdir(exist_ok=True)
        Path("run", name).write_text("mine")

    def no_video(*given: object) -> None:
        raise OSError("no encoder")

    monkeypatch.setattr("nerf.cli.report.write_orbit", no_video)
    less = ("evaluation.every=3", "evaluation.split=test", "log=none")
    assert call("train", *SHORT, *less, "hydra.run.dir=fresh") == 0
    assert not written <= files(Path("fresh"))
    assert call("train", *SHORT, *less, "hydra.run.dir=run", "overwrite=true") == 0
    assert files(Path("run")) == files(Path("fresh")) | mine


def test_curves_of_a_run_killed_before_its_first_save_go_with_it(tmp_path: Path) -> None:
    curves = tmp_path / "events.out.tfevents.1.host.2.0"
    for settings, left in (
        ("seed: 0\n", True),
        ("dataset:\n  scene: x\nfield:\n  name: y\ntrain:\n  steps: 1\n", False),
    ):
        (tmp_path / "config.yaml").write_text(settings)
        curves.touch()
        forget_run(tmp_path)
        assert curves.exists()
        forget_run(tmp_path, lose_it=True)
        assert curves.exists() == left, "only what is known as a run's is removed"


def test_no_file_outside_of_a_run_is_removed_with_it(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    (run / "test").mkdir(parents=True), other.mkdir()
    (run / "val").symlink_to(other)
    for path in (run / "model.pt", run / "mine.png", other / "mine.png", run / "test" / "a.png"):
        path.touch()
    for content in (
        {"split": "..", "views": ["mine", "other/mine"]},
        {"split": "val", "views": ["mine"]},
        {"split": "test", "views": ["../mine", str(other / "mine"), 3]},
        {"split": ["test"], "views": None},
        ["test"],
    ):
        (run / "model.pt").touch()
        (run / "metrics.json").write_text(json.dumps(content))
        forget_run(run, lose_it=True)
        assert files(run) == {"mine.png", "test/a.png"} and files(other) == {"mine.png"}


def test_a_folder_without_a_run_is_used(call: Callable[..., int]) -> None:
    Path("run").mkdir()
    Path("run/notes.txt").write_text("mine")
    assert call("train", *SHORT, "hydra.run.dir=run") == 0
    assert Path("run/notes.txt").read_text() == "mine" and not list(Path("run").glob(".*"))
