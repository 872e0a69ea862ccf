"""kill -9 at random moments of a run that saves at every step: each time the run goes on, and loses nothing saved."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from killed_run import open_or_begin
from script_runs import ROOT, TIMEOUT, run_script, start_script
from state_facts import differing, facts
from tiny_runs import run_to, write_tiny_scene

from nerf.runs import checkpoint

KILLS = 20
LONGEST = 0.2  # seconds from the first checkpoint to the kill; a step with its checkpoint takes a hundredth


def test_twenty_kills_leave_the_run_that_was_never_killed(tmp_path: Path) -> None:
    dice, steps, rendered = random.Random(0), [0], []
    program = [sys.executable, str(ROOT / "tests" / "helpers" / "killed_run.py"), str(tmp_path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as parent:
        for _ in range(KILLS):
            parent.stdin.write("again\n")
            child = int(parent.stdout.readline())
            assert parent.stdout.readline() == "saved\n"
            time.sleep(LONGEST * dice.random())
            os.kill(child, signal.SIGKILL)
            steps.append(checkpoint.load_resume(tmp_path)["step"])
            rendered.append(checkpoint.load(tmp_path)["step"])
        parent.stdin.close()
    assert all(later > earlier for earlier, later in zip(steps, steps[1:])), steps
    assert all(state - model in (0, 1) for model, state in zip(rendered, steps[1:])), (rendered, steps)

    config, killed = open_or_begin(tmp_path)
    config, never_killed = open_or_begin(tmp_path / "nothing here")
    assert killed.num_upsamplings == 2 and killed.num_occupancy_updates >= 2
    for state in (killed, never_killed):
        run_to(config, state, steps[-1] + 3)
    assert differing(facts(killed), facts(never_killed)) == []


def test_a_killed_script_resumes(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    scene = tmp_path_factory.mktemp("scene")
    write_tiny_scene(scene)
    dice, run, saved = random.Random(1), tmp_path / "run", 0
    arguments = ["experiment=smoke", f"dataset.root={scene}", "dataset.downscale=1", "evaluation.every=8"]
    arguments += ["train.steps=200", "train.save_every=1", f"hydra.run.dir={run}"]
    for _ in range(2):
        process = start_script("train", *arguments, cwd=tmp_path)
        deadline, enough = time.monotonic() + TIMEOUT, saved + dice.randrange(1, 40)
        while _saved_step(run) < enough and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        process.kill()
        process.communicate()
        assert saved < _saved_step(run) < 200
        saved = _saved_step(run)
        arguments = [f"resume={run}"]
    last = run_script("train", *arguments, "train.save_every=0", cwd=tmp_path)
    assert last.returncode == 0, last.stderr
    assert _saved_step(run) == checkpoint.load(run)["step"] == 200 and (run / "metrics.json").is_file()
    assert not [path for path in run.iterdir() if path.name.startswith(".")]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def _saved_step(run: Path) -> int:
    return checkpoint.load_resume(run)["step"] if (run / checkpoint.RESUME_FILE).exists() else 0
