"""Where the scene can be: the box and the first occupancy, from the cameras and the images' alpha.

A cell that a training view sees as wholly transparent is empty (Laurentini 1994, the visual hull). Images without alpha
leave every cell in doubt: then the box is what the cameras look at, and training finds the empty space.
"""

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import estimate_target
from nerf.cameras.rays import Rays
from nerf.errors import UserError
from nerf.images.pixel_runs import PixelRuns
from nerf.scene.box import Resolution, SceneBox
from nerf.scene.occupancy import OccupancyGrid, uniform
from nerf.scene.oriented_box import oriented_box
from nerf.scene.silhouettes import Silhouettes, whole_pixels

SEARCH_CELLS = 64**3
SMALLER = 0.8  # a turned box has at most this share of the volume: turning all rays takes a hundredth of a step
# Cells that few views see are carved by few. The box is around those that at least such a share of the views see,
SEEN = (1 / 2, 1 / 4, 1 / 8, 1 / 16)  # the largest that will do:
LESS = 0.75  # where that leaves at most so much of the volume,
LOST = 0.03  # and where no picture has more of its object's pixels that look past these cells, but at
SEEN_TWICE = 2  # some which so many views see.
LOOKED_AT, STEPS = 1 << 14, 192  # pixels of the object, of all pictures, and along each, with two steps a cell
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
    cells = _well_seen(silhouettes, box, resolution, cells)
    low, high = cells.amin(0), cells.amax(0) + 1
    hull = _grid_of(cells, resolution)
    hull = hull[tuple(slice(*ends) for ends in zip(low.tolist(), high.tolist()))]
    return _box_around(box, resolution, cells), hull


def _well_seen(silhouettes: Silhouettes, box: SceneBox, resolution: Resolution, cells: Tensor) -> Tensor:
    """Of a hull's cells [N,3] those that many views see, if they are all of the object; else all.

    Between and behind cameras that stand close, next to nothing is carved: most of them do not see what is there.
    """
    views = silhouettes.views_that_see(box.space.to_world(box.grid_map(resolution).to_scene(cells + 0.5)))
    needed = None
    for share in SEEN:
        chosen = cells[views >= share * len(silhouettes)]
        if len(chosen) == 0:
            continue
        smaller = _box_around(box, resolution, chosen).size.prod() / _box_around(box, resolution, cells).size.prod()
        if smaller > LESS:
            break
        if needed is None:
            rays, view = silhouettes.rays(LOOKED_AT)
            needed = _meet(rays, cells[views >= SEEN_TWICE], box, resolution)
            pixels = torch.bincount(view).clamp(min=1)
        lost = needed & ~_meet(rays, chosen, box, resolution)
        if (torch.bincount(view, lost.double()) / pixels).max() <= LOST:
            return chosen
    return cells


def _meet(rays: Rays, cells: Tensor, box: SceneBox, resolution: Resolution) -> Tensor:
    """Which world rays meet any of the cells [N,3] of a box, [R] bool."""
    grid, shape = _grid_of(cells, resolution), torch.tensor(resolution, device=cells.device) - 1
    origins, directions = box.space.to_scene(rays.origins), box.space.to_scene(rays.directions)
    ends = (box.aabb[:, None] - origins) / directions
    enter, leave = ends.amin(0).amax(-1).clamp(min=0), ends.amax(0).amin(-1)
    t = enter + (leave - enter).clamp(min=0) * ((torch.arange(STEPS, device=enter.device) + 0.5) / STEPS)[:, None]
    coords = ((origins + t[..., None] * directions - box.aabb[0]) / box.size * shape).long()
    return grid[torch.minimum(coords.clamp(min=0), shape - 1).unbind(-1)].any(0) & (enter <= leave)


def _grid_of(cells: Tensor, resolution: Resolution) -> Tensor:
    """Cells [N,3] as a grid, bool."""
    grid = torch.zeros([n - 1 for n in resolution], dtype=torch.bool, device=cells.device)
    grid[cells.unbind(-1)] = True
    return grid


def _box_around(box: SceneBox, resolution: Resolution, cells: Tensor) -> SceneBox:
    """The part of a box that cells [N,3] of it span."""
    ends = torch.stack([cells.amin(0), cells.amax(0) + 1]).float()
    return SceneBox(box.grid_map(resolution).to_scene(ends), box.space)


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
