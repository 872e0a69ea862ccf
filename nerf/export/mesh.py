"""The surface of a trained scene as coloured triangles: for modelling, for measuring, for the web.

Density makes no sharp surface: where light ends may be a wall of one voxel or fog of five. What rays meet is sharper.
So the training cameras look at the scene once more, the distances that they see are averaged into a truncated signed
distance at the vertices of the grid (Curless & Levoy 1996, "A Volumetric Method for Building Complex Models from Range
Images"), and its zero is the surface (nerf/export/surface_nets.py). What no camera saw has no surface; small parts that
lie apart are left out.

Legend: V vertices, F triangles, N points, X Y Z grid vertices.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.errors import UserError
from nerf.export.surface_nets import large_parts, surface_net
from nerf.fields.field import Field
from nerf.rendering.render import render_rays, sample_weights, visible_samples
from nerf.rendering.sampler import RaySampler
from nerf.scene.occupancy import cells_to_vertices, with_neighbors

BAND = 3.0  # cells on either side of the surface in which distances count
FREE_WEIGHT = 0.3  # of a camera that sees far past a point, against one that sees a surface there
MET = 0.5  # opacity of a pixel that meets the surface
MAX_VIEWS, MAX_SIDE = 200, 1000  # of the cameras that look, and of their pictures
STEP_BACK = 3.0  # cells in front of a vertex, from where its colour is looked at
RAYS_AT_A_TIME = 1 << 17


@dataclass(frozen=True)
class Mesh:
    """Triangles in the world, counterclockwise seen from outside."""

    vertices: Tensor  # [V,3] world
    faces: Tensor  # [F,3] int64
    colors: Tensor  # [V,3] in [0,1]


def extract_mesh(field: Field, sampler: RaySampler, cameras: Cameras, smallest: float = 0.001) -> Mesh:
    """The surface of a field, in host memory.

    cameras: those that it was trained with. smallest: parts with less than this share of all triangles are left out.
    Of a scene with a backdrop, what is near enough to have a shape (Space.is_near). Raises UserError where the cameras
    meet nothing.
    """
    cameras = cameras[:: -(-len(cameras) // MAX_VIEWS)].within(MAX_SIDE).to(sampler.backend.device)
    coords, faces = surface_net(signed_distance(field, sampler, cameras))
    near = field.box.space.is_near(field.grid_map.to_scene(coords))
    faces = faces[near[faces].all(1)]
    coords, faces = _compact(coords, large_parts(faces, len(coords), smallest))
    if len(faces) == 0:
        raise UserError(
            "the scene has no surface: no training camera meets anything half opaque; train longer, or look at the "
            "training views with evaluate.py split=train."
        )
    vertices = _to_world(field, coords)
    if _is_mirror(field, coords):
        faces = faces.flip(1)
    colors = vertex_colors(field, sampler, cameras, coords, vertices, faces)
    return Mesh(vertices.cpu(), faces.cpu(), colors.cpu())


@torch.no_grad()
def signed_distance(field: Field, sampler: RaySampler, cameras: Cameras) -> Tensor:
    """How far each vertex of the grid lies behind the surface that cameras meet, [X,Y,Z] in bands, -1 to 1.

    NaN where no camera says so: far from occupied cells, and farther than a band behind what all cameras see.
    """
    around = cells_to_vertices(with_neighbors(with_neighbors(sampler.occupancy.occupied)))
    coords = around.nonzero().float()
    points, band = _to_world(field, coords), BAND * _cell_sizes(field, coords)
    total, count = torch.zeros_like(band), torch.zeros_like(band)
    for index in tqdm(range(len(cameras)), desc="looking", unit="view", leave=False):
        (width, height), (at, z) = cameras.size(index), cameras.project(index, points)
        column, row = at.floor().long().unbind(-1)
        inside = (z > 0) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
        pixel = torch.where(inside, row * width + column, 0)
        met = met_distances(field, sampler, cameras, index)
        ahead = (met[pixel] - (points - cameras.centers[index]).norm(dim=-1)) / band
        weight = torch.where(ahead > 1, FREE_WEIGHT, 1.0) * (inside & (ahead > -1))
        total += weight * torch.where(weight > 0, ahead.clamp(max=1.0), 0.0)
        count += weight
    volume = torch.full(field.resolution, torch.nan, device=points.device)
    volume[around] = torch.where(count > 0, -total / count.clamp(min=FREE_WEIGHT), torch.nan)
    return volume


def met_distances(field: Field, sampler: RaySampler, cameras: Cameras, index: int) -> Tensor:
    """How far away each pixel of a camera meets the scene, [H*W] in world units; infinite where it meets nothing.

    Where half of its light has ended: the median. Light that passes a thin wall would pull the mean into mid-air.
    """
    width, height = cameras.size(index)
    found = []
    for first in range(0, width * height, RAYS_AT_A_TIME):
        rays = cameras.pixel_range_rays(index, first, first + RAYS_AT_A_TIME, ops=sampler.backend.ops)
        samples = visible_samples(field, sampler, rays)
        through = functional.pad(sample_weights(field, sampler, samples).double().cumsum(0), (1, 0))
        begin, end = through[samples.ray_offsets[:-1]], through[samples.ray_offsets[1:]]
        half = (0.5 * (begin + end)).index_select(0, samples.ray_indices)
        passed = torch.zeros_like(samples.ray_offsets[1:])
        passed.index_add_(0, samples.ray_indices, (through[1:] < half).long())
        t = functional.pad(0.5 * (samples.t_starts + samples.t_ends), (0, 1))  # of rays without samples: any
        distances = samples.path.distances(t[samples.ray_offsets[:-1] + passed])
        found.append(torch.where(end - begin >= MET, distances, torch.inf))
    return torch.cat(found)


def _compact(vertices: Tensor, faces: Tensor) -> tuple[Tensor, Tensor]:
    """Without the vertices that no face has."""
    used, faces = faces.unique(return_inverse=True)
    return vertices[used], faces


def _to_world(field: Field, coords: Tensor) -> Tensor:
    return field.box.space.to_world(field.grid_map.to_scene(coords))


def _cell_sizes(field: Field, coords: Tensor) -> Tensor:
    """Length in the world of a cell's edge around points [N,3] in grid units, [N]: the mean along its diagonal."""
    return (_to_world(field, coords + 0.5) - _to_world(field, coords - 0.5)).norm(dim=-1) / 3**0.5


def _is_mirror(field: Field, coords: Tensor) -> bool:
    """Whether the way from the grid to the world turns left into right, as a frustum straightened does."""
    steps = torch.eye(3, device=coords.device) * 1e-2
    here, ahead = _to_world(field, coords[:1]), _to_world(field, coords[:1] + steps)
    return torch.linalg.det((ahead - here).double()).item() < 0


def vertex_normals(vertices: Tensor, faces: Tensor) -> Tensor:
    """Unit normals [V,3], outwards: the mean of the faces around, each by its area."""
    a, b, c = vertices[faces].unbind(1)
    by_area = torch.linalg.cross(b - a, c - a).repeat_interleave(3, dim=0)
    return functional.normalize(torch.zeros_like(vertices).index_add_(0, faces.flatten(), by_area), dim=-1)


@torch.no_grad()
def vertex_colors(
    field: Field, sampler: RaySampler, cameras: Cameras, coords: Tensor, vertices: Tensor, faces: Tensor
) -> Tensor:
    """What a ray sees that meets each vertex in the direction of the training camera that looks at it most squarely.

    Colour depends on the direction, and is right where a photo was taken from. coords in grid units, vertices in the
    world, both [V,3]; returns [V,3] in [0,1].
    """
    normals = vertex_normals(vertices, faces)
    centers = cameras.centers.to(vertices)
    cell = _cell_sizes(field, coords)[:, None]
    space = replace(field.box.space, near=0.0)  # rays begin just before the surface
    sampler = replace(
        sampler, grid_map=replace(sampler.grid_map, space=space), config=replace(sampler.config, near=0.0)
    )
    black, colors = vertices.new_zeros(3), []
    for part in torch.arange(len(vertices), device=vertices.device).split(RAYS_AT_A_TIME):
        squarest, directions = vertices.new_full((len(part), 1), -torch.inf), torch.zeros_like(vertices[part])
        for center in centers:
            towards = functional.normalize(vertices[part] - center, dim=-1)
            square = -(towards * normals[part]).sum(-1, keepdim=True)
            directions = torch.where(square > squarest, towards, directions)
            squarest = torch.maximum(squarest, square)
        rays = Rays(vertices[part] - STEP_BACK * cell[part] * directions, directions)
        seen = render_rays(field, sampler, rays, black)
        colors.append((seen.rgb / seen.opacity.clamp(min=1e-3)[:, None]).clamp(0, 1))
    return torch.cat(colors)
