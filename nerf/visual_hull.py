"""Where the scene can be: the box and the first occupancy, from the cameras and the images' alpha.

A cell that a training view sees as wholly transparent is empty (Laurentini 1994, the visual hull). Images without alpha
leave every cell in doubt: then the box is what the cameras look at, and training finds the empty space.
"""

import torch
from torch import Tensor
from torch.nn import functional

from nerf.camera_paths import estimate_target
from nerf.cameras import Cameras
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.occupancy import OccupancyGrid, uniform
from nerf.scene_box import Resolution, SceneBox

SEARCH_CELLS = 64**3


def find_box(images: PosedImages, device: torch.device, slack: float = 0.0) -> SceneBox:
    """The scene's box: what the cameras look at, shrunk to the visual hull where the images have alpha.

    slack: see carve.

    Raises UserError where the cameras do not look at a common region, or nothing is left of the hull.
    """
    box = _viewed_cube(images.cameras).to(device)
    if not images.has_alpha:
        return box
    for _ in range(2):  # the second, finer look trims what one cell of the first was wide
        resolution = box.resolution(SEARCH_CELLS)
        cells = carve(images, box, resolution, slack).occupied.nonzero()
        if len(cells) == 0:
            raise UserError(
                "no part of space is inside every training image's silhouette: the poses do not belong to these "
                "images, or their axes differ from Blender's (x right, y up, looking along -z); or set dataset.aabb."
            )
        grid_map = box.grid_map(resolution)
        corners = torch.stack([cells.amin(0), cells.amax(0) + 1]).float()
        box = SceneBox(grid_map.to_world(corners))
    return box


def carve(images: PosedImages, box: SceneBox, resolution: Resolution, slack: float = 0.0) -> OccupancyGrid:
    """Occupancy of the cells that no view sees as wholly transparent.

    A view decides only over cells whose centre falls into its image. Silhouettes are widened by the radius of a cell's
    image, so thin parts survive, and by slack, an angle in radians by which poses may be wrong.
    """
    device = box.aabb.device
    grid = uniform(resolution, device)
    if not images.has_alpha:
        return grid
    cameras, grid_map = images.cameras.to(device), box.grid_map(resolution)
    remaining = grid.occupied.nonzero()
    half_diagonal = 0.5 * (1 / grid_map.scale).norm().item()
    for view in range(len(cameras)):
        pixels, depth = cameras.project(view, grid_map.to_world(remaining + 0.5))
        column, row = pixels.floor().long().unbind(-1)
        seen = (depth > 0) & (column >= 0) & (column < cameras.width) & (row >= 0) & (row < cameras.height)
        nearest = depth[seen].min().item() if seen.any() else 1.0
        angle = half_diagonal / max(nearest, half_diagonal) + slack
        radius = int(cameras.intrinsics[view, :2].max().item() * angle) + 1
        silhouette = _widen(images.images[view, ..., 3].to(device) > 0, radius)
        inside = silhouette[row.clamp(0, cameras.height - 1), column.clamp(0, cameras.width - 1)]
        remaining = remaining[inside | ~seen]
    occupied = torch.zeros_like(grid.occupied)
    occupied[remaining.unbind(-1)] = True
    return OccupancyGrid(occupied)


def _widen(mask: Tensor, radius: int) -> Tensor:
    """A mask [H,W] widened by radius pixels in each direction; a square window is two runs of a line."""
    size = 2 * radius + 1
    rows = functional.max_pool2d(mask.float()[None], (size, 1), stride=1, padding=(radius, 0))
    return functional.max_pool2d(rows, (1, size), stride=1, padding=(0, radius))[0] > 0


def _viewed_cube(cameras: Cameras) -> SceneBox:
    """A cube around the point the cameras look at, as large as the widest of them sees there."""
    try:
        target = estimate_target(cameras.c2w)
    except ValueError as error:
        raise UserError(f"the scene box cannot be found from the cameras: {error}; set dataset.aabb.") from error
    fx, fy, _, _ = cameras.intrinsics.unbind(-1)
    slope = torch.maximum(0.5 * cameras.width / fx, 0.5 * cameras.height / fy)
    half = ((cameras.centers - target).norm(dim=-1) * slope).max()
    return SceneBox(torch.stack([target - half, target + half]))
