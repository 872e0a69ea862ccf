"""Images of different sizes, with lenses and masks, through all that a run does with them."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from carving import carve, find_box
from state_facts import differing, facts
from tiny_runs import STEPS, run_to, tiny_config, tiny_images
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import Lenses
from nerf.cameras.paths import orbit
from nerf.cameras.splines import interpolate
from nerf.config.recipes import resolve_config
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.evaluation.scores import evaluate
from nerf.images.pixel_runs import PixelRuns
from nerf.ops import reference
from nerf.ops.backend import select
from nerf.rendering.render import Rendering, render_image
from nerf.rendering.sampler import RaySampler
from nerf.runs import checkpoint
from nerf.scene import visual_hull
from nerf.training.batches import MAX_PROBED_RAYS_OF_ALL, PAIR_SIGMA, PROBED_AT_A_TIME, RayBatches
from nerf.training.initial_state import init_state
from nerf.training.state import TrainState, make_sampler

CPU = select("native", "cpu")
CUT = [(0, 20, 0, 20), (2, 18, 0, 20), (0, 20, 3, 15)]  # first and last column and row of a view, in turn


def cut_images(masked: bool = False) -> PosedImages:
    """The tiny scene's views, some of them cut at the sides, which moves the principal point.

    masked: what was cut off stays, in a color of its own, and does not count.
    """
    whole = tiny_images()
    pixels, depths, sizes, intrinsics, counted = [], [], [], [], []
    for index in range(len(whole)):
        left, right, top, bottom = CUT[index % len(CUT)]
        inside = torch.zeros(20, 20, dtype=torch.bool)
        inside[top:bottom, left:right] = True
        keep = torch.ones_like(inside) if masked else inside
        image = whole.image(index).clone()
        image[~inside] = torch.tensor([255, 0, 255, 255], dtype=torch.uint8)
        counted.append(inside[keep])
        pixels.append(image[keep])
        depths.append(whole.depth(index)[keep])
        sizes.append((20, 20) if masked else (right - left, bottom - top))
        shift = (0, 0, 0, 0) if masked else (0, 0, left, top)
        intrinsics.append(whole.cameras.intrinsics[index] - torch.tensor(shift))
    cameras = Cameras.of_sizes(whole.cameras.c2w, torch.stack(intrinsics), sizes)
    runs = PixelRuns.of_mask(torch.cat(counted)) if masked else None
    return PosedImages(torch.cat(pixels), cameras, whole.names, torch.cat(depths), runs)


def state_of(images: PosedImages, **settings: object) -> tuple[object, TrainState]:
    config = resolve_config(tiny_config(**settings), "cpu")
    return config, init_state(config, images, CPU)


def test_pixels_are_counted_image_by_image(device: str) -> None:
    cameras = cut_images().cameras.to(device)
    assert [cameras.size(index) for index in range(3)] == [(20, 20), (16, 20), (20, 12)]
    pixels = torch.arange(cameras.first_pixel(len(cameras)), device=device)
    image, column, row = cameras.locate(pixels)
    sizes = cameras.image_sizes[image]
    assert (column >= 0).all() and (row >= 0).all() and (column < sizes[:, 0]).all() and (row < sizes[:, 1]).all()
    first = torch.tensor([cameras.first_pixel(index) for index in range(len(cameras))], device=device)
    assert torch.equal(first[image] + row * sizes[:, 0] + column, pixels)


def test_rays_of_a_part_of_an_image_are_those_of_the_whole() -> None:
    cut, whole = cut_images().cameras, tiny_images().cameras
    for index in range(len(cut)):
        left, right, top, bottom = CUT[index % len(CUT)]
        expected = whole.image_rays(index).directions.view(20, 20, 3)[top:bottom, left:right].reshape(-1, 3)
        torch.testing.assert_close(cut.image_rays(index).directions, expected)


@pytest.mark.parametrize("masked", [False, True])
def test_batches_hold_what_the_images_show(masked: bool) -> None:
    """Each pixel that counts as often as any other, with its own ray and color, and no other."""
    images = cut_images(masked)
    _, state = state_of(images)
    batches = RayBatches(images, CPU, 0)
    state.occupancy.occupied = torch.ones_like(state.occupancy.occupied)
    batches.find_valid_pixels(make_sampler(tiny_config(), state))
    batch = batches.draw(4000)
    magenta = (batch.rgba == torch.tensor([1.0, 0.0, 1.0, 1.0])).all(-1)
    assert not magenta.any()
    reference = tiny_images()
    for index in range(len(images)):
        mine = (batch.rays.origins == reference.cameras.centers[index]).all(-1).nonzero()[:50, 0]
        pixels, _ = reference.cameras.project(index, batch.rays.origins[mine] + batch.rays.directions[mine])
        column, row = pixels.floor().long().unbind(-1)
        assert len(mine) > 10
        torch.testing.assert_close(batch.rgba[mine], reference.image(index)[row, column].float() / 255)


@pytest.mark.parametrize(("masked", "count"), [(False, 40001), (True, 40000), (True, 1)])
def test_the_second_half_of_paired_batches_are_neighbors_of_the_first(masked: bool, count: int) -> None:
    """In the same image, a few pixels away, in its order, and none that does not count."""
    images = cut_images(masked)
    batches = RayBatches(images, CPU, 0, paired=True)
    batches.valid_pixels = images.valid_pixels or PixelRuns.of_bounds(torch.tensor([[0, len(images.pixels)]]))
    pixels, pairs = batches.draw(count).pixels, count // 2
    assert len(pixels) == count and (pixels[: count - pairs].diff() >= 0).all()
    assert images.valid_pixels is None or images.valid_pixels.contains(pixels).all()
    image, column, row = images.cameras.locate(pixels)
    assert torch.equal(image[count - pairs :], image[:pairs])
    if pairs:
        inner = (column[:pairs] - 9.5).abs().maximum((row[:pairs] - 7.5).abs()) < 2.5  # no edge cuts its neighbors off
        for place in (column, row):
            shifts = (place[count - pairs :] - place[:pairs])[inner].double()
            assert inner.sum() > 100 and shifts.mean().abs() < 0.5
            assert shifts.std() == pytest.approx((2 * 1.5**2 + 1 / 12) ** 0.5, rel=0.15)  # rounded


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize(("cut", "masked"), [(False, False), (True, False), (True, True)])
def test_one_seed_draws_the_neighbors_that_it_always_drew(cut: bool, masked: bool, backend: str) -> None:
    """As PyTorch computed them, one operation after the other: shifts rounded to integers, which were added."""
    images = cut_images(masked) if cut else tiny_images()
    batches = RayBatches(images, select(backend, "cpu"), 7, paired=True)
    batches.valid_pixels = images.valid_pixels or PixelRuns.of_bounds(torch.tensor([[0, len(images.pixels)]]))
    found = batches.draw(3001)
    generator, cameras = torch.Generator().manual_seed(7), images.cameras
    random = torch.rand(1501, generator=generator, dtype=torch.float64)
    shifts = (PAIR_SIGMA * torch.randn(1500, 2, generator=generator)).round().to(torch.int32).long()
    singles = batches.valid_pixels.draw(random, reference)
    image, column, row = cameras.locate(singles[:1500])
    width, height = cameras.image_sizes[image].unbind(-1)
    to_column = (column + shifts[:, 0]).clamp(max=width - 1).clamp(min=0)
    to_row = (row + shifts[:, 1]).clamp(max=height - 1).clamp(min=0)
    near = singles[:1500] + (to_row - row) * width + to_column - column
    if masked:
        near = torch.where(images.valid_pixels.contains(near), near, singles[:1500])
    assert torch.equal(found.pixels, torch.cat([singles, near])) and not torch.equal(near, singles[:1500])
    assert torch.equal(found.jitter, torch.rand(3001, generator=generator) - 0.5)


def test_rays_to_look_at_the_density_are_not_paired() -> None:
    plain, paired = (RayBatches(tiny_images(), CPU, 0, paired=choice) for choice in (False, True))
    for batches in (plain, paired):
        batches.valid_pixels = PixelRuns.of_bounds(torch.tensor([[0, 700]]))
    rays, others = plain.draw_rays(50), paired.draw_rays(50)
    assert torch.equal(rays[0].directions, others[0].directions) and torch.equal(rays[1], others[1])


def batches_of(size: int) -> RayBatches:
    """From a pool of the first so many pixels."""
    batches = RayBatches(tiny_images(), CPU, 0)
    batches.valid_pixels = PixelRuns.of_bounds(torch.tensor([[0, size]]))
    return batches


@pytest.mark.parametrize("count", [1, 7, 700, 701, 5000])
def test_a_batch_takes_one_pixel_of_each_equal_part_of_the_pool(count: int) -> None:
    """Where it is smaller than the pool, as large, and larger."""
    batches, size, number = batches_of(700), 700, torch.arange(count)
    for _ in range(20):
        pixels = batches.draw(count).pixels
        assert (pixels * count < (number + 1) * size).all() and ((pixels + 1) * count > number * size).all()


def test_each_pixel_is_drawn_as_often_as_any_other() -> None:
    batches = batches_of(700)
    drawn = torch.cat([batches.draw(500).pixels for _ in range(400)])
    often = torch.bincount(drawn, minlength=700).float()
    assert len(often) == 700 and often.min() > 0.75 * often.mean() and often.max() < 1.25 * often.mean()


def test_of_large_images_a_ray_in_each_block_is_marched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pixel is left out whose ray meets the scene, and few come in whose ray does not."""
    images = replace(cut_images(), cameras=cut_images().cameras.resized(scale=6))
    images = replace(images, pixels=images.pixels.new_zeros(images.cameras.first_pixel(len(images.names)), 4))
    _, state = state_of(cut_images())
    occupied = torch.zeros_like(state.occupancy.occupied)
    middle = [size // 2 for size in occupied.shape]
    occupied[middle[0], middle[1], middle[2]] = True
    state.occupancy.occupied = occupied
    sampler, pools = make_sampler(tiny_config(), state), []
    for rays, all_rays in ((1 << 20, 1 << 40), (1000, 1 << 40), (1 << 20, 1000 * len(images.cameras))):
        monkeypatch.setattr("nerf.training.batches.MAX_PROBED_RAYS", rays)
        monkeypatch.setitem(MAX_PROBED_RAYS_OF_ALL, "cpu", all_rays)
        batches = RayBatches(images, CPU, 0)
        batches.find_valid_pixels(sampler)
        pools.append(batches.valid_pixels.mask(0, len(images.pixels)))
    exact, blocks, blocks_of_all = pools
    assert torch.equal(blocks, blocks_of_all)
    assert not (exact & ~blocks).any() and exact.sum() < blocks.sum() < 2.5 * exact.sum() < 0.1 * len(exact)


def test_few_rays_are_marched_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their samples must fit into memory; which pixels are valid does not change."""
    images = cut_images()
    _, state = state_of(images)
    sampler, pools, marched = make_sampler(tiny_config(), state), [], []
    march = RaySampler.sample
    monkeypatch.setattr(RaySampler, "sample", lambda self, rays: marched.append(len(rays)) or march(self, rays))
    for at_a_time in (1 << 15, 100):
        monkeypatch.setitem(PROBED_AT_A_TIME, "cpu", at_a_time)
        marched.clear()
        batches = RayBatches(images, CPU, 0)
        batches.find_valid_pixels(sampler)
        pools.append(batches.valid_pixels.mask(0, len(images.pixels)))
    assert max(marched) == 100 and sum(marched) == len(images.pixels)
    assert torch.equal(*pools) and pools[0].any()


def test_of_a_scene_without_end_few_rays_are_marched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all meet it, and a lens makes rays take longer than a step of training."""
    images, marched, march = cut_images(), [], RaySampler.sample
    _, state = state_of(images)
    sampler = make_sampler(tiny_config(), state)
    monkeypatch.setattr(RaySampler, "sample", lambda self, rays: marched.append(len(rays)) or march(self, rays))
    monkeypatch.setattr("nerf.training.batches.MAX_PROBED_RAYS_UNBOUNDED", len(images.pixels) // 9)
    counts = {}
    for kind in ("bounded", "unbounded"):
        monkeypatch.setattr(type(sampler.grid_map.space), "kind", kind)
        marched.clear()
        RayBatches(images, CPU, 0).find_valid_pixels(sampler)
        counts[kind] = sum(marched)
    assert counts["bounded"] == len(images.pixels) and 0 < counts["unbounded"] < len(images.pixels) / 6


def test_rays_of_more_steps_than_can_be_walked_are_told_with_the_image() -> None:
    """As where a focal length is a million times too long, and the scene box as much too small."""
    images = cut_images()
    _, state = state_of(images)
    sampler = replace(make_sampler(tiny_config(), state), step_size=1e-9)
    with pytest.raises(UserError, match="(?s)image 1 of .*step_size is 1e-09.*focal lengths.*dataset.aabb"):
        RayBatches(images, CPU, 0).find_valid_pixels(sampler)


@pytest.mark.parametrize("masked", [False, True])
def test_a_run_learns_and_resumes(tmp_path: Path, masked: bool) -> None:
    images = cut_images(masked)
    config, plain = state_of(images)
    reports = run_to(config, plain, STEPS)
    assert reports[-1].psnr > 18 > reports[0].psnr
    config, state = state_of(images)
    run_to(config, state, 17)
    checkpoint.save(tmp_path, config, state, images.cameras)
    content = checkpoint.load_resume(tmp_path)
    state = checkpoint.restore_run(content, config, images, CPU)
    run_to(config, state, STEPS)
    assert differing(facts(plain), facts(state)) == []


def test_the_hull_of_cut_and_masked_views_holds_that_of_whole_ones() -> None:
    """What a view does not show, or does not count, says nothing about what is empty."""
    box = find_box(tiny_images())
    resolution = box.resolution(24**3)
    whole = carve(tiny_images(), box, resolution).occupied
    for masked in (False, True):
        found = carve(cut_images(masked), box, resolution).occupied
        assert (found | ~whole).all() and found.sum() < 2 * whole.sum()


def test_a_mask_over_transparent_pixels_leaves_the_hull_in_doubt() -> None:
    """Half of every view is masked and transparent there: the half of the sphere behind it must stay."""
    left = torch.zeros(20, 20, dtype=torch.bool)
    left[:, :10] = True
    everywhere = left.flatten().repeat(len(tiny_images()))
    pixels = torch.where(everywhere[:, None], 0, tiny_images().pixels)
    box = find_box(tiny_images())
    resolution = box.resolution(24**3)
    whole = carve(tiny_images(), box, resolution).occupied
    masked = replace(tiny_images(), pixels=pixels, valid_pixels=PixelRuns.of_mask(~everywhere))
    assert (carve(masked, box, resolution).occupied | ~whole).all()
    assert not (carve(replace(masked, valid_pixels=None), box, resolution).occupied | ~whole).all()


def test_silhouettes_are_widened_by_what_a_lens_makes_of_a_cell() -> None:
    """Balls at one depth in a lens's picture are as large as it says, to first order."""
    lenses = Lenses.of(["perspective"], [(1.5, 0.0, 0.01, -0.02)])
    cameras = Cameras(torch.eye(4)[:3][None], torch.tensor([[400.0, 380.0, 150.0, 100.0]]), 300, 200, lenses=lenses)
    rays = cameras.image_rays(0).directions[:: 7 * 13]
    points = 4 * rays / -rays[:, 2:]
    radius = visual_hull._image_radius(cameras, 0, points, 0.1)
    around = points + 0.1 * torch.nn.functional.normalize(torch.randn(200, 1, 3), dim=-1)
    middle, _ = cameras.project(0, points)
    spread = (cameras.project(0, around.view(-1, 3))[0].view(200, -1, 2) - middle).abs().max()
    assert 0.8 * radius < spread < 1.1 * radius


def test_the_hull_through_a_lens_holds_the_sphere() -> None:
    """The tiny scene's rays, seen by a lens that magnifies the sides by a half: nothing of the sphere is carved off."""
    generator = torch.Generator().manual_seed(0)
    points = torch.nn.functional.normalize(torch.randn(2000, 3, generator=generator), dim=-1)
    whole = tiny_images()
    lenses = Lenses.of(["perspective"] * len(whole), [(0.5, 0.0, 0.0, 0.0)] * len(whole))
    intrinsics = whole.cameras.intrinsics * torch.tensor([6.0, 6.0, 8.0, 8.0])
    cameras = Cameras(whole.cameras.c2w, intrinsics, 160, 160, lenses=lenses)
    alpha = []
    for index in range(len(cameras)):
        rays = cameras.image_rays(index)
        nearest = -(rays.origins * rays.directions).sum(-1)
        alpha.append((rays.origins + nearest[:, None] * rays.directions).norm(dim=-1) < 1)
    pixels = (255 * torch.cat(alpha)[:, None]).to(torch.uint8).expand(-1, 4).contiguous()
    images = PosedImages(pixels, cameras, whole.names)
    box = find_box(images)
    resolution = box.resolution(32**3)
    grid_map, occupied = box.grid_map(resolution), carve(images, box, resolution).occupied
    cells = grid_map.to_grid(0.999 * points).long().clamp(min=0)
    cells = torch.minimum(cells, torch.tensor(occupied.shape) - 1)
    assert occupied[cells.unbind(-1)].all() and occupied.float().mean() < 0.7


def test_views_are_rendered_and_scored_at_their_own_sizes() -> None:
    config, state = state_of(cut_images())
    run_to(config, state, STEPS)
    sampler, white, images = make_sampler(config, state), torch.ones(3), cut_images()
    shapes = []

    def keep(index: int, rendering: Rendering, truth: Tensor) -> None:
        shapes.append((rendering.rgb.shape, truth.shape))

    scores = evaluate(state.field, sampler, images, white, on_view=keep)
    assert shapes[:3] == [(torch.Size([h, w, 3]),) * 2 for w, h in ((20, 20), (16, 20), (20, 12))]
    assert len(scores.psnr) == len(images) == len(scores.depth_error) and min(scores.psnr) > 10


def test_what_does_not_count_is_not_scored() -> None:
    """Where pixels are cut off or masked, the same others are scored."""
    config, state = state_of(cut_images())
    run_to(config, state, STEPS)
    sampler, white = make_sampler(config, state), torch.ones(3)
    cut, masked = (evaluate(state.field, sampler, cut_images(m), white) for m in (False, True))
    torch.testing.assert_close(torch.tensor(masked.psnr), torch.tensor(cut.psnr), rtol=0, atol=1e-3)
    torch.testing.assert_close(torch.tensor(masked.ssim), torch.tensor(cut.ssim), rtol=0, atol=1e-4)
    assert masked.depth_error == pytest.approx(cut.depth_error, abs=1e-4)
    assert all(map(math.isfinite, masked.ssim))


def test_a_model_keeps_its_cameras(tmp_path: Path) -> None:
    images = cut_images()
    lenses = Lenses.of(["perspective", "fisheye"] * 4, [(0.1, 0.2, 0.0, 0.0, 0.3), (0.1, 0.2)] * 4)
    cameras = replace(images.cameras, lenses=lenses)
    config, state = state_of(images)
    checkpoint.save(tmp_path, config, state, cameras)
    found = checkpoint.restore_cameras(checkpoint.load(tmp_path), "given_cameras")
    assert torch.equal(found.image_sizes, cameras.image_sizes) and torch.equal(found.intrinsics, cameras.intrinsics)
    assert found.lenses.models == lenses.models and torch.equal(found.lenses.coefficients, lenses.coefficients)
    torch.testing.assert_close(found.lenses.reach, lenses.reach)


def test_paths_through_cameras_of_different_sizes_have_one() -> None:
    cameras = cut_images().cameras
    for path in (orbit(cameras, 5), interpolate(cameras, 5), interpolate(cameras[[1, 0]], 5)):
        assert path.sizes is None and path.lenses is None
    assert (path.width, path.height) == (16, 20) and (orbit(cameras, 5).width, orbit(cameras, 5).height) == (20, 20)
    half = cameras.resized(scale=0.5)
    assert [half.size(index) for index in range(3)] == [(10, 10), (8, 10), (10, 6)]
    same = cameras.resized(12, 10)
    assert same.sizes is None and (same.width, same.height) == (12, 10)


def test_a_camera_of_another_size_renders_alone_as_among_others() -> None:
    config, state = state_of(cut_images())
    cameras, sampler = cut_images().cameras, make_sampler(config, state)
    for index in range(3):
        alone = render_image(state.field, sampler, cameras[index], 0, torch.ones(3))
        among = render_image(state.field, sampler, cameras, index, torch.ones(3))
        assert torch.equal(alone.rgb, among.rgb)
