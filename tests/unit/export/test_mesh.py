"""Meshes: closed, outwards and exact on spheres of every kind of scene, colored as rays see them, whole as files."""

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from script_runs import script_caller
from tiny_runs import STEPS, field_config, run_to, tiny_config, tiny_images, tiny_state
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import look_at
from nerf.config.schema import SamplerConfig
from nerf.errors import UserError
from nerf.export.mesh import Mesh, extract_mesh, vertex_normals
from nerf.export.mesh_files import write_glb, write_ply
from nerf.export.surface_nets import large_parts, surface_net
from nerf.fields.voxel_sh import VoxelSh
from nerf.ops.backend import select
from nerf.rendering.sampler import RaySampler
from nerf.runs import checkpoint
from nerf.runs.open_run import LoadedRun
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace
from nerf.scene.ndc import NdcSpace
from nerf.scene.occupancy import OccupancyGrid
from nerf.scene.space import Space, WorldSpace

RGB = torch.tensor([0.9, 0.5, 0.2])
RADIUS = 0.6


def ball(center: tuple[float, ...], radius: float, sides: tuple[int, int, int]) -> Tensor:
    """Distance inwards from the surface of a ball, at the vertices of a grid."""
    points = torch.stack(torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in sides), indexing="ij"), dim=-1)
    return radius - (points - torch.tensor(center)).norm(dim=-1)


def edges_of(faces: Tensor) -> list[tuple[int, int]]:
    return [tuple(edge) for face in faces.tolist() for edge in zip(face, face[1:] + face[:1])]


def assert_closed(faces: Tensor) -> None:
    """Every edge has one face on each side, which goes along it the other way."""
    edges = edges_of(faces)
    assert len(set(edges)) == len(edges) > 0
    assert {(b, a) for a, b in edges} == set(edges)


def volume_of(vertices: Tensor, faces: Tensor) -> float:
    a, b, c = vertices[faces].double().unbind(1)
    return (torch.linalg.cross(a, b) * c).sum().item() / 6


# The surface


def test_a_ball_is_closed_faces_outwards_and_has_its_volume(device: str) -> None:
    center, sides = (9.3, 10.1, 12.4), (20, 22, 27)
    vertices, faces = surface_net(ball(center, 7.6, sides).to(device))
    vertices, faces = vertices.cpu(), faces.cpu()
    assert_closed(faces)
    assert len(vertices) - len(edges_of(faces)) // 2 + len(faces) == 2  # Euler's formula
    outwards = torch.nn.functional.normalize(vertices - torch.tensor(center), dim=-1)
    assert ((vertex_normals(vertices, faces) * outwards).sum(-1) > 0.95).all()
    assert volume_of(vertices, faces) == pytest.approx(4 / 3 * math.pi * 7.6**3, rel=0.02)


def test_it_ends_at_the_edge_and_where_nothing_is_known() -> None:
    whole = ball((12.0, 12.0, 12.0), 8.2, (25, 25, 25))
    unknown = whole.clone()
    unknown[:12] = torch.nan
    for half in (whole[12:], unknown):
        vertices, faces = surface_net(half)
        edges = edges_of(faces)
        open_edges = {(b, a) for a, b in edges} - set(edges)
        assert len(set(edges)) == len(edges) and 30 < len(open_edges) < 80  # a circle of some fifty cells
        assert vertices[faces].isfinite().all() and 0.4 < len(faces) / len(surface_net(whole)[1]) < 0.5
    for nothing in (torch.zeros(5, 6, 7), torch.full((5, 6, 7), torch.nan), torch.ones(5, 6, 7)):
        assert surface_net(nothing)[1].shape == (0, 3)


def test_small_parts_are_left_out() -> None:
    both = torch.maximum(ball((8.0, 8.0, 8.0), 5.0, (30, 17, 17)), ball((24.0, 8.0, 8.0), 1.6, (30, 17, 17)))
    vertices, faces = surface_net(both)
    share = len(surface_net(ball((24.0, 8.0, 8.0), 1.6, (30, 17, 17)))[1]) / len(faces)
    assert len(large_parts(faces, len(vertices), 0.9 * share)) == len(faces)
    kept = large_parts(faces, len(vertices), 1.1 * share)
    assert len(kept) == round((1 - share) * len(faces)) and vertices[kept][..., 0].max() < 14


# Of a scene


def cameras_of(kind: str) -> Cameras:
    """All around the origin and 3 away from it; before a forward-facing scene nine that look along -z."""
    if kind == "forward_facing":
        centers = torch.cartesian_prod(*[torch.tensor([-0.4, 0.0, 0.4])] * 2, torch.tensor([3.0]))
        poses = [torch.cat([torch.eye(3), center[:, None]], dim=1) for center in centers]
    else:
        height = torch.linspace(-0.9, 0.9, 24)
        turn = torch.arange(24) * 2.4
        ring = torch.stack([turn.cos() * (1 - height**2).sqrt(), turn.sin() * (1 - height**2).sqrt(), height], dim=-1)
        poses = [look_at(3 * position, torch.zeros(3), torch.tensor([0.0, 0, 1])) for position in ring]
    intrinsics = torch.tensor([120.0, 120, 36, 36]).expand(len(poses), -1)
    return Cameras(torch.stack(poses), intrinsics, 72, 72)


def scene(kind: str, balls: list[tuple[list[float], float]], device: str = "cpu") -> LoadedRun:
    """A run whose field holds balls of one color, world center and radius."""
    space, aabb = SPACES[kind]
    backend = select("native", device)
    box = SceneBox(torch.tensor(aabb), space).to(backend.device)
    resolution = box.resolution(48**3)
    field = VoxelSh(field_config("voxel_sh"), box, resolution, box.voxel_size(resolution), backend)
    coords = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float32) for n in resolution)).to(backend.device)
    world = box.space.to_world(field.grid_map.to_scene(coords)).cpu()
    inwards = torch.stack([radius - (world - torch.tensor(center)).norm(dim=-1) for center, radius in balls]).amax(0)
    with torch.no_grad():
        field.density_grid.copy_((8 + 400 * inwards).clamp(-8, 24).view(*resolution, 1))
        # Of the harmonic that is the same everywhere.
        field.sh_grid[..., 0:27:9] = RGB.logit().to(backend.device) / 0.28209479
    occupancy = OccupancyGrid(torch.ones([n - 1 for n in resolution], dtype=torch.bool, device=backend.device))
    sampler = RaySampler(backend, field.grid_map, occupancy, 0.5 * field.voxel_size, SamplerConfig(near=0.5))
    return LoadedRun(None, tiny_config(), field, sampler, cameras_of(kind), cameras_of(kind))


def mesh_of(loaded: LoadedRun, crop: list[float] | None = None) -> Mesh:
    box = None if crop is None else torch.tensor(crop).view(2, 3)
    return extract_mesh(loaded.field, loaded.sampler, loaded.cameras, crop=box)


def frustum(near_plane: float) -> NdcSpace:
    """Of a camera at z = 3 that looks along -z."""
    c2w = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 3.0]])
    return NdcSpace(c2w, near_plane, 1.5, near=0.1)


SPACES: dict[str, tuple[Space, list[list[float]]]] = {
    "bounded": (WorldSpace(), [[-1.0, -1, -1], [1.0, 1, 1]]),
    "unbounded": (ContractedSpace(torch.zeros(3), torch.ones(3), 1.0, near=0.1), [[-2.0, -2, -2], [2.0, 2, 2]]),
    "forward_facing": (frustum(1.5), [[-0.7, -0.7, 0], [0.7, 0.7, 1.5]]),
}
CROPS = {"bounded": None, "unbounded": [-1.0, -1, -1, 1, 1, 1], "forward_facing": None}
BACKDROP = {"bounded": [], "unbounded": [([0.0, 0, -6.0], 1.5)], "forward_facing": [([0.0, 0, -20.0], 3.0)]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPACES)
def test_a_ball_of_every_kind_of_scene_is_where_it_is_and_has_its_color(kind: str, device: str) -> None:
    mesh = mesh_of(scene(kind, [([0.0, 0.0, 0.0], RADIUS), *BACKDROP[kind]], device), CROPS[kind])
    normals = torch.nn.functional.normalize(mesh.vertices, dim=-1)
    seen = normals[:, 2] > 0.5 if kind == "forward_facing" else normals[:, 2] > -2
    cell = {"bounded": 0.042, "unbounded": 0.083, "forward_facing": 0.08}[kind]
    distances = mesh.vertices.norm(dim=-1)[seen]
    assert (distances - RADIUS).abs().mean() < 0.3 * cell and (distances - RADIUS).abs().max() < cell
    assert ((vertex_normals(mesh.vertices, mesh.faces) * normals).sum(-1)[seen] > 0.6).all()
    assert (mesh.colors[seen] - RGB).abs().max() < 0.02
    if kind == "forward_facing":
        assert mesh.vertices[:, 2].min() > -3  # the backdrop is left out
    else:
        assert_closed(mesh.faces)
        assert volume_of(mesh.vertices, mesh.faces) == pytest.approx(4 / 3 * math.pi * RADIUS**3, rel=0.1)


@pytest.mark.slow
def test_colors_are_those_that_a_camera_before_the_surface_sees() -> None:
    """Red is brighter the more one looks along one of the axes."""
    loaded = scene("bounded", [([0.0, 0.0, 0.0], RADIUS)])
    with torch.no_grad():
        loaded.field.sh_grid[..., 3] = 4.0  # a harmonic of the first degree
    mesh = mesh_of(loaded)
    normals = torch.nn.functional.normalize(mesh.vertices, dim=-1)
    directions = -normals  # about those of the cameras, which are all around
    basis = loaded.field.view_basis(directions)
    wanted = torch.sigmoid(basis[:, 0] * RGB[0].logit() / 0.28209479 + 4.0 * basis[:, 3])
    assert (mesh.colors[:, 0] - wanted).abs().mean() < 0.05 < 0.5 * wanted.std()


@pytest.mark.slow
def test_where_nothing_is_met_it_is_said() -> None:
    loaded = scene("bounded", [([0.0, 0.0, 0.0], RADIUS)])
    with torch.no_grad():
        loaded.field.density_grid.fill_(-8.0)
    with pytest.raises(UserError, match=r"no surface.*train longer"):
        mesh_of(loaded)


def test_a_scene_without_end_is_refused_without_a_crop_and_one_is_told() -> None:
    loaded = scene("unbounded", [([0.0, 0.0, 0.0], RADIUS)])
    with pytest.raises(UserError, match=r"unbounded.*crop=\[x0.*'crop=\[-1,-1,-1,1,1,1\]'"):
        mesh_of(loaded)


# A ball that is not near, though near enough for the grid to have its shape.
FAR = {"bounded": [], "unbounded": [([0.0, 0, -1.7], 0.5)], "forward_facing": [([0.0, 0, -7.0], 2.0)]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPACES)
def test_a_crop_keeps_what_is_inside_of_it_near_or_far(kind: str) -> None:
    loaded = scene(kind, [([0.0, 0.0, 0.0], RADIUS), *FAR[kind]])
    upper = mesh_of(loaded, [-1.0, -1, 0, 1, 1, 1])
    assert 0 <= upper.vertices[:, 2].min() < 0.1 and upper.vertices[:, 2].max() > 0.5
    for center, radius in FAR[kind]:
        low, high = ([x + sign * 2 * radius for x in center] for sign in (-1, 1))
        far = mesh_of(loaded, [*low, *high[:2], -RADIUS - 0.1])
        assert far.vertices[:, 2].amax() == pytest.approx(center[2] + radius, abs=0.5 * radius)
    with pytest.raises(UserError, match=r"^crop=\[50,50,50,51,51,51\] holds nothing.*'crop=\[-"):
        mesh_of(loaded, [50.0, 50, 50, 51, 51, 51])


# Files


def triangle() -> Mesh:
    vertices = torch.tensor([[0.0, 0, 0], [1.0, 0, 2], [0.0, 3, 0]])
    return Mesh(vertices, torch.tensor([[0, 1, 2]]), torch.tensor([[1.0, 0.0, 0.5]]).expand(3, -1))


def test_a_ply_holds_positions_colors_and_corners(tmp_path: Path) -> None:
    write_ply(tmp_path / "a.ply", triangle())
    header, content = (tmp_path / "a.ply").read_bytes().split(b"end_header\n")
    assert header.startswith(b"ply\nformat binary")
    assert b"element vertex 3\n" in header and b"element face 1\n" in header
    vertices = np.frombuffer(content, [("at", "<f4", 3), ("rgb", "u1", 3)], count=3)
    assert vertices["at"].tolist() == triangle().vertices.tolist() and vertices["rgb"][0].tolist() == [255, 0, 128]
    assert struct.unpack("<Biii", content[45:]) == (3, 0, 1, 2)


@pytest.mark.parametrize("up", [(0.0, 0, 1), (0.0, 1, 0), (0.0, -1, 0), (0.6, 0, -0.8)])
def test_a_glb_stands_upright_in_linear_colors(tmp_path: Path, up: tuple[float, ...]) -> None:
    write_glb(tmp_path / "a.glb", triangle(), torch.tensor(up, dtype=torch.float64))
    content = (tmp_path / "a.glb").read_bytes()
    magic, version, length, json_length, json_kind = struct.unpack("<4sIII4s", content[:20])
    assert (magic, version, length, json_kind) == (b"glTF", 2, len(content), b"JSON") and json_length % 4 == 0
    tree = json.loads(content[20 : 20 + json_length])
    binary = content[28 + json_length :]
    assert tree["buffers"][0]["byteLength"] == len(binary) == 3 * 4 + 2 * 3 * 12
    views = [binary[v["byteOffset"] : v["byteOffset"] + v["byteLength"]] for v in tree["bufferViews"]]
    assert np.frombuffer(views[0], "<u4").tolist() == [0, 1, 2]
    assert np.frombuffer(views[1], "<f4").reshape(3, 3).tolist() == triangle().vertices.tolist()
    assert np.frombuffer(views[2], "<f4")[:3] == pytest.approx([1.0, 0.0, 0.2140411], abs=1e-6)
    assert tree["accessors"][1]["max"] == [1, 3, 2] and tree["accessors"][0]["count"] == 3
    x, y, z, w = tree["nodes"][0]["rotation"]
    axis, v = np.array([x, y, z]), np.array(up)
    turned = v + 2 * np.cross(axis, np.cross(axis, v) + w * v)  # the quaternion's rotation
    assert turned == pytest.approx([0, 1, 0], abs=1e-6) and x * x + y * y + z * z + w * w == pytest.approx(1)


# The script


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs a script beside a tiny run in the folder run."""
    call = script_caller(monkeypatch, tmp_path)
    config, state = tiny_state(tiny_config())
    run_to(config, state, STEPS)
    Path("run").mkdir()
    checkpoint.save(Path("run"), config, state, tiny_images().cameras)
    return call


def test_the_script_makes_both_kinds_of_file(call: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("mesh", "run=run", "hydra.run.dir=out") == 0
    assert call("mesh", "run=run", "file=a.ply", "hydra.run.dir=out") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1::2] == [str(Path("out/mesh.glb").resolve()), str(Path("out/a.ply").resolve())]
    assert " triangles, " in printed[0]
    assert Path("out/mesh.glb").read_bytes()[:4] == b"glTF" and Path("out/a.ply").read_bytes()[:3] == b"ply"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            ("run=run", "file=mesh.stl"),
            "file=mesh.stl is of no format that is known here; name one with .glb or .ply or",
        ),
        (("run=run", "file=a.ply", "texture=true"), "PLY holds no texture; give a name with .glb or .obj"),
        (("run=nowhere",), "nowhere"),
        (("run=run", "smallest=2"), "smallest"),
        (("run=run", "crop=[1,2,3]"), "crop=[1.0, 2.0, 3.0] is no box, expected x0,y0,z0,x1,y1,z1"),
    ],
)
def test_mistakes_are_answered(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str], settings: tuple[str, ...], expected: str
) -> None:
    assert call("mesh", *settings, "hydra.run.dir=out") == 2
    assert expected in capsys.readouterr().err


def test_parts_that_are_all_too_small_are_told(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The surface of the tiny run is one part, so its two halves are taken for parts."""
    monkeypatch.setattr(
        "nerf.export.mesh.large_parts", lambda faces, count, smallest: faces[: 0 if smallest > 0.5 else None]
    )
    assert call("mesh", "run=run", "smallest=1", "hydra.run.dir=out") == 2
    assert "it is the share of these that a part needs" in capsys.readouterr().err
    assert call("mesh", "run=run", "smallest=0.5", "hydra.run.dir=out") == 0
