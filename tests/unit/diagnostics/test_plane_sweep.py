"""The plane sweep tells right poses from every usual mistake, on pictures whose geometry is known exactly."""

from copy import copy
from dataclasses import replace
from functools import cache

import pytest
import torch
from _bricks import scene_parts
from _solids import nearest_hits
from conventions import BRICKS, misread
from fixtures import official_scene
from torch import Tensor

from nerf.cameras.rays import Rays
from nerf.datasets.blender import load_blender
from nerf.datasets.plane_sweep import PATCH, Agreement, PlaneSweep, neighbors, shuffled
from nerf.datasets.posed_images import PosedImages
from nerf.diagnostics.conventions import CONVENTIONS, Convention
from nerf.diagnostics.pose_checks import AGREES, ConventionScore, check_odd_images, check_poses

COMPARED = 8


@cache
def bricks() -> PosedImages:
    return load_blender(BRICKS, "train")


@cache
def sweep() -> PlaneSweep:
    return PlaneSweep(bricks())


def with_poses(poses: Tensor) -> PlaneSweep:
    found = copy(sweep())
    found.cameras = replace(sweep().cameras, c2w=poses)
    return found


def verdict(found: PlaneSweep) -> tuple[object, list, bool]:
    agreement = found.score(range(0, len(found.cameras), 100 // COMPARED))
    return check_poses(found, agreement, COMPARED)


def test_right_poses_agree_and_every_mistake_agrees_less() -> None:
    check, scores, trusted = verdict(sweep())
    assert check.verdict == "green" and trusted and not check.remedy
    given, chance, *others = (score.score for score in scores)
    assert len(others) == len(CONVENTIONS)
    assert (given - chance) / (1 - chance) > AGREES and given > max(others) + 0.1


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda convention: convention.name[:30])
def test_every_convention_undoes_its_mistake(convention: Convention) -> None:
    poses = sweep().cameras.c2w
    wrong = misread(poses, convention)
    assert not torch.allclose(wrong, poses, atol=0.1)
    torch.testing.assert_close(convention.convert(wrong), poses, atol=1e-5, rtol=0)


@pytest.mark.parametrize("index", [0, 2, 3])
def test_poses_in_a_wrong_convention_are_named(index: int) -> None:
    convention = CONVENTIONS[index]
    check, _, trusted = verdict(with_poses(misread(sweep().cameras.c2w, convention)))
    assert check.verdict == "red" and not trusted
    assert convention.name in check.found and check.remedy == convention.remedy


def test_shuffled_images_belong_to_no_convention() -> None:
    order = torch.randperm(100, generator=torch.Generator().manual_seed(1))
    check, _, trusted = verdict(with_poses(sweep().cameras.c2w[order]))
    assert check.verdict == "red" and not trusted and "do not belong to these images" in check.found


@pytest.mark.parametrize("side", [-1, 1])
def test_a_view_sees_nothing_of_what_lies_behind_it(side: int) -> None:
    cameras, pixels = sweep().cameras, PATCH * PATCH
    rays = Rays(cameras.centers[1].expand(pixels, 3), (side * cameras.c2w[1, :, 2]).expand(pixels, 3))
    _, seen = sweep()._agreement(cameras, 1, 1, rays, torch.full((pixels, 4), 0.5), torch.rand(1, pixels, 3))
    assert seen.all() if side < 0 else not seen.any()


def test_a_single_wrong_pose_is_named() -> None:
    # The image whose neighbors stand nearest: there the score is surest
    reach = [(neighbor_distance(index), index) for index in range(100)]
    odd = min(reach)[1]
    poses = sweep().cameras.c2w.clone()
    turned = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    poses[odd, :, :3] = poses[odd, :, :3] @ turned
    found = with_poses(poses)
    agreement = found.score(range(0, 100, 3) if odd % 3 == 0 else [odd, *range(0, 100, 3)])
    _, scores, trusted = check_poses(found, agreement, COMPARED)
    check = check_odd_images(agreement, scores, found, bricks().names)
    assert trusted and check.verdict == "yellow" and bricks().names[odd] in check.found


def test_an_image_of_which_some_patches_agree_beyond_doubt_is_right() -> None:
    """Of a view beside the others, neighbors see a part alone: the mean over all patches is that of chance."""
    agreement = sweep().score([0, 1, 2])
    scores = torch.full((len(agreement.scores),), 0.8)
    partly = torch.tensor([0.0] * 5 + [0.2, 0.27, 0.47, 0.66, 0.78, 0.87, 0.91, 0.91, 0.95, 0.98, 0.98])
    scores[agreement.images == 0], scores[agreement.images == 1] = partly, partly.mean()
    given = [ConventionScore("as given", 0.82, 0.01), ConventionScore("chance", 0.47, 0.01)]
    check = check_odd_images(replace(agreement, scores=scores), given, sweep(), ["partly", "by chance", "right"])
    assert "1 of 3 images" in check.found and "by chance" in check.found and "partly" not in check.found


def neighbor_distance(index: int) -> float:
    cameras = sweep().cameras
    return (cameras.centers[neighbors(cameras, index)] - cameras.centers[index]).norm(dim=-1).mean().item()


def test_patches_agree_where_the_surface_is() -> None:
    """The points that the sweep trusts lie on the bricks: their distance is that of the ray's first hit."""
    surface = sweep().score(range(0, 100, 10)).surface()
    assert len(surface.scores) > 30
    centers = sweep().cameras.centers[surface.images]
    rays = Rays(centers, torch.nn.functional.normalize(surface.points - centers, dim=-1))
    truth = nearest_hits(scene_parts(), rays).t
    error = (surface.distances - truth).abs()
    # The rest are off by the distance of two studs: they repeat.
    assert error.median() < 0.03 and (error < 0.15).float().mean() > 0.6


def test_neighbors_look_the_same_way_from_elsewhere() -> None:
    cameras = sweep().cameras
    same = replace(cameras, c2w=torch.cat([cameras.c2w, cameras.c2w[:1]]))  # one frame twice
    for index in (0, 50):
        found = neighbors(same, index)
        assert len(found) == 4 and index not in found and not (index == 0 and 100 in found)
        assert ((same.c2w[found, :, 2] @ same.c2w[index, :, 2]) > 0.5).all()


def test_too_few_and_empty_images_are_not_judged() -> None:
    nothing = torch.zeros(0)
    empty = Agreement(nothing, nothing.long(), torch.zeros(0, 3), torch.zeros(0, 3), nothing)
    assert empty.score == 0 and empty.standard_error == 1 and empty.by_image() == {}
    check, _, trusted = check_poses(sweep(), empty)
    assert check.verdict == "yellow" and "0 textured patches" in check.found and not trusted
    assert shuffled(2).tolist() == [1, 0]


def test_images_smaller_than_a_patch_show_nothing() -> None:
    images = load_blender(BRICKS, "train", 50)  # 4x4 pixels
    assert len(PlaneSweep(images).score(range(10)).scores) == 0


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [None, CONVENTIONS[0]], ids=["right", "OpenCV axes"])
def test_lego(mistake: Convention | None) -> None:
    images = load_blender(official_scene("lego"), "train", 4)
    poses = images.cameras.c2w if mistake is None else misread(images.cameras.c2w, mistake)
    check, _, _ = verdict(PlaneSweep(replace(images, cameras=replace(images.cameras, c2w=poses))))
    assert check.verdict == "green" if mistake is None else mistake.name in check.found
