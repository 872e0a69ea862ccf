"""Forks of warm_python.py are what a process of its own is; where they cannot be, it is one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from script_runs import ROOT, TIMEOUT

pytestmark = pytest.mark.skipif(
    not warm_python.POSSIBLE, reason="every process is a true one: needs Linux and OMP_NUM_THREADS=1"
)

# What a program sees of its start. sys.flags has the seed of hashes, which is the server's.
FACTS = """
import os, signal, sys
modules = {name for name in vars(sys.modules["__main__"]) if name not in ("os", "signal", "sys", "modules")}
print(sys.argv, sys.path, os.getcwd(), os.environ, input(), __name__, sorted(modules), os.getppid(), os.getpgrp())
print(sys.executable, sorted(os.listdir("/proc/self/fd")))
print(sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering)
print([signal.getsignal(number) for number in signal.valid_signals()], "warm_server" in sys.modules, sys.flags)
print("an error", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize("kind", ["-c", "-m", "script"])
def test_a_fork_sees_what_a_process_of_its_own_sees(kind: str, tmp_path: Path) -> None:
    (tmp_path / "facts.py").write_text(FACTS)
    command = {"-c": ["-c", FACTS], "-m": ["-m", "facts"], "script": ["facts.py"]}[kind]
    how = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(ROOT), "NERF_DATA": "x"}, "input": "words\n"}
    how |= {"capture_output": True, "text": True}
    command = [sys.executable, *command, "a=1", "--b"]
    true, fork = subprocess.run(command, **how, check=False), warm_python.run(command, **how)
    assert fork.returncode == true.returncode == 3
    assert fork.stderr == true.stderr == "an error\n"
    assert fork.stdout == true.stdout and "words" in fork.stdout


def test_it_is_a_child_of_ours_that_signals_reach(tmp_path: Path) -> None:
    program = "import os, torch; print(os.getppid(), flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        # The server's own environment: whatever tests before this one have left in ours, it is a fork.
        how = {"cwd": tmp_path, "env": warm_python.AT_START, **pipes}
        process = warm_python.Popen([sys.executable, "-c", program], **how)
        assert process.stdout.readline() == f"{os.getpid()}\n" and process.forked and process.poll() is None
        process.send_signal(number)
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == -number and ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    failed = warm_python.run([sys.executable, "-c", "raise ValueError('words')"], capture_output=True, text=True)
    assert failed.returncode == 1 and failed.stderr.endswith("ValueError: words\n")


@pytest.mark.parametrize(
    ("options", "how"),
    [
        (["-B"], {}),
        ([], {"env": os.environ | {"OMP_NUM_THREADS": "7"}}),
        ([], {"env": {name: value for name, value in os.environ.items() if name != "HOME"}}),
        ([], {"preexec_fn": lambda: None}),
        ([], {"start_new_session": True}),
        ([], {"env": os.environ | {"PYTHONPATH": "packages"}}),
    ],
    ids=["option", "variable", "without a variable", "before exec", "session", "another torch"],
)
def test_what_a_fork_cannot_be_is_a_process_of_its_own(options: list[str], how: dict, tmp_path: Path) -> None:
    (tmp_path / "packages" / "torch").mkdir(parents=True)
    command = [sys.executable, *options, "-c", "import sys; sys.exit('torch' in sys.modules)"]
    process = warm_python.Popen(command, cwd=tmp_path, **how)
    assert process.wait(timeout=TIMEOUT) == 0 and not process.forked


def test_the_server_ends_with_the_tests() -> None:
    server = warm_python.Server()
    server.connection.close()
    assert server.process.wait(timeout=TIMEOUT) == 0


def test_a_server_that_was_killed_is_started_anew() -> None:
    how = {"env": warm_python.AT_START, "stdout": subprocess.PIPE, "text": True}
    for _ in range(2):
        process = warm_python.Popen([sys.executable, "-c", "print('words')"], **how)
        assert process.communicate(timeout=TIMEOUT)[0] == "words\n" and process.forked
        warm_python.server().process.kill()
        warm_python.server().process.wait(timeout=TIMEOUT)
