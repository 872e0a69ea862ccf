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
SMALL_STEP = 0.05  # of a ball's radius: what lies one radius farther may be far outside of the picture


def find_box(images: PosedImages, device: torch.device) -> SceneBox:
    """The scene's box: what the cameras look at, shrunk to the visual hull where the images have alpha.

    Raises UserError where the cameras do not look at a common region, or nothing is left of the hull.
    """
    box = _viewed_cube(images.cameras).to(device)
    if not images.has_alpha:
        return box
    for _ in range(2):  # the second, finer look trims what one cell of the first was wide
        resolution = box.resolution(SEARCH_CELLS)
        cells = carve(images, box, resolution).occupied.nonzero()
        if len(cells) == 0:
            raise UserError(
                "no part of space is inside every training image's silhouette: the poses do not belong to these "
                "images, or their axes differ from Blender's (x right, y up, looking along -z); or set dataset.aabb."
            )
        grid_map = box.grid_map(resolution)
        corners = torch.stack([cells.amin(0), cells.amax(0) + 1]).float()
        box = SceneBox(grid_map.to_world(corners))
    return box


def carve(images: PosedImages, box: SceneBox, resolution: Resolution) -> OccupancyGrid:
    """Occupancy of the cells that no view sees as wholly transparent.

    A view decides only over cells whose centre falls into its image. Silhouettes are widened by the radius of a cell's
    image, so thin parts survive.
    """
    device = box.aabb.device
    grid = uniform(resolution, device)
    if not images.has_alpha:
        return grid
    cameras, grid_map = images.cameras.to(device), box.grid_map(resolution)
    remaining = grid.occupied.nonzero()
    half_diagonal = 0.5 * (1 / grid_map.scale).norm().item()
    for view in range(len(cameras)):
        width, height = cameras.size(view)
        points = grid_map.to_world(remaining + 0.5)
        pixels, depth = cameras.project(view, points)
        column, row = pixels.floor().long().unbind(-1)
        seen = (depth > 0) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
        radius = _image_radius(cameras, view, points[seen], depth[seen], half_diagonal)
        opaque = images.image(view)[..., 3].to(device) > 0
        counts = images.counts(view)
        if counts is not None:  # what does not count says nothing about what is empty
            opaque |= ~counts.to(device)
        inside = _widen(opaque, radius)[row.clamp(0, height - 1), column.clamp(0, width - 1)]
        remaining = remaining[inside | ~seen]
    occupied = torch.zeros_like(grid.occupied)
    occupied[remaining.unbind(-1)] = True
    return OccupancyGrid(occupied)


def _image_radius(cameras: Cameras, view: int, points: Tensor, depth: Tensor, radius: float) -> int:
    """Pixels by which a ball around any of the points [N,3] spreads along rows and columns, at least 1. depth [N], radius: world."""
    if len(points) == 0:
        return 1
    if cameras.lenses is None:
        return int(cameras.intrinsics[view, :2].max().item() * radius / max(depth.min().item(), radius)) + 1
    # A lens magnifies here more and there less: so each ball is looked at, by a small step to the right and one up.
    step = SMALL_STEP * radius
    middle, _ = cameras.project(view, points)
    moved = [cameras.project(view, points + step * axis)[0] - middle for axis in cameras.c2w[view, :, :2].T]
    return int(torch.stack(moved).norm(dim=0).max().item() / SMALL_STEP) + 1


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
    slope = (0.5 * cameras.image_sizes / cameras.intrinsics[:, :2]).amax(-1)
    half = ((cameras.centers - target).norm(dim=-1) * slope).max()
    return SceneBox(torch.stack([target - half, target + half]))
