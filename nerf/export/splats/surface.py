"""Where Gaussians begin: points of the surface that training rays meet, one per cell of a lattice fine enough.

Legend: P pixels, M samples, N points.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from nerf.cameras.rays import Rays
from nerf.cameras.se3 import rotation_from_quaternion
from nerf.errors import UserError
from nerf.export.splats.gaussians import turned_towards
from nerf.export.splats.pictures import Pictures
from nerf.fields.field import Field
from nerf.rendering.render import render_samples, visible_samples
from nerf.rendering.sampler import RaySampler

MET = 0.1  # opacity from which a pixel shows a surface
CANDIDATES = 3  # points that are looked for, per Gaussian
RAYS_AT_A_TIME = 1 << 16
FARTHEST = 100.0  # world distance of the backdrop, in lengths of the scene: parallax is not seen there
FINEST = 1.25  # least spacing of Gaussians, in pixels: more of them cost time and are no better
HALVINGS = 20  # of the interval in which the lattice's edge is found
STEP = 1e-3  # of the difference quotient for sizes, in distances from the camera


@dataclass(frozen=True)
class SurfacePoints:
    """N points of the surface."""

    points: Tensor  # [N,3] world
    normals: Tensor  # [N,3] unit, outwards
    opacity: Tensor  # [N] of the rays that met them
    distance: Tensor  # [N] from the camera that saw it, world units


def surface_points(field: Field, sampler: RaySampler, pictures: Pictures, most: int) -> tuple[SurfacePoints, float]:
    """At most so many points, spread evenly over what the cameras see, and their spacing in cells of the grid.

    Raises UserError where no camera sees a surface.
    """
    found = _candidates(field, sampler, pictures, CANDIDATES * most)
    coords = field.grid_map.to_grid(field.box.space.to_scene(found.points))
    low = FINEST * _pixel_size(field, pictures, found)
    high = max(low, float(max(field.resolution)))
    if len(_cells(coords, low).unique()) <= most:
        high = low
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if len(_cells(coords, middle).unique()) <= most else (middle, high)
    owner = _cells(coords, high).unique(return_inverse=True)[1]
    count = torch.bincount(owner)

    def mean(values: Tensor) -> Tensor:
        total = values.new_zeros(len(count), *values.shape[1:]).index_add_(0, owner, values)
        return total / count.view(-1, *[1] * (values.dim() - 1))

    normals = functional.normalize(mean(found.normals), dim=-1)
    flat = normals.new_tensor([0.0, 0.0, 1.0])
    normals = torch.where(normals.norm(dim=-1, keepdim=True) > 0.5, normals, flat)
    return SurfacePoints(mean(found.points), normals, mean(found.opacity), mean(found.distance)), high


def _pixel_size(field: Field, pictures: Pictures, found: SurfacePoints) -> float:
    """The median size of a pixel where the points lie, in cells of the grid."""
    focal = pictures.cameras.intrinsics[:, 0].median().expand(len(found.distance))
    return field.box.space.pixel_sizes(found.distance, focal).median().item() / field.voxel_size


def _cells(coords: Tensor, edge: float) -> Tensor:
    """The cell of a lattice in which points [N,3] lie, as one number, [N] int64."""
    x, y, z = (coords / edge).floor().long().clamp(-(1 << 19), (1 << 19) - 1).unbind(-1)
    return ((x << 20) + y << 20) + z


def _candidates(field: Field, sampler: RaySampler, pictures: Pictures, count: int) -> SurfacePoints:
    """About so many points, of random pixels of all pictures in equal shares."""
    generator = torch.Generator(device=sampler.backend.device).manual_seed(0)
    met = [(opacity.view(-1) >= 255 * MET).nonzero()[:, 0] for opacity in pictures.opacity]
    total = sum(map(len, met))
    if total == 0:
        raise UserError(
            "the scene has no surface: no training camera sees anything; train longer, or check the training views "
            "with evaluate.py split=train."
        )
    found = []
    for index in tqdm(range(len(pictures)), desc="surface", unit="view", leave=False):
        some = torch.randint(max(1, len(met[index])), (-(-count * len(met[index]) // total),), generator=generator,
                             device=met[index].device)  # fmt: skip
        for pixels in met[index][some].split(RAYS_AT_A_TIME):
            pixels = pictures.cameras.first_pixel(index) + pixels
            found.append(_meet(field, sampler, pictures.cameras.rays_through(pixels, 1, sampler.backend.ops)))
    return SurfacePoints(*(torch.cat(column) for column in zip(*found, strict=True)))


@torch.no_grad()
def _meet(field: Field, sampler: RaySampler, rays: Rays) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Points, normals, opacities and distances of the rays that meet something.

    A point is at the median of the weights along its ray: behind a thin wall that lets light through, the mean would
    lie in empty space.
    """
    samples = visible_samples(field, sampler, rays)
    rendering = render_samples(field, sampler, samples, rays.origins.new_zeros(3), with_normals=True)
    through = functional.pad(rendering.weights.double().cumsum(0), (1, 0))
    begin, end = through[samples.ray_offsets[:-1]], through[samples.ray_offsets[1:]]
    half = (0.5 * (begin + end)).index_select(0, samples.ray_indices)
    passed = torch.zeros_like(samples.ray_offsets[1:])
    passed.index_add_(0, samples.ray_indices, (through[1:] < half).long())
    t = functional.pad(0.5 * (samples.t_starts + samples.t_ends), (0, 1))
    distances = samples.path.distances(t[samples.ray_offsets[:-1] + passed])
    distances = distances.clamp(max=FARTHEST * field.box.unit)
    rows = ((samples.ray_offsets.diff() > 0) & (rendering.opacity >= MET)).nonzero()[:, 0]
    points = (rays.origins + distances[:, None] * rays.directions)[rows]
    return points, rendering.normals[rows], rendering.opacity[rows], distances[rows]


def tangent_frames(field: Field, surface: SurfacePoints, spacing: float) -> tuple[Tensor, Tensor]:
    """Quaternions [N,4] whose third axes are normals, and world lengths [N,2] of the spacing along the other two.

    spacing: in cells of the grid. Where the world is pressed together, one cell is long.
    """
    rotations = turned_towards(surface.normals)
    axes = rotation_from_quaternion(rotations)
    space, lengths = field.box.space, []
    for axis in axes.unbind(-1)[:2]:
        step = STEP * surface.distance[:, None] * axis
        ahead, back = (field.grid_map.to_grid(space.to_scene(surface.points + s)) for s in (step, -step))
        cells = (ahead - back).norm(dim=-1) / (2 * STEP * surface.distance)
        lengths.append(spacing / cells.clamp(min=1e-6))
    return rotations, torch.stack(lengths, dim=-1)
