"""Cases of scripts/benchmark.py of the operations that shade pixels."""

import torch

from nerf.benchmarks.problems import BFLOAT16_TOLERANCE, FLOAT, Problem, Roofline, Size, random_numbers


def mlp(size: Size, width: int, layers: int, device: torch.device) -> Problem:
    """The color network of voxel_deferred, a pixel a row. Its floor counts bytes; products take longer."""
    count = 45 * width + (layers - 1) * (width + 1) * width + 3 * (width + 1)
    inputs, params = random_numbers(device, size.pixels, 44, low=-1), random_numbers(device, count, low=-1)
    named = {"inputs": inputs, "params": 1.5 / width**0.5 * params, "width": width, "layers": layers, "outputs": 3}
    ends, weights = FLOAT * size.pixels * 47, FLOAT * count
    rooflines = {"forward": Roofline(ends + weights), "backward": Roofline(2 * ends + 2 * weights)}
    return Problem(
        named | {"rounded": True, "keep": True}, rooflines, leaves=("inputs", "params"), tolerance=BFLOAT16_TOLERANCE
    )


def pixel_directions(size: Size, device: torch.device) -> Problem:
    """Four rays a pixel, as in the late part of a run."""
    directions = torch.nn.functional.normalize(random_numbers(device, 4 * size.pixels, 3, low=-1), dim=-1)
    roofline = Roofline(FLOAT * size.pixels * (3 * 2 + 3))
    return Problem({"directions": directions, "rays_per_pixel": 4}, {"forward": roofline})


def pixel_colors(size: Size, channels: int, device: torch.device) -> Problem:
    """What that network says and composited diffuse colors, over a background for each pixel, as on photos."""
    arguments = {
        "logits": random_numbers(device, size.pixels, 3, low=-4, high=4),
        "opacity": random_numbers(device, size.pixels),
        "background": random_numbers(device, size.pixels, 3),
        "values": random_numbers(device, size.pixels, channels),
    }
    rooflines = {
        "forward": Roofline(FLOAT * size.pixels * 13),
        "backward": Roofline(FLOAT * size.pixels * (17 + channels)),
    }
    return Problem(arguments, rooflines, leaves=("logits", "opacity", "background", "values"))


def pair_ssim(size: Size, device: torch.device) -> Problem:
    """Colors of a batch of neighboring pixels, rendered and true."""
    rgb = random_numbers(device, size.pixels, 3)
    arguments = {"rgb": rgb, "target": rgb.flip(0)}
    pairs = size.pixels // 2
    rooflines = {
        "forward": Roofline(FLOAT * (size.pixels * 6 + pairs)),
        "backward": Roofline(FLOAT * (size.pixels * 12 + pairs)),
    }
    return Problem(arguments, rooflines, leaves=("rgb", "target"))


def shading_inputs(size: Size, channels: int, device: torch.device) -> Problem:
    """The inputs of that network, with noise as in training."""
    frequencies, width = 4, -(-(channels + 27) // 4) * 4
    directions = torch.nn.functional.normalize(random_numbers(device, size.pixels, 3, low=-1), dim=-1)
    arguments = {
        "values": random_numbers(device, size.pixels, channels),
        "opacity": random_numbers(device, size.pixels, low=0.01),
        "directions": directions,
        "noise": random_numbers(device, size.pixels, channels, low=-1),
        "noise_scale": 0.1,
        "min_opacity": 1e-3,
        "frequencies": frequencies,
        "width": width,
    }
    rooflines = {
        "forward": Roofline(FLOAT * size.pixels * (2 * channels + 4 + width)),
        "backward": Roofline(FLOAT * size.pixels * (3 * channels + 2)),
    }
    return Problem(arguments, rooflines, leaves=("values", "opacity"))
