"""compare_beside: whether photos taken beside each other show the same at a rendered depth."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from nerf.ops.lens import FISHEYE, PANORAMA, PERSPECTIVE, distort
from nerf.ops.registry import derivative, example, fake, numbers

_ops = torch.ops.nerf

# As math/compare_beside.h has them.
OPAQUE = 0.5  # opacity above which a pixel has a depth
LEAST_COSINE = math.cos(math.radians(10))  # of the angle between the directions in which both photos show a point
SPREAD = 7919  # a prime: which of the views beside its own a pixel is compared with changes from one to the next
# As math/photo_patches.h has them; brightness is in [0,1].
PATCH = 3  # pixels along each side of a patch
HIDDEN = 0.6  # 1 - NCC from which a patch is taken to be hidden in the other photo, or to mirror something
FLAT = 0.02  # standard deviation of brightness up to which a patch shows nothing
PHOTO_NOISE = 0.01  # standard deviation of brightness that a photo has by itself: fainter patches say less
LEAST_ENERGY = 1e-6  # added to the other patch's variance, by which a correlation is divided
FARTHEST = 1e18  # distance whose square float32 still holds
OPAQUE_BYTE = 128  # alpha from which a photo's pixel counts


def compare_beside(
    depth: Tensor,
    opacity: Tensor,
    origins: Tensor,
    directions: Tensor,
    pixels: Tensor,
    images: Tensor,
    sizes: Tensor,
    first_pixels: Tensor,
    beside: Tensor,
    c2w: Tensor,
    intrinsics: Tensor,
    lens_models: Tensor | None,
    lens_coefficients: Tensor | None,
    lens_reach: Tensor | None,
    stride: int,
) -> Tensor:
    """How unlike the patches around pixels are to what a photo taken beside their own shows at the rendered depth.

    A patch of 3x3 pixels, stride apart, is put at the distance depth / opacity of its middle and looked up in the other
    photo. The result is one minus their normalized cross-correlation (NCC), whatever the exposures, times the share of
    the patch's variance that is not a photo's noise (multi-view consistency: Chen et al. 2024, "PGSR", section 4.2).

    depth, opacity [P]: composited world distance and opacity. origins, directions [P,3] world, unit: of the pixels'
    rays. pixels [P] int64, counted over all I photos. images [N,C] uint8, C 3 or 4: the pixels of all photos in one
    row; sizes [I,2] int64: width and height of each; first_pixels [I+1] int64: the pixels before each, and of all.
    beside [I,K] int64: the photos taken beside each, -1 where there is none. c2w [I,3,4], intrinsics [I,4] (fx, fy, cx,
    cy in pixels): as nerf.cameras.Cameras has them. lens_models [I] int64, lens_coefficients [I,6], lens_reach [I]: as
    nerf.cameras.distortion.Lenses has them; None: pinholes.

    Returns [P], in [0, 0.6). 0 says nothing: the pixel is not opaque, no photo is beside its own, the one that it is
    compared with is behind the point or sees it from a direction that differs by 10 degrees or more, a pixel of the
    patch lies outside of a photo or is transparent there, the patch is flat, or so unlike that it will be hidden.
    Between the centers of pixels a photo is bilinear. Differentiable in depth and opacity.

    Pixels, photos and sizes that cannot be raise ValueError on the CPU, and on CUDA give 0.
    """
    image = torch.searchsorted(first_pixels, pixels, right=True) - 1
    other = beside[image, pixels * SPREAD // 64 % beside.shape[1]]
    compared, shown_in = (other >= 0) & (opacity > OPAQUE), other.clamp(min=0)
    cameras = c2w, intrinsics, lens_models, lens_coefficients, lens_reach
    distance = depth.detach() / torch.where(compared, opacity.detach(), 1.0)
    compared = compared & (distance.abs() < FARTHEST)
    distance = torch.where(compared, depth, 1.0) / torch.where(compared, opacity, 1.0)
    # Offsets from the center of the camera that a pixel is shown in; of its own camera the ray's direction is one.
    between = origins - c2w[:, :, 3].index_select(0, shown_in)
    to_point = between + distance[:, None] * directions
    length, along = to_point.detach().norm(dim=-1), (to_point.detach() * directions).sum(-1)
    compared = compared & (along > LEAST_COSINE * length)
    ahead = _project(to_point, shown_in, *cameras)[1]

    around = torch.arange(PATCH, device=pixels.device) - PATCH // 2
    right, down = (stride * x.flatten() for x in torch.meshgrid(around, around, indexing="xy"))
    width, height = sizes.index_select(0, image)[:, None].unbind(-1)
    within = (pixels - first_pixels.index_select(0, image))[:, None]
    column, row = within % width + right, within // width + down
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    own = pixels[:, None] + torch.where(inside, down * width + right, 0)
    here, opaque = _brightness(images, own, depth.dtype)

    steps = _steps(directions, image, cameras)
    patches = directions[:, None] + torch.stack([right, down], dim=-1).to(steps) @ steps  # [P,9,3]
    offsets = between[:, None] + distance[:, None, None] * patches
    places = _project(offsets.flatten(0, 1), shown_in.repeat_interleave(PATCH**2), *cameras)[0]
    there, seen = _between(images, shown_in, places.view(-1, PATCH**2, 2), sizes, first_pixels)
    compared = compared & ahead & (inside & opaque & seen).all(1)

    here, there = (x - x.mean(1, keepdim=True) for x in (here, there))
    energy, energy_there = here.square().mean(1), there.square().mean(1) + LEAST_ENERGY
    compared = compared & (energy > FLAT**2)
    energy = torch.where(compared, energy, 1.0)
    error = 1 - (here * there).mean(1) / (energy * energy_there).sqrt()
    compared = compared & (error.detach() < HIDDEN)
    return torch.where(compared, error * energy / (energy + PHOTO_NOISE**2), 0.0)


def _project(
    offsets: Tensor,
    image: Tensor,
    c2w: Tensor,
    intrinsics: Tensor,
    models: Tensor | None,
    coefficients: Tensor | None,
    reach: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """What lies at offsets [P,3] of the world from the centers of images [P]: pixel coordinates [P,2], and
    whether it is ahead, [P] bool."""
    pose, camera = c2w.index_select(0, image), intrinsics.index_select(0, image)
    right, up, backward = (offsets[:, :, None] * pose[:, :, :3]).sum(1).unbind(-1)
    ahead = backward < 0
    if models is None:
        z = torch.where(ahead, -backward, 1.0)
        found = torch.stack([right / z, -up / z], dim=-1)
    else:
        k = coefficients.index_select(0, image).unbind(-1)
        own, known = models.index_select(0, image), (PERSPECTIVE, FISHEYE, PANORAMA)
        found = distort(torch.stack([right, -up, -backward], dim=-1), k, reach.index_select(0, image), own, known)
        ahead = ahead | (own == PANORAMA)
    return camera[:, 2:] + camera[:, :2] * found, ahead


@torch.no_grad()
def _steps(directions: Tensor, image: Tensor, cameras: tuple) -> Tensor:
    """The steps of directions [P,3], across them, that lead one pixel to the right and one down, [P,2,3].

    From the derivative of the pixel's own projection, so that lenses need no inverse.
    """
    least = functional.one_hot(directions.abs().argmin(-1), 3).to(directions)
    first = functional.normalize(torch.linalg.cross(least, directions), dim=-1)
    across = first, torch.linalg.cross(directions, first)
    own = [_slope(directions, step, image, cameras) for step in across]
    parts = torch.linalg.inv_ex(torch.stack(own, dim=-1))[0]  # [P,2,2]: of both directions, for each step
    return parts.transpose(1, 2) @ torch.stack(across, dim=1)


def _slope(offsets: Tensor, step: Tensor, image: Tensor, cameras: tuple) -> Tensor:
    """How fast the places [P,2] of offsets [P,3] change with a step [P,3]."""
    return torch.func.jvp(lambda x: _project(x, image, *cameras)[0], (offsets,), (step,))[1]


def _brightness(images: Tensor, pixels: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The means [...] of the colors of pixels [...], in [0,1], and whether they are opaque."""
    color = images[pixels]
    opaque = color[..., 3] >= OPAQUE_BYTE if color.shape[-1] == 4 else torch.ones_like(pixels, dtype=torch.bool)
    return color[..., :3].sum(-1).to(dtype) / (3 * 255), opaque


def _between(
    images: Tensor, photo: Tensor, places: Tensor, sizes: Tensor, first_pixels: Tensor
) -> tuple[Tensor, Tensor]:
    """Brightness [P,K] at places [P,K,2] of photos [P], and whether it is to be had there."""
    size, corner = sizes.index_select(0, photo)[:, None], places - 0.5
    inside = ((corner >= 0) & (corner <= size - 1)).all(-1)
    corner = torch.where(inside[..., None], corner, 0.0)
    low = torch.minimum(corner.detach().floor().long(), (size - 2).clamp(min=0))
    x, y = (corner - low).unbind(-1)
    first = first_pixels.index_select(0, photo)[:, None] + low[..., 1] * size[..., 0] + low[..., 0]
    right, below = (size > 1).long().unbind(-1)  # a photo of one pixel's width has no next one
    total = torch.zeros_like(x)
    for dx, dy, weight in ((0, 0, (1 - x) * (1 - y)), (1, 0, x * (1 - y)), (0, 1, (1 - x) * y), (1, 1, x * y)):
        brightness, opaque = _brightness(images, first + dx * right + dy * below * size[..., 0], x.dtype)
        total = total + weight * brightness
        inside = inside & opaque
    return total, inside


@fake("compare_beside")
def _(depth, *others):
    return depth.new_empty(depth.shape)


@fake("compare_beside_backward")
def _(grad_error, depth, *others):
    return depth.new_empty(depth.shape), depth.new_empty(depth.shape)


def _save(ctx, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:-1])
    ctx.stride = inputs[-1]


@derivative("compare_beside", of=("depth", "opacity"), save=_save)
def _(ctx, grad_error):
    grads = _ops.compare_beside_backward(grad_error, *ctx.saved_tensors, ctx.stride)
    return *grads, *[None] * 13


@example("compare_beside")
def _():
    """Three photos of waves on a plane, taken straight from above."""
    c2w, sizes = torch.eye(4)[:3].repeat(3, 1, 1), torch.tensor([[24, 16], [20, 18], [24, 16]])
    c2w[:, 0, 3], c2w[:, 2, 3] = 0.2 * torch.arange(3), 3.0
    intrinsics = torch.cat([torch.full((3, 2), 20.0), sizes / 2], dim=1)
    first_pixels = functional.pad(sizes.prod(1).cumsum(0), (1, 0))
    all_pixels = torch.arange(int(first_pixels[-1]))
    image = torch.searchsorted(first_pixels, all_pixels, right=True) - 1
    width, within = sizes[image, 0], all_pixels - first_pixels[image]
    x, y = ((p + 0.5 - intrinsics[image, i]) / 20 for i, p in ((2, within % width), (3, within // width)))
    waves = torch.sin(9 * x + 0.6 * image + 2) + torch.sin(7 * y - 5 * x + 1)
    images = (127 + 50 * waves).byte()[:, None].repeat(1, 3)
    pixels = (len(images) * numbers(60)).long()
    directions = functional.normalize(torch.stack([x, -y, -torch.ones_like(x)], dim=-1), dim=-1)[pixels]
    opacity = numbers(60, low=0.4, seed=1)
    depth = opacity * numbers(60, low=2.4, high=3.6, seed=2)
    beside = torch.tensor([[1, 2], [2, 0], [1, -1]])
    scene = pixels, images, sizes, first_pixels, beside, c2w, intrinsics, None, None, None
    return depth, opacity, c2w[image[pixels], :, 3], directions, *scene, 1
