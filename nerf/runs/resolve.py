"""Settings resolved for the images and the device of a run, and the warm-up of the device."""

from dataclasses import replace

import torch

from nerf.config.recipes import BACKGROUNDS, NO_FACTS, PhotoFacts, coarse_to_fine, resolve_config
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.datasets.rims import background_of
from nerf.errors import UserError
from nerf.evaluation.held_out_poses import NOT_REFINED, has_effect
from nerf.ops.backend import Backend
from nerf.scene.description import SceneDescription
from nerf.training.batches import choose_image_storage
from nerf.training.warmup import warm_up

# Several rays a pixel sharpen edges that are there already: of lego, chair and two sets of bricks at 100x100 on a CPU
# all gain half a decibel and more from about 6.5 passes and 1600 steps on, and lose as much with half of both.
MANY_PASSES, MANY_PIXELS = 6, 6_000_000  # over the training pixels; drawn in all
PIXELS_PER_SECOND = 54_000  # that a thread of a CPU draws, one ray each; more than MOST_THREADS were not measured
MOST_THREADS = 4


def resolve_for_run(
    config: Config, images: PosedImages, backend: Backend, described: SceneDescription | None = None
) -> Config:
    """The settings resolved for images, device and scene; warms up the device.

    described: what the images show, which settings that are resolved already need not know.
    """
    kind = None if described is None else described.kind
    given = with_background(config, images, kind)
    where = choose_image_storage(config.train.images, images, backend)  # on which some settings depend
    given = replace(given, train=replace(given.train, images=where))
    config = resolve_config(given, backend.device.type, kind)
    facts = photo_facts(config, images, backend, described)
    if facts != NO_FACTS:
        config = resolve_config(given, backend.device.type, kind, facts)
    if config.deterministic:
        check_repeatable(config.train.max_seconds)
    features = "device" if config.train.features == "auto" else config.train.features  # host: see run.start
    config = replace(config, train=replace(config.train, features=features))
    check_features(config)
    warm_up(config, backend)
    return config


def with_background(config: Config, images: PosedImages, kind: str | None) -> Config:
    """The settings, before they are resolved, with the background that the images of a bounded scene show.

    That is the color along their edges, if they have no alpha. A background that is given stays.
    """
    if config.dataset.background != "auto" or kind != "bounded":
        return config
    return replace(config, dataset=replace(config.dataset, background=background_of(images) or "auto"))


def why_background(given: Config, resolved: Config) -> tuple[str, ...]:
    """A sentence where the images, not the kind of scene, have chosen the background; given: before resolve_for_run."""
    chosen = resolved.dataset.background
    if given.dataset.background != "auto" or chosen == BACKGROUNDS[resolved.dataset.kind]:
        return ()
    color = "one even color, which is learned" if chosen == "learned" else chosen
    return (f"the background is {color}: so are the edges of the images (dataset.background)",)


def photo_facts(
    config: Config, images: PosedImages, backend: Backend, described: SceneDescription | None
) -> PhotoFacts:
    """What the photos of a run tell that settings depend on. config: resolved."""
    return PhotoFacts(makes_many_passes(config, images, backend), described is not None and described.bare)


def makes_many_passes(config: Config, images: PosedImages, backend: Backend) -> bool:
    """Whether a run on a CPU is expected to draw each training pixel MANY_PASSES times. config: resolved."""
    if backend.device.type != "cpu":
        return False
    steps, seconds = config.train.steps, config.train.max_seconds
    drawn = [] if steps is None else [steps * config.train.rays_per_step]
    if seconds is not None:
        drawn.append(seconds * PIXELS_PER_SECOND * min(torch.get_num_threads(), MOST_THREADS))
    pixels = images.cameras.first_pixel(len(images.cameras))
    return min(drawn) >= max(MANY_PASSES * pixels, MANY_PIXELS)


def check_learned_poses(config: Config) -> None:
    """Raises UserError where settings of the field are given that do nothing where poses are learned."""
    field, poses = config.field, config.poses
    if poses.mode == "fixed":
        return
    if field.initial_num_voxels:
        raise UserError(
            f"field.initial_num_voxels={field.initial_num_voxels} has no effect where poses are learned; leave it out, "
            "or give poses.initial_num_voxels."
        )
    if getattr(field, "view_annealing", None):
        raise UserError(
            f"field.view_annealing={field.view_annealing:g} is for given poses; where they are learned, set "
            "poses.view_dependence_start."
        )
    schedule = poses.initial_num_voxels, poses.coarse_to_fine_end, field.num_voxels
    resolved = None not in schedule and field.upsample_at == coarse_to_fine(*schedule)
    if field.upsample_at is not None and not resolved:
        given = ",".join(f"{share:g}" for share in field.upsample_at)
        raise UserError(
            f"field.upsample_at=[{given}] has no effect where poses are learned; set field.upsample_at=none. There "
            "poses.initial_num_voxels and poses.coarse_to_fine_end say when grids double."
        )


def without_effect(given: Config, resolved: Config) -> tuple[str, ...]:
    """Notes on settings that are given and do less than they say, beside what the others have become."""
    asked, train, scored = given.train, resolved.train, resolved.evaluation
    notes = []
    averaged = train.average_from < 1
    if averaged and asked.lr_decay is not None and asked.average_lr is None and asked.lr_decay < train.average_lr:
        notes.append(
            f"train.lr_decay={asked.lr_decay:g} takes learning rates no lower than train.average_lr="
            f"{train.average_lr:g} of their initial values, as parameters are averaged; give train.average_lr="
            f"{asked.lr_decay:g} too, or train.average_from=1"
        )
    if not averaged and asked.average_lr is not None:
        notes.append(
            f"train.average_lr={asked.average_lr:g} has no effect, as no parameters are averaged: train.average_from=1"
        )
    if not has_effect(scored.view_poses, scored.split):
        notes.append(f"evaluation.view_poses=refined has no effect with evaluation.split={scored.split}: {NOT_REFINED}")
    return tuple(notes)


def check_features(config: Config, resumed: bool = False) -> None:
    """Raises UserError where settings do not go with features in host memory.

    config: resolved. resumed: it is that of a run that goes on, in which train.features alone can be another.
    """
    found = _not_in_host(config) if config.train.features == "host" else None
    if found is None:
        return
    why, mended = found
    remedy = f"set {mended}, or train.features=device"
    if resumed:
        remedy = "a resumed run keeps that, so go on with train.features=device"
    raise UserError(f"{why}; {remedy}.")


def _not_in_host(config: Config) -> tuple[str, str] | None:
    """Which setting does not go with features in host memory, and what it would have to be."""
    if config.deterministic:
        return (
            "deterministic=true with train.features=host: features in host memory are rows of sparse grids, whose "
            "gradients are added in any order on a GPU",
            "deterministic=false",
        )
    if not config.field.sparse:
        return (
            "field.sparse=false with train.features=host: features in host memory are rows of sparse grids",
            "field.sparse=true",
        )
    if config.loss.tv_global > 0 and config.loss.tv_until < 1:
        return (
            f"loss.tv_global={config.loss.tv_global:g} with train.features=host: after loss.tv_until="
            f"{config.loss.tv_until:g} of the run it visits an eighth of all vertices in each step, and would bring "
            "them from host memory",
            "loss.tv_until=1 or loss.tv_global=0",
        )
    if config.train.average_from < 1:
        return (
            f"train.average_from={config.train.average_from:g} with train.features=host: means of all vertices would "
            "be read and written in host memory",
            "train.average_from=1",
        )
    return None


def check_repeatable(max_seconds: float | None) -> None:
    """Raises UserError if a run that is to be repeated has a limit of seconds: its schedule would follow the clock."""
    if max_seconds is not None:
        raise UserError(
            f"deterministic=true with train.max_seconds={max_seconds:g}: a schedule in seconds follows the clock, so "
            "no run is like another; give train.steps and train.max_seconds=null. How many steps a run of so many "
            "seconds took is in its metrics."
        )
