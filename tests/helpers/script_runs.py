"""Starts the scripts as a user does: as a process of their own, or, to save its start, inside of the tests'.

A process of its own is a fork of one that has imported PyTorch, where that makes no difference: warm_python.py.
"""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import warm_python

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
TIMEOUT = 600  # seconds; none takes a tenth of it, on a busy machine too


def command(name: str, *arguments: str, root: Path = ROOT) -> list[str]:
    return [sys.executable, str(root / "scripts" / f"{name}.py"), *arguments]


def run_script(name: str, *arguments: str, cwd: Path, root: Path = ROOT, **env: str) -> subprocess.CompletedProcess:
    """Runs a script to its end in a process of its own; its output is kept."""
    return warm_python.run(
        command(name, *arguments, root=root),
        cwd=cwd,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def start_script(name: str, *arguments: str, cwd: Path, **env: str) -> subprocess.Popen:
    """Starts a script; its outputs are pipes."""
    return warm_python.Popen(
        command(name, *arguments),
        cwd=cwd,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def script_caller(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[..., int]:
    """A function that runs a script in this process and returns its exit status; its current folder is empty."""
    monkeypatch.delenv("NERF_DATA", raising=False)
    (folder / "cwd").mkdir()
    monkeypatch.chdir(folder / "cwd")

    def call(name: str, *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        try:
            runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
        except SystemExit as exit_:
            return int(exit_.code or 0)
        return 0

    return call
