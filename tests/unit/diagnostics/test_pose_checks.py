"""A dry run calls poses wrong only where they are: not on shiny, repetitive or thin things, nor through a long lens."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import pytest
import torch
from conventions import BRICKS, misread
from pose_scenes import pole, shiny_relief
from torch import Tensor

from nerf.datasets.blender import load_blender
from nerf.datasets.plane_sweep import PlaneSweep
from nerf.diagnostics.conventions import CONVENTIONS
from nerf.diagnostics.dry_run_checks import Check
from nerf.diagnostics.pose_checks import check_odd_images, check_poses, likeness_of_neighbors

COMPARED = 5
UPSIDE_DOWN = CONVENTIONS[-1]


def with_poses(sweep: PlaneSweep, poses: Tensor) -> PlaneSweep:
    found = copy(sweep)
    found.cameras = replace(sweep.cameras, c2w=poses)
    return found


def in_random_order(sweep: PlaneSweep) -> PlaneSweep:
    order = torch.randperm(len(sweep.cameras), generator=torch.Generator().manual_seed(1))
    return with_poses(sweep, sweep.cameras.c2w[order])


def verdicts(sweep: PlaneSweep, images: Sequence[int] | None = None) -> tuple[Check, Check | None]:
    """On the poses and, where these can be trusted, on single images. images: that are looked at, else all."""
    agreement = sweep.score(images or range(len(sweep.cameras)))
    check, scores, trusted = check_poses(sweep, agreement, COMPARED)
    names = [f"r_{index}" for index in range(len(sweep.cameras))]
    return check, check_odd_images(agreement, scores, sweep, names) if trusted else None


@pytest.mark.parametrize(("count", "period", "slope", "exponent"), [(16, 0.12, 0.5, 200), (14, 0.5, 1.5, 30)])
def test_shiny_repetitive_relief_from_few_places_is_not_called_wrong(
    count: int, period: float, slope: float, exponent: float
) -> None:
    """Right poses agree little more than chance there: 0.26 against 0.20, 0.42 against 0.33."""
    check, odd = verdicts(PlaneSweep(shiny_relief(count, period, slope, exponent)))
    assert check.verdict == "yellow" and "by chance" in check.found and odd is None


@pytest.mark.slow
def test_shiny_relief_with_the_poses_of_other_images_is_found_wrong() -> None:
    sweep = PlaneSweep(shiny_relief(36))
    check, odd = verdicts(sweep, range(0, 36, 2))
    assert check.verdict == "green" and odd.verdict != "red"
    assert likeness_of_neighbors(sweep).certain
    wrong = in_random_order(sweep)
    assert not likeness_of_neighbors(wrong).certain
    check, _ = verdicts(wrong, range(0, 36, 2))
    assert check.verdict == "red" and "do not belong to these images" in check.found


@pytest.mark.parametrize("fov", [0.3, 0.03])
def test_a_thin_pole_is_right_through_any_lens(fov: float) -> None:
    """The longer the lens, the more it looks like its own mirror image in depth, which upside-down poses see."""
    check, odd = verdicts(PlaneSweep(pole(30, fov)))
    assert check.verdict == "green" and odd.verdict == "green"
    assert ("upside down" in check.found) == (fov == 0.03)


@pytest.mark.slow
def test_a_thin_pole_with_wrong_poses_is_found_wrong() -> None:
    sweep = PlaneSweep(pole(30))
    for convention in (UPSIDE_DOWN, CONVENTIONS[0]):
        check, _ = verdicts(with_poses(sweep, misread(sweep.cameras.c2w, convention)))
        assert check.verdict == "red" and convention.name in check.found and check.remedy == convention.remedy
    check, _ = verdicts(in_random_order(sweep))
    assert check.verdict == "red" and "do not belong to these images" in check.found


def test_many_single_images_with_wrong_poses_are_red() -> None:
    sweep = PlaneSweep(load_blender(BRICKS, "train"))
    poses, wrong = sweep.cameras.c2w.clone(), torch.arange(0, 100, 12)
    poses[wrong] = poses[wrong.roll(4)]
    check, odd = verdicts(with_poses(sweep, poses), sorted({*wrong.tolist(), *range(2, 100, 4)}))
    assert check.verdict == "green" and odd.verdict == "red"
    assert sum(f"r_{index}" in odd.found for index in wrong.tolist()) >= 4  # some poses suit other images by chance


def test_right_poses_too_far_apart_to_be_compared_are_not_called_wrong() -> None:
    images = load_blender(BRICKS, "train")
    forward, apart = -images.cameras.c2w[:, :, 2], [0]
    for index in range(1, len(images)):
        if (forward[apart] @ forward[index]).max() < 0.5:
            apart.append(index)
    assert len(apart) >= 4
    check, odd = verdicts(PlaneSweep(images.chosen(apart)))
    assert check.verdict == "yellow" and "no image has two neighbors within 60 degrees" in check.found and odd is None


def test_images_without_neighbors_do_not_speak_against_the_others() -> None:
    images = load_blender(BRICKS, "train")
    forward = -images.cameras.c2w[:, :, 2]
    beside = (forward @ forward[0]).topk(10).indices.tolist()
    apart: list[int] = []
    for index in range(100):
        if (forward[beside + apart] @ forward[index]).max() < 0.5:
            apart.append(index)
    assert len(apart) >= 2
    both, alone = (verdicts(PlaneSweep(images.chosen(chosen)))[0] for chosen in (beside + apart, beside))
    assert both.verdict == "green" and both.found.split(" (")[0] == alone.found.split(" (")[0]
