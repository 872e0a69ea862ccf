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
    """Charts of a mesh in one texture of about size x size texels. vertices [V,3], faces [F,3]."""
    import xatlas

    a, b, c = vertices[faces].double().unbind(1)
    area = 0.5 * torch.linalg.cross(b - a, c - a).norm(dim=-1).sum().item()
    scale = 1 / area**0.5  # a mesh of area 1: xatlas drops triangles that are small as numbers
    atlas = xatlas.Atlas()
    atlas.add_mesh((vertices * scale).cpu().numpy().astype(np.float32), faces.cpu().numpy().astype(np.uint32))
    packing = xatlas.PackOptions()
    packing.padding, packing.bilinear = 2, True
    packing.texels_per_unit = size * FILLED**0.5
    atlas.generate(xatlas.ChartOptions(), packing)
    sources, kept, uv = atlas[0]
    on = {"device": vertices.device}
    return Unwrapped(
        torch.from_numpy(sources.astype(np.int64)).to(**on),
        torch.from_numpy(kept.astype(np.int64)).to(**on),
        torch.from_numpy(uv).to(**on),
        (atlas.width, atlas.height),
    )


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
