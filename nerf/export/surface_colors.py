"""Colors of a mesh from its field: at its vertices, or at the texels of a texture.

Legend: V vertices, F triangles, P points, H W texels.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.export.raster import covered_pixels
from nerf.fields.field import Field
from nerf.rendering.render import render_rays
from nerf.rendering.sampler import RaySampler

STEP_BACK = 3.0  # distance before a point at which the ray for its color starts, in cells
GUTTER = 4  # texels around a chart that take their neighbors' color, for filtering between texels
RAYS_AT_A_TIME = 1 << 17


@torch.no_grad()
def surface_colors(
    field: Field, sampler: RaySampler, cameras: Cameras, points: Tensor, normals: Tensor, cells: Tensor
) -> Tensor:
    """Colors [P,3] in [0,1] at points of a surface, rendered from the direction of the most frontal training camera.

    Color depends on the direction and is reliable in the directions of the photos. points [P,3]: world. normals [P,3]:
    outward, unit. cells [P]: size of a grid cell there, world units.
    """
    centers = cameras.centers.to(points)
    space = replace(field.box.space, near=0.0)  # rays start just before the surface
    sampler = replace(
        sampler, grid_map=replace(sampler.grid_map, space=space), config=replace(sampler.config, near=0.0)
    )
    black, colors = points.new_zeros(3), [points.new_zeros(0, 3)]
    parts = torch.arange(len(points), device=points.device).split(RAYS_AT_A_TIME)
    for part in tqdm(parts, desc="colors", unit="points", unit_scale=RAYS_AT_A_TIME, leave=False):
        squarest, directions = points.new_full((len(part), 1), -torch.inf), torch.zeros_like(points[part])
        for center in centers:
            towards = functional.normalize(points[part] - center, dim=-1)
            square = -(towards * normals[part]).sum(-1, keepdim=True)
            directions = torch.where(square > squarest, towards, directions)
            squarest = torch.maximum(squarest, square)
        rays = Rays(points[part] - STEP_BACK * cells[part, None] * directions, directions)
        rendering = render_rays(field, sampler, rays, black)
        colors.append((rendering.rgb / rendering.opacity.clamp(min=1e-3)[:, None]).clamp(0, 1))
    return torch.cat(colors)


def fill_gutter(texture: Tensor, known: Tensor) -> Tensor:
    """The texture [H,W,3] with colors for GUTTER texels around the known ones [H,W], each the mean of its neighbors."""
    color, weight = (texture * known[..., None]).permute(2, 0, 1)[:, None], known.float()[None, None]
    box = torch.ones(1, 1, 3, 3, device=texture.device)
    for _ in range(GUTTER):
        total, count = (functional.conv2d(x, box, padding=1) for x in (color, weight))
        fresh = (weight == 0) & (count > 0)
        color = torch.where(fresh, total / count.clamp(min=1), color)
        weight = torch.where(fresh, 1.0, weight)
    return color[:, 0].permute(1, 2, 0)


def texels(uv: Tensor, faces: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """The texels that triangles cover: texel numbers [P], triangles [P] and barycentric coordinates [P,3].

    uv [V,2]: texture coordinates in [0,1]. size: width and height of the texture. A texel in two triangles goes to one.
    """
    corners = uv[faces] * torch.tensor(size, dtype=uv.dtype, device=uv.device)
    found = [torch.cat(part) for part in zip(*covered_pixels(corners, *size), strict=True)]
    owner = torch.full((size[0] * size[1],), -1, dtype=torch.int64, device=uv.device)
    owner[found[1]] = torch.arange(len(found[1]), device=uv.device)
    texel = (owner >= 0).nonzero()[:, 0]
    chosen = owner[texel]
    return texel, found[0][chosen], found[2][chosen]
