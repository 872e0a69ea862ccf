"""What of a scene becomes a surface: all inside a crop box; without one, of a scene that ends, what is no backdrop.

Legend: N points, V vertices, F triangles.
"""

import torch
from torch import Tensor

from nerf.errors import UserError
from nerf.scene.space import Space

TAIL = 0.05  # of the surface's vertices, beyond either side of the box that is told where a crop holds none


def check_crop(space: Space, crop: Tensor | None) -> None:
    """Raises UserError where a surface would have no end: an unbounded scene without a crop box."""
    if crop is None and space.inner_box is not None:
        raise UserError(
            "this scene is unbounded, its surface has no end; say what of it you want with crop=[x0,y0,z0,x1,y1,z1] in "
            f"world units. Its inner box, around what the cameras look at, is: '{as_setting(space.inner_box)}'"
        )


def inside(space: Space, points: Tensor, crop: Tensor | None) -> Tensor:
    """Whether scene points [N,3] are what is asked for, [N] bool. crop [2,3]: world; None: all that is near."""
    if crop is None:
        return space.is_near(points)
    world, (low, high) = space.to_world(points), crop.to(points)
    return ((world >= low) & (world <= high)).all(-1)


def nothing_inside(world: Tensor, crop: Tensor) -> UserError:
    """The answer to a crop box without surface. world [V,3]: the vertices of all of the surface."""
    ordered, last = world.sort(dim=0).values, len(world) - 1
    most = torch.stack([ordered[int(TAIL * last)], ordered[int((1 - TAIL) * last)]])
    return UserError(
        f"{as_setting(crop)} holds nothing of the surface, most of which lies in '{as_setting(most)}', world units"
    )


def as_setting(box: Tensor) -> str:
    """A box [2,3] as it is typed: each number to a thousandth of the box's edge, wherever in the world it lies."""
    edges = (box[1] - box[0]).abs().double()
    decimals = (3 - edges.log10().floor()).clamp(0, 12).nan_to_num(6).int().tolist()
    numbers = (f"{x:.{decimals[at % 3]}f}" for at, x in enumerate(box.flatten().tolist()))
    return f"crop=[{','.join(x.rstrip('0').rstrip('.') if '.' in x else x for x in numbers)}]"
