"""Cameras come back from transforms.json and from COLMAP's text as they went out, lenses included."""

from pathlib import Path

import pytest
import torch

from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import Lenses
from nerf.cameras.se3 import exponential
from nerf.datasets.readers import colmap_text, transforms
from nerf.errors import UserError
from nerf.export.camera_files import write_colmap, write_transforms
from nerf.reading import read_json

NAMES = ["a.png", "b.png", "c.png"]


def cameras(lenses: Lenses | None = None) -> Cameras:
    """Three cameras that look and stand differently, of different sizes."""
    twists = torch.tensor([[0.1, 2.0, -0.3, 1.0, 0.0, 2.0], [3.0, 0.1, 0.2, -1.0, 0.5, 0.0], [0.0] * 6])
    intrinsics = torch.tensor([[50.0, 51.0, 20.0, 15.5], [60.0, 60.0, 16.0, 12.0], [70.0, 71.0, 10.0, 8.0]])
    rotations, moves = exponential(twists)
    return Cameras.of_sizes(
        torch.cat([rotations, moves[..., None]], dim=-1), intrinsics, [(40, 30), (32, 24), (20, 16)], lenses
    )


def test_transforms_hold_poses_intrinsics_and_lenses(tmp_path: Path) -> None:
    models = ["perspective", "fisheye", "perspective"]
    given = cameras(Lenses.of(models, [[0.1, 0.02, 0.001, 0.002], [0.05, 0.01], []]))
    write_transforms(tmp_path / "transforms.json", given, NAMES)
    found = read_json(tmp_path / "transforms.json")["frames"]
    assert [frame["file_path"] for frame in found] == NAMES
    for index, frame in enumerate(found):
        assert torch.equal(torch.tensor(frame["transform_matrix"])[:3], given.c2w[index])
        assert [frame[key] for key in ("fl_x", "fl_y", "cx", "cy")] == given.intrinsics[index].tolist()
        assert (frame["w"], frame["h"]) == given.size(index)
    assert found[0]["k1"] == pytest.approx(0.1) and found[0]["p2"] == pytest.approx(0.002)
    assert found[1]["camera_model"] == "OPENCV_FISHEYE" and "k1" not in found[2]


def test_the_reader_of_transforms_reads_them(tmp_path: Path) -> None:
    from PIL import Image

    given = cameras()
    for index, name in enumerate(NAMES):
        Image.new("RGB", given.size(index)).save(tmp_path / name)
    write_transforms(tmp_path / "transforms.json", given, NAMES)
    frames = transforms.read(tmp_path).frames
    for index, frame in enumerate(frames):
        torch.testing.assert_close(torch.as_tensor(frame.c2w).float()[:3], given.c2w[index], rtol=0, atol=1e-6)


def test_colmaps_text_holds_them(tmp_path: Path) -> None:
    given = cameras(Lenses.of(["perspective", "fisheye", "perspective"], [[0.1, 0.02], [0.05, 0.01], []]))
    write_colmap(tmp_path, given, NAMES)
    lenses = colmap_text.read_cameras(tmp_path / "cameras.txt")
    images = colmap_text.read_images(tmp_path / "images.txt")
    assert (tmp_path / "points3D.txt").read_text() == ""
    lines = [line.split()[1] for line in (tmp_path / "cameras.txt").read_text().splitlines()]
    assert lines == ["OPENCV", "OPENCV_FISHEYE", "PINHOLE"] and len(lenses) == 3
    for index, image in enumerate(images):
        world_to_camera = torch.from_numpy(image.world_to_camera("images.txt"))
        pose = torch.eye(4, dtype=torch.float64)
        pose[:3] = given.c2w[index].double()
        pose[:, 1:3] *= -1
        torch.testing.assert_close(world_to_camera[:3] @ pose, torch.eye(4).double()[:3], rtol=0, atol=1e-6)
        assert image.name == NAMES[index]


def test_a_sixth_order_lens_is_colmaps_full_model(tmp_path: Path) -> None:
    write_colmap(tmp_path, cameras(Lenses.of(["perspective"] * 3, [[0.1, 0, 0, 0, 0.25], [], []])), NAMES)
    words = (tmp_path / "cameras.txt").read_text().splitlines()[0].split()
    assert words[1] == "FULL_OPENCV" and [float(word) for word in words[-4:]] == [0.25, 0, 0, 0]


def test_a_lens_that_colmap_does_not_know_is_refused(tmp_path: Path) -> None:
    given = cameras(Lenses.of(["perspective"] * 3, [[0, 0, 0, 0, 0, 0.01], [], []]))
    with pytest.raises(UserError, match="k4.*format=cameras"):
        write_colmap(tmp_path, given, NAMES)
