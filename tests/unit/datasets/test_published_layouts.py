"""mip-NeRF 360 and Tanks and Temples load as they come: sparse/0, images and smaller copies under the same names."""

from pathlib import Path

import numpy as np
import pytest
from capture_files import ring, write_colmap, write_photos

from nerf.benchmarks.scene_sets import find_scenes
from nerf.benchmarks.scenes import dataset_of
from nerf.config.schema import DatasetConfig
from nerf.datasets.load import load_split

FULL = (96, 64)
INTRINSICS = (120.0, 122.0, 48.5, 31.5)


def write_layout(folder: Path, count: int = 17, levels: tuple[int, ...] = (2, 4, 8)) -> list[str]:
    """The layout of a scene with photos in four sizes; the names of the photos, as they are sorted."""
    views = ring(count, name="_DSC86{:02d}.JPG")
    points = np.random.default_rng(0).normal(size=(60, 3))
    write_colmap(folder, views, model="PINHOLE", parameters=INTRINSICS, size=FULL, points=points)
    for level in (1, *levels):
        name = "images" if level == 1 else f"images_{level}"
        write_photos(folder / name, views.names, (FULL[0] // level, FULL[1] // level))
    (folder / "poses_bounds.npy").write_bytes(b"")  # is there too, and not needed
    return sorted(views.names)


@pytest.mark.parametrize(("scene", "level"), [("bicycle", 4), ("kitchen", 2), ("garden", 4), ("bonsai", 2)])
def test_mip_nerf_360_is_read_at_its_custom_size_with_every_eighth_photo_held_out(
    tmp_path: Path, scene: str, level: int
) -> None:
    names = write_layout(tmp_path / "360_v2" / scene)
    (found,) = find_scenes([tmp_path], [])
    assert (found.set, found.images) == ("mipnerf360", f"images_{level}")
    dataset = dataset_of(found, DatasetConfig())
    train, test = load_split(dataset, "train"), load_split(dataset, "test")
    stems = [Path(name).stem for name in names]
    assert test.names == stems[::8] and len(train) == len(stems) - len(test)
    assert not set(train.names) & set(test.names)
    assert train.cameras.size(0) == (FULL[0] // level, FULL[1] // level)
    assert train.cameras.intrinsics[0].tolist() == pytest.approx([value / level for value in INTRINSICS])
    assert train.scene.kind == "unbounded"


def test_tanks_and_temples_has_photos_of_one_size(tmp_path: Path) -> None:
    names = write_layout(tmp_path / "tandt" / "truck", levels=())
    (tmp_path / "tandt" / "truck" / "poses_bounds.npy").unlink()
    dataset = DatasetConfig(root=str(tmp_path / "tandt" / "truck"), format="auto")
    assert load_split(dataset, "test").names == [Path(name).stem for name in names][::8]
    assert load_split(dataset, "train").cameras.size(0) == FULL
