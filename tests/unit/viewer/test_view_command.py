"""`nerf view` answers in words what it cannot do."""

import errno
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from script_runs import script_caller
from viewed import tiny_scene

import nerf.viewer
from nerf.cameras.cameras import Cameras
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


def test_a_candidate_of_a_release_is_that_release(monkeypatch: pytest.MonkeyPatch) -> None:
    viser = pytest.importorskip("viser", reason="no viser: pip install viser")
    monkeypatch.setattr(viser, "__version__", "1.1rc1")
    assert viewer_class().__name__ == "Viewer"
    monkeypatch.setattr(viser, "__version__", "0.9rc1")
    with pytest.raises(UserError, match=r"viser 0\.9rc1 is found, expected"):
        viewer_class()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"__init__.py": ""}, "viser of an unknown version is found, expected"),
        ({"__init__.py": "import nowhere_to_be_found"}, "viser cannot be imported (No module named 'nowhere_to_be"),
        ({"__init__.py": "__version__ = '9.0.1'"}, "viser 9.0.1 is found without a part that is needed ("),
    ],
)
def test_a_viser_that_does_not_fit_is_named(
    files: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "viser").mkdir()
    for name, text in files.items():
        (tmp_path / "viser" / name).write_text(text)
    for name in [name for name in sys.modules if name.split(".")[0] == "viser" or name.startswith("nerf.viewer.")]:
        if name.startswith("nerf."):  # the package names it too, and gets it back
            monkeypatch.setattr(nerf.viewer, name.split(".")[2], sys.modules[name])
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError) as raised:
        viewer_class()
    assert said in str(raised.value) and "pip install 'nerf-voxel[view]'" in str(raised.value)


def test_a_port_in_use_and_a_foreign_host_are_answered() -> None:
    pytest.importorskip("viser", reason="no viser: pip install viser")
    from nerf.viewer.server import check_port

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port={port} .* try port={port + 1}"):
            check_port("127.0.0.1", port)
    with pytest.raises(UserError, match="host=no-such-host.invalid"):
        check_port("no-such-host.invalid", 8080)
    with pytest.raises(UserError, match="host=192.0.2.1 is no address of this machine"):  # of documentation alone
        check_port("192.0.2.1", 8080)


@pytest.mark.parametrize(("port", "error"), [(80, errno.EACCES), (65535, errno.EADDRINUSE)])
def test_the_port_that_is_proposed_can_be_had(port: int, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("viser", reason="no viser: pip install viser")
    from nerf.viewer.server import check_port

    def refused(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(socket.socket, "bind", refused)
    with pytest.raises(UserError, match=r"try port=8080\.$") as raised:
        check_port("127.0.0.1", port)
    assert ("another viewer" in str(raised.value)) is (error == errno.EADDRINUSE)


def test_the_address_is_one_that_a_browser_takes() -> None:
    address = pytest.importorskip("nerf.viewer.server", reason="no viser: pip install viser").address
    assert address("127.0.0.1", 8080) == "http://localhost:8080" and address("0.0.0.0", 80) == "http://0.0.0.0:80"
    for host in ("::", "::1"):
        assert address(host, 8080) == f"http://[{host}]:8080"


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
        where = f"dataset.root={tmp_path / 'nowhere'}"  # not read: it may be large
        assert call("train", "viewer=true", f"port={port}", where, "hydra.run.dir=run") == 2
    assert f"port={port} of 127.0.0.1 cannot be used" in capsys.readouterr().err
    assert not Path("run").exists()


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_the_browser_draws_the_cameras_of_a_scene_in_any_unit(unit: float) -> None:
    pytest.importorskip("viser", reason="no viser: pip install viser")
    from nerf.viewer.server import Viewer

    scene = tiny_scene()
    c2w = torch.cat([scene.cameras.c2w[:, :, :3], unit * scene.cameras.c2w[:, :, 3:]], dim=2)
    begin = SimpleNamespace()
    server = SimpleNamespace(initial_camera=begin, scene=SimpleNamespace(set_up_direction=lambda up: None))
    cameras = Cameras(c2w, scene.cameras.intrinsics, scene.cameras.width, scene.cameras.height)
    Viewer._begin_camera(SimpleNamespace(server=server), replace(scene, cameras=cameras))
    apart = torch.cdist(c2w[:, :, 3], c2w[:, :, 3])
    assert begin.near < 0.1 * apart[apart > 0].min() and begin.far > 10 * apart.max()
