"""NerfBaselines: its data become ours, its trainer's calls train, save and load a run. It need not be installed."""

import importlib
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from fixtures import all_around
from tiny_runs import tiny_images

from nerf.benchmarks.nerfbaselines_data import background_of, cameras_of, posed_images
from nerf.benchmarks.nerfbaselines_method import NerfVoxel
from nerf.config.overrides import settings
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.runs.open_run import load

ROOT = Path(__file__).resolve().parents[3]
TINY = {
    "train.steps": "12",  # its command line passes text
    "train.rays_per_step": 64,
    "field": "voxel_sh",
    "field.num_voxels": "1000",
    "field.upsample_at": "[0.5]",
    "device": "cpu",
}


@dataclass(frozen=True)
class TheirCameras:
    """The arrays of NerfBaselines' cameras: OpenCV's axes, one row a camera."""

    poses: np.ndarray
    intrinsics: np.ndarray
    camera_models: np.ndarray
    distortion_parameters: np.ndarray
    image_sizes: np.ndarray

    def __getitem__(self, index: int) -> "TheirCameras":
        return TheirCameras(*(values[index] for values in vars(self).values()))


def as_theirs(views: PosedImages, **changed: object) -> dict:
    """Views of one size as the dictionary that NerfBaselines loads."""
    cameras, count = views.cameras, len(views)
    poses = cameras.c2w.numpy() * np.array([1, -1, -1, 1], np.float32)
    models, bent = np.zeros(count, np.int32), np.zeros((count, 6), np.float32)
    theirs = TheirCameras(poses, cameras.intrinsics.numpy(), models, bent, cameras.image_sizes.numpy())
    return {
        "cameras": theirs,
        "images": np.stack([views.image(index).numpy() for index in range(count)]),
        "image_paths": [f"/scene/images/{name}.png" for name in views.names],
        "image_paths_root": "/scene/images",
        "masks": None,
        "points3D_xyz": None,
        "metadata": {"color_space": "srgb", "background_color": np.array([255, 255, 255], np.uint8)},
        **changed,
    }


def test_cameras_and_pixels_come_through_unchanged() -> None:
    images = tiny_images()
    found = posed_images(as_theirs(images))
    assert torch.equal(found.pixels, images.pixels) and found.has_alpha
    assert torch.equal(found.cameras.c2w, images.cameras.c2w)
    assert torch.equal(found.cameras.intrinsics, images.cameras.intrinsics)
    assert [f"{name}.png" for name in images.names] == found.names


def test_a_picture_is_darkened_as_the_photos_of_its_camera_are() -> None:
    data = as_theirs(tiny_images())
    method = NerfVoxel(train_dataset=data, config_overrides={**TINY, "exposure.vignetting": "true"})
    plain = method.render(data["cameras"][0])
    with torch.no_grad():
        method._run.state.vignetting.values[:, 0] = -0.2
    height, width = plain["color"].shape[:2]
    cx, cy = data["cameras"].intrinsics[0, 2:]
    row, column = np.mgrid[:height, :width] + 0.5
    squares = ((column - cx) ** 2 + (row - cy) ** 2) / (max(cx, width - cx) ** 2 + max(cy, height - cy) ** 2)
    factor = 1 - plain["accumulation"] * 0.2 * 3**0.5 * squares  # only what is opaque is darkened
    found = method.render(data["cameras"][0])["color"]
    np.testing.assert_allclose(found, plain["color"] * factor[..., None], rtol=0, atol=1e-5)
    assert np.abs(found - plain["color"]).max() > 0.001


def test_a_lens_bends_as_theirs_does() -> None:
    """A point through OpenCV's model, written out, and our ray through the pixel it falls on."""
    images = tiny_images().chosen([0])
    theirs = as_theirs(images)["cameras"]
    k1, k2, p1, p2 = 0.1, 0.02, 0.003, -0.004
    bent = replace(theirs, camera_models=np.array([1]), distortion_parameters=np.array([[k1, k2, p1, p2, 9, 9]]))
    x, y = 0.31, -0.22
    r2 = x * x + y * y
    radial = 1 + k1 * r2 + k2 * r2 * r2
    u = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    v = y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    direction = cameras_of(bent).directions_through(torch.tensor([[u, v]]), torch.tensor([0]))[0]
    assert direction.tolist() == pytest.approx([x, -y, -1.0], abs=1e-5)  # OpenGL's axes


def test_a_fisheye_bends_as_theirs_does() -> None:
    theirs = as_theirs(tiny_images().chosen([0]))["cameras"]
    bent = replace(
        theirs, camera_models=np.array([2]), distortion_parameters=np.array([[0.05, 0.01, 9, 9, 0.002, 0.001]])
    )
    theta = 0.6
    radius = theta * (1 + 0.05 * theta**2 + 0.01 * theta**4 + 0.002 * theta**6 + 0.001 * theta**8)
    direction = cameras_of(bent).directions_through(torch.tensor([[radius, 0.0]]), torch.tensor([0]))[0]
    assert torch.atan2(direction[0], -direction[2]).item() == pytest.approx(theta, abs=1e-5)


def test_photos_of_several_sizes_are_cut_from_their_padding_and_masks_count() -> None:
    images = all_around("train").chosen([0, 1, 2])
    sizes = np.array([[24, 24], [20, 24], [24, 16]])
    theirs = as_theirs(images)
    masks = np.ones((3, 24, 24), bool)
    masks[1, :, :5] = False
    cut = replace(theirs["cameras"], image_sizes=sizes)
    found = posed_images({**theirs, "cameras": cut, "masks": masks})
    assert [found.cameras.size(index) for index in range(3)] == [(24, 24), (20, 24), (24, 16)]
    assert torch.equal(found.image(1), images.image(1)[:, :20])
    assert found.valid_mask(0).all() and not found.valid_mask(1)[:, :5].any() and found.valid_mask(1)[:, 5:].all()


def test_photos_tell_where_their_scene_is() -> None:
    """Opaque photos: kind and box come from cameras and points, as they do for files."""
    points = np.random.default_rng(0).normal(size=(500, 3))
    scene = posed_images(as_theirs(all_around("train"), points3D_xyz=points)).scene
    assert scene is not None and scene.kind == "unbounded" and scene.near > 0
    assert any("500 sparse points" in reason for reason in scene.reasons)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"metadata": {"color_space": "linear"}}, "linear"),
        ({"images": np.zeros((8, 20, 20), np.uint8)}, "20x20"),
        ({"images": np.zeros((8, 10, 20, 3), np.uint8)}, "10x20x3"),
    ],
)
def test_what_cannot_be_used_is_said(changed: dict, found: str) -> None:
    with pytest.raises(UserError, match=found):
        posed_images(as_theirs(tiny_images(), **changed))


def test_the_background_is_that_of_the_data() -> None:
    colors = {"white": np.full(3, 255, np.uint8), "black": None}
    for name, color in colors.items():
        assert background_of({"metadata": {"background_color": color}}) == name
    with pytest.raises(UserError, match="128"):
        background_of({"metadata": {"background_color": np.array([128, 128, 128], np.uint8)}})


def test_its_calls_train_save_and_load_a_run(tmp_path: Path) -> None:
    """Stopped after 7 of 12 steps, loaded with and without the images, and trained to the end."""
    dataset = as_theirs(tiny_images())
    method = NerfVoxel(train_dataset=dataset, config_overrides=TINY)
    info = method.get_info()
    assert info["num_iterations"] == 12 and info["hparams"]["field.name"] == "voxel_sh"
    figures = [method.train_iteration(step) for step in range(7)]
    assert all(np.isfinite(list(found.values())).all() and "psnr" in found for found in figures)
    camera = dataset["cameras"][2]
    picture = method.render(camera)
    assert picture["color"].shape == (20, 20, 3) and picture["accumulation"].shape == (20, 20)
    method.save(str(tmp_path / "saved"))

    renders = NerfVoxel(checkpoint=str(tmp_path / "saved"))
    assert renders.get_info()["loaded_step"] == 7
    for name, values in renders.render(camera).items():
        assert np.array_equal(values, picture[name]), name
    renders.save(str(tmp_path / "copy"))
    for name in ("model.pt", "resume.pt"):
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "saved" / name).read_bytes()
    with pytest.raises(UserError, match="data set"):
        renders.train_iteration(7)

    resumed = NerfVoxel(checkpoint=str(tmp_path / "saved"), train_dataset=dataset, config_overrides=TINY)
    for step in range(7, 12):
        assert method.train_iteration(step)["loss"] == resumed.train_iteration(step)["loss"]
    with pytest.raises(UserError, match="12"):
        resumed.train_iteration(12)
    assert load(tmp_path / "saved", device="cpu").config.dataset.background == "white"  # as the data set has it


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ({"train.max_seconds": "60"}, "train.steps"),
        ({"poses": "refine"}, "poses"),
        ({"dataset.downscale": 2}, "dataset.downscale"),
        ({"train.stepz": 3}, "train.steps"),
    ],
)
def test_settings_that_mean_nothing_there_are_refused(override: dict, remedy: str) -> None:
    with pytest.raises(UserError, match=remedy):
        NerfVoxel(train_dataset=as_theirs(tiny_images()), config_overrides={**TINY, **override})


def test_a_checkpoint_keeps_its_settings(tmp_path: Path) -> None:
    dataset = as_theirs(tiny_images())
    method = NerfVoxel(train_dataset=dataset, config_overrides=TINY)
    method.train_iteration(0)
    method.save(str(tmp_path))
    with pytest.raises(UserError, match="seed=3"):
        NerfVoxel(checkpoint=str(tmp_path), train_dataset=dataset, config_overrides={**TINY, "seed": 3})


def test_the_spec_names_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with a stand-in for NerfBaselines; the entry point of the package names the spec."""
    stand_in, registered = ModuleType("nerfbaselines"), []
    stand_in.register = registered.append
    monkeypatch.setitem(sys.modules, "nerfbaselines", stand_in)
    monkeypatch.delitem(sys.modules, "nerf.benchmarks.nerfbaselines_spec", raising=False)
    name = "nerf.benchmarks.nerfbaselines_spec"
    assert f'nerf-voxel = "{name}"' in (ROOT / "pyproject.toml").read_text()
    importlib.import_module(name)
    (spec,) = registered
    module, _, attribute = spec["method_class"].partition(":")
    assert getattr(importlib.import_module(module), attribute) is NerfVoxel
    for preset in spec["presets"].values():
        settings({name: value for name, value in preset.items() if not name.startswith("@")})
