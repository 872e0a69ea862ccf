"""Cases of scripts/benchmark.py of the operations that photos all around need: distances without end, views beside."""

import torch
from torch import Tensor
from torch.nn import functional

from nerf.benchmarks.problems import FLOAT, LONG, Problem, Roofline, Size, random_numbers
from nerf.training.multi_view import stride_of

SMALLEST_SIDE = 24  # pixels, of photos in which patches lie, and so do those beside
ABOVE, APART = 3.0, 0.4  # world units: cameras above a plane of waves, and from one to the next


def world_depth(size: Size, device: torch.device) -> Problem:
    """Rays from within the inner box, two fifths of which end outside of it, none near infinity, where float32
    says little of a distance."""
    opacity = random_numbers(device, size.pixels, low=0.1)
    arguments = {
        "depth": 1.4 * opacity * random_numbers(device, size.pixels),
        "opacity": opacity,
        "origins": random_numbers(device, size.pixels, 3, low=-0.5, high=0.5),
        "directions": functional.normalize(random_numbers(device, size.pixels, 3, low=-1), dim=-1),
        "center": torch.zeros(3, device=device),
        "half": torch.ones(3, device=device),
        "contraction": 1.0,
    }
    rooflines = {"forward": Roofline(9 * FLOAT * size.pixels), "backward": Roofline(11 * FLOAT * size.pixels)}
    return Problem(arguments, rooflines, leaves=("depth", "opacity"))


def compare_beside(size: Size, device: torch.device) -> Problem:
    """Photos of waves on a plane by cameras in a row, and pixels that are found up to half of a patch's step aside.

    Of a patch each pixel counts once here, and those there that lie around it: 4x4.
    """
    images, height, width = size.images[0], *(max(side, SMALLEST_SIDE) for side in size.images[1:])
    generator = torch.Generator(device).manual_seed(0)
    step = stride_of(width, height)
    chosen = [
        torch.randint(first, end, (size.pixels,), device=device, generator=generator)
        for first, end in ((0, images), (step, height - step), (step, width - step))  # where a patch lies in its photo
    ]
    pixels = ((chosen[0] * height + chosen[1]) * width + chosen[2]).sort()[0]
    sizes = torch.tensor([width, height], device=device).repeat(images, 1)
    number = torch.arange(images, device=device)
    c2w = torch.eye(4, device=device)[:3].repeat(images, 1, 1)
    c2w[:, 0, 3], c2w[:, 2, 3] = APART * number, ABOVE
    intrinsics = torch.tensor([width, width, width / 2, height / 2], dtype=torch.float32, device=device)
    slopes = _slopes(pixels, height, width)
    directions = torch.cat([slopes, -torch.ones_like(slopes[:, :1])], dim=1)
    opacity = random_numbers(device, size.pixels, low=0.6)
    off = min(0.3, step / 2 / (APART / ABOVE * width))  # of the distance between a point's places in two photos
    distance = random_numbers(device, size.pixels, low=1 - off, high=1 + off) * ABOVE * directions.norm(dim=-1)
    arguments = {
        "depth": opacity * distance,
        "opacity": opacity,
        "origins": c2w[:, :, 3].index_select(0, pixels // (height * width)),
        "directions": functional.normalize(directions, dim=-1),
        "pixels": pixels,
        "images": _waves(images, height, width, device),
        "sizes": sizes,
        "first_pixels": torch.arange(images + 1, device=device) * (height * width),
        "beside": torch.stack([(number + 1) % images, (number - 1) % images], dim=1),
        "c2w": c2w,
        "intrinsics": intrinsics.repeat(images, 1),
        "lens_models": None,
        "lens_coefficients": None,
        "lens_reach": None,
        "stride": step,
    }
    read = size.pixels * (8 * FLOAT + LONG + 3 * (9 + 16))
    rooflines = {
        "forward": Roofline(read + FLOAT * size.pixels, lookups=2 * size.pixels),
        "backward": Roofline(read + 3 * FLOAT * size.pixels, lookups=2 * size.pixels),
    }
    return Problem(arguments, rooflines, leaves=("depth", "opacity"))


def _slopes(pixels: Tensor, height: int, width: int) -> Tensor:
    """How far to the right and up rays through pixels [P] go on their way down, [P,2]."""
    within = pixels % (height * width)
    column, row = within % width, within // width
    return torch.stack([(column + 0.5 - width / 2) / width, (height / 2 - row - 0.5) / width], dim=-1)


def _waves(images: int, height: int, width: int, device: torch.device) -> Tensor:
    """The photos [pixels,3] uint8, one at a time: waves as long as some patches, whatever the photos' size."""
    slopes = _slopes(torch.arange(height * width, device=device), height, width) * width / stride_of(width, height)
    shift = APART / ABOVE * width / stride_of(width, height)  # of the plane, from one photo to the next
    photos = torch.empty(images, height * width, 3, dtype=torch.uint8, device=device)
    for image in range(images):
        x, y = slopes[:, 0] + shift * image, slopes[:, 1]
        photos[image] = (127 + 60 * (torch.sin(0.6 * x) + torch.sin(0.4 * y + 0.2 * x))).byte()[:, None]
    return photos.flatten(0, 1)
