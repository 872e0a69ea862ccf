"""pixel_directions: where pixels look that several rays see."""

from torch import Tensor
from torch.nn import functional

from nerf.ops.registry import example, fake, numbers, without_gradients


def pixel_directions(directions: Tensor, rays_per_pixel: int) -> Tensor:
    """The directions [P,3] of pixels, unit, from those of their rays, [R,3] unit, rays_per_pixel beside each other.

    The first ray of a pixel and the one in the middle of its list lie opposite each other about its center
    (nerf.cameras.SUBPIXELS), so their sum points there. Not differentiable.
    """
    directions = directions.detach()
    sums = directions[::rays_per_pixel] + directions[rays_per_pixel // 2 :: rays_per_pixel]
    return functional.normalize(sums, dim=-1)


without_gradients("pixel_directions")


@fake("pixel_directions")
def _(directions, rays_per_pixel):
    return directions.new_empty(directions.shape[0] // rays_per_pixel, 3)


@example("pixel_directions")
def _():
    return functional.normalize(numbers(48, 3, low=-1), dim=-1), 4
