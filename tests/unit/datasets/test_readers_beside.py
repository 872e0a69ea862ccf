"""A folder with several formats: who knows more is taken, and depths that it lacks are another one's."""

import json
from pathlib import Path

import numpy as np
import pytest
from capture_files import Ring, llff_rows, ring, write_colmap, write_llff, write_photos, write_transforms
from fixtures import look_at_origin

from nerf.datasets.readers import read_capture
from nerf.errors import UserError

VIEWS = ring(7)
POINTS = np.random.default_rng(2).normal(size=(60, 3))
TURN, SCALE, SHIFT = look_at_origin(0.7, -0.4)[:3, :3], 3.5, np.array([1.0, -2.0, 0.5])


def moved(views: Ring) -> Ring:
    """The same cameras in another world, as nerfstudio or LLFF may have it."""
    poses = []
    for pose in views.poses:
        other = np.eye(4)
        other[:3, :3] = TURN @ pose[:3, :3]
        other[:3, 3] = SCALE * TURN @ pose[:3, 3] + SHIFT
        poses.append(other)
    return Ring(views.names, poses)


def other_poses(views: Ring) -> Ring:
    return Ring(views.names, [look_at_origin(0.3 * index**2, 0.1 * index, 3.0) for index in range(len(views.names))])


def forget_points(folder: Path) -> None:
    (folder / "sparse" / "0" / "points3D.bin").unlink(missing_ok=True)


@pytest.mark.parametrize("count", [None, 0, 1])
def test_depth_bounds_beside_a_colmap_model_without_points(tmp_path: Path, count: int | None) -> None:
    """They were ignored, and near was guessed."""
    write_llff(tmp_path, VIEWS)
    write_colmap(tmp_path, VIEWS, points=None if count is None else POINTS[:count])
    found = read_capture(tmp_path)
    assert found.format.startswith("COLMAP, since") and found.points is None
    np.testing.assert_allclose(found.bounds, np.tile([2.0, 6.0], (7, 1)))
    assert "poses_bounds.npy of LLFF is there too, with the same poses, and its depths are taken" in found.format


def test_depth_bounds_in_another_world_are_scaled(tmp_path: Path) -> None:
    write_llff(tmp_path, moved(VIEWS))
    rows = llff_rows(moved(VIEWS))
    rows[:, 15:] = np.arange(1, 8)[:, None] * [1.0, 2.0]
    np.save(tmp_path / "poses_bounds.npy", rows)
    write_colmap(tmp_path, VIEWS)
    np.testing.assert_allclose(read_capture(tmp_path).bounds, rows[:, 15:] / SCALE, rtol=1e-6)


def test_depths_beside_other_poses_are_not_taken(tmp_path: Path) -> None:
    write_llff(tmp_path, other_poses(VIEWS))
    write_colmap(tmp_path, VIEWS)
    found = read_capture(tmp_path)
    assert found.bounds is None and "with other poses, so its depths are not taken" in found.format


def test_a_damaged_format_beside_is_said(tmp_path: Path) -> None:
    write_llff(tmp_path, VIEWS)
    np.save(tmp_path / "poses_bounds.npy", np.ones((3, 4)))
    write_colmap(tmp_path, VIEWS)
    found = read_capture(tmp_path)
    assert found.bounds is None and "cannot be read" in found.format and "[3, 4]" in found.format


def test_known_points_stay(tmp_path: Path) -> None:
    write_llff(tmp_path, VIEWS)
    write_colmap(tmp_path, VIEWS, points=POINTS)
    found = read_capture(tmp_path)
    np.testing.assert_allclose(found.points, POINTS)
    assert "COLMAP's model carries points" in found.format and "its depths are taken" not in found.format


def test_a_model_with_points_goes_before_transforms_of_the_same_poses(tmp_path: Path) -> None:
    """Two formats at once were refused."""
    write_transforms(tmp_path, moved(VIEWS))
    write_colmap(tmp_path, VIEWS, points=POINTS)
    found = read_capture(tmp_path)
    assert found.format.startswith("COLMAP, since")
    assert "transforms.json is there too, with the same poses" in found.format
    np.testing.assert_allclose(found.points, POINTS)
    assert read_capture(tmp_path, "transforms").points is None, "what is asked for is taken alone"


def test_transforms_with_splits_take_the_points_of_the_model(tmp_path: Path) -> None:
    names = [f"images/{name}" for name in VIEWS.names]
    write_transforms(tmp_path, moved(VIEWS), train_filenames=names[:5], test_filenames=names[5:])
    write_colmap(tmp_path, VIEWS, points=POINTS)
    found = read_capture(tmp_path)
    assert [frame.split for frame in found.frames] == ["train"] * 5 + ["test"] * 2
    np.testing.assert_allclose(found.points, SCALE * POINTS @ TURN.T + SHIFT, atol=1e-6)


def test_nerfstudios_transforms_take_the_points_of_the_model_it_keeps(tmp_path: Path) -> None:
    write_transforms(tmp_path, moved(VIEWS))
    (tmp_path / "colmap").mkdir()
    write_colmap(tmp_path / "colmap", VIEWS, points=POINTS)
    found = read_capture(tmp_path)
    assert found.format.startswith("instant-ngp or nerfstudio, since") and "its depths are taken" in found.format
    np.testing.assert_allclose(found.points, SCALE * POINTS @ TURN.T + SHIFT, atol=1e-6)


def test_other_poses_and_equal_knowledge_are_still_refused(tmp_path: Path) -> None:
    write_transforms(tmp_path, other_poses(VIEWS))
    write_colmap(tmp_path, VIEWS, points=POINTS)
    with pytest.raises(UserError, match="found 2 formats"):
        read_capture(tmp_path)
    write_transforms(tmp_path, VIEWS)
    forget_points(tmp_path)
    with pytest.raises(UserError, match="found 2 formats"):
        read_capture(tmp_path)


def test_photos_that_both_do_not_share_tell_nothing(tmp_path: Path) -> None:
    write_llff(tmp_path, VIEWS)
    names = [f"other {index}.png" for index in range(7)]
    write_photos(tmp_path / "images", names)
    for name in VIEWS.names:
        (tmp_path / "images" / name).unlink()
    np.save(tmp_path / "poses_bounds.npy", llff_rows(VIEWS))
    path = write_transforms(tmp_path, VIEWS)
    parsed = json.loads(path.read_text())
    parsed["frames"] = parsed["frames"][:2]
    path.write_text(json.dumps(parsed))
    with pytest.raises(UserError, match="found 2 formats"):
        read_capture(tmp_path)
