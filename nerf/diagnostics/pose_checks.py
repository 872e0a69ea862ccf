"""Checks of the poses in a dry run: do they belong to the images? Two independent kinds of evidence are used.

Plane sweep: searches for a surface on which neighboring views agree. With wrong poses the agreement is that of chance;
with correct poses it can be low, too, for shiny, repetitive or thin surfaces. Likeness: in any scene, views from nearby
places look more alike than others, unless the poses belong to other images. A check is red only if both kinds speak
against the poses, or if another convention agrees far better than the given one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras.cameras import Cameras
from nerf.datasets.plane_sweep import MAX_ANGLE, Agreement, PlaneSweep, neighbors, shuffled
from nerf.diagnostics.conventions import CONVENTIONS, GIVEN, Convention
from nerf.diagnostics.dry_run_checks import Check, listed

COMPARED_IMAGES = 20  # images for which every other convention is tried; close candidates are tried on all images
# Threshold on the lift, from 0 (chance) to 1 (perfect agreement). Correct poses reach 0.5 and more on renders with
# gloss and thin parts, 0.75 and more on photos, 0.07 to 0.4 on shiny relief. Images in another order reach 0 +- 0.02.
# Mistakes that keep part of the motion reach up to 0.4, therefore every convention is compared as well.
AGREES = 0.35
SHINY = 0.1  # if the lift is certainly below this, the poses are wrong even for a shiny scene
# By how much one convention must beat another: in score, and in standard errors over the images.
BETTER, BETTER_ERRORS = 0.06, 3.0
RELATED, RELATED_ERRORS = 0.02, 3.0  # the same against chance, for poses and images to belong together
FEW_PATCHES = 40  # with fewer patches there is no verdict
# Neighbors must look more alike than other images by this many standard deviations over random orders. Correct poses
# reach 7 (fern, 17 photos) to 30, images in another order 2 at most.
ALIKE_DEVIATIONS = 4.0
ORDERS = 20  # number of random orders for the likeness by chance
LIKENESS_IMAGES = 120  # images that are compared with all others
THUMBNAIL = 8  # side in pixels of the thumbnails for likeness: brightness, no detail
ODD = 0.1  # lift of a single image, relative to that of all images, below which it does not fit
# At least so many of its patches agree beyond doubt: it fits, whatever the others show. By chance 1 of 8 do at most.
SOME_AGREE = 0.25
MANY_ODD = 0.1  # fraction of such images from which they are no exceptions
ALONE = 1.3  # an image this many times farther from its neighbors than usual is not judged


@dataclass(frozen=True)
class ConventionScore:
    """The agreement of the images under one convention of the poses."""

    name: str
    score: float
    standard_error: float


@dataclass(frozen=True)
class Likeness:
    """Probability that a neighbor of an image looks more like it than another image does; 0.5 without relation."""

    by_image: dict[int, float]
    mean: float
    by_chance: float  # mean over random orders of the images
    deviation: float  # standard deviation over random orders

    @property
    def certain(self) -> bool:
        """Whether the mean is far above that of random orders."""
        return self.mean - self.by_chance >= ALIKE_DEVIATIONS * self.deviation > 0


def check_poses(
    sweep: PlaneSweep, agreement: Agreement, compared: int = COMPARED_IMAGES
) -> tuple[Check, list[ConventionScore], bool]:
    """Checks that the images agree under the given poses, and better than under every other convention.

    agreement: of the given poses. compared: number of its images for which other conventions are tried. Returns the
    check, the scores (given, chance, others), and whether the agreement is good enough for further checks.
    """
    count = len(sweep.cameras)
    look = "look at the cameras below: do they stand where the photos were taken?"
    if count < 3:
        return Check("poses", "yellow", f"{count} images are too few to tell", look), [], False
    everyone = sorted(agreement.by_image())
    if len(agreement.scores) < FEW_PATCHES:
        found = f"the images show too little to tell: {len(agreement.scores)} textured patches"
        return Check("poses", "yellow", found, look), [], False
    indices = [everyone[i] for i in torch.linspace(0, len(everyone) - 1, min(len(everyone), compared)).long()]
    order = shuffled(count)
    chance = sweep.score(everyone, order=order)
    given, by_chance = agreement.of_images(indices), chance.of_images(indices)
    scores = [
        _score("as given", given.compared()),
        _score("chance: the same images in another order", by_chance.compared()),
    ]
    ahead, level = [], []  # conventions that are better than the given one on these images, or equally good
    for convention in CONVENTIONS:
        other = sweep.score(indices, convention.convert(sweep.cameras.c2w))
        scores.append(_score(convention.name, other))
        gain, error = _paired_gain(other, given)
        if gain > BETTER and gain > BETTER_ERRORS * error:
            ahead.append((other.score, convention))
        elif abs(gain) < BETTER_ERRORS * error and other.score > by_chance.score:
            level.append(convention)
    if ahead:
        best = max(ahead, key=lambda found: found[0])[1]
        check = _other_convention(sweep, agreement, best, everyone, order)
        if check is not None:
            return check, scores, False
    every_patch, agreement, chance = agreement, agreement.compared(), chance.compared()
    if len(agreement.scores) < FEW_PATCHES:
        return Check("poses", "yellow", _hardly_compared(agreement, len(everyone)), look), scores, False
    figures = f"neighboring images agree to {agreement.score:.2f} (1 = perfectly, {chance.score:.2f} = by chance)"
    if _lift(agreement.score, chance.score) >= AGREES:
        found = f"{figures}, better than under every usual mistake"
        if level and _is_level(sweep, every_patch, level[0], everyone):
            found = (
                f"{figures}. {level[0].name} would suit them as well: views this narrow, of what is this thin, "
                "cannot tell"
            )
        return Check("poses", "green", found), scores, True
    gain, error = _paired_gain(agreement, chance)
    if gain > max(RELATED, RELATED_ERRORS * error):
        found = f"{figures}: more than by chance, but the poses are rough or the scene is hard to compare"
        remedy = (
            "nothing, if it shines, repeats itself or was taken from few places; else give the lens distortion if "
            "there is any, see that every pose stands beside the name of its own image (r_10 before r_2?), or find the "
            "poses anew with data/prepare.py"
        )
        return Check("poses", "yellow", found, remedy), scores, False
    likeness = likeness_of_neighbors(sweep)
    open_to = (gain + RELATED_ERRORS * error) / max(1 - chance.score, 1e-6)
    if likeness.certain or open_to > SHINY:
        why = f"{len(everyone)} images show too little to be certain"
        if likeness.certain:
            why = f"neighbors look more alike than other images in {likeness.mean:.0%} of cases (50% = by chance)"
        remedy = (
            "train for a few seconds and look: a scene that shines or repeats itself may be fine; if it is fog, the "
            "poses are rough, sorted differently from the images (r_10 before r_2?) or in an unusual convention"
        )
        return Check("poses", "yellow", f"{figures}, but {why}", remedy), scores, False
    found = f"{figures}, and neighbors look no more alike than any two images: the poses do not belong to these images"
    remedy = (
        "see that every pose stands beside the name of its own image (sorted differently? r_10 before r_2?), or find "
        "the poses anew with data/prepare.py"
    )
    return Check("poses", "red", found, remedy), scores, False


def check_odd_images(
    agreement: Agreement, scores: Sequence[ConventionScore], sweep: PlaneSweep, names: Sequence[str]
) -> Check:
    """Checks for single images with a wrong pose or of something else.

    Only for poses that passed check_poses. scores: its second result. Many such images are red only if they also look
    no more like their neighbors than like other images, while the remaining images do.
    """
    given, chance = scores[0].score, scores[1].score
    limit = chance + ODD * (given - chance)
    by_image = agreement.by_image()
    sure = agreement.surface().images
    doubtful = {image: (sure == image).sum() < SOME_AGREE * (agreement.images == image).sum() for image in by_image}
    low = [image for image, score in by_image.items() if score < limit and doubtful[image]]
    reach = {image: _reach(sweep.cameras, image) for image in by_image}
    usual = torch.tensor(list(reach.values())).median().item()
    alone = [names[image] for image in low if reach[image] > ALONE * usual]
    odd = [image for image in low if reach[image] <= ALONE * usual]
    aside = f" ({listed(alone)}: too far from the others to tell)" if alone else ""
    if not odd:
        return Check("single images", "green", f"none of {len(by_image)} images disagrees with its neighbors{aside}")
    shown = listed([names[image] for image in odd])
    found = f"{len(odd)} of {len(by_image)} images agree with their neighbors no better than chance: {shown}"
    remedy = "look at their pictures and poses; leave out what is blurred, shows something else or is posed wrong"
    verdict = "yellow"
    if len(odd) > MANY_ODD * len(by_image):
        theirs = likeness_of_neighbors(sweep, odd)
        others = likeness_of_neighbors(sweep, [image for image in by_image if image not in odd])
        would_show = others.mean - theirs.by_chance >= ALIKE_DEVIATIONS * theirs.deviation
        verdict = "red" if would_show and not theirs.certain else "yellow"
    return Check("single images", verdict, found + aside, remedy)


def likeness_of_neighbors(sweep: PlaneSweep, indices: Sequence[int] | None = None) -> Likeness:
    """The likeness of neighbors, for the images `indices`, or for up to LIKENESS_IMAGES of all images.

    It is the area under the ROC curve (Hanley and McNeil 1982) of the distance between thumbnails as a classifier of
    neighbors, and the same for random orders of the images.
    """
    small = torch.stack([functional.adaptive_avg_pool2d(p[:3], THUMBNAIL).flatten() for p in sweep.pictures])
    distance, count = torch.cdist(small, small), len(small)
    if indices is None:
        indices = torch.linspace(0, count - 1, min(count, LIKENESS_IMAGES)).round().long().unique().tolist()
    sides = {}
    for index in indices:
        beside = neighbors(sweep.cameras, index)
        rest = torch.ones(count, dtype=torch.bool)
        rest[index], rest[beside] = False, False
        if len(beside) and rest.any():
            sides[index] = (beside, rest.nonzero()[:, 0])
    if not sides:
        return Likeness({}, 0.5, 0.5, 0.0)

    def measure(order: Tensor) -> dict[int, float]:
        return {
            index: (distance[order[index], order[beside]][:, None] < distance[order[index], order[rest]])
            .float().mean().item()
            for index, (beside, rest) in sides.items()
        }  # fmt: skip

    generator = torch.Generator().manual_seed(0)
    by_image = measure(torch.arange(count))
    others = [_mean(measure(torch.randperm(count, generator=generator))) for _ in range(ORDERS)]
    spread = torch.tensor(others, dtype=torch.float64)
    return Likeness(by_image, _mean(by_image), spread.mean().item(), spread.std().item())


def _other_convention(
    sweep: PlaneSweep, agreement: Agreement, convention: Convention, indices: Sequence[int], order: Tensor
) -> Check | None:
    """The check for poses that agree better under another convention; None if more images do not confirm it."""
    poses = convention.convert(sweep.cameras.c2w)
    other, chance = sweep.score(indices, poses), sweep.score(indices, poses, order)
    gain, error = _paired_gain(other, agreement)
    if gain <= max(BETTER, BETTER_ERRORS * error):
        return None
    above, error_above = _paired_gain(other, chance)
    if above <= max(RELATED, RELATED_ERRORS * error_above):
        return None
    found = (
        f"the poses look as if they were in another convention: {convention.name}. Read that way, neighboring images "
        f"agree to {other.score:.2f} ({chance.score:.2f} = by chance); as given ({GIVEN}), to {agreement.score:.2f}"
    )
    sure = _lift(other.score, chance.score) >= AGREES
    return Check("poses", "red" if sure else "yellow", found, convention.remedy)


def _hardly_compared(compared: Agreement, count: int) -> str:
    """What to say of `count` images of which so few patches could be compared."""
    some = len(compared.by_image())
    if not some:
        return f"no image has two neighbors within {MAX_ANGLE:.0f} degrees that see the same: nothing could be compared"
    return (
        f"only {some} of {count} images have two neighbors within {MAX_ANGLE:.0f} degrees that see the same, in "
        f"{len(compared.scores)} patches: too few to tell"
    )


def _is_level(sweep: PlaneSweep, agreement: Agreement, convention: Convention, indices: Sequence[int]) -> bool:
    """Whether a convention is as good as the given one over all images."""
    gain, error = _paired_gain(sweep.score(indices, convention.convert(sweep.cameras.c2w)), agreement)
    return abs(gain) < BETTER_ERRORS * error


def _reach(cameras: Cameras, index: int) -> float:
    """Mean distance of a camera to its neighbors; infinite if it has none."""
    beside = neighbors(cameras, index)
    if len(beside) == 0:
        return float("inf")
    return (cameras.centers[beside] - cameras.centers[index]).norm(dim=-1).mean().item()


def _score(name: str, agreement: Agreement) -> ConventionScore:
    return ConventionScore(name, agreement.score, agreement.standard_error)


def _paired_gain(a: Agreement, b: Agreement) -> tuple[float, float]:
    """Mean difference of the scores of a and b per image, and its standard error."""
    first, second = a.by_image(), b.by_image()
    gains = torch.stack([first[image] - second[image] for image in second])
    return gains.mean().item(), (gains.std() / len(gains) ** 0.5).item() if len(gains) > 1 else float("inf")


def _lift(score: float, chance: float) -> float:
    return (score - chance) / max(1 - chance, 1e-6)


def _mean(by_image: dict[int, float]) -> float:
    return sum(by_image.values()) / len(by_image)
