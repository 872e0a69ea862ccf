"""Several runs of one scene, whose pictures are averaged: what has to be the same in all of them, and from where each
sees the views of a split or a camera path."""

from collections.abc import Sequence

import torch

from nerf.cameras.cameras import Cameras
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.evaluation.held_out_poses import moved
from nerf.rendering.ensemble import Member
from nerf.runs.open_run import LoadedRun

SAME_POSE = 1e-4  # largest difference of numbers of a pose, and of intrinsics relative to them: rounding of a reader


def check_one_scene(runs: Sequence[LoadedRun]) -> None:
    """Raises UserError unless all runs were trained on the same views as the first, before the same background."""
    first, *others = runs
    for run in others:
        for what, one, other in (
            ("scene", first.config.dataset.scene, run.config.dataset.scene),
            ("number of training views", len(first.given_cameras), len(run.given_cameras)),
            ("size of training views", first.given_cameras.described_size, run.given_cameras.described_size),
            ("background", _background(first), _background(run)),
        ):
            if one != other:
                raise _different(run, first, f"its {what} is {other}, not {one}")
        if not _same_cameras(first.given_cameras, run.given_cameras):
            raise _different(run, first, "its training views were taken from elsewhere")


def views_of_others(runs: Sequence[LoadedRun], views: PosedImages, split: str, every: int) -> list[Member]:
    """All runs but the first, each with its cameras of every k-th view of a split, as its evaluation.view_poses says.

    views: those of the first run as the data has them. Raises UserError where another run finds other ones.
    """
    first, *others = runs
    members = []
    for run in others:
        own = run.given_views(split)
        if len(own) != len(views) or not _same_cameras(own.cameras, views.cameras):
            raise _different(run, first, f"its {split} views were taken from elsewhere")
        colors = first.background.cpu(), run.background.cpu()
        if views.has_alpha and not torch.equal(*colors):
            raise _different(run, first, "what photos show through is another color, which it has learned")
        for index in range(0, len(views), every):
            if not _same_picture(own, views, index):
                raise _different(run, first, f"its {split} view {own.names[index]} or the mask of it is another")
        own = run.align_views(own, split, every)
        members.append(run.seen_from(own.cameras, own.vignetting))
    return members


def along_path(runs: Sequence[LoadedRun], cameras: Cameras) -> list[Member]:
    """All runs, each with cameras of a path in its own world; cameras: in the world of the first, on the CPU."""
    worlds = [(run.field, run.sampler, run.config, cameras, run.cameras, runs[0].cameras) for run in runs]
    return [run.seen_from(moved(*world)) for run, world in zip(runs, worlds, strict=True)]


def _background(run: LoadedRun) -> str:
    """The color behind a run's renderings; learned ones are not told apart, since each run learns its own."""
    if run.field.background is not None:
        return "learned"
    return ",".join(f"{value:g}" for value in run.background.tolist())


def _same_cameras(one: Cameras, other: Cameras) -> bool:
    near = {"rtol": SAME_POSE, "atol": SAME_POSE}
    return (
        torch.equal(one.image_sizes, other.image_sizes)
        and torch.allclose(one.c2w, other.c2w, **near)
        and torch.allclose(one.intrinsics, other.intrinsics, **near)
    )


def _same_picture(one: PosedImages, other: PosedImages, index: int) -> bool:
    """Whether the same pixels count in two pictures of one size, and are the same."""
    masks = [images.valid_mask(index) for images in (one, other)]
    masks = [torch.ones(1, dtype=torch.bool) if mask is None else mask for mask in masks]
    return torch.equal(one.image(index), other.image(index)) and bool((masks[0] == masks[1]).all())


def _different(run: LoadedRun, first: LoadedRun, how: str) -> UserError:
    return UserError(
        f"{run.folder} is no member of an ensemble with {first.folder}: {how}. Take runs of one scene with the same "
        "dataset settings."
    )
