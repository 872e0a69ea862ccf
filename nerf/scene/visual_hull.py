"""Where the scene can be: the box and the first occupancy, from the cameras and the images' alpha.

A cell that a training view sees as wholly transparent is empty (Laurentini 1994, the visual hull). Images without alpha
leave every cell in doubt: then the box is what the cameras look at, and training finds the empty space.
"""

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import estimate_target
from nerf.errors import UserError
from nerf.images.pixel_runs import PixelRuns
from nerf.scene.box import Resolution, SceneBox
from nerf.scene.occupancy import OccupancyGrid, uniform
from nerf.scene.oriented_box import oriented_box
from nerf.scene.silhouettes import Silhouettes, whole_pixels

SEARCH_CELLS = 64**3
SMALLER = 0.8  # a turned box has at most this share of the volume: turning all rays takes a hundredth of a step
SMALL_STEP = 0.05  # of a ball's radius: what lies one radius farther may be far outside of the picture
LENS_SAMPLES = 32  # along each axis of the box


def find_box(cameras: Cameras, silhouettes: Silhouettes | None, device: torch.device) -> SceneBox:
    """The scene's box: what the cameras look at, shrunk to the visual hull where the images have silhouettes.

    It is turned to the axes along which the hull's box is smallest, where that saves enough of its volume. Raises
    UserError where the cameras do not look at a common region, or nothing is left of the hull.
    """
    box = _viewed_cube(cameras).to(device)
    if silhouettes is None:
        return box
    for _ in range(2):  # the second, finer look trims what one cell of the first was wide
        box, hull = _trimmed(silhouettes, box)
    turned = oriented_box(hull, box)
    return _trimmed(silhouettes, turned)[0] if turned.size.prod() < SMALLER * box.size.prod() else box


def _trimmed(silhouettes: Silhouettes, box: SceneBox) -> tuple[SceneBox, Tensor]:
    """The part of a box that the visual hull fills, and the hull's cells in it, bool."""
    resolution = box.resolution(SEARCH_CELLS)
    occupied = carve(silhouettes, box, resolution).occupied
    cells = occupied.nonzero()
    if len(cells) == 0:
        raise UserError(
            "no part of space is inside every training image's silhouette: the poses do not belong to these "
            "images, or their axes differ from Blender's (x right, y up, looking along -z), or a mask is wrong "
            "(dataset.masks=leave_out asks less of them); or set dataset.aabb."
        )
    low, high = cells.amin(0), cells.amax(0) + 1
    corners = box.grid_map(resolution).to_scene(torch.stack([low, high]).float())
    return SceneBox(corners, box.space), occupied[tuple(slice(*ends) for ends in zip(low.tolist(), high.tolist()))]


def carve(silhouettes: Silhouettes | None, box: SceneBox, resolution: Resolution) -> OccupancyGrid:
    """Occupancy of the cells that no view sees as wholly transparent.

    A view decides only over cells whose center falls into its image. Silhouettes are dilated by the radius of a cell's
    image, so thin parts survive, and by their dilation. Where a scene is not bounded, cells have no one size in the
    world, and all stay in doubt.
    """
    grid = uniform(resolution, box.aabb.device)
    if silhouettes is None or box.space.kind != "bounded":
        return grid
    grid_map = box.grid_map(resolution)
    radii = cell_radii(silhouettes.cameras, box, resolution)
    remaining = grid.occupied.nonzero()
    points = box.space.to_world(grid_map.to_scene(remaining + 0.5))
    for views in silhouettes.groups():
        keep = silhouettes.in_doubt(views, points, radii)
        remaining, points = remaining[keep], points[keep]
    occupied = torch.zeros_like(grid.occupied)
    occupied[remaining.unbind(-1)] = True
    return OccupancyGrid(occupied)


def pixels_of_hull(silhouettes: Silhouettes, box: SceneBox, resolution: Resolution) -> PixelRuns:
    """The pixels that count and whose rays may meet a cell of the carved hull.

    A cell was kept if its center is seen within a cell's radius of the silhouette, and a ray that meets it is seen
    within another one: so no ray is missed, and none is walked to find out.
    """
    return silhouettes.pixels_near(2 * max(cell_radii(silhouettes.cameras, box, resolution)))


def cell_radii(cameras: Cameras, box: SceneBox, resolution: Resolution) -> list[int]:
    """For each view, pixels by which a cell's image spreads at most around that of its center, at least 1."""
    grid_map = box.grid_map(resolution)
    radius = 0.5 * (1 / grid_map.scale).norm().item()
    if cameras.lenses is not None:
        # A lens magnifies here more and there less: so a ball is looked at in many places.
        steps = [torch.linspace(0.5, n - 1.5, min(n - 1, LENS_SAMPLES), device=box.aabb.device) for n in resolution]
        points = box.space.to_world(grid_map.to_scene(torch.cartesian_prod(*steps)))
        return [_image_radius(cameras, view, points, radius) for view in range(len(cameras))]
    corners = box.space.to_world(torch.cartesian_prod(*box.aabb.T))
    offsets = corners[None] - cameras.centers[:, None]
    nearest = -(offsets * cameras.c2w[:, None, :, 2]).sum(-1).amin(-1)  # depth is smallest at a corner
    spread = cameras.intrinsics[:, :2].amax(-1) * radius / nearest.clamp(min=radius)
    return [pixels + 1 for pixels in whole_pixels(spread)]


def _image_radius(cameras: Cameras, view: int, points: Tensor, radius: float) -> int:
    """Pixels by which a ball around any of the points [N,3] that the view sees spreads along rows and columns.

    At least 1. points and radius: world units.
    """
    middle, depth = cameras.project(view, points)
    width, height = cameras.size(view)
    inside = (middle >= 0) & (middle < torch.tensor([width, height], device=middle.device))
    seen = inside.all(-1) & (depth > 0)
    if not seen.any():
        return 1
    step, points, middle = SMALL_STEP * radius, points[seen], middle[seen]
    moved = [cameras.project(view, points + step * axis)[0] - middle for axis in cameras.c2w[view, :, :2].T]
    return whole_pixels(torch.stack(moved).norm(dim=0).max()[None] / SMALL_STEP)[0] + 1


def _viewed_cube(cameras: Cameras) -> SceneBox:
    """A cube around the point the cameras look at, as large as the widest of them sees there."""
    if cameras.has_panoramas:
        raise UserError(
            "the scene box cannot be found from the cameras: panoramas see in all directions; set dataset.aabb."
        )
    try:
        target = estimate_target(cameras.c2w)
    except ValueError as error:
        raise UserError(
            f"the scene box cannot be found from the cameras: {error}. Poses in another convention (OpenCV's axes, "
            "world to camera) look so; dry_run=true says whether these are. If they are right, set dataset.aabb."
        ) from error
    slope = (0.5 * cameras.image_sizes / cameras.intrinsics[:, :2]).amax(-1)
    half = ((cameras.centers - target).norm(dim=-1) * slope).max()
    return SceneBox(torch.stack([target - half, target + half]))
