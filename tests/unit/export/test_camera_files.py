"""Cameras come back from transforms.json and from COLMAP's text as they went out, lenses included."""

import os
from pathlib import Path

import pytest
import torch
from panorama_scene import room_panoramas
from PIL import Image

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
    given = cameras()
    for index, name in enumerate(NAMES):
        Image.new("RGB", given.size(index)).save(tmp_path / name)
    write_transforms(tmp_path / "transforms.json", given, NAMES)
    frames = transforms.read(tmp_path).frames
    for index, frame in enumerate(frames):
        torch.testing.assert_close(torch.as_tensor(frame.c2w).float()[:3], given.c2w[index], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "coefficients"),
    [
        ("perspective", [0.1, 0.02, 0.001, 0.002, 0.25, 0.03]),
        ("perspective", [0, 0, 0, 0, 0.25]),
        ("fisheye", [0.05, 0.01, 0.002, 0.001]),
        ("fisheye", []),
    ],
)
def test_lenses_come_back_from_transforms(tmp_path: Path, model: str, coefficients: list[float]) -> None:
    given = cameras(Lenses.of([model] * 3, [coefficients] * 3))
    for index, name in enumerate(NAMES):
        Image.new("RGB", given.size(index)).save(tmp_path / name)
    assert len(write_transforms(tmp_path / "transforms.json", given, NAMES)) == 1
    found = transforms.read(tmp_path).frames[0]
    assert found.lens == model
    expected = torch.tensor(coefficients)
    torch.testing.assert_close(torch.tensor(found.distortion)[: len(expected)].float(), expected)
    assert not any(found.distortion[len(expected) :])


def test_the_model_of_all_stands_where_nerfstudio_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "transforms.json"
    for model, name in (("perspective", "OPENCV"), ("fisheye", "OPENCV_FISHEYE")):
        assert write_transforms(path, cameras(Lenses.of([model] * 3, [[0.01]] * 3)), NAMES) == (name,)
        assert read_json(path)["camera_model"] == name
    write_transforms(path, cameras(), NAMES)
    assert read_json(path)["camera_model"] == "OPENCV"
    write_transforms(path, room_panoramas(3, 16), NAMES)
    assert read_json(path)["camera_model"] == "EQUIRECTANGULAR"
    mixed = cameras(Lenses.of(["perspective", "fisheye", "perspective"], [[], [0.01], []]))
    assert write_transforms(path, mixed, NAMES) == ("OPENCV", "OPENCV_FISHEYE")
    assert "camera_model" not in read_json(path)


def in_instant_ngp(frame: dict) -> tuple[str, list[float]]:
    """Lens and parameters as read_lens of its nerf_loader.cu finds them: two coefficients share a place."""
    places = {"k1": 0, "k2": 1, "k3": 2, "k4": 3, "p1": 2, "p2": 3}
    parameters, bent = [0.0] * 4, False
    for name, place in places.items():
        if name in frame:
            parameters[place] = frame[name]
            bent = bent or frame[name] != 0
    kind = "fisheye" if frame.get("is_fisheye", False) else "perspective"
    return (kind if bent else "pinhole"), parameters


def test_instant_ngp_takes_no_lens_for_another(tmp_path: Path) -> None:
    path = tmp_path / "transforms.json"
    lenses = Lenses.of(["perspective", "fisheye", "perspective"], [[0.1, 0, 0, 0, 0.25, 0.5], [0.1, 0, 0.5], []])
    write_transforms(path, cameras(lenses), NAMES)
    first, second, third = (in_instant_ngp(frame) for frame in read_json(path)["frames"])
    assert first == ("perspective", pytest.approx([0.1, 0, 0, 0]))
    assert second == ("fisheye", pytest.approx([0.1, 0, 0.5, 0])) and third[0] == "pinhole"


def test_names_that_colmap_would_cut_are_refused(tmp_path: Path) -> None:
    names = ["IMG 1.jpg", "b.jpg", "c\n.jpg"]
    with pytest.raises(UserError, match="cannot name 2 of 3 photos, as 'IMG 1.jpg': COLMAP reads a name up to"):
        write_colmap(tmp_path / "model", cameras(), names)
    assert not (tmp_path / "model").exists()


def test_names_that_are_not_utf_8_go_out_as_they_are(tmp_path: Path) -> None:
    names = [os.fsdecode(b"caf\xe9.png"), "b.png", "c.png"]
    write_colmap(tmp_path, cameras(), names)
    assert b" caf\xe9.png\n" in (tmp_path / "images.txt").read_bytes()
    assert [image.name for image in colmap_text.read_images(tmp_path / "images.txt")] == names
    write_transforms(tmp_path / "transforms.json", cameras(), names)
    assert [frame["file_path"] for frame in read_json(tmp_path / "transforms.json")["frames"]] == names


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
