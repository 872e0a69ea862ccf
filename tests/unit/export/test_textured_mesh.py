"""Decimated and textured meshes: of the surface, in its colors, whole in the eyes of an independent reader."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_mesh import RADIUS, RGB, scene

from nerf.errors import UserError
from nerf.export.mesh import Mesh, extract_mesh, vertex_normals
from nerf.export.mesh_files import FORMATS
from nerf.export.mesh_sheet import SIDE, draw_mesh, mesh_sheet
from nerf.export.surface_colors import GUTTER, fill_gutter
from nerf.export.texture import unwrap

PACKAGES = {"xatlas": {"texture_size": 64}, "fast_simplification": {"triangles": 9}}  # and what needs them
UP = torch.tensor([0.0, 0.0, 1.0])


@pytest.fixture(scope="module")
def textured() -> Mesh:
    """A ball whose red is brighter seen along x, with few triangles and a texture."""
    pytest.importorskip("xatlas")
    pytest.importorskip("fast_simplification")
    loaded = scene("bounded", [([0.0, 0.0, 0.0], RADIUS)])
    with torch.no_grad():
        loaded.field.sh_grid[..., 3] = 4.0
    return extract_mesh(loaded.field, loaded.sampler, loaded.cameras, triangles=500, texture_size=128)


def test_few_triangles_are_still_the_ball(textured: Mesh) -> None:
    assert 400 < len(textured.faces) <= 500
    assert (textured.vertices.norm(dim=-1) - RADIUS).abs().max() < 0.042  # a cell
    normals = torch.nn.functional.normalize(textured.vertices, dim=-1)
    assert ((vertex_normals(textured.vertices, textured.faces) * normals).sum(-1) > 0.8).all()


def test_the_texture_has_the_colors_of_the_vertices(textured: Mesh) -> None:
    texture = textured.texture
    height, width = texture.image.shape[:2]
    assert 100 <= width <= 128 and 100 <= height <= 128
    assert texture.uv.min() >= 0 and texture.uv.max() <= 1
    column, row = (texture.uv * torch.tensor([width, height])).long().unbind(-1)
    at = texture.image[row.clamp(max=height - 1), column.clamp(max=width - 1)].float() / 255
    expected = textured.colors[texture.sources]
    assert (at - expected).abs().mean() < 0.03 < expected[:, 0].std()


def test_a_mesh_is_unwrapped_in_parts(textured: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one part, a sharp mesh takes minutes."""
    cut_once = unwrap(textured.vertices, textured.faces, 128)
    monkeypatch.setattr("nerf.export.texture.TOGETHER", 90)
    charts = unwrap(textured.vertices, textured.faces, 128)
    in_parts, whole = charts.sources[charts.faces].sort(1)[0], textured.faces.sort(1)[0]
    assert in_parts.unique(dim=0).equal(whole.unique(dim=0)) and len(in_parts) == len(whole)
    assert len(charts.sources) > len(cut_once.sources)  # more seams
    assert max(charts.size) <= 128
    a, b, c = (charts.uv[charts.faces] * torch.tensor(charts.size)).unbind(1)
    sizes = (0.5 * torch.linalg.det(torch.stack([b - a, c - a], dim=1))).abs()
    a, b, c = textured.vertices[charts.sources[charts.faces]].unbind(1)
    areas = 0.5 * torch.linalg.cross(b - a, c - a).norm(dim=-1)
    assert (sizes / areas).log().std() < 0.3  # texels are spread evenly


def test_it_is_drawn_as_the_field_is(textured: Mesh) -> None:
    loaded = scene("bounded", [([0.0, 0.0, 0.0], RADIUS)])
    white = torch.ones(3)
    drawn = draw_mesh(textured, loaded.cameras, 3, white)
    plain = draw_mesh(replace(textured, texture=None), loaded.cameras, 3, white)
    covered = loaded.render(loaded.cameras, 3).opacity > 0.9
    assert (drawn[covered] != 1).any(-1).float().mean() > 0.97
    assert (drawn - plain).abs()[covered].mean() < 0.05
    sheet = mesh_sheet(textured, loaded.field, loaded.sampler, loaded.cameras, white)
    assert sheet.shape[1] == 2 * SIDE + 4 and sheet.std() > 0.01


@pytest.mark.parametrize("suffix", [".glb", ".obj"])
def test_another_reader_finds_the_texture(textured: Mesh, tmp_path: Path, suffix: str) -> None:
    trimesh = pytest.importorskip("trimesh", reason="the reader of mesh files is not installed")
    FORMATS[suffix](tmp_path / f"a{suffix}", textured, UP)
    found = trimesh.load(tmp_path / f"a{suffix}", force="mesh", process=False)
    material = found.visual.material
    picture = np.asarray((material.baseColorTexture if suffix == ".glb" else material.image).convert("RGB"))
    assert np.array_equal(picture, textured.texture.image.numpy())
    uv = found.visual.uv  # upwards in trimesh
    column, row = uv[:, 0] * picture.shape[1], (1 - uv[:, 1]) * picture.shape[0]
    red = picture[row.astype(int).clip(0, len(picture) - 1), column.astype(int).clip(0, picture.shape[1] - 1), 0]
    assert len(found.faces) == len(textured.faces)
    assert abs(np.corrcoef(red, found.vertices[:, 0])[0, 1]) > 0.8


@pytest.mark.parametrize("suffix", FORMATS)
def test_another_reader_finds_the_colored_surface(tmp_path: Path, suffix: str) -> None:
    trimesh = pytest.importorskip("trimesh", reason="the reader of mesh files is not installed")
    corners = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    faces = torch.tensor([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    FORMATS[suffix](tmp_path / f"a{suffix}", Mesh(corners, faces, RGB.expand(4, 3)), UP)
    found = trimesh.load(tmp_path / f"a{suffix}", force="mesh", process=False)
    assert found.is_watertight and found.volume == pytest.approx(1 / 6)
    if suffix == ".glb":  # linear colors, which trimesh keeps beside the material
        (part,) = trimesh.load(tmp_path / f"a{suffix}", process=False).geometry.values()
        colors, expected = part.visual.vertex_attributes["color"], ((RGB + 0.055) / 1.055) ** 2.4
    else:
        colors, expected = np.asarray(found.visual.vertex_colors) / 255, RGB
    assert np.abs(colors[:, :3] - expected.numpy()).max() < 0.01


def test_a_gutter_takes_the_color_beside_it() -> None:
    texture, known = torch.zeros(20, 20, 3), torch.zeros(20, 20, dtype=torch.bool)
    texture[8:12, 8:12], known[8:12, 8:12] = RGB, True
    filled = fill_gutter(texture, known)
    edge = slice(8 - GUTTER, 12 + GUTTER)
    torch.testing.assert_close(filled[edge, edge], RGB.expand(4 + 2 * GUTTER, 4 + 2 * GUTTER, 3))
    assert (filled != 0).any(-1).sum() == (4 + 2 * GUTTER) ** 2


@pytest.mark.parametrize(("package", "asked"), PACKAGES.items())
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str, asked: dict[str, int]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else object())
    loaded = scene("bounded", [([0.0, 0.0, 0.0], RADIUS)])
    with pytest.raises(UserError, match=r"pip install .*nerf-voxel\[export\]"):
        extract_mesh(loaded.field, loaded.sampler, loaded.cameras, **asked)
