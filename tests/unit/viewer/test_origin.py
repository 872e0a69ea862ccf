"""Pages of other sites, which a browser lets connect to this machine, cannot steer the viewer."""

import contextlib
import socket
from pathlib import Path

import pytest

pytest.importorskip("viser", reason="no viser: pip install viser")

from tiny_runs import tiny_config, tiny_images, tiny_state
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from nerf.training.state import make_sampler
from nerf.viewer.origin import allowed
from nerf.viewer.scene import Scene, StillScene


@pytest.mark.parametrize(
    ("origin", "host", "loopback", "may"),
    [
        (None, "localhost:8080", True, True),  # a program
        ("http://localhost:8080", "localhost:8080", True, True),
        ("http://localhost:9000", "localhost:9000", True, True),  # through ssh -L
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True, True),
        ("http://[::1]:8080", "[::1]:8080", True, True),
        ("http://evil.example", "localhost:8080", True, False),
        ("http://localhost:3000", "localhost:8080", True, False),  # another server of this machine
        ("http://localhost:8080.evil.example", "localhost:8080", True, False),
        ("http://evil.example:8080", "evil.example:8080", True, False),  # whose name was made to mean this machine
        ("http://machine:8080", "machine:8080", False, True),
        ("http://evil.example", "machine:8080", False, False),
        ("null", "localhost:8080", True, False),  # a file
        ("http://localhost:8080", None, True, False),
        ("", "", False, False),
    ],
)
def test_who_may_connect(origin: str | None, host: str | None, loopback: bool, may: bool) -> None:
    assert allowed(origin, host, loopback) is may


def test_the_server_refuses_pages_of_other_sites(tmp_path: Path) -> None:
    import viser

    from nerf.viewer.server import Viewer

    config, state = tiny_state(tiny_config())
    scene = Scene(state.field, make_sampler(config, state), state.background.eval(state.device), tiny_images().cameras)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    protocol = [f"viser-v{viser.__version__}"]
    with Viewer(StillScene(scene), "127.0.0.1", port, tmp_path) as viewer:
        url = f"ws://localhost:{port}"
        with pytest.raises(InvalidStatus, match="403"):
            connect(url, origin="http://evil.example", subprotocols=protocol)
        assert not viewer.pages
        for origin in (None, f"http://localhost:{port}"):
            with contextlib.closing(connect(url, origin=origin, subprotocols=protocol)) as page:
                assert page.recv(timeout=300)
