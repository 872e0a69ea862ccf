"""`viewer=true`: a training run in the browser."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from nerf.cli.signals import Stopped
from nerf.cli.view import announce, viewer_class
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.runs.interrupts import StopOnInterrupt
from nerf.training.state import TrainState

if TYPE_CHECKING:
    from nerf.viewer.live import LiveScene
    from nerf.viewer.server import Viewer


class ViewerSettings(Protocol):
    """Of the command that trains."""

    viewer: bool
    host: str
    port: int


@contextlib.contextmanager
def watching(
    given: ViewerSettings,
    config: Config,
    state: TrainState,
    photos: PosedImages | None,
    folder: Path,
    interrupt: StopOnInterrupt,
) -> "Iterator[LiveScene | None]":
    """Serves a run while it trains; None without viewer=true. Afterwards it is served for as long as somebody looks.

    Raises UserError where the port cannot be had.
    """
    if not given.viewer:
        yield None
        return
    from nerf.viewer.live import LiveScene

    live = LiveScene(config, state, photos, lambda: interrupt.asked)
    with viewer_class()(live, given.host, given.port, folder) as viewer:
        announce(viewer, given.host)
        yield live
        if HydraConfig.get().mode != RunMode.MULTIRUN:
            _stay(viewer)


def _stay(viewer: "Viewer") -> None:
    """Waits until the last browser has left, or for Ctrl-C."""
    if not viewer.pages:
        return
    print("the viewer stays until its last page is closed; Ctrl-C ends it", flush=True)
    try:
        viewer.wait_for_nobody()
    except Stopped as stopped:
        if stopped.number != signal.SIGINT:
            raise
