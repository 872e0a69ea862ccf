"""Cameras, lenses, spaces, boxes, losses and scores at the ends of their ranges: finite numbers or a sentence.

The ranges are those of nerf/cameras/limits.py, to which files and settings are held. What comes from a network or an
image may be any float32. tests/unit/test_extreme_calls.py calls every function with any float32.
"""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nerf.calibration import exposure
from nerf.calibration.pose_alignment import align
from nerf.cameras import se3
from nerf.cameras.cameras import Cameras, corner_radii
from nerf.cameras.distortion import COEFFICIENTS, Lenses
from nerf.cameras.limits import FARTHEST, FARTHEST_CENTER, FOCALS, LARGEST_COEFFICIENT, is_box, unusable_intrinsics
from nerf.cameras.poses import estimate_target, estimate_up, look_at
from nerf.images import metrics
from nerf.ops import native, reference
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace
from nerf.scene.ndc import NdcSpace
from nerf.scene.space import WorldSpace
from nerf.training import losses

TINY, HUGE = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
PLACES = (0.0, TINY, -TINY, 1e-6, 1.0, -1.0, 1e4, FARTHEST, -FARTHEST)
ANY = (0.0, -0.0, TINY, -TINY, 1e-45, 1.0, -1.0, 1e19, HUGE, -HUGE, math.inf, -math.inf, math.nan)
POINTS = torch.tensor(list(itertools.product(PLACES, repeat=3)))
IDENTITY = torch.eye(3, 4)
ALONG = torch.nn.functional.normalize(
    torch.tensor([v for v in itertools.product((0.0, TINY, 1.0, -1.0, 1e-4), repeat=3) if max(map(abs, v)) > 0.5])
)


def finite(*tensors: Tensor) -> bool:
    return all(bool(t.isfinite().all()) for t in tensors)


@pytest.mark.parametrize("focal", FOCALS)
@pytest.mark.parametrize("center", [-FARTHEST_CENTER, 0.0, FARTHEST_CENTER])
@pytest.mark.parametrize("position", [0.0, TINY, FARTHEST])
def test_rays_of_any_camera(focal: float, center: float, position: float) -> None:
    c2w = IDENTITY.clone()
    c2w[:, 3] = position
    cameras = Cameras(c2w[None], torch.tensor([[focal, focal, center, center]]), 4, 4)
    rays = cameras.image_rays(0)
    assert finite(rays.origins, rays.directions)
    assert ((rays.directions.norm(dim=-1) - 1).abs() < 1e-3).all()
    assert finite(cameras.resized(scale=0.5).intrinsics)


@pytest.mark.parametrize("value", [*ANY, 1e-4, 1e13])
def test_intrinsics_that_no_ray_follows_from_are_told(value: float) -> None:
    usable = FOCALS[0] <= value <= FOCALS[1]
    assert (unusable_intrinsics(value, 30.0, 0.0, 0.0) is None) == usable
    assert (unusable_intrinsics(30.0, 30.0, value, 0.0) is None) == (abs(value) <= FARTHEST_CENTER)


@pytest.mark.parametrize("model", COEFFICIENTS)
@pytest.mark.parametrize("scale", [1e-45, 1e-6, 1.0, 1e3, LARGEST_COEFFICIENT])
def test_any_lens_and_back(model: str, scale: float) -> None:
    signs = list(itertools.product((-scale, 0.0, scale), repeat=4))
    lenses = Lenses.of([model] * len(signs), [values[: len(COEFFICIENTS[model])] for values in signs])
    assert lenses is not None and finite(lenses.coefficients, lenses.reach)
    radii = torch.tensor([0.0, TINY, 1e-3, 0.5, 1.0, 10.0, 1e3, 1e6])
    points = torch.stack([radii, -radii], dim=-1).repeat(len(signs), 1)
    image = torch.arange(len(signs)).repeat_interleave(len(radii))
    assert finite(lenses.undistort(image, points))
    in_camera = torch.cat([points, torch.ones(len(points), 1)], dim=-1)
    for z in (1.0, 0.0, TINY, -1.0, FARTHEST):
        assert finite(lenses.distort(image, in_camera * torch.tensor([1.0, 1.0, z])))


@pytest.mark.parametrize("value", [math.nan, math.inf, 2 * LARGEST_COEFFICIENT])
def test_a_lens_that_is_none(value: float) -> None:
    with pytest.raises(ValueError, match="coefficients: found"):
        Lenses.of(["perspective"], [[value]])


SPACES = {
    "bounded": WorldSpace(),
    "unbounded": ContractedSpace(torch.zeros(3), torch.ones(3), 0.6),
    "small": ContractedSpace(torch.full((3,), 1e-6), torch.full((3,), 1e-9), 0.6),
    "large": ContractedSpace(torch.zeros(3), torch.full((3,), FARTHEST), 0.6),
}


@pytest.mark.parametrize("space", SPACES)
def test_spaces_of_any_points_and_rays(space: str) -> None:
    found = SPACES[space]
    assert finite(found.to_scene(POINTS))
    assert found.is_near(POINTS).dtype == torch.bool
    origins = POINTS.repeat_interleave(len(ALONG), 0)
    directions = ALONG.repeat(len(POINTS), 1)
    path = found.path(origins, directions, torch.zeros(len(origins)), torch.full((len(origins),), FARTHEST))
    assert finite(path.origins, path.directions, path.distances(torch.zeros(len(origins))))


def test_straightened_space_of_any_rays() -> None:
    found = NdcSpace(IDENTITY, 1.0, 0.5)
    directions = ALONG.repeat(len(POINTS), 1)
    origins = POINTS.repeat_interleave(len(ALONG), 0)
    path = found.path(origins, directions, torch.zeros(len(origins)), torch.full((len(origins),), FARTHEST))
    meets = path.far >= path.near
    assert meets.any() and finite(path.origins[meets], path.directions[meets], path.near[meets], path.far[meets])


@pytest.mark.parametrize(("low", "high"), itertools.product(ANY, repeat=2))
def test_boxes_are_told_from_what_is_none(low: float, high: float) -> None:
    corners = [low] * 3, [high] * 3
    if not is_box(*corners):
        return
    box = SceneBox(torch.tensor(corners))
    resolution = box.resolution(1000)
    grid = box.grid_map(resolution)
    assert finite(grid.scale, box.size, box.unit) and 0 < box.voxel_size(resolution) < math.inf
    assert finite(grid.to_grid(box.aabb), grid.to_scene(torch.zeros(1, 3)))


@pytest.mark.parametrize("low", [-FARTHEST, -1.0, 0.0, TINY, 1.0, 1e9])
@pytest.mark.parametrize("edge", [1e-9, 1.0, FARTHEST])
def test_boxes_of_any_size(low: float, edge: float) -> None:
    """Where two corners span none, float32 has one number for both of these, and no resolution is found."""
    corners = [low] * 3, [min(low + edge, FARTHEST)] * 3
    box = SceneBox(torch.tensor(corners))
    if is_box(*corners):
        assert (box.size > 0).all() and finite(box.grid_map(box.resolution(10**6)).scale)
    else:
        with pytest.raises(ValueError, match=r"volume: found 1000000, 0\.0, expected finite numbers above 0"):
            box.resolution(10**6)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "photometric": losses.photometric,
    "pair_ssim": lambda a, target: losses.pair_ssim(a, target, reference),
    "pair_ssim, native": lambda a, target: losses.pair_ssim(a, target, native),
    "opacity_entropy": lambda a, _: losses.opacity_entropy(a[:, 0]),
    "depth": lambda a, known: losses.depth_error(a[:, 0], a[:, 1], known[:, 0]),
    "depth of the ends": lambda a, _: losses.depth_error(a[:, 0], a[:, 1], torch.tensor([0.0, TINY, 1e-45, FARTHEST])),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, TINY, 1.0, -1.0, 1e9])
def test_losses_and_their_gradients(loss: str, value: float) -> None:
    """Of rendered colors and opacities, which are sums of weights times colors."""
    rgb = torch.tensor([[value] * 3, [0.5] * 3, [value, 0.0, 1.0], [1.0] * 3], requires_grad=True)
    found = LOSSES[loss](rgb, torch.rand(4, 3))
    found.backward()
    assert finite(found, rgb.grad)


@pytest.mark.parametrize("value", ANY)
def test_scores_of_any_image(value: float) -> None:
    """A NaN stays one in a score; nothing else makes one."""
    image = torch.full((16, 16, 3), 0.5)
    image[3, 4, 1] = value
    for score in (metrics.psnr, metrics.ssim):
        found = score(image, torch.full((16, 16, 3), 0.5))
        assert math.isnan(found) == math.isnan(value), score


@pytest.mark.parametrize("value", [0.0, TINY, 1e-20, 1.0, math.pi, 1e4])
def test_motions_of_any_size(value: float) -> None:
    vector = torch.full((1, 6), value, requires_grad=True)
    rotation, shift = se3.exponential(vector)
    (rotation.sum() + shift.sum()).backward()
    assert finite(rotation, shift, vector.grad)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e9, FARTHEST])
def test_poses_of_any_scale(scale: float) -> None:
    up = torch.tensor([0.0, 0.0, 1.0])
    eyes = scale * torch.tensor([[1.0, 0.0, 0.2], [0.0, 1.0, 0.1], [-1.0, 0.3, 0.0], [0.2, -1.0, 0.3]])
    c2w = torch.stack([look_at(eye.double(), torch.zeros(3).double(), up.double()) for eye in eyes])
    assert finite(estimate_target(c2w), estimate_up(c2w))
    cameras = Cameras(c2w.float(), torch.tensor([[30.0, 30.0, 8.0, 8.0]] * 4), 16, 16)
    moved = align(cameras, cameras).applied(cameras)
    assert finite(moved.c2w) and torch.allclose(moved.c2w, cameras.c2w, rtol=1e-3, atol=1e-3 * scale)


@pytest.mark.parametrize("value", [0.0, TINY, 1.0, 1e6])
def test_exposures_of_flat_and_bright_pixels(value: float) -> None:
    rgb, target = torch.full((8, 8, 3), value), torch.rand(8, 8, 3)
    assert finite(*exposure.fit(rgb, target, torch.ones(8, 8, 1)))
    assert finite(*exposure.fit(rgb, target, torch.zeros(8, 8, 1)))


def test_corners_of_any_image() -> None:
    rows = list(itertools.product(FOCALS, (-FARTHEST_CENTER, 0.0, FARTHEST_CENTER)))
    intrinsics = torch.tensor([[focal, focal, center, center] for focal, center in rows])
    assert all(map(math.isfinite, corner_radii(intrinsics, torch.tensor([[1 << 20, 1]] * len(rows)))))
