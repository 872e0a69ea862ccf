"""Rendering against closed forms: a box of constant density, its color over a background, and what is left out."""

import math
from dataclasses import replace

import pytest
import torch
from tiny_runs import field_config

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import look_at
from nerf.cameras.rays import Rays
from nerf.config.schema import DatasetConfig, SamplerConfig
from nerf.fields.field import Field
from nerf.fields.registry import build_field
from nerf.fields.voxel_deferred import VoxelDeferred
from nerf.fields.voxel_sh import VoxelSh, VoxelShConfig
from nerf.ops.backend import Backend, select
from nerf.ops.ray_paths import rays_to_march
from nerf.rendering import render as rendering
from nerf.rendering.background import Background
from nerf.rendering.render import (
    render_image,
    render_rays,
    render_samples,
    sample_weights,
    select_visible,
    visible_samples,
)
from nerf.rendering.sampler import RaySampler
from nerf.scene.box import SceneBox
from nerf.scene.occupancy import uniform

SIGMA = 0.9  # density of the box, per world unit
COLOR = (0.8, 0.3, 0.5)
DEGREE_0 = 0.28209479177387814  # the constant spherical harmonic
RESOLUTION = (9, 9, 9)
ALL_SAMPLES = SamplerConfig(min_transmittance=0.0, min_weight=0.0)


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return select(request.param, "cpu")


def constant_field(backend: Backend, sigma: float = SIGMA) -> VoxelSh:
    """The same density and color everywhere in the box [-1, 1]^3."""
    box = SceneBox(torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]))
    field = VoxelSh(VoxelShConfig(sh_degree=0), box, RESOLUTION, box.voxel_size(RESOLUTION), backend)
    # Backwards through activation: density = softplus(raw + shift) * scale, rgb = sigmoid(coefficient * basis).
    raw = math.log(math.expm1(sigma / field.density_scale)) - field.density_shift
    with torch.no_grad():
        field.density_grid.fill_(raw)
        field.sh_grid[..., :3] = torch.tensor(COLOR).logit() / DEGREE_0
    return field


def sampler_of(field: VoxelSh, step_size: float, config: SamplerConfig = ALL_SAMPLES) -> RaySampler:
    occupancy = uniform(RESOLUTION, torch.device("cpu"))
    return RaySampler(field.backend, field.grid_map, occupancy, step_size, config)


def rays_through_the_box() -> Rays:
    """Straight along x, along a diagonal of the xy plane, one near an edge, and one that misses."""
    half = math.sqrt(0.5)
    origins = torch.tensor([[-3.0, 0.1, 0.2], [-2.0, -2.0, 0.3], [0.95, 4.0, 0.0], [-3.0, 1.5, 0.0]])
    directions = torch.tensor([[1.0, 0.0, 0.0], [half, half, 0.0], [0.0, -1.0, 0.0], [1.0, 0.0, 0.0]])
    return Rays(origins, directions)


CHORDS = torch.tensor([2.0, 2 * math.sqrt(2), 2.0, 0.0])
ENTRIES = torch.tensor([2.0, math.sqrt(2), 3.0, 0.0])


def test_a_box_of_constant_density_has_its_closed_form(backend: Backend) -> None:
    field, step = constant_field(backend), 0.01
    samples = sampler_of(field, step).sample(rays_through_the_box())
    white = torch.ones(3)
    found = render_samples(field, sampler_of(field, step), samples, white)
    opacity = -torch.expm1(-SIGMA * CHORDS)
    # The samples cover each chord up to one step.
    torch.testing.assert_close(found.opacity, opacity, rtol=0, atol=SIGMA * step)
    color = opacity[:, None] * torch.tensor(COLOR) + (1 - opacity)[:, None]
    torch.testing.assert_close(found.rgb, color, rtol=0, atol=SIGMA * step)
    # Integral of t * sigma * exp(-sigma (t - entry)) over the chord.
    depth = ENTRIES * opacity + opacity / SIGMA - CHORDS * torch.exp(-SIGMA * CHORDS)
    torch.testing.assert_close(found.depth, depth, rtol=0, atol=5 * SIGMA * step)
    assert found.opacity[3] == 0 and torch.equal(found.rgb[3], white)


def test_background_is_one_color_or_one_per_ray(backend: Backend) -> None:
    field = constant_field(backend)
    sampler = sampler_of(field, 0.1)
    samples = sampler.sample(rays_through_the_box())
    each = torch.rand(4, 3)
    over_black = render_samples(field, sampler, samples, torch.zeros(3))
    over_each = render_samples(field, sampler, samples, each)
    light = (1 - over_black.opacity)[:, None]
    torch.testing.assert_close(over_each.rgb, over_black.rgb + light * each)
    one = render_samples(field, sampler, samples, each[0])
    torch.testing.assert_close(one.rgb, over_black.rgb + light * each[0])


def test_depth_is_left_out_where_it_is_not_wanted(backend: Backend) -> None:
    field = constant_field(backend)
    sampler = sampler_of(field, 0.1)
    samples = sampler.sample(rays_through_the_box())
    with_depth, without = (render_samples(field, sampler, samples, BACKGROUND, with_depth=w) for w in (True, False))
    assert without.depth is None and with_depth.depth.any()
    assert torch.equal(without.rgb, with_depth.rgb) and torch.equal(without.opacity, with_depth.opacity)


def test_visible_samples_are_those_that_weigh_enough(backend: Backend) -> None:
    field = constant_field(backend, sigma=4.0)
    for least in (0.0, 1e-3, 0.02, 0.5):
        sampler = sampler_of(field, 0.05, replace(ALL_SAMPLES, min_weight=least))
        samples = sampler.sample(rays_through_the_box())
        weights = sample_weights(field, sampler, samples)
        expected = -torch.expm1(torch.tensor(-4.0 * 0.05)) * torch.exp(-4.0 * 0.05 * torch.arange(30))
        torch.testing.assert_close(weights[:30], expected, rtol=1e-3, atol=1e-6)
        visible = visible_samples(field, sampler, rays_through_the_box())
        assert torch.equal(visible.t_starts, samples.t_starts[weights >= least])
        torch.testing.assert_close(visible.midpoints, sampler.grid_map.to_grid(visible.positions()))
        for roomy in (
            visible_samples(field, sampler, rays_through_the_box(), capacity=len(samples.t_starts) + 5),
            select_visible(field, sampler, samples, capacity=len(samples.t_starts) + 5),
        ):
            assert torch.equal(roomy.ray_offsets, visible.ray_offsets)
        # What is left out would have changed a pixel by no more than its weight.
        white = torch.ones(3)
        whole, part = (render_samples(field, sampler, s, white) for s in (samples, visible))
        lost = torch.zeros(4).index_add(0, samples.ray_indices, weights * (weights < least))
        assert ((whole.rgb - part.rgb).abs().amax(-1) <= lost + 0.02 * (least > 0) + 1e-5).all()
    assert len(visible.t_starts) == 0  # nothing weighs half a pixel


def test_samples_behind_a_wall_weigh_nothing(backend: Backend) -> None:
    field = constant_field(backend, sigma=40.0)
    sampler = sampler_of(field, 0.05, replace(ALL_SAMPLES, min_transmittance=1e-3))
    samples = sampler.sample(rays_through_the_box())
    weights = sample_weights(field, sampler, samples)[:40]
    light = torch.exp(-40.0 * 0.05 * torch.arange(40))
    assert torch.equal(weights > 0, light >= 1e-3)


def test_gradients_reach_density_and_color(backend: Backend) -> None:
    field = constant_field(backend)
    sampler = sampler_of(field, 0.1)
    found = render_samples(field, sampler, sampler.sample(rays_through_the_box()), torch.zeros(3))
    (found.rgb.sum() + found.depth.sum()).backward()
    assert field.density_grid.grad.abs().sum() > 0 and field.sh_grid.grad[..., :3].abs().sum() > 0
    assert not field.sh_grid.grad[..., 3:].any()  # padding


def test_an_image_does_not_depend_on_its_pieces(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    field = constant_field(backend)
    sampler = sampler_of(field, 0.1, SamplerConfig())
    pose = torch.tensor([[[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 3]]])
    cameras = Cameras(pose, torch.tensor([[10.0, 10.0, 5.5, 4.0]]), 11, 8)
    whole = render_image(field, sampler, cameras, 0, torch.ones(3))
    assert whole.rgb.shape == (8, 11, 3) and whole.opacity.shape == whole.depth.shape == (8, 11)
    monkeypatch.setitem(rendering.SAMPLED_RAYS_PER_CHUNK, "cpu", 7)
    pieces = render_image(field, sampler, cameras, 0, torch.ones(3))
    torch.testing.assert_close(pieces.rgb, whole.rgb)  # vector code ends elsewhere in a row of another length
    torch.testing.assert_close(pieces.depth, whole.depth)
    assert whole.opacity[4, 5] > 0.8 and whole.opacity[0, 0] < 0.1  # the box is in the middle


def test_a_picture_in_one_walk_is_what_its_samples_show(backend: Backend) -> None:
    """A field that composites its grid is rendered without samples: the same color, opacity and depth, and where a ray
    meets nothing the background alone."""
    box = SceneBox(torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]))
    field = VoxelDeferred(field_config("voxel_deferred"), box, RESOLUTION, box.voxel_size(RESOLUTION), backend)
    torch.nn.init.normal_(field.density_grid, mean=6.0)
    torch.nn.init.normal_(field.feature_grid)
    background, rays = torch.tensor([0.2, 0.4, 0.6]), rays_through_the_box()
    for config in (ALL_SAMPLES, SamplerConfig(min_weight=0.02)):
        sampler = sampler_of(field, 0.05, config)
        with torch.no_grad():
            found = render_rays(field, sampler, rays, background)
            expected = render_samples(field, sampler, visible_samples(field, sampler, rays), background)
        assert found.opacity[:3].min() > 0.1 and torch.equal(found.rgb[3], background)
        for name in ("rgb", "opacity", "depth"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-4)


def test_a_gpu_shades_the_pixels_that_see_something_as_a_cpu_does(cuda: str) -> None:
    """There pixels are shaded by the thousand and ray 0 fills up; here it sees nothing, and then something."""
    images = {}
    for device in ("cpu", cuda):
        chosen = select("native", device)
        box = SceneBox(torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]], device=device))
        torch.manual_seed(1)
        field = VoxelDeferred(field_config("voxel_deferred"), box, RESOLUTION, box.voxel_size(RESOLUTION), chosen)
        for grid in (field.density_grid, field.feature_grid):
            grid.data = torch.randn(grid.shape, generator=torch.Generator().manual_seed(2)).to(device)
        field.density_grid.data += 6.0
        occupancy = uniform(RESOLUTION, torch.device(device))
        sampler = RaySampler(chosen, field.grid_map, occupancy, 0.05, SamplerConfig())
        rays = rays_through_the_box()
        for turned in (1, -1):
            some = Rays(*(x.roll(turned, 0).to(device) for x in (rays.origins, rays.directions)))
            images[device, turned] = render_rays(field, sampler, some, torch.zeros(3, device=device)).rgb.cpu()
    for turned in (1, -1):
        assert images["cpu", turned].amax(-1).count_nonzero() == 3
        torch.testing.assert_close(images[cuda, turned], images["cpu", turned], rtol=2e-2, atol=2e-3)  # TF32


def test_pictures_show_what_no_photo_saw_in_gray_where_photos_are_full_to_the_edge(backend: Backend) -> None:
    field = constant_field(backend)
    for kind, name, shade in (
        ("forward_facing", "random", 0.5),
        ("forward_facing", "black", 0.0),
        ("bounded", "random", 1.0),
    ):
        color = Background.of(DatasetConfig(kind=kind, background=name), field.background).eval(backend.device)
        assert torch.equal(color, torch.full((3,), shade))


# Several rays of a pixel

FEW = SamplerConfig(rays_per_pixel=4)
FIELDS = pytest.mark.parametrize("name", ["voxel_sh", "voxel_deferred"])
BACKGROUND = torch.tensor([0.2, 0.4, 0.6])


def random_field(name: str, backend: Backend) -> Field:
    """Fog in the box [-1, 1]^3, of another color everywhere and from every side."""
    box = SceneBox(torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]))
    field = build_field(field_config(name), box, RESOLUTION, box.voxel_size(RESOLUTION), backend)
    torch.nn.init.normal_(field.density_grid, mean=6.0)
    torch.nn.init.normal_(field.appearance_grid)
    return field


def small_camera() -> Cameras:
    """Sees the box in the middle of 11 x 8 pixels, from a side that is no axis."""
    pose = look_at(torch.tensor([2.0, 1.5, 2.5]), torch.zeros(3), torch.tensor([0.0, 0.0, 1.0]))
    return Cameras(pose[None], torch.tensor([[10.0, 10.0, 5.5, 4.0]]), 11, 8)


def lattices_of(sampler: RaySampler, rays: Rays, jitter: torch.Tensor | None) -> torch.Tensor:
    """The shift of each ray's lattice [R], as the marching operations read it."""
    origins, directions, jitter, _, near, far, _ = sampler.march(rays, jitter)[1]
    return rays_to_march(origins, directions, jitter, near, far, None, None)[2]


@pytest.mark.parametrize("per_pixel", [2, 4])
@pytest.mark.parametrize("jitter", [None, (-0.5, -0.2, 0.0, 0.4999)])
def test_lattices_of_a_pixels_rays_are_spread_evenly_over_a_step(
    jitter: tuple[float, ...] | None, per_pixel: int, backend: Backend
) -> None:
    """Together they look at as many places along the pixel as rays have steps; the jitter shifts all of them."""
    one = rays_through_the_box()
    rays = Rays(*(x.repeat_interleave(per_pixel, 0) for x in (one.origins, one.directions)), per_pixel)
    shifts = None if jitter is None else torch.tensor(jitter)
    sampler = sampler_of(constant_field(backend), 0.1)
    lattices = lattices_of(sampler, rays, shifts).view(len(one), per_pixel)
    assert lattices.min() >= -0.5 and lattices.max() < 0.5
    gaps = lattices.sort(1).values.diff(dim=1, append=lattices.amin(1, keepdim=True) + 1)
    torch.testing.assert_close(gaps, torch.full_like(gaps, 1 / per_pixel))
    if shifts is not None:
        moved = lattices - lattices_of(sampler, rays, None).view(len(one), per_pixel) - shifts[:, None]
        torch.testing.assert_close(moved, moved.round(), rtol=0, atol=1e-6)


def test_the_lattice_of_a_pixels_only_ray_is_its_jitter(backend: Backend) -> None:
    sampler, jitter = sampler_of(constant_field(backend), 0.1), torch.tensor([-0.5, -0.2, 0.0, 0.4999])
    assert torch.equal(lattices_of(sampler, rays_through_the_box(), jitter), jitter)
    assert not lattices_of(sampler, rays_through_the_box(), None).any()


@FIELDS
@pytest.mark.parametrize("with_normals", [False, True])
def test_an_image_of_several_rays_a_pixel_does_not_depend_on_its_pieces(
    name: str, with_normals: bool, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, made = random_field(name, backend), []
    sampler = sampler_of(field, 0.1, FEW)
    whole = render_image(field, sampler, small_camera(), 0, BACKGROUND, with_normals)
    assert whole.rgb.shape == (8, 11, 3) and whole.opacity.shape == whole.depth.shape == (8, 11)
    assert whole.opacity.max() > 0.5 and whole.opacity.min() == 0
    range_rays = Cameras.pixel_range_rays

    def counted(*arguments: object) -> Rays:
        rays = range_rays(*arguments)
        made.append(len(rays))
        return rays

    for limits in (rendering.RAYS_PER_CHUNK, rendering.SAMPLED_RAYS_PER_CHUNK):
        monkeypatch.setitem(limits, "cpu", 30)
    monkeypatch.setattr(Cameras, "pixel_range_rays", counted)
    pieces = render_image(field, sampler, small_camera(), 0, BACKGROUND, with_normals)
    assert made == [28] * 12 + [16], "no more rays at a time than a chunk holds"
    for part in ("rgb", "opacity", "depth"):
        torch.testing.assert_close(getattr(pieces, part), getattr(whole, part), rtol=1e-4, atol=1e-5)
    if with_normals:
        torch.testing.assert_close(pieces.normals, whole.normals, rtol=0, atol=1e-3)


def test_a_picture_takes_its_rays_from_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pictures are the same without, and late."""
    backend = select("native", "cpu")
    field, made, camera_rays = random_field("voxel_deferred", backend), [], backend.ops.camera_rays

    def counted(*arguments: object) -> object:
        made.append(arguments)
        return camera_rays(*arguments)

    monkeypatch.setattr(backend.ops, "camera_rays", counted)
    render_image(field, sampler_of(field, 0.1, FEW), small_camera(), 0, BACKGROUND)
    assert len(made) == 1


def test_several_rays_a_pixel_in_one_walk_are_what_their_samples_show(backend: Backend) -> None:
    field, rays = random_field("voxel_deferred", backend), small_camera().pixel_range_rays(0, 0, 88, 4)
    for config in (replace(ALL_SAMPLES, rays_per_pixel=4), replace(FEW, min_weight=0.02)):
        sampler = sampler_of(field, 0.1, config)
        with torch.no_grad():
            found = render_rays(field, sampler, rays, BACKGROUND)
            expected = render_samples(field, sampler, visible_samples(field, sampler, rays), BACKGROUND)
        assert found.opacity.shape == (88,) and found.opacity.max() > 0.5
        for part in ("rgb", "opacity", "depth"):
            torch.testing.assert_close(getattr(found, part), getattr(expected, part), rtol=1e-4, atol=1e-4)


def rays_alone(rays: Rays, number: int) -> tuple[Rays, torch.Tensor]:
    """One ray of each pixel as its only one, and the jitter with which its samples are where they were."""
    per_pixel = rays.per_pixel
    alone = Rays(rays.origins[number::per_pixel], rays.directions[number::per_pixel])
    return alone, torch.full((len(alone),), (number + 0.5) / per_pixel - 0.5)


@torch.no_grad()
def test_a_pixel_of_a_color_field_is_the_mean_of_its_rays(backend: Backend) -> None:
    """Of their colors, opacities and depths."""
    field, rays = random_field("voxel_sh", backend), small_camera().pixel_range_rays(0, 0, 88, 4)
    sampler = sampler_of(field, 0.1, FEW)
    found, alone = render_rays(field, sampler, rays, BACKGROUND), []
    for number in range(4):
        samples = visible_samples(field, sampler, *rays_alone(rays, number))
        alone.append(render_samples(field, sampler, samples, BACKGROUND))
    assert (alone[0].rgb - alone[1].rgb).abs().max() > 0.01
    for part in ("rgb", "opacity", "depth"):
        mean = torch.stack([getattr(one, part) for one in alone]).mean(0)
        torch.testing.assert_close(getattr(found, part), mean, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_pixel_of_features_is_shaded_once(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network sees the mean of what its rays composite, and one direction."""
    field, rays = random_field("voxel_deferred", backend), small_camera().pixel_range_rays(0, 0, 88, 4)
    sampler, values, seen, colors = sampler_of(field, 0.1, FEW), [], [], field.colors
    for number in range(4):
        samples = visible_samples(field, sampler, *rays_alone(rays, number))
        monkeypatch.setattr(field, "colors", lambda composited, *_: values.append(composited) or composited[:, :3])
        render_samples(field, sampler, samples, BACKGROUND)
    monkeypatch.setattr(field, "colors", lambda *arguments: seen.append(arguments) or colors(*arguments))
    render_samples(field, sampler, visible_samples(field, sampler, rays), BACKGROUND)
    composited, opacity, directions, _ = seen[0]
    assert len(seen) == 1 and len(opacity) == 88
    torch.testing.assert_close(composited, torch.stack(values).mean(0), rtol=1e-4, atol=1e-5)
    assert torch.equal(directions, rays.pixel_directions())


@FIELDS
def test_a_pixel_of_several_rays_has_one_depth_opacity_and_normal(name: str, backend: Backend) -> None:
    field, rays = random_field(name, backend), small_camera().pixel_range_rays(0, 0, 88, 4)
    sampler = sampler_of(field, 0.1, FEW)
    found = render_samples(field, sampler, visible_samples(field, sampler, rays), BACKGROUND, with_normals=True)
    assert found.rgb.shape == found.normals.shape == (88, 3) and found.opacity.shape == found.depth.shape == (88,)
    hit = found.opacity > 1e-3
    torch.testing.assert_close(found.normals[hit].norm(dim=-1), torch.ones(int(hit.sum())))
    assert (found.normals * rays.pixel_directions()).sum(-1).max() <= 1e-6, "normals are on the camera's side"
    assert hit.sum() > 20 and not found.normals[found.opacity == 0].any()
    distance = found.distance()[found.opacity > 0.1]
    assert distance.min() > 1.5 and distance.max() < 5.5
