"""Mesh extraction: the surface of a trained scene as colored triangles, by fusion of rendered depth (TSDF).

A level set of density is no sharp surface: light may end in one voxel or in fog of five. Rendered depth is sharper. So
depth is rendered for the training cameras and fused into a truncated signed distance at the grid's vertices (Curless &
Levoy 1996, "A Volumetric Method for Building Complex Models from Range Images"). Its zero level is the surface
(nerf/export/surface_nets.py). Parts that no camera sees have no surface; small separate parts are removed.

Legend: V vertices, F triangles, N points, X Y Z grid vertices.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.errors import UserError
from nerf.export.crop import check_crop, inside, nothing_inside
from nerf.export.packages import require
from nerf.export.surface_colors import surface_colors
from nerf.export.surface_nets import large_parts, surface_net
from nerf.export.texture import Texture, bake, unwrap
from nerf.fields.field import Field
from nerf.rendering.render import sample_weights, visible_samples
from nerf.rendering.sampler import RaySampler
from nerf.scene.occupancy import cells_to_vertices, with_neighbors

BAND = 3.0  # truncation distance on either side of the surface, in cells
FREE_WEIGHT = 0.3  # weight of free-space observations, relative to observations near the surface
SURFACE_AT = 0.25  # share of a ray's weights before the surface: density takes a voxel to rise, half lies behind it
MET = 0.5  # opacity from which a pixel hits the surface
MAX_VIEWS, MAX_SIDE = 200, 1000  # number of depth images, and their longer side in pixels
RAYS_AT_A_TIME = 1 << 17


@dataclass(frozen=True)
class Mesh:
    """Triangles in world coordinates, counterclockwise seen from outside."""

    vertices: Tensor  # [V,3] world
    faces: Tensor  # [F,3] int64
    colors: Tensor  # [V,3] in [0,1]
    texture: Texture | None = None


def extract_mesh(
    field: Field,
    sampler: RaySampler,
    cameras: Cameras,
    smallest: float = 0.001,
    triangles: int | None = None,
    texture_size: int | None = None,
    crop: Tensor | None = None,
) -> Mesh:
    """The surface of a field, in host memory.

    cameras: the training cameras. smallest: connected parts with less than this fraction of all triangles are removed.
    triangles: at most so many are kept, by quadric edge collapses; None: all. texture_size: texels of a texture's side,
    about; None: colors at the vertices alone. crop [2,3]: world box, minimum and maximum, outside of which nothing is
    kept; None: all, of a forward-facing scene the near part (Space.is_near).

    Raises UserError for an unbounded scene without a crop, if no camera sees a surface or none in the crop, or if a
    package is missing that decimation or a texture needs.
    """
    space = field.box.space
    check_crop(space, crop)
    if triangles is not None:
        require("fast_simplification", "triangles=N")
    if texture_size is not None:
        require("xatlas", "texture=true")
    cameras = cameras[:: -(-len(cameras) // MAX_VIEWS)].within(MAX_SIDE).to(sampler.backend.device)
    coords, faces = surface_net(signed_distance(field, sampler, cameras))
    kept = faces[inside(space, field.grid_map.to_scene(coords), crop)[faces].all(1)]
    if crop is not None and len(faces) > 0 and len(kept) == 0:
        raise nothing_inside(_to_world(field, coords), crop)
    coords, faces = _compact(coords, large_parts(kept, len(coords), smallest))
    if len(faces) == 0 and len(kept) > 0:
        raise UserError(
            f"smallest={smallest:g} leaves no part of the {len(kept)} triangles: it is the share of these that a part "
            "needs at least to be kept; give less."
        )
    if len(faces) == 0:
        raise UserError(
            "the scene has no surface: no training camera sees anything that is half opaque; train longer, or check "
            "the training views with evaluate.py split=train."
        )
    if triangles is not None and triangles < len(faces):
        coords, faces = decimate(coords, faces, triangles)
    if _is_mirror(field, coords):
        faces = faces.flip(1)
    vertices = _to_world(field, coords)
    normals = vertex_normals(vertices, faces)

    def color_at(coords: Tensor, normals: Tensor) -> Tensor:
        points, cells = _to_world(field, coords), _cell_sizes(field, coords)
        return surface_colors(field, sampler, cameras, points, normals, cells)

    texture = None
    if texture_size is not None:
        texture = bake(unwrap(vertices, faces, texture_size), coords, normals, color_at)
    return Mesh(vertices.cpu(), faces.cpu(), color_at(coords, normals).cpu(), texture)


def decimate(coords: Tensor, faces: Tensor, triangles: int) -> tuple[Tensor, Tensor]:
    """The mesh with at most so many triangles: vertices [V,3] in grid units, faces [F,3].

    Quadric edge collapses (Garland & Heckbert 1997, "Surface Simplification Using Quadric Error Metrics"), by the
    package fast-simplification. In grid units an error counts alike near to the cameras and far from them.
    """
    import fast_simplification

    points, kept = fast_simplification.simplify(
        coords.cpu().numpy(), faces.cpu().numpy().astype("int32"), target_count=triangles
    )
    return torch.from_numpy(points).to(coords), torch.from_numpy(kept).to(faces)


@torch.no_grad()
def signed_distance(field: Field, sampler: RaySampler, cameras: Cameras) -> Tensor:
    """Truncated signed distance of each grid vertex behind the visible surface, [X,Y,Z] in units of BAND, -1 to 1.

    NaN without observation: far from occupied cells, and more than BAND behind the surface for all cameras.
    """
    around = cells_to_vertices(with_neighbors(with_neighbors(sampler.occupancy.occupied)))
    coords = around.nonzero().float()
    points, band = _to_world(field, coords), BAND * _cell_sizes(field, coords)
    total, count = torch.zeros_like(band), torch.zeros_like(band)
    for index in tqdm(range(len(cameras)), desc="depth fusion", unit="view", leave=False):
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
    """Depth of each pixel of a camera, [H*W] distance along the ray in world units; infinite for empty pixels.

    It is a quantile of the weights along the ray: behind a thin wall that lets light through, the mean would lie in
    empty space.
    """
    width, height = cameras.size(index)
    found = []
    for first in range(0, width * height, RAYS_AT_A_TIME):
        rays = cameras.pixel_range_rays(index, first, first + RAYS_AT_A_TIME, ops=sampler.backend.ops)
        samples = visible_samples(field, sampler, rays)
        through = functional.pad(sample_weights(field, sampler, samples).double().cumsum(0), (1, 0))
        begin, end = through[samples.ray_offsets[:-1]], through[samples.ray_offsets[1:]]
        reached = (begin + SURFACE_AT * (end - begin)).index_select(0, samples.ray_indices)
        passed = torch.zeros_like(samples.ray_offsets[1:])
        passed.index_add_(0, samples.ray_indices, (through[1:] < reached).long())
        t = functional.pad(0.5 * (samples.t_starts + samples.t_ends), (0, 1))  # of rays without samples: any
        distances = samples.path.distances(t[samples.ray_offsets[:-1] + passed])
        found.append(torch.where(end - begin >= MET, distances, torch.inf))
    return torch.cat(found)


def _compact(vertices: Tensor, faces: Tensor) -> tuple[Tensor, Tensor]:
    """The mesh without unused vertices."""
    used, faces = faces.unique(return_inverse=True)
    return vertices[used], faces


def _to_world(field: Field, coords: Tensor) -> Tensor:
    return field.box.space.to_world(field.grid_map.to_scene(coords))


def _cell_sizes(field: Field, coords: Tensor) -> Tensor:
    """World length of a cell's edge at points [N,3] in grid units, [N]: its diagonal divided by sqrt(3)."""
    return (_to_world(field, coords + 0.5) - _to_world(field, coords - 0.5)).norm(dim=-1) / 3**0.5


def _is_mirror(field: Field, coords: Tensor) -> bool:
    """Whether the map from grid to world reverses orientation, as that of NDC does."""
    steps = torch.eye(3, device=coords.device) * 1e-2
    here, ahead = _to_world(field, coords[:1]), _to_world(field, coords[:1] + steps)
    return torch.linalg.det((ahead - here).double()).item() < 0


def vertex_normals(vertices: Tensor, faces: Tensor) -> Tensor:
    """Outward unit normals [V,3]: area-weighted means over the adjacent faces."""
    a, b, c = vertices[faces].unbind(1)
    by_area = torch.linalg.cross(b - a, c - a).repeat_interleave(3, dim=0)
    return functional.normalize(torch.zeros_like(vertices).index_add_(0, faces.flatten(), by_area), dim=-1)
