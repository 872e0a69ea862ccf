"""`nerf view` answers in words what it cannot do."""

import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from script_runs import script_caller

from nerf.cli.view import announce, viewer_class
from nerf.errors import UserError
from nerf.viewer.path_folder import PathFolder


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


@pytest.mark.parametrize(("host", "others"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_who_else_may_look_and_save_is_said_aloud(host: str, others: bool, capsys: pytest.CaptureFixture[str]) -> None:
    announce(SimpleNamespace(port=8090, url="http://x:8090", folder=PathFolder(Path("outputs/a"))), host)
    said = capsys.readouterr().out
    assert "http://x:8090" in said
    assert all((word in said) is others for word in (f"host={host}", "8090 can look", "outputs/a/paths", "password"))


def test_viewer_true_is_answered_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = script_caller(monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "viser", None)
    assert call("train", "viewer=true", f"dataset.root={tmp_path / 'nowhere'}") == 2
    assert "pip install 'nerf-voxel[view]'" in capsys.readouterr().err


def test_a_run_whose_viewer_has_no_port_does_not_train(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("viser", reason="no viser: pip install viser")
    call = script_caller(monkeypatch, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert call("train", "viewer=true", f"port={port}", "dataset.downscale=8", "hydra.run.dir=run") == 2
    assert f"port={port} of 127.0.0.1 cannot be used" in capsys.readouterr().err
    assert not Path("run/model.pt").exists()
