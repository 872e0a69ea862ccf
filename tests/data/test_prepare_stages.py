"""Stages of structure from motion, with a stand-in for pycolmap: what Ctrl-C leaves behind."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nerf.cli.prepare_poses import Run


class Token:
    """pycolmap's CancellationToken."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.cancel = self.event.set


@pytest.mark.skipif(os.name != "posix", reason="a process cannot send itself Ctrl-C here")
def test_an_interrupted_stage_has_ended(tmp_path: Path) -> None:
    """COLMAP at work while the interpreter ends crashes it."""
    database = SimpleNamespace(open=lambda path: contextlib.nullcontext())
    run = object.__new__(Run)
    run.pycolmap, run.folder, run.database = SimpleNamespace(Database=database, CancellationToken=Token), tmp_path, ""
    ended = []

    def work(token: Token) -> None:
        time.sleep(0.1)  # the main thread waits by now
        os.kill(os.getpid(), signal.SIGINT)
        assert token.event.wait(60)
        time.sleep(0.3)  # the photo in hand
        ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        run._stage("features", 1, lambda database: 0, work)
    assert ended
