"""How many voxels sparse grids have: more than field.num_voxels where the scene fills little of its box.

Memory and steps of sparse grids follow the occupied voxels, not those of the box. field.num_voxels suits a scene that
occupies as much of its box as usual. At each doubling a thinner one has so many voxels that about as many are occupied
as the budget allows, down to the size of a pixel.
"""

import torch

from nerf.cameras.cameras import Cameras
from nerf.config.schema import Config
from nerf.scene.box import SceneBox
from nerf.scene.occupancy import OccupancyGrid

# Of N voxels a scene has about N^0.8 times a number that are occupied and not at its border (inner_cells): on a CPU at
# the last doubling to 76^3 voxels lego 3.9, chair 2.8, the wires and nets of `make_bricks.py --variant thin` 1.4.
BUDGET, EXPONENT = 2.0, 0.8
SMALLEST_GAIN = 1.25  # of voxels; finer grids bring nothing below
PIXELS = 1.0  # least size of a voxel of a grid with more voxels than field.num_voxels
MOST_VERTICES = 2**31 - 1  # of a lattice: PyTorch lists the vertices of no larger one


def pixel_size(cameras: Cameras, box: SceneBox) -> float:
    """The median size of a pixel in scene space, as the cameras see the middle of the box."""
    center = box.center.to(cameras.centers)
    distances = (cameras.centers - center).norm(dim=-1)
    # Cameras in the middle itself see what is around them.
    distances = torch.where(distances > 0, distances, 0.5 * float(box.size.max()))
    return box.space.pixel_sizes(distances, cameras.intrinsics[:, 0]).median().item()


def most_voxels(config: Config, cameras: Cameras, box: SceneBox, finest: float) -> int:
    """The most voxels that the finest grid may have, 0 where it has `finest` whatever the scene.

    config: resolved. Dense grids, learned poses and scenes without a box never have more than field.num_voxels.
    """
    field = config.field
    sparse = field.sparse and not config.deterministic
    if not sparse or config.poses.mode != "fixed" or box.space.kind != "bounded":
        return 0
    voxel = max(PIXELS, field.min_voxel_pixels) * pixel_size(cameras, box)
    most = min(field.sparse_gain * finest, box.num_voxels(voxel), MOST_VERTICES)
    return int(most) if most >= SMALLEST_GAIN * finest else 0


def refined(voxels: float, occupancy: OccupancyGrid, most: float) -> float:
    """The number of voxels of a grid after a doubling: `voxels`, or up to `most` if few are occupied; never fewer than
    it has, which can be more than `voxels` after an earlier one.

    occupancy: before the doubling. Reads from the device.
    """
    cells, filled = occupancy.occupied.numel(), max(1, occupancy.inner_cells())
    within_budget = cells * (BUDGET * voxels**EXPONENT / filled) ** (1 / EXPONENT)
    refined = min(most, within_budget)
    return max(refined if refined >= SMALLEST_GAIN * voxels else voxels, float(cells))
