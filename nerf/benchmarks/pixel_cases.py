"""Cases of scripts/benchmark.py of the operations that shade pixels."""

import torch

from nerf.benchmarks.problems import FLOAT, Problem, Roofline, Size, random_numbers


def mlp(size: Size, width: int, layers: int, device: torch.device) -> Problem:
    """The color network of voxel_deferred, a pixel a row. Its floor counts bytes; products take longer."""
    count = 45 * width + (layers - 1) * (width + 1) * width + 3 * (width + 1)
    inputs, params = random_numbers(device, size.pixels, 44, low=-1), random_numbers(device, count, low=-1)
    named = {"inputs": inputs, "params": 1.5 / width**0.5 * params, "width": width, "layers": layers, "outputs": 3}
    ends, weights = FLOAT * size.pixels * 47, FLOAT * count
    rooflines = {"forward": Roofline(ends + weights), "backward": Roofline(2 * ends + 2 * weights)}
    return Problem(named | {"rounded": True, "keep": True}, rooflines, leaves=("inputs", "params"))
