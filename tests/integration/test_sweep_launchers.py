"""Sweeps by Hydra's launchers: runs in other processes, their table, what stops them and how they go on."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from script_runs import TIMEOUT, run_script, start_script

from nerf.cli.sweeps import FINISHED, RUNNING, STOPPED, read_outcome
from nerf.runs import checkpoint

pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
pytestmark = pytest.mark.slow

SHORT = ("train.steps=6", "dataset.downscale=8", "evaluation.every=100", "field.num_voxels=1000", "device=cpu")
LONG = ("train.steps=100000", "train.save_every=20", *SHORT[1:])


def state(folder: Path) -> str | None:
    outcome = read_outcome(folder)
    return None if outcome is None else outcome.state


def wait_until(condition: object, process: object) -> None:
    """Looks again until it holds; fails if the command has ended before."""
    while not condition():
        if process.poll() is not None:
            raise AssertionError(process.communicate())
        time.sleep(0.1)


def test_runs_side_by_side_end_in_a_table_and_are_not_done_again(tmp_path: Path) -> None:
    sweep = ("-m", "hydra/launcher=joblib", "dataset.scene=bricks,nowhere", "seed=0,1", *SHORT, "hydra.sweep.dir=all")
    jobs = "hydra.launcher.n_jobs=2"
    out = run_script("train", *sweep, jobs, cwd=tmp_path)
    assert out.returncode == 2 and "2 of the 4 runs of this sweep failed" in out.stderr
    assert "Traceback" not in out.stderr and "train.py -m hydra/launcher=joblib" in out.stderr
    words = (tmp_path / "all" / "compare.txt").read_text()
    assert words.strip() in out.stdout and words.count("nowhere") >= 3
    processes = {read_outcome(tmp_path / "all" / str(number)).process for number in range(4)}
    assert os.getpid() not in processes and len(processes) == 2
    metrics = json.loads((tmp_path / "all" / "1" / "metrics.json").read_text())
    assert metrics["seed"] == 1 and "train.py dataset.scene=bricks seed=1" in metrics["command"]
    assert "step 6/6" in (tmp_path / "all" / "1" / "log.txt").read_text()
    before = (tmp_path / "all" / "1" / "model.pt").stat()
    alone = [word for word in sweep if not word.startswith("hydra/launcher")]  # what is done is so for any launcher
    again = run_script("train", *alone, cwd=tmp_path)
    assert again.returncode == 2 and (tmp_path / "all" / "compare.txt").read_text() == words
    assert (tmp_path / "all" / "1" / "model.pt").stat() == before


def test_a_stopped_sweep_saves_its_runs_and_the_same_command_goes_on(tmp_path: Path) -> None:
    sweep = ("-m", "hydra/launcher=joblib", "seed=0,1,2", *LONG, "hydra.sweep.dir=all", "hydra.launcher.n_jobs=2")
    process = start_script("train", *sweep, cwd=tmp_path)
    wait_until(lambda: all((tmp_path / "all" / n / "resume.pt").exists() for n in "01"), process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert "waiting until the running jobs are saved" in errors and "The same command goes on" in errors
    assert [state(tmp_path / "all" / n) for n in "012"] == [STOPPED] * 3
    assert "Stopped by SIGTERM at step" in (tmp_path / "all" / "0" / "log.txt").read_text()
    step = checkpoint.load_resume(tmp_path / "all" / "0")["step"]
    process = start_script("train", *sweep, cwd=tmp_path)
    wait_until(lambda: checkpoint.load_resume(tmp_path / "all" / "0")["step"] > step, process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT)
    assert checkpoint.load_resume(tmp_path / "all" / "0")["step"] > step and state(tmp_path / "all" / "0") == STOPPED


def test_a_preempted_job_of_submitit_goes_on_by_itself(tmp_path: Path) -> None:
    steps = ("train.steps=20,300", *LONG[1:])  # only the job that is stopped has to take long
    arguments = ("-m", "hydra/launcher=submitit_local", *steps, "hydra.sweep.dir=all")
    process = start_script("train", *arguments, cwd=tmp_path)
    run = tmp_path / "all" / "1"
    wait_until(lambda: (run / "resume.pt").exists() and state(run) == RUNNING, process)
    preempted = read_outcome(run).process
    os.kill(preempted, signal.SIGUSR2)
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    assert state(run) == FINISHED and read_outcome(run).process != preempted
    logs = "".join(path.read_text() for path in (tmp_path / "all" / ".submitit").glob("*/*_log.out"))
    assert "Stopped by SIGUSR2 at step" in logs and logs.count("Stopped by") == 1
    assert json.loads((run / "metrics.json").read_text())["steps"] == 300
    assert "train.steps=300 against train.steps=20" in output
