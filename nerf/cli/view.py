"""Look at a trained run in a browser: turn it, cut it, compare it with its photos.

    python scripts/view.py                                   the newest run, at http://localhost:8080
    python scripts/view.py run=outputs/RUN port=8090         another run, on another port
    python scripts/view.py rays_per_pixel=1                  faster at rest, less sharp
    python scripts/view.py host=0.0.0.0                      other machines may look too

Needs an extra: pip install 'nerf-voxel[view]'. Pictures are coarse while the camera moves, ten a second or more, and
full when it rests. They show color, depth, normals, opacity, features, the error against the nearest photo, or the
occupied cells. Ctrl-C ends it.
"""

import contextlib
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nerf.cli.hydra_app import run
from nerf.cli.open_run import PicturesConfig, open_run
from nerf.config.settings import setting
from nerf.errors import UserError
from nerf.runs.open_run import LoadedRun
from nerf.viewer.scene import Scene, StillScene

if TYPE_CHECKING:
    from nerf.viewer.server import Viewer


HOST, PORT = "127.0.0.1", 8080
_EXPECTED = "expected viser >= 1.1; get it with: pip install 'nerf-voxel[view]'"


@dataclass
class ViewConfig(PicturesConfig):
    host: str = setting(HOST, "address to listen on; 127.0.0.1 is this machine alone, 0.0.0.0 every network")
    port: int = setting(PORT, "port to listen on", low=1, high=65535)


def main(config: ViewConfig, folder: Path, overrides: list[str]) -> None:
    check_viewer(config.host, config.port)
    loaded = open_run(config)
    with contextlib.suppress(OSError):  # nothing is written: an empty folder would only be in the way
        folder.rmdir()
    with viewer_class()(StillScene(scene_of(loaded)), config.host, config.port, loaded.folder) as viewer:
        announce(viewer, config.host)
        threading.Event().wait()  # until a signal


def scene_of(loaded: LoadedRun) -> Scene:
    """What the viewer shows of a run, with its photos where they are still found."""
    try:
        photos = loaded.given_views("train")
    except UserError as error:
        print(f"note: without photos: {error}")
        photos = None
    return Scene(loaded.field, loaded.sampler, loaded.background, loaded.cameras, photos, loaded.vignetting)


def viewer_class() -> "type[Viewer]":
    """The viewer. Raises UserError if viser is missing, too old, or without a part that the viewer needs."""
    try:
        import viser
    except ImportError as error:  # of viser, or of what it needs itself
        found = "viser is missing" if error.name == "viser" else f"viser cannot be imported ({error})"
        raise UserError(f"{found}, {_EXPECTED}.") from error
    version = getattr(viser, "__version__", "of an unknown version")
    numbers = re.match(r"(\d+)\.(\d+)", version)  # whatever follows, as in 1.1rc1
    if numbers is None or tuple(map(int, numbers.groups())) < (1, 1):
        raise UserError(f"viser {version} is found, {_EXPECTED}.")
    try:
        from nerf.viewer.server import Viewer
    except (ImportError, AttributeError) as error:
        raise UserError(f"viser {version} is found without a part that is needed ({error}), {_EXPECTED}.") from error
    return Viewer


def check_viewer(host: str, port: int) -> None:
    """Raises UserError if no viewer can be served here: before a scene is read, which may take minutes."""
    viewer_class()
    from nerf.viewer.server import check_port

    check_port(host, port)


def announce(viewer: "Viewer", host: str) -> None:
    """Prints the address, and who else may look."""
    if host not in ("127.0.0.1", "localhost", "::1"):
        allowed = f"look, steer and save paths and videos in {viewer.folder.folder}"
        print(f"host={host}: whoever reaches this machine's port {viewer.port} can {allowed}, without a password")
    print(f"open {viewer.url} in a browser; Ctrl-C ends it", flush=True)


def command() -> None:
    run("view", ViewConfig, main, __doc__)
