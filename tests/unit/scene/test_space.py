"""Scene space of each kind: its map and the inverse, the ways of rays through it, and what is rendered from it."""

import math

import pytest
import torch
from fixtures import sphere_depth
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import look_at
from nerf.cameras.rays import Rays
from nerf.config.schema import SamplerConfig
from nerf.fields.field import Field
from nerf.fields.registry import build_field
from nerf.fields.voxel_sh import VoxelShConfig
from nerf.ops.backend import Backend, select
from nerf.rendering.render import render_image
from nerf.rendering.sampler import RaySampler
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace
from nerf.scene.ndc import NdcSpace
from nerf.scene.occupancy import uniform
from nerf.scene.registry import restore_space, space_state
from nerf.scene.space import Space, WorldSpace

RESOLUTION = (49, 47, 51)
EYE = torch.tensor([0.5, 0.4, 4.0])
NEAR_PLANE, THICKNESS, SHELL = 2.0, 0.8, 0.7
HALF = torch.tensor([0.5, 0.6, 0.7])  # of the inner box: the unit sphere reaches out of it


def reference_pose() -> Tensor:
    return look_at(EYE, torch.zeros(3), torch.tensor([0.0, 1.0, 0.0]))


def spaces() -> dict[str, tuple[Space, Tensor]]:
    """A space of each kind with a box around the unit sphere."""
    whole = (1 + SHELL) * HALF
    frustum = NdcSpace(reference_pose(), NEAR_PLANE, THICKNESS)
    return {
        "bounded": (WorldSpace(), torch.tensor([[-1.3] * 3, [1.3] * 3])),
        "turned": (WorldSpace(axes=reference_pose()[:, :3]), torch.tensor([[-1.3] * 3, [1.3] * 3])),
        "forward_facing": (frustum, torch.tensor([[-0.6, -0.6, 0.0], [0.6, 0.6, THICKNESS]])),
        "unbounded": (ContractedSpace(torch.zeros(3), HALF, SHELL), torch.stack([-whole, whole])),
    }


KINDS = pytest.mark.parametrize("kind", spaces())


def world_rays(count: int = 200) -> Rays:
    """Rays from near the eye to points around the sphere."""
    origins = EYE + 0.3 * torch.randn(count, 3)
    targets = 0.7 * torch.randn(count, 3)
    return Rays(origins, torch.nn.functional.normalize(targets - origins, dim=-1))


def double(space: Space) -> Space:
    state = space_state(space)
    wide = {name: x.double() if isinstance(x, Tensor) else x for name, x in state.items()}
    return restore_space(wide, torch.device("cpu"))


@KINDS
def test_to_world_inverts_to_scene(kind: str) -> None:
    space = double(spaces()[kind][0])
    rays = world_rays()
    points = (rays.origins + (1 + 6 * torch.rand(200, 1)) * rays.directions).double()
    torch.testing.assert_close(space.to_world(space.to_scene(points)), points)


def test_the_frustum_is_tangents_and_disparity() -> None:
    """The axis at twice the near plane's depth is half way in; one to the side at depth 4 is the tangent 1/4."""
    space, _ = spaces()["forward_facing"]
    right, up, backward = reference_pose()[:, :3].unbind(-1)
    points = torch.stack([EYE - 4 * backward, EYE - 4 * backward + right, EYE - NEAR_PLANE * backward - 2 * up])
    expected = [[0, 0, THICKNESS / 2], [0.25, 0, THICKNESS / 2], [0, -1, 0]]
    torch.testing.assert_close(space.to_scene(points), torch.tensor(expected), atol=1e-6, rtol=0)


class Called(TorchDispatchMode):
    """The names of the operations that PyTorch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.names.add(function._schema.name)
        return function(*arguments, **(options or {}))


@KINDS
def test_a_ray_is_as_exact_as_float32(kind: str) -> None:
    """No matrix product: on a GPU that rounds to TF32 where a program asks for it, and a ray is half a pixel off."""
    space, rays = spaces()[kind][0], world_rays()
    with Called() as called:
        space.path(rays.origins, rays.directions, torch.zeros(1), torch.full((1,), 9.0))
        space.to_world(space.to_scene(rays.origins - 5 * EYE / EYE.norm()))
    assert called.names and not {name for name in called.names if "mm" in name or "matmul" in name}


@KINDS
def test_the_way_of_a_ray_is_the_ray_in_scene_space(kind: str) -> None:
    """A projected ray is the projection of the ray's points; t is length there, and the distances are the world's."""
    space, rays = double(spaces()[kind][0]), world_rays()
    origins, directions = rays.origins.double(), rays.directions.double()
    zeros = torch.zeros(200).double()
    path = space.path(origins, directions, zeros, zeros + 1e4)
    lengths = {"bounded": 9.0, "turned": 9.0, "unbounded": 4.0}
    t = (path.length if kind == "forward_facing" else lengths[kind]) * torch.rand(200)
    every = torch.arange(200)
    distance = path.distances(t, every)
    torch.testing.assert_close(path.distances(t), distance)
    torch.testing.assert_close(path.positions(t, every), space.to_scene(origins + distance[:, None] * directions))
    if kind != "unbounded":  # there t is the length of the pressed way where it runs along an axis of the box
        torch.testing.assert_close(path.directions.norm(dim=-1), torch.ones(200).double())


def test_contracted_distance_is_length_along_the_axes() -> None:
    space = double(spaces()["unbounded"][0])
    along, zero = torch.tensor([[0.0, 0.0, 1.0]]).double(), torch.zeros(1).double()
    path = space.path(torch.zeros(1, 3).double(), along, zero, zero + 100)
    t = torch.tensor([0.1, 0.7, 0.9, 1.0]).double()
    torch.testing.assert_close(path.positions(t, torch.zeros(4).long())[:, 2], t)


def test_near_and_far_of_the_frustum_are_world_distances() -> None:
    space, rays = double(spaces()["forward_facing"][0]), world_rays()
    origins, directions = rays.origins.double(), rays.directions.double()
    near, far = torch.full((200,), 4.0).double(), torch.full((200,), 6.0).double()
    path = space.path(origins, directions, near, far)
    torch.testing.assert_close(path.distances(path.near), near)
    torch.testing.assert_close(path.distances(path.far), far)


def test_rays_that_look_away_from_the_frustum_meet_nothing() -> None:
    space, _ = spaces()["forward_facing"]
    backward = reference_pose()[:, 2]
    sideways = reference_pose()[:, 0]
    directions = torch.stack([backward, sideways])
    zeros = torch.zeros(2)
    path = space.path(EYE.expand(2, 3), directions, zeros, zeros + 1e4)
    assert (path.far < path.near).all()
    assert path.origins.isfinite().all() and path.directions.isfinite().all()


@KINDS
def test_gradients_flow_to_the_rays(kind: str) -> None:
    """What pose refinement needs: positions are differentiable in origins and directions."""
    space, rays = double(spaces()[kind][0]), world_rays(5)
    t, every = torch.full((5,), 0.4).double(), torch.arange(5)

    def positions(origins: Tensor, directions: Tensor) -> Tensor:
        zeros = torch.zeros(5).double()
        return space.path(origins, directions, zeros, zeros + 1e4).positions(t, every)

    inputs = [x.double().requires_grad_() for x in (rays.origins, rays.directions)]
    assert torch.autograd.gradcheck(positions, inputs)


@KINDS
def test_a_space_survives_its_state(kind: str) -> None:
    space, points = spaces()[kind][0], world_rays().origins
    again = restore_space(space_state(space), torch.device("cpu"))
    assert type(again) is type(space) and torch.equal(again.to_scene(points), space.to_scene(points))


# Rendering


def solid_sphere(kind: str, backend: Backend) -> tuple[Field, RaySampler]:
    """The unit sphere in a space of that kind: raw density falls with the world distance from the origin."""
    space, aabb = spaces()[kind]
    box = SceneBox(aabb, space).to(backend.device)
    field = build_field(VoxelShConfig(), box, RESOLUTION, box.voxel_size(RESOLUTION), backend)
    vertices = torch.cartesian_prod(*(torch.arange(float(n)) for n in RESOLUTION))
    world = space.to_world(SceneBox(aabb, space).grid_map(RESOLUTION).to_scene(vertices))
    raw = (200 * (1 - world.norm(dim=-1))).nan_to_num(-200, -200, -200).clamp(-200, 200) - field.density_shift
    with torch.no_grad():
        field.density_grid.copy_(raw.view(*RESOLUTION, 1))
    return field, RaySampler(
        backend, field.grid_map, uniform(RESOLUTION, backend.device), 0.25 * field.voxel_size, SamplerConfig()
    )


def camera(device: torch.device, size: int = 40) -> Cameras:
    position = EYE + torch.tensor([0.3, -0.2, 0.1])
    pose = look_at(position, torch.zeros(3), torch.tensor([0.0, 1.0, 0.0]))
    return Cameras(pose[None], torch.tensor([[1.6 * size, 1.6 * size, size / 2, size / 2]]), size, size).to(device)


@KINDS
@pytest.mark.parametrize("backend_name", ["native", "torch"])
def test_depth_and_normals_are_the_worlds(kind: str, backend_name: str, device: str) -> None:
    """A sphere that each kind of space bends its own way has its own depth and its own normals in the picture."""
    backend = select(backend_name, device)
    field, sampler = solid_sphere(kind, backend)
    cameras = camera(backend.device)
    seen = render_image(field, sampler, cameras, 0, torch.ones(3, device=backend.device), with_normals=True)
    rays = cameras.image_rays(0)
    depth = sphere_depth(rays)
    truth = rays.origins + depth[:, None] * rays.directions
    inner = (depth > 0) & (-(truth * rays.directions).sum(-1) > 0.4)
    assert inner.sum() > 200 and (seen.opacity.view(-1)[inner] > 0.95).all()
    assert not (seen.opacity.view(-1)[depth == 0] > 0.5).float().mean() > 0.1
    errors = (seen.distance().view(-1) - depth)[inner].abs()
    # Cells are 0.055 long in the box, there 0.12 in the frustum's depth, and in the shell up to 0.1.
    assert errors.median() < 0.06 and errors.max() < 0.15
    cosines = (seen.normals.view(-1, 3) * truth).sum(-1)[inner]
    assert torch.rad2deg(cosines.clamp(-1, 1).acos()).median() < 5


def test_nothing_is_seen_nearer_than_near() -> None:
    """A fog of any density between the camera and near leaves no sample."""
    backend = select("native", "cpu")
    for kind in ("bounded", "forward_facing", "unbounded"):
        field, sampler = solid_sphere(kind, backend)
        state = space_state(field.box.space) | {"near": 3.7}
        space = restore_space(state, torch.device("cpu"))
        box = SceneBox(field.box.aabb, space)
        sampler = RaySampler(
            backend, box.grid_map(RESOLUTION), sampler.occupancy, sampler.step_size, SamplerConfig(far=math.inf)
        )
        samples = sampler.sample(camera(backend.device).image_rays(0))
        starts = samples.path.distances(0.5 * (samples.t_starts + samples.t_ends), samples.ray_indices)
        assert len(starts) > 1000 and 3.7 <= starts.min() < 3.9
