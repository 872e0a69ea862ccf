"""Ensembles: what is averaged, from where each member looks, and which runs are no members of one."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest
import torch
from tiny_runs import some_similarity, supersampled, tiny_config, tiny_images, write_tiny_scene
from torch import Tensor

import nerf
from nerf.calibration.exposure import fit_left_score_right
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.evaluation.scores import Scores, evaluate
from nerf.images import metrics
from nerf.images.pixel_runs import PixelRuns
from nerf.rendering.ensemble import render_mean
from nerf.rendering.render import Rendering, render_image
from nerf.runs.ensemble import along_path, check_one_scene, views_of_others
from nerf.runs.open_run import LoadedRun

TEST = tiny_images("test").cameras
OTHER_SIZE = replace(TEST, width=10, height=10, intrinsics=0.5 * TEST.intrinsics)


def trained(config: Config, images: PosedImages | None = None) -> LoadedRun:
    """A tiny run of the sphere."""
    config.device = "cpu"
    run = nerf.start(config, images or tiny_images())
    for _ in run.train():
        pass
    return replace(run.open(), folder=Path(f"{config.field.name}_{config.seed}"))


@cache
def harmonics() -> LoadedRun:
    return trained(tiny_config("voxel_sh"))


@cache
def deferred() -> LoadedRun:
    """Another field with another seed and several rays a pixel."""
    return trained(replace(supersampled(tiny_config("voxel_deferred"), 0.5), seed=1))


@cache
def elsewhere() -> LoadedRun:
    """A run that learned the scene turned, shifted and larger, as poses that are learned may."""
    images = tiny_images()
    run = trained(
        replace(tiny_config("voxel_sh"), seed=2), replace(images, cameras=some_similarity().applied(images.cameras))
    )
    return replace(run, given_cameras=images.cameras)


@pytest.fixture(autouse=True)
def at_the_scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The runs find their views in a folder of this test."""
    write_tiny_scene(tmp_path)
    for run in (harmonics(), deferred(), elsewhere()):
        monkeypatch.setattr(run.config.dataset, "root", str(tmp_path))


def scored(*runs: LoadedRun, **how: object) -> tuple[Scores, list[Rendering]]:
    """The scores of the mean of the runs' pictures, and the pictures."""
    first, seen = runs[0], []
    given = first.given_views("test")
    others = views_of_others(runs, given, "test", 3)
    views = first.align_views(given, "test", 3)
    keep = lambda index, rendering, target: seen.append(rendering)  # noqa: E731
    return evaluate(first.field, first.sampler, views, first.background, 3, keep, others=others, **how), seen


def test_an_ensemble_shows_the_mean_of_its_members_pictures() -> None:
    (_, one), (_, other), (_, both) = (
        scored(*runs) for runs in ([harmonics()], [deferred()], [harmonics(), deferred()])
    )
    assert len(both) == 3
    for a, b, mean in zip(one, other, both, strict=True):
        assert not torch.equal(a.rgb, b.rgb)
        for name in ("rgb", "opacity", "depth"):
            assert torch.equal(getattr(mean, name), (getattr(a, name) + getattr(b, name)) / 2), name
        torch.testing.assert_close(mean.spread, ((a.rgb - b.rgb) / 2).square().mean(-1).sqrt())


def test_one_run_is_shown_as_it_is() -> None:
    (alone,) = along_path([harmonics()], TEST)
    found = render_mean([alone], 2, with_normals=True)
    expected = render_image(harmonics().field, harmonics().sampler, TEST, 2, harmonics().background, True)
    for name in ("rgb", "opacity", "depth", "normals"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert found.spread is None


class Shown:
    """A member that shows one pixel."""

    def __init__(self, color: float, opacity: float, distance: float, normal: list[float]) -> None:
        self.rendering = Rendering(
            torch.full((1, 1, 3), color),
            torch.tensor([[opacity]]),
            torch.tensor([[opacity * distance]]),
            torch.tensor([[normal]]),
        )

    def render(self, *_: object) -> Rendering:
        return self.rendering


def test_distance_and_normal_are_those_of_the_members_that_see_something() -> None:
    nothing, near = Shown(1.0, 0.0, 0.0, [0.0, 0.0, 0.0]), Shown(0.4, 1.0, 2.0, [0.0, 0.0, 1.0])
    faint = Shown(0.4, 0.5, 5.0, [0.0, 1.0, 0.0])
    found = render_mean([nothing, near], 0, True)
    assert found.distance().item() == 2.0 and found.opacity.item() == 0.5
    assert found.normals.tolist() == [[[0.0, 0.0, 1.0]]] and found.spread.item() == pytest.approx(0.3)
    found = render_mean([near, faint, nothing], 0, True)
    assert found.distance().item() == pytest.approx((2.0 + 0.5 * 5.0) / 1.5)
    torch.testing.assert_close(found.normals[0, 0], torch.tensor([0.0, 1.0, 2.0]) / 5**0.5)
    assert not render_mean([nothing, nothing], 0, True).normals.any()


def test_each_member_is_as_dark_at_the_edge_as_it_has_learned() -> None:
    dark = replace(harmonics(), vignetting=torch.tensor([[-0.9, 0.0, 0.0]]).expand(8, 3))
    pictures = [scored(*runs)[1] for runs in ([dark], [deferred()], [dark, deferred()], [deferred(), dark])]
    for a, b, *means in zip(*pictures, strict=True):
        assert all(torch.equal(mean.rgb, (a.rgb + b.rgb) / 2) for mean in means)
    assert pictures[0][0].rgb.mean() < scored(harmonics())[1][0].rgb.mean() - 0.01


def test_an_exposure_is_fitted_to_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SSIM_WINDOW", 9)  # half a view has to be as large
    (_, plain), (_, fitted) = (scored(harmonics(), deferred(), exposure=how) for how in ("none", "fit"))
    views = tiny_images("test")
    for index, before, after in zip((0, 3, 6), plain, fitted, strict=True):
        photo, alpha = views.image_over(index, torch.ones(3)), views.image(index)[..., 3:] / 255
        assert torch.equal(after.rgb, fit_left_score_right(before.rgb, photo, alpha))


def test_members_that_learned_the_scene_elsewhere_see_the_same_of_it() -> None:
    (here, there), seen = along_path([harmonics(), elsewhere()], TEST), []
    assert torch.equal(here.cameras.c2w, TEST.c2w)
    torch.testing.assert_close(there.cameras.c2w, some_similarity().applied(TEST).c2w, rtol=0, atol=1e-4)
    for index in range(len(TEST)):
        seen.append(psnr(there.render(index).rgb, here.render(index).rgb))
    lost = psnr(elsewhere().seen_from(TEST).render(0).rgb, here.render(0).rgb)
    assert min(seen) > 18 and lost < 14

    back, again = along_path([elsewhere(), harmonics()], there.cameras)  # a path in the world of the other
    assert torch.equal(back.cameras.c2w, there.cameras.c2w)
    torch.testing.assert_close(again.cameras.c2w, TEST.c2w, rtol=0, atol=2e-4)

    alone, both = [fmean(scored(run)[0].psnr) for run in (harmonics(), elsewhere())], scored(harmonics(), elsewhere())
    assert fmean(both[0].psnr) > fmean(alone)


def psnr(one: Tensor, other: Tensor) -> float:
    return -10 * (one - other).square().mean().log10().item()


def test_learned_focal_lengths_come_along() -> None:
    cameras = harmonics().cameras
    longer = replace(
        harmonics(), cameras=replace(cameras, intrinsics=cameras.intrinsics * torch.tensor([1.1, 1.1, 1, 1]))
    )
    _, other = along_path([harmonics(), longer], TEST)
    torch.testing.assert_close(other.cameras.intrinsics, TEST.intrinsics * torch.tensor([1.1, 1.1, 1, 1]))


# What is refused


def with_dataset(**changes: object) -> LoadedRun:
    run = deferred()
    return replace(run, config=replace(run.config, dataset=replace(run.config.dataset, **changes)))


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (lambda: with_dataset(scene="cube"), "its scene is cube, not sphere"),
        (lambda: with_dataset(background="black"), "its background is 0,0,0, not 1,1,1"),
        (lambda: replace(deferred(), given_cameras=TEST[:7]), "its number of training views is 7, not 8"),
        (lambda: replace(deferred(), given_cameras=OTHER_SIZE), "its size of training views is 10x10, not 20x20"),
        (lambda: replace(deferred(), given_cameras=TEST), "its training views were taken from elsewhere"),
    ],
)
def test_runs_of_another_scene_are_no_members(other: Callable[[], LoadedRun], word: str) -> None:
    check_one_scene([harmonics(), deferred(), elsewhere()])
    with pytest.raises(UserError) as error:
        check_one_scene([harmonics(), other()])
    assert word in str(error.value) and "voxel_deferred_1 is no member" in str(error.value)


def darker(views: PosedImages) -> PosedImages:
    return replace(views, pixels=views.pixels // 2)


def masked(views: PosedImages) -> PosedImages:
    return replace(views, valid_pixels=PixelRuns.of_mask(torch.arange(len(views.pixels)) % 2 == 0))


def from_elsewhere(views: PosedImages) -> PosedImages:
    return replace(views, cameras=some_similarity().applied(views.cameras))


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        (darker, "its test view r_0 or the mask of it is another"),
        (masked, "its test view r_0 or the mask of it is another"),
        (from_elsewhere, "its test views were taken from elsewhere"),
    ],
)
def test_runs_that_find_other_views_are_not_scored_together(
    monkeypatch: pytest.MonkeyPatch, changed: Callable[[PosedImages], PosedImages], word: str
) -> None:
    runs, views = (harmonics(), deferred()), tiny_images("test")
    assert len(views_of_others(runs, views, "test", 1)) == 1
    with pytest.raises(UserError, match=word):
        views_of_others(runs, changed(views), "test", 1)


def test_photos_that_show_learned_backgrounds_are_not_scored_before_two(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [harmonics(), deferred()]
    monkeypatch.setattr(runs[0].field, "background", torch.nn.Parameter(torch.zeros(3)))
    with pytest.raises(UserError, match="its background is 1,1,1, not learned"):
        check_one_scene(runs)
    monkeypatch.setattr(runs[1].field, "background", torch.nn.Parameter(torch.ones(3)))
    check_one_scene(runs)
    with pytest.raises(UserError, match="what photos show through is another color"):
        views_of_others(runs, tiny_images("test"), "test", 1)
