"""From a folder of panoramas to a trained scene, its scores, its videos and its exports."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from panorama_scene import room_panoramas, room_pinholes, room_tests, write_room
from PIL import Image
from script_runs import script_caller

import nerf
from nerf.cameras.cameras import Cameras
from nerf.cameras.path_file import write_camera_path
from nerf.config.schema import DatasetConfig
from nerf.datasets.load import load_split
from nerf.datasets.posed_images import PosedImages
from nerf.evaluation.scores import evaluate

HEIGHT = 32  # of a panorama in pixels
SHORT = (
    "experiment=smoke",
    "dataset=capture",
    "dataset.root=room",
    "dataset.downscale=1",
    "evaluation.every=1",
    "evaluation.split=test",
)


def room(folder: Path, train: Cameras, tests: int = 3) -> PosedImages:
    """Photos of the room with poses; they are written once more where they lie already."""
    write_room(folder, train, room_tests(tests, HEIGHT), supersample=2)
    return load_split(DatasetConfig(root=str(folder)), "train")


@pytest.fixture(scope="module")
def panoramas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with twelve panoramas of the room."""
    folder = tmp_path_factory.mktemp("panoramas") / "room"
    room(folder, room_panoramas(12, HEIGHT))
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, panoramas: Path) -> Callable[..., int]:
    """A function that runs a script beside the folder room, in which the panoramas are; returns its status."""
    call = script_caller(monkeypatch, tmp_path)
    Path("room").symlink_to(panoramas)
    return call


def test_panoramas_are_trained_on_scored_rendered_and_exported(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", *SHORT, "hydra.run.dir=run") == 0
    said = capsys.readouterr()
    assert "12 panoramas see in all directions" in said.out + said.err
    assert "12 training views 64x32" in said.err and "no orbit video" not in said.err
    assert len(json.loads(Path("run/metrics.json").read_text())["psnr"]["per_view"]) == 3
    assert call("evaluate", "run=run", "split=train", "hydra.run.dir=again") == 0
    sizes = {Image.open(path).size for path in Path("again").glob("**/*.png") if "contact" not in path.name}
    assert call("render", "run=run", "frames=4", "hydra.run.dir=auto") == 0
    assert Path("auto/turn.mp4").is_file() and Image.open("auto/rgb/0000.png").size == (20, 20)
    write_camera_path(Path("path.json"), room_panoramas(2, HEIGHT), fps=10)
    assert call("render", "run=run", "path=path.json", "hydra.run.dir=around") == 0
    assert Image.open("around/rgb/0001.png").size == (64, 32) and (not sizes or (64, 32) in sizes)
    capsys.readouterr()
    assert call("render", "run=run", "path=orbit", "hydra.run.dir=no") == 2
    assert "panoramas, which see in all directions" in capsys.readouterr().err
    assert call("export", "run=run", "format=cameras", "hydra.run.dir=exports") == 0
    assert '"EQUIRECTANGULAR"' in Path("exports/transforms.json").read_text()
    assert call("export", "run=run", "format=splats", "splats_steps=2", "max_splats=500", "hydra.run.dir=splats") == 0
    capsys.readouterr()
    assert call("mesh", "run=run", "hydra.run.dir=mesh") == 2
    crop = re.search(r"unbounded.*'(crop=\[.*\])'", capsys.readouterr().err)[1]
    assert call("mesh", "run=run", crop, "hydra.run.dir=mesh") == 0 and Path("mesh/mesh_sheet.png").is_file()
    for name in ("mesh", "points"):
        assert call("export", "run=run", f"format={name}", "hydra.run.dir=none") == 2
        assert "unbounded" in capsys.readouterr().err and not list(Path("none").glob("*.[gp]l[by]"))
        assert call("export", "run=run", f"format={name}", crop, "hydra.run.dir=some") == 0
    assert {path.name for path in Path("some").iterdir()} >= {"mesh.glb", "points.ply"}
    capsys.readouterr()
    assert call("export", "run=run", "format=colmap", "hydra.run.dir=exports") == 2
    assert "format=colmap has no model for panoramas" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("dataset.kind=forward_facing", "some cameras are panoramas"),
        ("exposure.vignetting=true", "some photos are panoramas"),
        ("poses=refine field.upsample_at=none poses.intrinsics=true", "panoramas"),
    ],
)
def test_settings_that_panoramas_cannot_have_are_answered_before_training(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str], setting: str, said: str
) -> None:
    assert call("train", *SHORT, "hydra.run.dir=run", *setting.split()) == 2
    found = capsys.readouterr().err
    assert said in found and "Traceback" not in found


def test_panoramas_train_as_well_as_pinholes_at_their_places(tmp_path: Path) -> None:
    """About as many pixels of the same room, scored at the same other places."""
    around = room_panoramas(12, HEIGHT)
    psnr = {}
    for name, cameras in (("panoramas", around), ("pinholes", room_pinholes(around))):
        images = room(tmp_path / name, cameras)
        settings = {
            "device": "cpu", "train.steps": 100, "train.rays_per_step": 512, "field": "voxel_sh",
            "field.sh_degree": 0, "field.num_voxels": 32**3, "field.upsample_at": [0.4],
            "field.initial_alpha": 0.01, "field.lr_density": 0.5, "field.lr_color": 0.5,
        }  # fmt: skip
        run = nerf.start(nerf.settings(settings), images)
        for _ in run.train():
            pass
        opened = run.open()
        views = load_split(DatasetConfig(root=str(tmp_path / name)), "test")
        scores = evaluate(opened.field, opened.sampler, views, opened.background)
        psnr[name] = float(np.mean(scores.psnr))
        seen = torch.stack([opened.render(images.cameras, 0).rgb.mean(), images.image_over(0, torch.zeros(3)).mean()])
        assert (seen[0] - seen[1]).abs() < 0.05
    assert min(psnr.values()) > 18 and abs(psnr["panoramas"] - psnr["pinholes"]) < 1, psnr
