"""Multi-view consistency: photos agree at the true depth, and only what they can say of it counts."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from tiny_runs import run_to, tiny_config, tiny_images, tiny_state
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import Lenses
from nerf.config.recipes import KINDS, resolve_config
from nerf.config.schema import FIELDS, Config, PosesConfig, TrainConfig
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.images.pixel_runs import PixelRuns
from nerf.ops import reference
from nerf.ops.backend import Backend, select
from nerf.ops.compare_beside import PHOTO_NOISE
from nerf.runs.run import start
from nerf.training.batches import RayBatches
from nerf.training.multi_view import ViewsBeside
from nerf.training.state import make_batches

HEIGHT = 3.0  # of the cameras above a textured plane, world units
SIZES = [(40, 30), (36, 28), (40, 30)]


def above_a_plane(aside: float = 0.15, sizes: list[tuple[int, int]] = SIZES, lens: float = 0.0) -> Cameras:
    """Three cameras that look straight down, each so far beside the one before."""
    c2w = torch.eye(4)[:3].repeat(3, 1, 1)
    c2w[:, 0, 3], c2w[:, 2, 3] = aside * torch.arange(3), HEIGHT
    intrinsics = torch.tensor([[40.0, 40.0, width / 2, height / 2] for width, height in sizes])
    lenses = Lenses.of(["perspective"] * 3, [[lens]] * 3) if lens else None
    return Cameras.of_sizes(c2w, intrinsics, sizes, lenses)


def taken(cameras: Cameras, texture: float = 1.0) -> tuple[Tensor, Tensor]:
    """The photos of the plane [pixels,3] uint8, and how far away it is along the ray of each pixel."""
    rays = cameras.rays_through(torch.arange(cameras.first_pixel(len(cameras))))
    distance = -HEIGHT / rays.directions[:, 2]
    x, y, _ = (rays.origins + distance[:, None] * rays.directions).unbind(-1)
    waves = torch.sin(7 * x + 3 * y) + torch.sin(5 * y - 2 * x + 1) + torch.sin(11 * x * y)
    brightness = 0.5 + 0.15 * texture * waves
    return (255 * brightness).round().byte()[:, None].repeat(1, 3), distance


def disagreement(views: ViewsBeside, distance: Tensor, opacity: float = 1.0) -> Tensor:
    return of_pixels(views, torch.arange(len(distance), device=distance.device), distance, opacity)


def of_pixels(views: ViewsBeside, pixels: Tensor, distance: Tensor, opacity: float = 1.0) -> Tensor:
    rays, opacities = views.cameras.rays_through(pixels), torch.full_like(distance, opacity)
    return views.disagreement(pixels, rays, distance * opacities, opacities, reference)


@pytest.mark.parametrize("lens", [0.0, 0.05])
def test_photos_agree_at_the_true_depth_and_pull_there(lens: float, device: str) -> None:
    cameras = above_a_plane(lens=lens)
    images, true = (tensor.to(device) for tensor in taken(cameras))
    views = ViewsBeside.of(images, cameras.to(device))
    assert disagreement(views, true) < 0.02
    for factor in (0.9, 1.1):
        distance = (factor * true).requires_grad_()
        error = disagreement(views, distance)
        assert error > 3 * disagreement(views, true)
        error.backward()
        assert distance.grad.sum() * (factor - 1) > 0  # a step against the gradient goes to the true depth


@pytest.mark.parametrize("per_pixel", [2, 4])
def test_a_pixel_of_several_rays_looks_through_its_middle(per_pixel: int) -> None:
    cameras = above_a_plane()
    images, true = taken(cameras)
    views, pixels, opaque = ViewsBeside.of(images, cameras), torch.arange(len(true)), torch.ones_like(true)
    one, several = (
        views.disagreement(pixels, cameras.rays_through(pixels, count), 1.05 * true, opaque, reference)
        for count in (1, per_pixel)
    )
    torch.testing.assert_close(several, one, rtol=1e-3, atol=0)


def test_the_exposure_of_a_photo_does_not_matter() -> None:
    cameras = above_a_plane(sizes=[(40, 30)] * 3)
    images, true = taken(cameras)
    images[1200:2400] = (0.6 * images[1200:2400].float() + 40).byte()
    assert disagreement(ViewsBeside.of(images, cameras), true) < 0.02


def test_what_a_mask_leaves_out_is_compared_with_nothing(device: str) -> None:
    """Of the photo in the middle the right half is masked; the first photo's pixels are shown there."""
    cameras = above_a_plane(sizes=[(40, 30)] * 3)
    images, true = taken(cameras)
    kept = torch.ones(3, 30, 40, dtype=torch.bool)
    kept[1, :, 20:] = False
    photos = PosedImages(images.clone(), cameras, ["a", "b", "c"], valid_pixels=PixelRuns.of_mask(kept.flatten()))
    pixels = torch.arange(1200).view(30, 40)[:, 26:38].flatten()
    wrong = 0.9 * true[pixels].to(device)
    views = RayBatches(photos, select("auto", device), 0, compared=True).beside
    masked = replace(views, beside=torch.ones_like(views.beside))  # with the photo in the middle alone
    assert of_pixels(masked, pixels.to(device), wrong) == 0
    assert of_pixels(replace(masked, images=images.to(device)), pixels.to(device), wrong) > 0.005
    assert torch.equal(photos.pixels, images)  # which are the caller's


def test_a_pixel_counts_by_its_own_patch_alone() -> None:
    cameras = above_a_plane()
    images, true = taken(cameras)
    views, pixel = ViewsBeside.of(images, cameras), torch.tensor([15 * 40 + 20])
    distance = true[pixel].requires_grad_()
    alone = of_pixels(views, pixel, 1.1 * distance)
    wrong = torch.full_like(true, 0.1)  # where nothing is to be seen
    wrong[pixel] = 1.1 * true[pixel]
    assert alone > 0
    torch.testing.assert_close(disagreement(views, wrong), alone / len(true))


def faint(views: ViewsBeside) -> ViewsBeside:
    return replace(views, images=taken(views.cameras, texture=0.08)[0])


def other_photos(views: ViewsBeside) -> ViewsBeside:
    dice = torch.Generator().manual_seed(0)
    return replace(views, images=torch.randint(0, 256, views.images.shape, generator=dice).byte())


def far_aside(views: ViewsBeside) -> ViewsBeside:
    cameras = above_a_plane(aside=0.8)
    return ViewsBeside.of(taken(cameras)[0], cameras)


def turned_away(views: ViewsBeside) -> ViewsBeside:
    c2w = views.cameras.c2w.clone()
    c2w[1] = c2w[1] @ torch.diag(torch.tensor([1.0, -1, -1, 1]))
    c2w[2] = c2w[2] @ torch.diag(torch.tensor([-1.0, 1, -1, 1]))
    c2w[0, :, :3] = torch.tensor([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]])
    return ViewsBeside.of(views.images, replace(views.cameras, c2w=c2w))


@pytest.mark.parametrize(
    ("change", "factor", "opacity", "least"),
    [
        (lambda views: views, 1.1, 1.0, 0.005),
        (lambda views: views, 1.1, 0.4, 0.0),  # nothing stands there
        (lambda views: views, 0.01, 1.0, 0.0),  # outside of the photo beside it
        (lambda views: views, -1.0, 1.0, 0.0),  # behind it
        (faint, 1.1, 1.0, 0.0),
        (far_aside, 1.0, 1.0, 0.0),
    ],
    ids=["wrong_depth", "fog", "outside", "behind", "faint", "parallax"],
)
def test_what_says_nothing_of_depth_is_left_out(change, factor: float, opacity: float, least: float) -> None:
    cameras = above_a_plane()
    images, true = taken(cameras)
    views = change(ViewsBeside.of(images, cameras))
    distance = (factor * true).requires_grad_()
    error = disagreement(views, distance, opacity)
    error.backward()
    assert error >= least and (error == 0) == (least == 0)
    assert distance.grad.isfinite().all() and (distance.grad.abs().max() == 0) == (least == 0)


def test_what_disagrees_by_much_is_left_out() -> None:
    cameras = above_a_plane()
    images, true = taken(cameras)
    noise = other_photos(ViewsBeside.of(images, cameras))
    # Of patches of noise a tenth is alike by chance, and disagrees by less than the bound.
    assert disagreement(noise, true) < 0.1


def test_a_patch_counts_by_the_share_of_its_energy_that_is_not_noise() -> None:
    cameras = above_a_plane(sizes=[(40, 30)] * 3)
    (images, true), (halved, _) = taken(cameras), taken(cameras, texture=0.5)
    patches = torch.nn.functional.unfold(images[:1200, 0].view(1, 1, 30, 40) / 255, 3).var(1, correction=0)[0]
    best = (patches - 0.0025).abs().argmin()
    pixel, energy = 41 + best // 38 * 40 + best % 38, patches[best]  # of the middle
    both = [of_pixels(ViewsBeside.of(of, cameras), pixel[None], 1.4 * true[pixel][None]) for of in (images, halved)]
    share, share_of_half = (x / (x + PHOTO_NOISE**2) for x in (energy, energy / 4))
    assert both[0] > 0.01
    assert (both[1] / both[0]).item() == pytest.approx((share_of_half / share).item(), rel=0.05)


def test_what_is_behind_the_photo_beside_it_is_left_out() -> None:
    """Where the lens would put it, it shows something that is alike."""
    turned = torch.tensor([[0.643, 0, -0.766], [0, 1, 0], [0.766, 0, 0.643]])  # 50 degrees to the right
    c2w = torch.eye(4)[:3].repeat(2, 1, 1)
    c2w[1, :, :3], c2w[1, 1, 3] = turned, 0.01
    cameras = Cameras(c2w, torch.tensor([[10.0, 10.0, 20.0, 15.0]] * 2), 40, 30)
    column, row = torch.arange(1200) % 40, torch.arange(1200) // 40
    images = torch.cat([190 + 4 * column - 6 * row, 200 - 5 * row]).byte()[:, None].repeat(1, 3)
    views = ViewsBeside.of(images, cameras)
    edge = torch.arange(5, 25) * 40 + 1
    rays = cameras.rays_through(edge)
    _, z = cameras.project(1, rays.origins + rays.directions)
    assert (z < 0).all()
    assert of_pixels(views, edge, torch.ones(20)) == 0


def test_a_photo_without_any_beside_it_is_compared_with_none() -> None:
    cameras = above_a_plane(sizes=[(40, 30)] * 3)
    views = turned_away(ViewsBeside.of(taken(cameras)[0], cameras))
    assert views.beside[0].unique().tolist() == [-1]
    distance = torch.full((1200,), 2.0, requires_grad=True)
    error = of_pixels(views, torch.arange(1200), distance)
    error.backward()
    assert error == 0 and not distance.grad.any()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("images", "host", "photos in host memory"), ("mode", "refine", "poses that are learned")],
)
def test_what_it_cannot_be_had_with_is_refused(name: str, value: str, said: str) -> None:
    on_a_gpu = cast(Backend, SimpleNamespace(device=torch.device("cuda")))
    config = tiny_config()
    config.loss.multi_view = 0.01
    setattr(config.train if name == "images" else config.poses, name, value)
    with pytest.raises(UserError, match=rf"loss.multi_view=0.01 cannot be had with {said}.*set loss.multi_view=0"):
        make_batches(config, tiny_images(), on_a_gpu)


@pytest.mark.parametrize("seconds", [2.0, 5.0, 15.0, 30.0, 60.0, 300.0])
def test_photos_all_around_have_it_with_poses_as_given(seconds: float) -> None:
    places = "device", "host"
    for kind, device, poses, images in itertools.product(KINDS, ("cpu", "cuda"), ("fixed", "refine"), places):
        train = TrainConfig(max_seconds=seconds, images=images)
        config = Config(field=FIELDS["voxel_deferred"](), poses=PosesConfig(mode=poses), train=train)
        weight = resolve_config(config, device, kind).loss.multi_view
        assert weight == (0.01 if (kind, poses, images) == ("unbounded", "fixed", "device") else 0.0)


def test_host_memory_is_the_device_of_a_cpu() -> None:
    config = tiny_config(images="host")
    config.loss.multi_view = 0.01
    config, state = tiny_state(config)
    assert run_to(config, state, 10)[-1].losses["multi_view"] >= 0


def test_a_run_of_three_photos_finds_the_plane_by_it() -> None:
    cameras = above_a_plane(sizes=[(40, 30)] * 3)
    images, true = taken(cameras)
    photos, errors = PosedImages(images, cameras, ["a", "b", "c"]), {}
    for weight in (0.0, 0.1):
        config = tiny_config(steps=150)
        config = replace(config, dataset=replace(config.dataset, aabb=[-2.0, -2, -1, 2, 2, 2]))
        run = start(replace(config, loss=replace(config.loss, multi_view=weight)), photos, select("native", "cpu"))
        told = [entry.losses for entry in run.train()]
        assert ("multi_view" in told[-1]) == (weight > 0)
        found = run.open().render(cameras, 0).distance().flatten()
        errors[weight] = ((found - true[:1200]).abs() / true[:1200]).median().item()
    assert errors[0.1] < 0.75 * errors[0.0], errors
