"""The viewer's server: viser on a port, one ClientPage for each browser that is connected."""

import contextlib
import errno
import io
import logging
import socket
import threading
import warnings
from pathlib import Path
from types import TracebackType

import viser

from nerf.cameras.panoramas import common_target
from nerf.cameras.poses import estimate_up
from nerf.config.commands import assignment
from nerf.errors import UserError
from nerf.viewer.look import vertical_fov
from nerf.viewer.origin import own_pages_only
from nerf.viewer.page import ClientPage
from nerf.viewer.path_folder import PathFolder
from nerf.viewer.scene import Scene, SceneSource

TICK_SECONDS = 0.5  # between two looks at how training goes on
CLOSING_SECONDS = 10  # until a thread that renders is left to end by itself


class Viewer:
    """Serves a scene until close(); a context manager."""

    def __init__(self, source: SceneSource, host: str, port: int, run: Path) -> None:
        """run: the folder of the run, in which pages save paths. Raises UserError if the port cannot be had."""
        check_port(host, port)
        self.source, self.folder = source, PathFolder(run)
        scene = source.scene()
        self._pages: dict[int, ClientPage] = {}
        self._lock, self._closed = threading.Lock(), False
        logging.getLogger("websockets").setLevel(logging.CRITICAL)  # a browser that leaves is no error
        warnings.filterwarnings("ignore", "Queued a .* on a closed connection")  # nor is what it does not get any more
        with contextlib.redirect_stdout(io.StringIO()), own_pages_only(host):  # viser's own box is not shown
            self.server = viser.ViserServer(host=host, port=port, label=str(run), verbose=False)
        self.port = self.server.get_port()
        self.url = address(host, self.port)
        self.server.gui.configure_theme(show_logo=False, show_share_button=False)
        self._reach = self._begin_camera(scene)
        self.server.on_client_connect(self._arrive)
        self.server.on_client_disconnect(self._leave)
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="viewer-progress", daemon=True)
        if source.changes:
            self._ticker.start()

    def __enter__(self) -> "Viewer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pages(self) -> list[ClientPage]:
        """Of the clients that are connected."""
        with self._lock:
            return list(self._pages.values())

    def wait_for_nobody(self) -> None:
        """Returns when no client is connected."""
        while self.pages:
            self._ended.wait(TICK_SECONDS)

    def close(self) -> None:
        """Ends the server and the threads of all clients."""
        with self._lock:
            self._closed, pages = True, list(self._pages.values())
            self._pages.clear()
        self._ended.set()
        self.source.close()
        if self._ticker.is_alive():
            self._ticker.join(CLOSING_SECONDS)
        for page in pages:
            page.close(CLOSING_SECONDS)
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()

    def _tick(self) -> None:
        while not self._ended.wait(TICK_SECONDS):
            for page in self.pages:
                page.update()

    def _begin_camera(self, scene: Scene) -> float:
        """Sets where a new client looks from; returns the distance beyond which nothing of the scene is expected."""
        cameras = scene.cameras
        c2w = cameras.c2w.double().cpu()
        up, center = estimate_up(c2w), c2w[0, :, 3]
        try:
            target = common_target(cameras)
        except ValueError:  # the cameras look at nothing in common
            target = center - c2w[0, :, 2]
        self.server.scene.set_up_direction(up.numpy())
        begin = self.server.initial_camera
        begin.position, begin.look_at, begin.up = center.numpy(), target.numpy(), up.numpy()
        begin.fov = vertical_fov(cameras, 0)
        reach = 2 * max(1e-6, float((c2w[:, :, 3] - target).norm(dim=-1).max()))
        begin.near, begin.far = 1e-4 * reach, 100 * reach  # of what the browser draws: cameras and paths
        return float(f"{reach:.3g}")  # digits that fit beside a slider

    def _arrive(self, client: viser.ClientHandle) -> None:
        scene = self.source.scene()
        with self._lock:
            if self._closed or client.client_id not in self.server.get_clients():
                return
            self._pages[client.client_id] = ClientPage(client, self.source, scene, self._reach, self.folder)

    def _leave(self, client: viser.ClientHandle) -> None:
        with self._lock:
            page = self._pages.pop(client.client_id, None)
        if page is not None:
            page.close()


def address(host: str, port: int) -> str:
    """Where a browser finds a server that listens on this host and port."""
    name = "localhost" if host == "127.0.0.1" else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"  # IPv6: RFC 3986, 3.2.2


def check_port(host: str, port: int) -> None:
    """Raises UserError if the port of the host cannot be listened on."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except socket.gaierror as error:
        raise UserError(f"host={host} is no address of this machine: {error.strerror}; try host=127.0.0.1.") from error
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserError(f"host={host} is no address of this machine; try host=127.0.0.1.") from error
        taken = ", perhaps by another viewer" if error.errno == errno.EADDRINUSE else ""
        # Ports below 1024 are the system's, and the last has none after it.
        other = assignment("port", str(port + 1 if 1024 <= port < 65535 else 8080))
        raise UserError(f"port={port} of {host} cannot be used ({error.strerror}){taken}; try {other}.") from error
