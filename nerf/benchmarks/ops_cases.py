"""The cases of scripts/benchmark.py: for each operation inputs at the sizes of the recipes, and their bytes.

A roofline counts every byte that has to cross memory once: inputs that are read, vertices that are touched, outputs.
What a kernel reads again is its own affair. Legend: R rays, M samples, N points, C channels, X Y Z grid vertices.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from nerf.benchmarks.photo_cases import compare_beside, world_depth
from nerf.benchmarks.pixel_cases import mlp, pair_ssim, pixel_colors, pixel_directions, shading_inputs
from nerf.benchmarks.problems import FLOAT, LONG, SIZES, Case, Problem, Roofline, Size, random_numbers
from nerf.benchmarks.step_cases import activate_density, all_finite, draw_pixels, shift_pixels
from nerf.cameras.cameras import subpixels
from nerf.ops import reference

RAYS_PER_PIXEL = 4  # the most that nerf.cameras.SUBPIXELS has
VIEWS = 8  # that are carved together
TOUCHED = 0.05  # fraction of the vertices that a batch of lego touches


def points_along_rays(device: torch.device, size: Size, along: bool) -> Tensor:
    """Coordinates [N,3] in grid units: random ones, or consecutive ones along random rays through the grid."""
    (lines, points), last = size.lines, size.vertices - 1
    if not along:
        return last * random_numbers(device, lines * points, 3)
    ends = random_numbers(device, lines, 2, 3)
    start, direction = last * ends[:, 0], torch.nn.functional.normalize(ends[:, 1] - ends[:, 0], dim=-1)
    steps = 0.5 * torch.arange(points, device=device)
    return (start[:, None] + steps[:, None] * direction[:, None]).clamp(0, last).reshape(-1, 3)


def touched_vertices(coords: Tensor, resolution: tuple[int, int, int]) -> int:
    """Number of grid vertices that are corners of the cells around coords [N,3]."""
    sizes = torch.tensor(resolution, device=coords.device)
    low = coords.floor().long().clamp(min=0).minimum(sizes - 2)
    row = (low[:, 0] * resolution[1] + low[:, 1]) * resolution[2] + low[:, 2]
    touched = torch.zeros(math.prod(resolution), dtype=torch.bool, device=coords.device)
    for corner in range(8):
        x, y, z = corner >> 2, corner >> 1 & 1, corner & 1
        touched[row + (x * resolution[1] + y) * resolution[2] + z] = True
    return int(touched.sum())


def trilinear(size: Size, channels: int, along: bool, device: torch.device) -> Problem:
    coords = points_along_rays(device, size, along)
    grid = random_numbers(device, *[size.vertices] * 3, channels, low=-1)
    points, row = len(coords), FLOAT * channels
    inputs, touched = points * 3 * FLOAT, touched_vertices(coords, (size.vertices,) * 3)
    return Problem(
        {"grid": grid, "coords": coords},
        {
            "forward": Roofline(inputs + touched * row + points * row),
            "backward": Roofline(inputs + points * row + size.vertices**3 * row, 8 * points * channels),
            "accumulate": Roofline(inputs + points * row + 2 * touched * row, 8 * points * channels),
        },
        leaves=("grid",),
    )


def packed_samples(size: Size, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """ray_offsets [R+1], t_starts, t_ends [M] of rays with 0 to twice samples_per_ray samples each."""
    counts = (random_numbers(device, size.rays) * (2 * size.samples_per_ray + 1)).long()
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    ray = torch.repeat_interleave(torch.arange(size.rays, device=device), counts)
    starts = 2 + 0.01 * (torch.arange(len(ray), device=device) - offsets[ray])
    return offsets, starts, starts + 0.01


def composite(size: Size, channels: int, device: torch.device) -> Problem:
    offsets, starts, ends = packed_samples(size, device)
    samples, rays = len(starts), size.rays
    inputs = FLOAT * samples * (3 + channels) + LONG * (rays + 1)  # density, t_starts, t_ends, values
    outputs = FLOAT * (rays * (channels + 2) + samples)
    arguments = {
        "density": random_numbers(device, samples, high=10.0),
        "values": random_numbers(device, samples, channels),
        "t_starts": starts,
        "t_ends": ends,
        "ray_offsets": offsets,
        "min_transmittance": 1e-4,
    }
    # Backward reads the weights and the gradients of all outputs.
    backward = Roofline(inputs + FLOAT * samples + outputs + FLOAT * samples * (1 + channels))
    return Problem(
        arguments, {"forward": Roofline(inputs + outputs), "backward": backward}, leaves=("density", "values")
    )


def rays_at_a_shell(size: Size, rays: int, device: torch.device) -> dict[str, object]:
    """Arguments for marching: rays from a sphere around the grid to a shell of occupied cells, half-voxel steps."""
    cells = size.vertices - 1
    axis = (torch.arange(cells, device=device) + 0.5) / cells * 2 - 1
    radius = (axis[:, None, None] ** 2 + axis[:, None] ** 2 + axis**2).sqrt()
    around = torch.nn.functional.normalize(random_numbers(device, rays, 3, low=-1), dim=-1)
    origins = cells * (0.5 + 1.5 * around)
    targets = cells * (0.5 + 0.6 * (random_numbers(device, 2 * rays, 3)[rays:] - 0.5))
    zero = torch.zeros(rays, device=device)
    return {
        "origins": origins,
        "directions": torch.nn.functional.normalize(targets - origins, dim=-1),
        "jitter": random_numbers(device, rays, low=-0.5, high=0.5),
        "occupied": (radius > 0.5) & (radius < 0.75),
        "near": zero,
        "far": zero + 1e4,
        "step_size": 0.5,
    }


def march(size: Size, device: torch.device) -> Problem:
    arguments, rays = rays_at_a_shell(size, size.pixels, device), size.pixels
    samples = len(reference.march_rays(**arguments)[1])
    cells = arguments["occupied"].numel()
    roofline = Roofline(9 * FLOAT * rays + cells + LONG * (rays + 1) + samples * (LONG + 2 * FLOAT))
    return Problem(arguments | {"capacity": samples}, {"forward": roofline}, always_same=True)


def seen_march(size: Size, device: torch.device) -> tuple[dict, Tensor, Roofline]:
    """Rays through random density: arguments to min_weight, midpoints [M,3], what finding them takes.

    Of some more rays those are taken that see as many samples when jitter and min_weight are a little different: where
    a rounding decides, no two right rows see the same.
    """
    rays = size.pixels
    arguments = rays_at_a_shell(size, rays + rays // 8 + 8, device) | {
        "density_grid": random_numbers(device, *[size.vertices] * 3, 1, low=-4, high=2),
        "density_shift": -2.0,
        "density_scale": 1.0,
        "min_transmittance": 1e-4,
        "min_weight": 1e-3,
    }
    jitter, weight = arguments["jitter"], arguments["min_weight"]
    near_by = [{"jitter": jitter + shift} for shift in (-1e-4, 0.0, 1e-4)]
    near_by += [{"min_weight": weight * factor} for factor in (0.999, 1.001)]
    counts = torch.stack([reference.march_visible(**(arguments | changed))[0].diff() for changed in near_by])
    decided = (counts == counts[0]).all(0).nonzero()[:rays, 0]
    for name in ("origins", "directions", "jitter", "near", "far"):
        arguments[name] = arguments[name][decided].contiguous()
    coords = reference.march_visible(**arguments)[4]
    read = FLOAT * touched_vertices(coords, (size.vertices,) * 3)  # at least
    return arguments, coords, Roofline(9 * FLOAT * rays + arguments["occupied"].numel() + read)


def march_visible(size: Size, device: torch.device) -> Problem:
    arguments, coords, march_roofline = seen_march(size, device)
    roofline = Roofline(march_roofline.num_bytes + LONG * (size.pixels + 1) + len(coords) * (LONG + 5 * FLOAT))
    return Problem(arguments | {"capacity": len(coords)}, {"forward": roofline}, always_same=True)


def render_rays(size: Size, channels: int, device: torch.device) -> Problem:
    arguments, coords, march_roofline = seen_march(size, device)
    values = random_numbers(device, *[size.vertices] * 3, channels, low=-1)
    read = FLOAT * channels * touched_vertices(coords, (size.vertices,) * 3)
    roofline = Roofline(march_roofline.num_bytes + read + FLOAT * size.pixels * (channels + 2))
    return Problem(arguments | {"values_grid": values}, {"forward": roofline})


def random_pixels(size: Size, device: torch.device) -> Tensor:
    generator = torch.Generator(device).manual_seed(0)
    return torch.randint(math.prod(size.images), (size.pixels,), device=device, generator=generator)


def camera_rays(size: Size, device: torch.device) -> Problem:
    images, height, width = size.images
    arguments = {
        "c2w": random_numbers(device, images, 3, 4, low=-1),
        "intrinsics": width * random_numbers(device, images, 4, low=0.5, high=1.5),
        "pixel_indices": random_pixels(size, device),
        "width": width,
        "height": height,
        "subpixels": subpixels(RAYS_PER_PIXEL, device, torch.float32),
    }
    return Problem(arguments, {"forward": Roofline(size.pixels * (LONG + RAYS_PER_PIXEL * 6 * FLOAT))})


def lens_rays(size: Size, device: torch.device) -> Problem:
    """Through OpenCV's lens model, as most photos have it, in three of Newton's iterations; a ray for each pixel."""
    images, (height, width) = size.images[0], size.images[1:]
    arguments = camera_rays(size, device).arguments | {"subpixels": subpixels(1, device, torch.float32)}
    arguments |= {"intrinsics": torch.tensor([width, width, width / 2, height / 2], device=device).repeat(images, 1)}
    lenses = {
        "sizes": torch.tensor([width, height], device=device).repeat(images, 1),
        "first_pixels": torch.arange(images + 1, device=device) * (height * width),
        "lens_models": torch.zeros(images, dtype=torch.int64, device=device),
        "lens_coefficients": torch.tensor([0.1, -0.05, 1e-3, 1e-3, 0.0, 0.0], device=device).repeat(images, 1),
        "lens_reach": torch.full((images,), 1e4, device=device),
        "lens_rim": torch.full((images,), 1e4, device=device),
        "iterations": 3,
    }
    return Problem(arguments | lenses, {"forward": Roofline(size.pixels * (LONG + 6 * FLOAT))})


def carve_points(size: Size, device: torch.device) -> Problem:
    """Points around a ball, seen from all sides: it fills half of each image's width, and a few points in a hundred."""
    _, height, width = size.images
    axes = torch.linalg.qr(random_numbers(device, VIEWS, 3, 3, low=-1))[0]
    rows, columns = (torch.arange(n, device=device) + 0.5 - n / 2 for n in (height, width))
    ball = rows[:, None] ** 2 + columns**2 < (width / 4) ** 2
    counts = ball.cumsum(0, dtype=torch.int32).cumsum(1, dtype=torch.int32)
    counts = torch.nn.functional.pad(counts, (1, 0, 1, 0)).repeat(VIEWS, 1, 1)
    intrinsics = torch.tensor([width, width, width / 2, height / 2], dtype=torch.float32, device=device)
    arguments = {
        "points": random_numbers(device, size.vertices**3 // 64, 3, low=-2, high=2),
        "c2w": torch.cat([axes, 4 * axes[:, :, 2:]], dim=-1),
        "intrinsics": intrinsics.repeat(VIEWS, 1),
        "counts": counts,
        "reach": torch.full((VIEWS,), 2, device=device),
    }
    return Problem(arguments, {"forward": Roofline(len(arguments["points"]) * (3 * FLOAT + 1) + 4 * counts.numel())})


def sample_images(size: Size, device: torch.device) -> Problem:
    generator = torch.Generator(device).manual_seed(0)
    shape, channels = size.images, 4
    images = torch.randint(256, (*shape, channels), dtype=torch.uint8, device=device, generator=generator)
    return Problem(
        {"images": images, "pixel_indices": random_pixels(size, device)},
        {"forward": Roofline(size.pixels * (LONG + channels + FLOAT * channels), lookups=size.pixels)},
    )


def variation(size: Size, channels: int, device: torch.device) -> Problem:
    grid = random_numbers(device, *[size.vertices] * 3, channels, low=-1)
    arguments = {"grad": torch.zeros_like(grid), "grid": grid, "weight": 0.1, "touched_only": False}
    return Problem(arguments, {"forward": Roofline(3 * FLOAT * grid.numel())}, written=("grad",))


def near_a_surface(vertices: int, fraction: float, device: torch.device) -> Tensor:
    """A fraction of a grid's vertices, [X,Y,Z,1] bool: those in a spherical shell, like vertices near a surface."""
    axis = torch.arange(vertices, device=device) - (vertices - 1) / 2
    radius = (axis[:, None, None] ** 2 + axis[:, None] ** 2 + axis**2).sqrt() / vertices
    middle = 0.4  # the shell has the volume 4 pi middle^2 thickness
    return ((radius - middle).abs() < fraction / (8 * math.pi * middle**2))[..., None]


def adam(size: Size, channels: int, touched: bool, visit: bool, device: torch.device) -> Problem:
    """touched: few vertices have a gradient, not all. visit: only these are listed in rows."""
    shape = (*[size.vertices] * 3, channels)
    param, first = random_numbers(device, *shape, low=-1), random_numbers(device, *shape, low=-0.1, high=0.1)
    everywhere = torch.ones(*shape[:3], 1, dtype=torch.bool, device=device)
    chosen = near_a_surface(size.vertices, TOUCHED, device) if touched else everywhere
    rows = chosen.flatten().nonzero()[:, 0] if visit else None
    first = first if rows is None else first.view(-1, channels)[rows]
    arguments = {
        "param": param,
        "exp_avg": first,
        "exp_avg_sq": first.square(),
        "grad": param * chosen,
        "lr": torch.full((1,), 0.1, device=device),
        "step": torch.full((1,), 10.0, device=device),
        "rows": rows,
        "beta1": 0.9,
        "beta2": 0.99,
        "eps": 1e-8,
    }
    updated = int(chosen.sum()) * channels
    read = updated + LONG * int(chosen.sum()) // FLOAT if visit else param.numel()
    roofline = Roofline(FLOAT * (read + 7 * updated))  # 3 more are read, 4 written
    return Problem(
        arguments, {"forward": roofline}, written=("param", "exp_avg", "exp_avg_sq", "grad"), cleared=("grad",)
    )


def basis(size: Size, channels: int, device: torch.device) -> Problem:
    offsets, starts, _ = packed_samples(size, device)
    samples, rays, functions = len(starts), size.rays, 9
    ray = torch.repeat_interleave(torch.arange(rays, device=device), offsets.diff())
    arguments = {
        "values": random_numbers(device, samples, channels),
        "basis": random_numbers(device, rays, functions, low=-1),
        "ray_indices": ray,
    }
    shared = LONG * samples + FLOAT * rays * functions
    rooflines = {
        "forward": Roofline(shared + FLOAT * samples * (3 * functions + 3)),
        "backward": Roofline(shared + FLOAT * samples * (3 + channels)),
    }
    return Problem(arguments, rooflines, leaves=("values",))


def distortion(size: Size, device: torch.device) -> Problem:
    offsets, starts, ends = packed_samples(size, device)
    samples, rays = len(starts), size.rays
    arguments = {
        "weights": random_numbers(device, samples, high=1 / size.samples_per_ray),
        "t_starts": starts,
        "t_ends": ends,
        "ray_offsets": offsets,
    }
    forward = FLOAT * (3 * samples + rays) + LONG * (rays + 1)
    rooflines = {"forward": Roofline(forward), "backward": Roofline(forward + FLOAT * samples)}
    return Problem(arguments, rooflines, leaves=("weights",))


def cells(size: Size, with_points: bool, device: torch.device) -> Problem:
    points, features = size.cells
    arguments = {
        "feats": random_numbers(device, points, 8, features),
        "points": random_numbers(device, points, 3, low=-1),
    }
    whole = FLOAT * points * (9 * features + 3)  # eight corners in and one row out, or the other way round
    backward = whole + FLOAT * points * (8 * features + 3) * with_points
    return Problem(
        arguments,
        {"forward": Roofline(whole), "backward": Roofline(backward)},
        leaves=("feats", "points") if with_points else ("feats",),
    )


def index_add(shape: tuple[int, ...], rows: int, device: torch.device) -> Problem:
    generator = torch.Generator(device).manual_seed(0)
    index = torch.randint(min(1024, shape[0]), (rows,), device=device, generator=generator)
    src = random_numbers(device, rows, *shape[1:])
    arguments = {"dst": torch.zeros(shape, device=device), "dim": 0, "index": index, "src": src, "alpha": 1.0}
    targets, slice_size = len(index.unique()), src[0].numel()
    roofline = Roofline(LONG * rows + FLOAT * slice_size * (rows + 2 * targets), rows * slice_size)
    return Problem(arguments, {"forward": roofline}, written=("dst",))


def all_cases(size: Size) -> Iterator[Case]:
    """Every case of the size, the issue's bars first. An operation may not exist in this library."""
    grid = f"{size.vertices}^3"
    for channels in (28, 12, 4, 1):
        for along in (False, True):
            name = f"{grid}, {channels} channels, {'along rays' if along else 'random'}"
            yield Case("interpolate_trilinear", name, partial(trilinear, size, channels, along))
    pixels, rays, edges = f"{size.pixels} pixels", f"{size.rays} rays", f"{size.vertices - 1}^3 cells"
    if size.rays_per_pixel > 1:  # voxel_sh composites colors, along one ray a pixel
        colors = replace(size, pixels=size.pixels // 2, rays_per_pixel=1, samples_per_ray=13)
        yield Case("composite_rays", f"{colors.rays} rays, 3 channels", partial(composite, colors, 3))
    for channels in (3, 16, 28):
        yield Case("composite_rays", f"{rays}, {channels} channels", partial(composite, size, channels))
    yield Case("camera_rays", f"{pixels}, {RAYS_PER_PIXEL} rays each", partial(camera_rays, size))
    yield Case("camera_rays", f"{pixels}, through lenses", partial(lens_rays, size))
    yield Case("march_rays", f"{pixels}, {edges}", partial(march, size))
    yield Case("march_visible", f"{pixels}, {edges}", partial(march_visible, size))
    yield Case("render_rays", f"{pixels}, {grid}, 12 channels", partial(render_rays, size, 12))
    yield Case("contract_basis", f"{rays}, 28 channels", partial(basis, size, 28))
    yield Case("distortion_loss", rays, partial(distortion, size))
    yield Case("mlp", f"{pixels}, 3 layers of {size.rows // 4}", partial(mlp, size, size.rows // 4, 3))
    yield Case("pixel_directions", f"{pixels}, 4 rays each", partial(pixel_directions, size))
    yield Case("pixel_colors", f"{pixels}, 16 channels", partial(pixel_colors, size, 16))
    yield Case("pair_ssim", pixels, partial(pair_ssim, size))
    yield Case("world_depth", pixels, partial(world_depth, size))
    yield Case("compare_beside", pixels, partial(compare_beside, size))
    yield Case("shading_inputs", f"{pixels}, 16 channels", partial(shading_inputs, size, 16))
    yield Case("draw_pixels", pixels, partial(draw_pixels, size))
    yield Case("shift_pixels", pixels, partial(shift_pixels, size))
    yield Case("sample_images", pixels, partial(sample_images, size))
    yield Case("carve_points", f"{size.vertices**3 // 64} points, {VIEWS} views", partial(carve_points, size))
    yield Case("total_variation_grad", f"{grid}, 12 channels", partial(variation, size, 12))
    yield Case("adam_step", f"{grid}, 12 channels, dense", partial(adam, size, 12, False, False))
    yield Case("adam_step", f"{grid}, 12 channels, 5% touched", partial(adam, size, 12, True, False))
    yield Case("adam_step", f"{grid}, 12 channels, 5% visited", partial(adam, size, 12, True, True))
    yield Case("activate_density", f"{rays}, {size.samples_per_ray} samples each", partial(activate_density, size))
    yield Case("all_finite", f"{rays}, {size.samples_per_ray} samples each", partial(all_finite, size))
    for with_points in (False, True):
        name = "N={}, F={}".format(*size.cells) + (", with points" if with_points else "")
        yield Case("interpolate_cells", name, partial(cells, size, with_points))
    width = size.rows
    for shape in ((32 * width * width,), (32 * width, width), (32, width, width)):
        for rows in (15, width):
            yield Case("index_add", f"{list(shape)}, {rows} rows", partial(index_add, shape, rows))


OPS = tuple(dict.fromkeys(case.op for case in all_cases(SIZES["tiny"])))
