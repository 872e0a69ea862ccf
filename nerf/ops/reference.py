"""The operations in pure PyTorch: the specification, the oracle of every test, and the backend `torch`.

Legend: R rays, M samples, N points, C channels, X Y Z grid vertices. Arguments and results are the same as in
native.py, names included. Derivatives come from autograd.
"""

import torch
from torch import Tensor

from nerf.ops.ray_paths import rays_through_grid

MAX_LATTICE_POINTS = 1 << 24  # per chunk of rays in march_rays; bounds the memory of the dense lattice


def camera_rays(
    c2w: Tensor, intrinsics: Tensor, pixel_indices: Tensor, width: int, height: int, subpixels: Tensor
) -> tuple[Tensor, Tensor]:
    """Rays through pixels of I pinhole cameras whose images have one size.

    c2w [I,3,4]: right, up and backward axes and centre of each camera. intrinsics [I,4]: fx, fy, cx, cy in pixels.
    pixel_indices [P] int64: (image * height + row) * width + column. subpixels [S,2]: where the rays pass,
    right and down from a pixel's centre, in pixels.

    Returns origins [P*S,3] and unit directions [P*S,3], world units; the rays of a pixel stand beside each other.
    """
    image, column, row = pixel_indices // (width * height), pixel_indices % width, pixel_indices // width % height
    lens, pose = intrinsics.index_select(0, image)[:, None], c2w.index_select(0, image)[:, None]
    centers = torch.stack([column, row], dim=-1)[:, None] + 0.5
    x, y = ((centers - lens[..., 2:] + subpixels) / lens[..., :2]).unsqueeze(-2).unbind(-1)  # each [P,S,1]
    right, up, back, center = pose.unbind(-1)
    directions = torch.nn.functional.normalize(right * x - up * y - back, dim=-1)
    return center.expand_as(directions).flatten(0, 1), directions.flatten(0, 1)


def march_rays(
    origins: Tensor,
    directions: Tensor,
    jitter: Tensor,
    occupied: Tensor,
    near: Tensor,
    far: Tensor,
    step_size: float,
    capacity: int = 0,
    contraction: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Samples of rays in occupied cells.

    Sample k of a ray covers t_min + (k + jitter) * step_size to t_min + (k + 1 + jitter) * step_size, where t_min and
    t_max are near and far clipped to the grid. It exists if its midpoint lies before t_max in an occupied cell. A ray
    that would never end (inside the grid, direction zero, far infinite) has no samples.

    origins, directions [R,3]: grid units, directions not renormalised, so t stays world distance.
    jitter [R]: in [-0.5, 0.5). occupied [X-1,Y-1,Z-1] bool. near, far [R] and step_size: world units.
    capacity: 0 gives exactly the M samples, with one host read; otherwise M = capacity, rays from the first that does
    not fit on are dropped, and the rows behind the last ray have index 0 and length 0.
    contraction: 0, or the grid holds all of space: a box around its middle, and around that a shell, this many halves
    of the box thick, into which nerf.ops.contraction presses what is outside. t is contracted distance then, for the
    lattice and the results, so that equal steps grow with the cells; near and far stay world distances.

    Returns ray_offsets [R+1] int64, ray_indices [M] int64, t_starts [M], t_ends [M], overflow [1] int64 (rays dropped).
    Not differentiable.
    """
    origins, directions, jitter = origins.detach(), directions.detach(), jitter.detach()
    cells = torch.tensor(occupied.shape, device=origins.device)
    upper = cells.to(origins.dtype)
    t_min, t_max, position = rays_through_grid(origins, directions, near, far, upper, contraction)
    t_max = torch.where(t_max - t_min < torch.inf, t_max, -torch.inf)

    steps = ((t_max - t_min) / step_size - jitter).nan_to_num(0, 0, 0).clamp(min=0)
    num_points = int(steps.max().ceil().item()) + 1 if len(steps) else 1
    k = torch.arange(num_points, device=origins.device, dtype=origins.dtype)
    chunk = max(1, MAX_LATTICE_POINTS // num_points)
    found = []
    for first in range(0, len(origins), chunk):
        rows = slice(first, first + chunk)
        t_mid = t_min[rows, None] + (k + 0.5 + jitter[rows, None]) * step_size
        cell = position(t_mid, rows).floor().nan_to_num(0).clamp(min=torch.zeros_like(upper), max=upper - 1).long()
        exists = (t_mid < t_max[rows, None]) & occupied[cell.unbind(-1)]
        ray, point = exists.nonzero(as_tuple=True)
        found.append(torch.stack([ray + first, point], -1))
    ray_indices, point = (torch.cat(found) if found else torch.zeros(0, 2).to(cells)).unbind(-1)

    counts = torch.bincount(ray_indices, minlength=len(origins))
    ends = counts.cumsum(0)
    overflow = torch.zeros(1, dtype=torch.int64, device=origins.device)
    if capacity > 0:
        fits = ends <= capacity
        overflow += ((counts > 0) & ~fits).sum()
        ends = torch.where(fits, ends, 0).cummax(0).values if len(ends) else ends
        kept = fits[ray_indices]
        ray_indices, point = ray_indices[kept], point[kept]
    t_starts = t_min[ray_indices] + (k[point] + jitter[ray_indices]) * step_size
    t_ends = t_min[ray_indices] + (k[point] + 1 + jitter[ray_indices]) * step_size
    if capacity > 0:
        tail = (0, capacity - len(ray_indices))
        ray_indices, t_starts, t_ends = (torch.nn.functional.pad(x, tail) for x in (ray_indices, t_starts, t_ends))
    return torch.nn.functional.pad(ends, (1, 0)), ray_indices, t_starts, t_ends, overflow


def march_visible(
    origins: Tensor,
    directions: Tensor,
    jitter: Tensor,
    occupied: Tensor,
    near: Tensor,
    far: Tensor,
    step_size: float,
    density_grid: Tensor,
    density_shift: float,
    density_scale: float,
    min_transmittance: float,
    min_weight: float,
    capacity: int = 0,
    contraction: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The samples of march_rays that weigh at least min_weight in their pixel (Sun et al. 2022, section 4.3).

    Density is softplus(raw + density_shift) * density_scale per world unit, weights are those of composite_rays with
    min_transmittance. density_grid [X,Y,Z,1]: raw density at the vertices of the cells. The others: see march_rays.

    Returns ray_offsets [R+1], ray_indices [M], t_starts [M], t_ends [M], coords [M,3] (the midpoints in grid units),
    overflow [1]; the rows behind the last ray are zero. Not differentiable.
    """
    origins, directions, density_grid = origins.detach(), directions.detach(), density_grid.detach()
    ray_offsets, ray_indices, t_starts, t_ends, overflow = march_rays(
        origins, directions, jitter, occupied, near, far, step_size, contraction=contraction
    )
    upper = torch.tensor(occupied.shape, device=origins.device).to(origins.dtype)
    *_, position = rays_through_grid(origins, directions, near, far, upper, contraction)
    coords = position((0.5 * (t_starts + t_ends))[:, None], ray_indices)[:, 0]
    raw_density = interpolate_trilinear(density_grid, coords)[:, 0]
    density = torch.nn.functional.softplus(raw_density + density_shift) * density_scale
    nothing = density.new_empty(len(density), 0)
    weights = composite_rays(density, nothing, t_starts, t_ends, ray_offsets, min_transmittance)[3]

    keep = weights >= min_weight
    ends = torch.nn.functional.pad(keep.cumsum(0), (1, 0))[ray_offsets][1:]
    if capacity > 0:
        counts, fits = ends.diff(prepend=ends.new_zeros(1)), ends <= capacity
        overflow = overflow + ((counts > 0) & ~fits).sum()
        ends = torch.where(fits, ends, 0).cummax(0).values if len(ends) else ends
        keep &= fits[ray_indices]
    rows = keep.nonzero()[:, 0]
    tail = capacity - len(rows) if capacity > 0 else 0
    kept = [torch.nn.functional.pad(x[rows], (0, tail)) for x in (ray_indices, t_starts, t_ends)]
    coords = torch.nn.functional.pad(coords[rows], (0, 0, 0, tail))
    return torch.nn.functional.pad(ends, (1, 0)), *kept, coords, overflow


def render_rays(
    origins: Tensor,
    directions: Tensor,
    jitter: Tensor,
    occupied: Tensor,
    near: Tensor,
    far: Tensor,
    step_size: float,
    density_grid: Tensor,
    density_shift: float,
    density_scale: float,
    min_transmittance: float,
    min_weight: float,
    values_grid: Tensor,
    contraction: float = 0.0,
    rays_per_pixel: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Composited values of pixels: march_visible, interpolate_trilinear and composite_rays in one.

    values_grid [X,Y,Z,C]: at the vertices of the density. rays_per_pixel: 1, 2 or 4 rays beside each other, whose
    values are averaged. The others: see march_visible.
    Returns values [R / rays_per_pixel,C], opacity [R], depth [R] as composite_rays. Not differentiable.
    """
    rays = (origins, directions, jitter, occupied, near, far, step_size)
    density = (density_grid, density_shift, density_scale, min_transmittance, min_weight)
    ray_offsets, _, t_starts, t_ends, coords, _ = march_visible(*rays, *density, contraction=contraction)
    raw_density = interpolate_trilinear(density_grid.detach(), coords)[:, 0]
    sigma = torch.nn.functional.softplus(raw_density + density_shift) * density_scale
    values = interpolate_trilinear(values_grid.detach(), coords)
    values, opacity, depth, _ = composite_rays(sigma, values, t_starts, t_ends, ray_offsets, 0.0)
    pixels = len(opacity) // rays_per_pixel
    return values.view(pixels, rays_per_pixel, values.shape[1]).mean(1), opacity, depth


def interpolate_trilinear(grid: Tensor, coords: Tensor, grad: Tensor | None = None) -> Tensor:
    """Trilinear interpolation of a grid at points.

    grid [X,Y,Z,C]: values at the vertices. coords [N,3]: grid units, vertex (x, y, z) at (x, y, z); outside, the
    nearest point of the surface counts. Returns [N,C]. Differentiable in grid and coords.

    grad: grid.grad where there is one. A backend may add to it in place, which saves a gradient of the whole grid;
    here autograd does the adding.
    """
    sizes = grid.shape[:3]
    rows = grid.flatten(0, 2)
    low, high, weight = [], [], []
    for axis, size in enumerate(sizes):
        x = coords[:, axis].clamp(0, size - 1)
        base = x.detach().floor().clamp(0, max(size - 2, 0))
        low.append(base.long())
        high.append((base.long() + 1).clamp(max=size - 1))
        weight.append((1 - (x - base), x - base))
    out = None
    for corner in range(8):
        bits = (corner >> 2 & 1, corner >> 1 & 1, corner & 1)
        x, y, z = (high[axis] if bit else low[axis] for axis, bit in enumerate(bits))
        w = weight[0][bits[0]] * weight[1][bits[1]] * weight[2][bits[2]]
        term = w[:, None] * rows.index_select(0, (x * sizes[1] + y) * sizes[2] + z)
        out = term if out is None else out + term
    return out


def interpolate_trilinear_grad(grad: Tensor, grad_out: Tensor, coords: Tensor) -> None:
    """Adds to grad [X,Y,Z,C], in place, what grad_out [N,C] at coords [N,3] means for the grid."""
    with torch.enable_grad():
        leaf = torch.zeros_like(grad, requires_grad=True)  # the result is linear in the grid, so any grid will do
        (slope,) = torch.autograd.grad(interpolate_trilinear(leaf, coords.detach()), leaf, grad_out)
    grad += slope


def composite_rays(
    density: Tensor,
    values: Tensor,
    t_starts: Tensor,
    t_ends: Tensor,
    ray_offsets: Tensor,
    min_transmittance: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Front-to-back compositing along rays (Max 1995; Mildenhall et al. 2020, eq. 3).

    alpha = 1 - exp(-density * delta), transmittance = product of (1 - alpha) before, weight = transmittance * alpha.
    Samples behind transmittance < min_transmittance weigh nothing.

    density [M]: per world unit, >= 0. values [M,C]. t_starts, t_ends [M]: world units. ray_offsets [R+1] int64.
    Returns values [R,C], opacity [R], depth [R] (sum of weight * midpoint, not divided by opacity), weights [M].
    Differentiable in density and values through all four.
    """
    num_rays, num_samples = len(ray_offsets) - 1, len(density)
    counts = ray_offsets.diff()
    ray = torch.repeat_interleave(torch.arange(num_rays, device=density.device), counts)
    owned = slice(0, len(ray))
    slot = torch.arange(len(ray), device=density.device) - ray_offsets[ray]
    optical_depth = (density * (t_ends - t_starts))[owned]
    longest = int(counts.max().item()) if num_rays else 0
    dense = optical_depth.new_zeros(num_rays, longest + 1).index_put((ray, slot + 1), optical_depth)
    transmittance = torch.exp(-dense.cumsum(1))[ray, slot]
    weights = transmittance * -torch.expm1(-optical_depth)
    weights = torch.where(transmittance < min_transmittance, torch.zeros_like(weights), weights)

    def per_ray(x: Tensor) -> Tensor:
        return x.new_zeros(num_rays, *x.shape[1:]).index_add(0, ray, x)

    t_mid = 0.5 * (t_starts + t_ends)[owned]
    rows = per_ray(weights[:, None] * values[owned])
    padded = torch.nn.functional.pad(weights, (0, num_samples - len(ray)))
    return rows, per_ray(weights), per_ray(weights * t_mid), padded


def contract_basis(values: Tensor, basis: Tensor, ray_indices: Tensor) -> Tensor:
    """Three colours of every sample: sums of coefficients times basis functions of its ray (Yu et al. 2021, eq. 1).

    values [N,C]: K coefficients of the first colour, of the second, of the third, then padding. basis [R,K].
    ray_indices [N] int64. Returns [N,3]. Differentiable in values, here in basis too.
    """
    count = basis.shape[1]
    coefficients = values[:, : 3 * count].reshape(-1, 3, count)
    return (coefficients * basis.index_select(0, ray_indices)[:, None, :]).sum(-1)


def sample_images(images: Tensor, pixel_indices: Tensor) -> Tensor:
    """Colours of single pixels.

    images [I,H,W,C] uint8. pixel_indices [R] int64: (image * H + row) * W + column. Returns [R,C] float32 in [0,1].
    """
    return images.reshape(-1, images.shape[3]).index_select(0, pixel_indices).float() / 255


def total_variation(grid: Tensor) -> Tensor:
    """Total variation of a grid [X,Y,Z,C]: the sum of the Huber function (delta = 1) of all neighbour differences."""
    edges = [grid.diff(dim=axis) for axis in range(3)]
    return sum(torch.nn.functional.huber_loss(d, torch.zeros_like(d), reduction="sum") for d in edges)


def total_variation_grad(
    grad: Tensor, grid: Tensor, weight: float, touched_only: bool, rows: Tensor | None = None
) -> None:
    """Adds weight * d total_variation(grid) / d grid to grad [X,Y,Z,C], in place.

    touched_only leaves values alone whose gradient is zero: regions that no ray of the batch met. rows [L] int64:
    vertices to visit, each once, counted (x * Y + y) * Z + z; all others stay as they are. None: all.
    """
    with torch.enable_grad():
        leaf = grid.detach().requires_grad_()
        (slope,) = torch.autograd.grad(total_variation(leaf), leaf)
    if touched_only:
        slope = slope.masked_fill(grad == 0, 0)
    if rows is not None:
        others = torch.ones(grid.shape[:3].numel(), dtype=torch.bool, device=rows.device).index_fill_(0, rows, False)
        slope = slope.masked_fill(others.view(*grid.shape[:3], 1), 0)
    grad.add_(slope, alpha=weight)


def adam_step(
    param: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    grad: Tensor,
    lr: Tensor,
    step: Tensor,
    rows: Tensor | None,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """One step of Adam (Kingma & Ba 2015), in place; clears the gradient.

    A value is left alone where its gradient is exactly zero or its gradient's square is not finite.

    param, grad: one shape [...,C]. rows [L] int64: rows of C values to visit, each once, all others stay as they are,
    the gradient too; None: all. exp_avg, exp_avg_sq: of the rows, in their order, [L,C]; without rows of param's shape.
    lr: [1], or [C]. step [1] float32: number of this step, from 1; 0 leaves the step out, but for clearing; a tensor,
    so that a CUDA graph can replay the call.
    """
    whole = (param, grad)
    if rows is not None:
        whole = tuple(x.view(-1, x.shape[-1]) for x in whole)
        param, grad = (x.index_select(0, rows) for x in whole)
    touched = (grad != 0) & (grad * grad).isfinite() & (step > 0)
    exp_avg.copy_(torch.where(touched, torch.lerp(grad, exp_avg, beta1), exp_avg))
    exp_avg_sq.copy_(torch.where(touched, torch.lerp(grad * grad, exp_avg_sq, beta2), exp_avg_sq))
    first, second = 1 - beta1**step.double(), 1 - beta2**step.double()
    size = lr * (exp_avg / first.to(param)) / ((exp_avg_sq / second.to(param)).sqrt() + eps)
    param.sub_(torch.where(touched, size.to(param.dtype), torch.zeros_like(param)))
    grad.zero_()
    if rows is not None:
        for target, part in zip(whole, (param, grad), strict=True):
            target.index_copy_(0, rows, part)


def interpolate_cells(feats: Tensor, points: Tensor) -> Tensor:
    """Trilinear interpolation within cells of their own.

    feats [N,8,F]: values at the corners of each point's cell, corner k = 4x + 2y + z. points [N,3]: -1 at the low
    corner, 1 at the high one; the formula goes on outside. Returns [N,F]. Differentiable in feats and points.
    """
    weights = points.new_ones(len(points), 1)
    for axis in range(3):
        fraction = 0.5 + 0.5 * points[:, axis]
        weights = (weights[:, :, None] * torch.stack([1 - fraction, fraction], -1)[:, None]).flatten(1)
    return (feats * weights[..., None]).sum(1)


def index_add(dst: Tensor, dim: int, index: Tensor, src: Tensor, alpha: float = 1.0) -> None:
    """Adds rows of src to rows of dst, in place: dst[..., index[i], ...] += alpha * src[..., i, ...] along dim.

    dst and src: one shape but for dim, any strides, float32, float64 or bfloat16; no memory in common, and no
    element of dst twice in memory. index [I]: int64 or int32, from 0 to the rows of dst - 1; I rows in src.
    Not recorded for differentiation; the gradient of src is alpha * grad.index_select(dim, index).
    """
    with torch.no_grad():
        dst.index_add_(dim, index, src, alpha=alpha)


def distortion_loss(weights: Tensor, t_starts: Tensor, t_ends: Tensor, ray_offsets: Tensor) -> Tensor:
    """How far the weights of each ray are spread (Barron et al. 2022, eq. 15), in O(N) (Sun et al. 2022b).

    Sum over pairs of samples of weight_i * weight_j * |midpoint_i - midpoint_j|, plus a third of the sum of
    weight_i^2 * length_i. Zero is one infinitely thin surface. The loss is linear in t: with t in world units it is a
    length; dividing it by a length of the scene gives the paper's loss on normalised distances.

    weights [M]. t_starts, t_ends [M]: any unit of length, midpoints rising along each ray. ray_offsets [R+1] int64.
    Returns [R] in the unit of t, 0 for rays without samples. Differentiable in weights.
    """
    num_rays = len(ray_offsets) - 1
    counts = ray_offsets.diff()
    ray = torch.repeat_interleave(torch.arange(num_rays, device=weights.device), counts)
    slot = torch.arange(len(ray), device=weights.device) - ray_offsets[ray]
    weight, starts, ends = (x[: len(ray)] for x in (weights, t_starts, t_ends))
    gap = 0.5 * ((starts - starts.roll(1)) + (ends - ends.roll(1)))  # between this midpoint and the one before
    gap = torch.where(slot > 0, gap, 0)
    longest = int(counts.max().item()) if num_rays else 0

    def rows(x: Tensor) -> Tensor:
        return x.new_zeros(num_rays, longest).index_put((ray, slot), x)

    row = rows(weight)
    passed = torch.nn.functional.pad(row.cumsum(1)[:, :-1], (1, 0)) if longest else row
    reach = (passed * rows(gap)).cumsum(1)  # of sample i: sum over j < i of weight_j * (midpoint_i - midpoint_j)
    return 2 * (row * reach).sum(1) + (row.square() * rows(ends - starts)).sum(1) / 3
