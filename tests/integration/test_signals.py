"""Ctrl-C and a scheduler's signals: training stops after a step, saves and says how to go on; else they are one line.

Each test waits for a line of the script and sends the signal then.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from script_runs import TIMEOUT, command, start_script
from tiny_runs import tiny_config, tiny_state

from nerf.runs import checkpoint
from nerf.runs.interrupts import StopOnInterrupt
from nerf.training.loop import Callback, train
from nerf.training.state import TrainState

LONG = ("experiment=smoke", "train.steps=100000", "device=cpu")
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGXCPU")


def wait_for(process: subprocess.Popen, text: str) -> None:
    """Reads the standard error until it has the text; the progress bar redraws its line, which is a line here."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return
    raise AssertionError("".join(lines))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_training_saves_and_says_how_to_go_on(tmp_path: Path, name: str) -> None:
    run, number = tmp_path / "run", signal.Signals[name]
    process = start_script("train", *LONG, f"hydra.run.dir={run}", cwd=tmp_path)
    wait_for(process, "step 10/")
    process.send_signal(number)
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + number, errors
    step = checkpoint.load_resume(run)["step"]
    assert 10 <= step < 100000 and checkpoint.load(run)["step"] == step
    assert f"Stopped by {name} at step {step}" in output and f"train.py resume={run}" in output


def test_a_run_whose_terminal_is_closed_is_saved(tmp_path: Path) -> None:
    """Its output cannot be written any more: that must not be what ends it."""
    run, (ours, theirs) = tmp_path / "run", pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, 200, 0, 0))  # of no columns it shows no progress bar
    process = subprocess.Popen(
        command("train", *LONG, f"hydra.run.dir={run}"),
        cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(theirs), os.O_RDWR)),  # becomes the session's terminal
    )  # fmt: skip
    os.close(theirs)
    printed = b""
    while b"step 10/" not in printed:
        printed += os.read(ours, 4096)
    os.close(ours)
    assert process.wait(timeout=TIMEOUT) == 128 + signal.SIGHUP
    assert checkpoint.load_resume(run)["step"] == checkpoint.load(run)["step"] >= 10


@pytest.mark.parametrize("name", SIGNALS)
def test_while_modules_are_imported_it_is_a_line(tmp_path: Path, name: str) -> None:
    """A module in the place of PyTorch says that it is being imported, and takes its time."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import sys, threading\nprint('importing', file=sys.stderr, flush=True)\n"
        "try:\n    threading.Event().wait(60)\n"
        "except BaseException as error:\n    raise ImportError('half') from error\n"
    )
    process = start_script("train", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    wait_for(process, "importing")
    process.send_signal(signal.Signals[name])
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.Signals[name]
    assert output == "" and len(errors.strip().splitlines()) == 1 and "Traceback" not in errors


def test_while_the_run_is_scored_it_says_that_it_is_saved(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("experiment=smoke", "device=cpu", "evaluation.every=1", "dataset.downscale=1", "train.steps=20")
    process = start_script("train", *settings, f"hydra.run.dir={run}", cwd=tmp_path)
    wait_for(process, "step 20/20")
    while not (run / "test").is_dir():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in errors
    assert str(run) in errors and "evaluate.py" in errors and checkpoint.load(run)["step"] == 20


def test_other_signals_than_the_first_do_not_end_what_is_being_saved() -> None:
    before = signal.getsignal(signal.SIGTERM)
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    with StopOnInterrupt(signals) as interrupt:
        assert not interrupt.asked
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.asked and interrupt.exit_status == 128 + signal.SIGTERM
        for again in (signal.SIGTERM, signal.SIGUSR1):
            os.kill(os.getpid(), again)
        assert interrupt.exit_status == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopOnInterrupt((signal.SIGHUP,)) as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt.asked
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_training_ends_after_the_step_in_which_a_signal_came() -> None:
    """Of a script and of a notebook alike: the interrupt is a callback of the one loop."""

    class Sender(Callback):
        def on_step(self, state: TrainState) -> None:
            if state.clock.step == 3:
                os.kill(os.getpid(), signal.SIGUSR1)

    config, state = tiny_state(tiny_config())
    with StopOnInterrupt((signal.SIGUSR1,)) as interrupt:
        entries = list(train(config, state, [interrupt, Sender()]))
    assert state.clock.step == entries[-1].step == 3 and interrupt.exit_status == 128 + signal.SIGUSR1
