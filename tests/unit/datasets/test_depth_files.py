"""Depth files of transforms.json: camera z, 16-bit PNG or .npy, to world distance along each pixel's ray."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_files import HEIGHT, WIDTH, ring, write_transforms
from PIL import Image

from nerf.config.schema import DatasetConfig
from nerf.datasets.load import load_split
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError


def with_depths(folder: Path, maps: dict[int, np.ndarray], suffix: str = ".png", **header: object) -> Path:
    """A capture whose frames of the given numbers have depth files."""
    path = write_transforms(folder, ring(3), **header)
    content = json.loads(path.read_text())
    (folder / "depth").mkdir()
    for index, stored in maps.items():
        name = f"depth/{index}{suffix}"
        np.save(folder / name, stored) if suffix == ".npy" else Image.fromarray(stored).save(folder / name)
        content["frames"][index]["depth_file_path"] = name
    path.write_text(json.dumps(content))
    return folder


def load(folder: Path, **settings: object) -> PosedImages:
    dataset = DatasetConfig(root=str(folder), test_every=0, **settings)
    return load_split(dataset, "train")


def plane(value: float, dtype: type = np.uint16) -> np.ndarray:
    return np.full((HEIGHT, WIDTH), value, dtype)


@pytest.mark.parametrize("suffix", [".png", ".npy"])
@pytest.mark.parametrize("lens", [{}, {"camera_model": "OPENCV_FISHEYE", "k1": 0.05}])
def test_camera_z_becomes_distance_along_the_ray(tmp_path: Path, suffix: str, lens: dict) -> None:
    stored = plane(4000) if suffix == ".png" else plane(4000.0, np.float32)
    stored[2, 3] = 0
    images = load(with_depths(tmp_path, {1: stored}, suffix, depth_unit_scale_factor=0.0005, **lens))
    cameras = images.cameras
    first = cameras.first_pixel(1)
    distance = images.depths[first : cameras.first_pixel(2)].view(HEIGHT, WIDTH)
    assert distance[2, 3] == 0
    points = cameras.rays_through(torch.arange(first, cameras.first_pixel(2))).directions.view(HEIGHT, WIDTH, 3)
    points = points * distance[..., None]
    z = -points @ cameras.c2w[1, :3, 2]
    z[2, 3] = 2.0
    torch.testing.assert_close(z, torch.full_like(z, 2.0))
    assert distance[0, 0] > distance[HEIGHT // 2, WIDTH // 2]
    assert not images.depths[:first].any()  # a frame without a file
    assert "1 photos have depth files" in " ".join(images.notes)


def test_where_nothing_is_said_a_stored_1_is_a_millimeter(tmp_path: Path) -> None:
    images = load(with_depths(tmp_path, {0: plane(3000)}))
    middle = images.depth(0)[HEIGHT // 2, WIDTH // 2].item()
    assert middle == pytest.approx(3.0, rel=1e-3)
    assert load(write_transforms(tmp_path / "bare", ring(3)).parent).depths is None


def test_depth_files_are_in_units_from_before_the_poses_were_scaled(tmp_path: Path) -> None:
    folder = with_depths(tmp_path, {0: plane(3000)})
    path = folder / "transforms.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"applied_scale": 0.5}))
    images = load(folder)
    assert images.depth(0)[HEIGHT // 2, WIDTH // 2].item() == pytest.approx(1.5, rel=1e-3)
    assert "before applied_scale" in " ".join(images.notes)


def test_downscaled_depth_is_the_mean_of_what_is_known_and_other_sizes_are_stretched(tmp_path: Path) -> None:
    stored = plane(0)
    stored[::2, ::2] = 2000  # one of four
    images = load(with_depths(tmp_path / "a", {0: stored}), downscale=2)
    assert images.depth(0).min() > 1.99
    images = load(with_depths(tmp_path / "b", {0: np.full((HEIGHT // 2, WIDTH // 2), 1000, np.uint16)}))
    assert images.depth(0).min() > 0.99


def test_what_is_not_finite_in_an_array_is_not_known(tmp_path: Path) -> None:
    stored = plane(1000.0, np.float64)
    stored[0, 0], stored[0, 1] = np.nan, np.inf
    depth = load(with_depths(tmp_path, {0: stored[..., None]}, ".npy")).depth(0)
    assert depth[0, :2].tolist() == [0, 0] and (depth > 0).sum() == HEIGHT * WIDTH - 2


@pytest.mark.parametrize(
    ("stored", "suffix", "named"),
    [
        (plane(9, np.uint8), ".png", "16-bit gray"),
        (np.full((HEIGHT, 4 * WIDTH), 9, np.uint16), ".png", "other proportions"),
        (plane(-1.0, np.float32), ".npy", "no negative depth"),
        (np.full((2, 3, 4), 1.0), ".npy", r"array \[2, 3, 4\]"),
        (np.full((HEIGHT, WIDTH), "a"), ".npy", "expected numbers"),
    ],
)
def test_depth_files_that_cannot_be_used_are_answered(
    tmp_path: Path, stored: np.ndarray, suffix: str, named: str
) -> None:
    with pytest.raises(UserError, match=rf"depth/2\{suffix}.*{named}"):
        load(with_depths(tmp_path, {2: stored}, suffix))


def test_missing_and_damaged_files_and_units_are_answered(tmp_path: Path) -> None:
    folder = with_depths(tmp_path / "a", {0: plane(9.0, np.float32)}, ".npy")
    (folder / "depth" / "0.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UserError, match="cannot be read as .npy"):
        load(folder)
    (folder / "depth" / "0.npy").unlink()
    with pytest.raises(UserError, match="no such file, expected the depth map"):
        load(folder)
    with pytest.raises(UserError, match="depth_unit_scale_factor is 0, expected world units"):
        load(with_depths(tmp_path / "b", {0: plane(9)}, depth_unit_scale_factor=0.0))
