"""Cases of scripts/benchmark.py of small operations of a step: its pixels, densities, and whether it is applied."""

import torch

from nerf.benchmarks.problems import FLOAT, LONG, Problem, Roofline, Size, random_numbers
from nerf.images.pixel_runs import PixelRuns

WEIGHTS = (44 * 128, 128, 128 * 128, 128, 128 * 3, 3)  # and biases, of a small color network


def draw_pixels(size: Size, device: torch.device) -> Problem:
    """A batch from the middle halves of all rows of the images. Its floor counts what a draw reads of its run alone."""
    images, height, width = size.images
    first = width * torch.arange(images * height, device=device) + width // 4
    runs = PixelRuns.of_bounds(torch.stack([first, first + width // 2], dim=-1))
    random = random_numbers(device, size.pixels).double()
    arguments = {"random": random, "offsets": runs.offsets, "shifts": runs.shifts, "count": len(runs)}
    roofline = Roofline(4 * LONG * size.pixels, lookups=size.pixels)  # random number, offset, shift, pixel
    return Problem(arguments, {"forward": roofline}, always_same=True)


def shift_pixels(size: Size, device: torch.device) -> Problem:
    """Neighbors of pixels of images of one size, as near as those of a batch's pairs."""
    images, height, width = size.images
    pixels = (images * height * width * random_numbers(device, size.pixels).double()).long().sort().values
    arguments = {
        "pixel_indices": pixels,
        "shifts": random_numbers(device, size.pixels, 2, low=-4, high=4),
        "width": width,
        "height": height,
    }
    roofline = Roofline((2 * LONG + 2 * FLOAT) * size.pixels)
    return Problem(arguments, {"forward": roofline}, always_same=True)


def activate_density(size: Size, device: torch.device) -> Problem:
    """The densities of a batch's samples."""
    count = size.rays * size.samples_per_ray
    arguments = {"raw_density": random_numbers(device, count, low=-9, high=9), "shift": -4.6, "scale": 100.0}
    rooflines = {"forward": Roofline(2 * FLOAT * count), "backward": Roofline(3 * FLOAT * count)}
    return Problem(arguments, rooflines, leaves=("raw_density",))


def all_finite(size: Size, device: torch.device) -> Problem:
    """The loss, and the gradients of the samples' densities and of a small network."""
    counts = (1, size.rays * size.samples_per_ray, *WEIGHTS)
    arguments = {"tensors": [random_numbers(device, count, low=-1) for count in counts]}
    return Problem(arguments, {"forward": Roofline(FLOAT * sum(counts))}, always_same=True)
