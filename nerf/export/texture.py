"""Textures: a mesh is unwrapped into charts (by the package xatlas), and the field gives each texel its color.

Legend: V vertices of the mesh, W vertices after cutting along the charts' edges, F triangles.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nerf.export.surface_colors import fill_gutter, texels

FILLED = 0.6  # fraction of a texture that charts fill, about
# Triangles that are unwrapped together, at most. The time that xatlas takes grows with the square of what is connected:
# a sharp mesh of 60 000 triangles took 120 s as one part on two cores, and 2.5 s in parts, with 6% more charts.
TOGETHER = 4000


@dataclass(frozen=True)
class Unwrapped:
    """Texture coordinates of a mesh. A vertex on a chart's edge is there once for each chart."""

    sources: Tensor  # [W] int64: the vertex of the mesh
    faces: Tensor  # [F,3] int64, into W
    uv: Tensor  # [W,2] in [0,1], v downwards
    size: tuple[int, int]  # width and height, texels


@dataclass(frozen=True)
class Texture:
    """A textured mesh's second set of vertices, and its picture. In host memory."""

    sources: Tensor  # [W] int64: the vertex of the mesh
    faces: Tensor  # [F,3] int64, into W
    uv: Tensor  # [W,2] in [0,1], v downwards
    image: Tensor  # [H,W,3] uint8


def unwrap(vertices: Tensor, faces: Tensor, size: int) -> Unwrapped:
    """Charts of a mesh in one texture of at most size x size texels. vertices [V,3], faces [F,3].

    The triangles come in another order.
    """
    import xatlas

    a, b, c = vertices[faces].double().unbind(1)
    area = 0.5 * torch.linalg.cross(b - a, c - a).norm(dim=-1).sum().item()
    # A mesh of area 1, in host memory: xatlas drops triangles that are small as numbers.
    positions, corners = (vertices / area**0.5).cpu(), faces.cpu()
    atlas, parts = xatlas.Atlas(), []
    for some in _parts(positions[corners].mean(1)):
        used, local = corners[some].unique(return_inverse=True)
        atlas.add_mesh(positions[used].numpy().astype(np.float32), local.numpy().astype(np.uint32))
        parts.append(used)
    packing = xatlas.PackOptions()
    packing.padding, packing.bilinear = 2, True
    packing.texels_per_unit = size * FILLED**0.5
    atlas.generate(xatlas.ChartOptions(), packing)
    sources, kept, uv, count = [], [], [], 0
    for index, used in enumerate(parts):
        local, triangles, at = atlas[index]
        sources.append(used[torch.from_numpy(local.astype(np.int64))])
        kept.append(torch.from_numpy(triangles.astype(np.int64)) + count)
        uv.append(torch.from_numpy(at))
        count += len(local)
    found = (torch.cat(column).to(vertices.device) for column in (sources, kept, uv))
    shrink = min(1, size / max(atlas.width, atlas.height))  # of many charts, the space between them counts
    return Unwrapped(*found, (round(shrink * atlas.width), round(shrink * atlas.height)))


def _parts(centers: Tensor) -> list[Tensor]:
    """Row numbers of triangles that lie together, by their centers [F,3]: halves along the longest axis, again and
    again."""
    whole, done = [torch.arange(len(centers))], []
    while whole:
        rows = whole.pop()
        if len(rows) <= TOGETHER:
            done.append(rows)
            continue
        some = centers[rows]
        order = some[:, (some.amax(0) - some.amin(0)).argmax()].argsort()
        whole += rows[order].chunk(2)
    return done


def bake(charts: Unwrapped, coords: Tensor, normals: Tensor, color_at: Callable[[Tensor, Tensor], Tensor]) -> Texture:
    """The texture of a mesh. coords, normals [V,3]: at its vertices. color_at: from such at points to colors [.,3]."""
    width, height = charts.size
    texel, face, weights = texels(charts.uv, charts.faces, charts.size)
    corners = charts.sources[charts.faces[face]]
    at, towards = ((values[corners] * weights[..., None]).sum(1) for values in (coords, normals))
    image = torch.zeros(height * width, 3, device=coords.device)
    image[texel] = color_at(at, functional.normalize(towards, dim=-1))
    known = torch.zeros(height * width, dtype=torch.bool, device=coords.device)
    known[texel] = True
    image = fill_gutter(image.view(height, width, 3), known.view(height, width))
    pixels = (255 * image + 0.5).to(torch.uint8)
    return Texture(charts.sources.cpu(), charts.faces.cpu(), charts.uv.cpu(), pixels.cpu())
