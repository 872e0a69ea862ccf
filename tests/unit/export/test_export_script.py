"""The export command: every format is written, read by something else, and mistakes are answered."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from script_runs import script_caller
from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state

from nerf.cameras.distortion import Lenses
from nerf.cli.export import FORMATS, ExportConfig
from nerf.errors import UserError
from nerf.export.mesh import Mesh
from nerf.export.mesh_files import write_obj
from nerf.export.texture import Texture
from nerf.runs import checkpoint
from nerf.runs.open_run import load


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs a command beside a tiny run in the folder run."""
    call = script_caller(monkeypatch, tmp_path)
    config, state = tiny_state(tiny_config("voxel_deferred"))
    run_to(config, state, STEPS)
    Path("run").mkdir()
    checkpoint.save(Path("run"), config, state, tiny_images().cameras)
    return call


def test_points_are_the_surface_with_colors_and_normals(call: Callable[..., int]) -> None:
    assert call("export", "run", "format=points", "hydra.run.dir=out") == 0
    content = Path("out/points.ply").read_bytes()
    header, _, body = content.partition(b"end_header\n")
    assert b"property float nx" in header and b"property uchar red" in header
    points = np.frombuffer(body, [("position", "<f4", 3), ("normal", "<f4", 3), ("color", "u1", 3)])
    assert len(points) > 100
    outwards = (points["position"] * points["normal"]).sum(1) / np.linalg.norm(points["position"], axis=1)
    assert np.median(outwards) > 0.8  # the scene is a sphere around the origin


def test_a_volume_holds_density_box_and_unit(call: Callable[..., int]) -> None:
    assert call("export", "run", "format=volume", "hydra.run.dir=out") == 0
    found, opened = np.load("out/volume.npz"), load("run", device="cpu")
    assert found["density"].shape == opened.field.resolution and str(found["unit"]) == "1/world unit"
    assert np.allclose(found["aabb"], opened.field.box.aabb) and found["occupied"].dtype == bool
    middle = torch.tensor([[n / 2 for n in opened.field.resolution]]).floor()
    at = tuple(middle[0].long().tolist())
    expected = opened.field.density(middle).item()
    assert found["density"][at] in (pytest.approx(expected, rel=1e-4), 0.0)


def test_cameras_go_out_twice(call: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("export", "run", "format=cameras", "hydra.run.dir=out") == 0
    assert call("export", "run", "format=colmap", "hydra.run.dir=out") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == str(Path("out/sparse/0").resolve())
    assert "named by their numbers" in printed[0]  # the images of the tiny run are gone
    assert {path.name for path in Path("out/sparse/0").iterdir()} == {"cameras.txt", "images.txt", "points3D.txt"}


@pytest.mark.usefixtures("call")
def test_cameras_of_several_models_come_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = load("run", device="cpu")
    models = ["perspective", "fisheye"] * (len(opened.cameras) // 2)
    lensed = replace(opened.cameras, lenses=Lenses.of(models, [[0.01]] * len(models)))
    FORMATS["cameras"][1](replace(opened, cameras=lensed), tmp_path / "transforms.json", ExportConfig())
    expected = "note: nerfstudio reads one camera_model for all, and takes OPENCV and OPENCV_FISHEYE for perspective."
    assert expected in capsys.readouterr().out
    FORMATS["cameras"][1](opened, tmp_path / "transforms.json", ExportConfig())
    assert "nerfstudio" not in capsys.readouterr().out


def test_a_mesh_and_a_page_are_written(call: Callable[..., int]) -> None:
    assert call("export", "run", "format=mesh", "hydra.run.dir=out") == 0
    assert Path("out/mesh.glb").read_bytes()[:4] == b"glTF"
    assert call("export", "run", "web_steps=20", "hydra.run.dir=out") == 0
    assert Path("out/scene.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("run", "format=usd"), "format=usd"),
        (("run", "format=web", "file=page.glb"), ".html"),
        (("run", "format=colmap", "file=model.txt"), "a name without .txt, as file=sparse/0"),
        (("nowhere",), "nowhere"),
        (("run", "format=splats", "crop=[-1,-1,-1,1,1,1]"), "format=points and mesh alone, not format=splats"),
        (("run", "format=mesh", "crop=[1,1,1,0,0,0]"), "is no box"),
    ],
)
def test_mistakes_are_answered(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str], settings: tuple[str, ...], expected: str
) -> None:
    assert call("export", *settings, "hydra.run.dir=out") == 2
    message = capsys.readouterr().err
    assert expected in message and "Traceback" not in message


def test_only_deferred_color_makes_a_page(call: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    config, state = tiny_state(tiny_config("voxel_sh"))
    run_to(config, state, 10)
    Path("sh").mkdir()
    checkpoint.save(Path("sh"), config, state, tiny_images().cameras)
    assert call("export", "sh", "hydra.run.dir=out") == 2
    assert "voxel_sh" in capsys.readouterr().err and not list(Path("out").glob("*.html"))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file can grow beyond so many bytes: what a disk does that is about to be full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


FULL = {
    "web": ("web_steps=20",),
    "splats": ("splats_steps=1", "max_splats=100"),
    "points": (),
    "mesh": (),
    "volume": (),
    "cameras": (),
    "colmap": (),
}


def test_a_full_disk_leaves_nothing_behind(call: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Of the three files of colmap the first still fits. What is said goes to memory: a slow bar would fill a file."""
    for name, settings in FULL.items():
        Path(name).mkdir()
        with files_of_at_most(800):
            assert call("export", "run", f"format={name}", *settings, f"hydra.run.dir={name}") == 2, name
        said = capsys.readouterr().err
        assert "free some space" in said and "Traceback" not in said, name
        assert [path for path in Path(name).rglob("*") if path.is_file()] == [], name


def test_a_textured_obj_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Picture and material still fit."""
    corners = torch.rand(3000, 3)
    faces = torch.arange(3000).view(-1, 3)
    texture = Texture(torch.arange(3000), faces, torch.rand(3000, 2), torch.zeros(8, 8, 3, dtype=torch.uint8))
    with files_of_at_most(800), pytest.raises(UserError, match="free some space"):
        write_obj(tmp_path / "a.obj", Mesh(corners, faces, corners, texture))
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_an_older_program_is_answered(call: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    Path("old").mkdir()
    torch.save({"format": "nerf-voxel-model", "version": 3}, "old/model.pt")
    assert call("export", "old", "hydra.run.dir=out") == 2
    said = capsys.readouterr().err
    assert "version 3" in said and "old/model.pt" in said and "Traceback" not in said
