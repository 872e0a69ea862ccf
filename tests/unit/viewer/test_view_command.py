"""`nerf view` answers in words what it cannot do."""

import socket
import sys

import pytest

from nerf.cli.view import viewer_class
from nerf.errors import UserError


def test_without_viser_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(UserError, match=r"viser.*pip install 'nerf-voxel\[view\]'"):
        viewer_class()


def test_an_old_viser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    viser = pytest.importorskip("viser", reason="no viser: pip install viser")
    monkeypatch.setattr(viser, "__version__", "0.2.7")
    with pytest.raises(UserError, match=r"viser 0\.2\.7 is found, expected viser >= 1\.1"):
        viewer_class()


def test_a_port_in_use_and_a_foreign_host_are_answered() -> None:
    pytest.importorskip("viser", reason="no viser: pip install viser")
    from nerf.viewer.server import check_port

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port={port} .* try port={port + 1}"):
            check_port("127.0.0.1", port)
    with pytest.raises(UserError, match="host=no-such-host.invalid"):
        check_port("no-such-host.invalid", 8080)
