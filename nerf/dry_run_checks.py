"""The checks of a dry run: each one's thresholds, words and remedy."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras import Cameras
from nerf.config import SamplerConfig
from nerf.consistency import CONVENTIONS, GIVEN, Agreement, Convention, PlaneSweep, neighbors, shuffled
from nerf.datasets.posed_images import PosedImages
from nerf.memory_plan import MemoryPlan
from nerf.scene_box import SceneBox
from nerf.spaces import ContractedSpace, FrustumSpace

COMPARED_IMAGES = 20  # for which every other convention is tried
# The share of the way from chance to perfect agreement. Right poses reach 0.5 and more on renders with gloss and thin
# parts, 0.75 and more on photos; images in another order 0; a mistake that leaves some motion as it is, up to 0.4:
# hence the comparison with every convention.
AGREES, HARDLY_AGREES = 0.35, 0.15
BETTER, BETTER_ERRORS = 0.06, 3.0  # by how much another convention wins: of the score, and of its standard error
FEW_PATCHES = 40  # tell nothing
ODD = 0.1  # an image that comes no further from chance towards the others does not belong to them
ALONE = 1.3  # times the usual distance to its neighbours: of an image that far off, they can tell nothing
SAME = 0.6  # largest mean difference of the copies of one picture at working size, in steps of 8 bits
ELSEWHERE = 0.05  # of the cameras' distance from their middle: copies of one picture cannot be that far apart
THUMBNAIL = 16  # pixels at which copies are looked for
MIN_POINTS = 30  # tell something about the box
INSIDE, HARDLY_INSIDE = 0.9, 0.1  # shares of the points
ROOMY = 50  # volumes of what the points fill
CLIPPED = 0.01  # share of the surface that near or far may cut off
MARGIN = 0.05  # of the box's edges, added to what the points fill
TIGHT, TOO_MUCH = 0.7, 0.95  # shares of the free memory


@dataclass(frozen=True)
class Check:
    """One question about a scene, and its answer."""

    name: str
    verdict: str  # green, yellow or red
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class ConventionScore:
    """How well the images agree under one way to read the poses."""

    name: str
    score: float
    standard_error: float


def check_poses(
    sweep: PlaneSweep, agreement: Agreement, compared: int = COMPARED_IMAGES
) -> tuple[Check, list[ConventionScore], bool]:
    """Whether the images agree under the given poses, and better than under every other convention.

    agreement: of the given poses. compared: images, of those in it, for which the conventions are tried. Returns the
    check, the scores (given, chance, others), and whether to trust the poses.
    """
    count = len(sweep.cameras)
    if count < 3:
        return Check("poses", "yellow", f"{count} images are too few to tell", "look at the cameras below"), [], False
    indices = sorted(agreement.by_image())
    if len(agreement.scores) < FEW_PATCHES:
        found = f"the images show too little to tell: {len(agreement.scores)} textured patches"
        return Check("poses", "yellow", found, "look at the cameras below"), [], False
    indices = [indices[i] for i in torch.linspace(0, len(indices) - 1, min(len(indices), compared)).long()]
    given = _of_images(agreement, indices)
    chance = sweep.score(indices, order=shuffled(count))
    scores = [_score("as given", given), _score("chance: the same images in another order", chance)]
    best: Convention | None = None
    best_score = given.score + BETTER
    rivals = []
    for convention in CONVENTIONS:
        other = sweep.score(indices, convention.convert(sweep.cameras.c2w))
        scores.append(_score(convention.name, other))
        gain, error = _paired_gain(other, given)
        if other.score > best_score and gain > BETTER_ERRORS * error:
            best, best_score = convention, other.score
        elif abs(gain) < BETTER_ERRORS * error:
            rivals.append(convention.name)
    share = _lift(given.score, chance.score)
    figures = f"neighbouring images agree to {given.score:.2f} (1 = perfectly, {chance.score:.2f} = by chance)"
    if best is not None and _lift(best_score, chance.score) >= AGREES:
        found = (
            f"the poses look as if they were in another convention: {best.name}. Read that way, neighbouring images "
            f"agree to {best_score:.2f}; as given ({GIVEN}), to {given.score:.2f}; by chance, to "
            f"{chance.score:.2f}"
        )
        return Check("poses", "red", found, best.remedy), scores, False
    if share >= AGREES and rivals:
        remedy = "look at the cameras below: do they stand where the photos were taken?"
        return Check("poses", "yellow", f"{figures}, but no better than with {rivals[0]}", remedy), scores, True
    if share >= AGREES:
        return Check("poses", "green", f"{figures}, better than under every usual mistake"), scores, True
    if share >= HARDLY_AGREES:
        remedy = (
            "give the lens distortion if there is any, look for the images that do not fit, or find the poses anew "
            "with data/prepare.py"
        )
        return Check("poses", "yellow", f"{figures}: the poses are rough", remedy), scores, True
    remedy = (
        "see that every pose stands beside the name of its own image (sorted differently? r_10 before r_2?), or find "
        "the poses anew with data/prepare.py"
    )
    found = f"{figures}: the poses do not belong to these images, and no usual convention makes them fit"
    return Check("poses", "red", found, remedy), scores, False


def check_odd_images(
    agreement: Agreement, scores: Sequence[ConventionScore], cameras: Cameras, names: Sequence[str]
) -> Check:
    """Single images whose poses are wrong, or that show something else."""
    given, chance = scores[0].score, scores[1].score
    limit = chance + ODD * (given - chance)
    by_image = agreement.by_image()
    low = [image for image, score in by_image.items() if score < limit]
    reach = {image: _reach(cameras, image) for image in by_image}
    usual = torch.tensor(list(reach.values())).median().item()
    alone = [names[image] for image in low if reach[image] > ALONE * usual]
    odd = [names[image] for image in low if reach[image] <= ALONE * usual]
    aside = f" ({_listed(alone)}: too far from the others to tell)" if alone else ""
    if not odd:
        return Check("single images", "green", f"none of {len(by_image)} images disagrees with its neighbours{aside}")
    found = f"{len(odd)} of {len(by_image)} images agree with their neighbours no better than chance: {_listed(odd)}"
    remedy = "look at their pictures and poses; leave out what is blurred, shows something else or is posed wrong"
    return Check("single images", "red" if len(odd) > 0.1 * len(by_image) else "yellow", found + aside, remedy)


def check_duplicates(sweep: PlaneSweep, images: PosedImages) -> Check:
    """Frames that show the same picture, stored twice or saved again."""
    small = torch.stack([functional.adaptive_avg_pool2d(picture, THUMBNAIL).flatten() for picture in sweep.pictures])
    near = (torch.cdist(small, small, p=1) / small.shape[1] < SAME / 255).triu(1).nonzero().tolist()
    pictures = sweep.pictures
    near = [(a, b) for a, b in near if pictures[a].shape == pictures[b].shape and not _is_flat(pictures[a])]
    pairs = [(a, b) for a, b in near if (pictures[a] - pictures[b]).abs().mean() < SAME / 255]
    if not pairs:
        return Check("duplicates", "green", f"{len(images)} different pictures")
    poses = images.cameras.c2w
    scale = (poses[:, :, 3] - poses[:, :, 3].mean(0)).norm(dim=-1).mean()
    elsewhere = [(a, b) for a, b in pairs if (poses[a, :, 3] - poses[b, :, 3]).norm() > ELSEWHERE * scale]
    shown = _listed([f"{images.names[a]} and {images.names[b]}" for a, b in elsewhere or pairs])
    if elsewhere:
        found = f"{len(elsewhere)} pairs of frames show the same picture from different places: {shown}"
        return Check("duplicates", "red", found, "one pose of each pair is wrong: leave that frame out")
    found = f"{len(pairs)} pairs of frames show the same picture: {shown}"
    return Check("duplicates", "yellow", found, "leave one of each pair out: it counts twice in training")


def check_blank(sweep: PlaneSweep, names: Sequence[str]) -> Check:
    """Images that show nothing."""
    flat = [index for index, picture in enumerate(sweep.pictures) if _is_flat(picture)]
    if not flat:
        return Check("pictures", "green", "every image shows something")
    found = f"{len(flat)} of {len(names)} images show one colour: {_listed([names[i] for i in flat])}"
    verdict = "yellow" if len(flat) < len(names) / 2 else "red"
    return Check("pictures", verdict, found, "leave them out, or copy them again")


def check_box(box: SceneBox, cameras: Cameras, points: Tensor) -> Check:
    """Whether the box holds what the images show. points [P,3]: of the surface, none if there are none to trust.

    Of an unbounded scene, the inner box; forward-facing scenes have none.
    """
    extent = world_box(box)
    if extent is None:
        return _check_frustum(box.space, points)
    size, unbounded = extent[1] - extent[0], isinstance(box.space, ContractedSpace)
    described = f"{'inner box' if unbounded else 'box'} {_numbers(extent[0])} to {_numbers(extent[1])}"
    blind = [i for i in range(len(cameras)) if not _sees(cameras, i, extent)]
    if blind:
        found = f"{described}: {len(blind)} of {len(cameras)} cameras look past it"
        verdict = "red" if len(blind) > len(cameras) / 2 else "yellow"
        return Check("box", verdict, found, "set dataset.aabb=[x0,y0,z0,x1,y1,z1] to what they see, or mend the poses")
    if len(points) < MIN_POINTS:
        return Check(
            "box", "yellow", f"{described}; nothing is known of the surface", "look at the box below"
        )
    inside = _inside(extent, points).float().mean().item()
    low, high = (points.quantile(q, dim=0) for q in (0.01, 0.99))
    margin = MARGIN * (high - low)
    tight = f"dataset.aabb=[{_numbers(low - margin)},{_numbers(high + margin)}]"
    found = f"{described}: {inside:.0%} of {len(points)} surface points lie inside"
    if unbounded:
        found += ", the others in the shell around it"
    if unbounded and inside < HARDLY_INSIDE:
        return Check(
            "box", "yellow", f"{found}, where cells are larger", f"{tight} holds 98% of them along each axis"
        )
    if inside < INSIDE and not unbounded:
        remedy = f"if the scene has no background that should be shown, {tight} holds 98% of the points along each axis"
        return Check("box", "red" if inside < HARDLY_INSIDE else "yellow", found, remedy)
    filled = (high - low + 2 * margin).prod().item()
    if size.prod().item() > ROOMY * filled:
        found += f", which fill {filled / size.prod().item():.1%} of it: voxels will be coarse"
        return Check("box", "yellow", found, f"set {tight}")
    return Check("box", "green", found)


def check_near_far(config: SamplerConfig, box: SceneBox, cameras: Cameras, distances: Tensor | None) -> Check:
    """Whether near and far let every ray see the surface. distances [P]: from a camera to a point that it sees."""
    extent, near = world_box(box), max(config.near, box.space.near)
    described, foggy = f"near {near:.3g}, far {config.far:g}", False
    if extent is not None:
        inside = _inside(extent, cameras.centers)
        described += f"; {int(inside.sum())} of {len(cameras)} cameras stand inside the box"
        foggy = bool(inside.any()) and near == 0
    if near >= config.far:
        return Check(
            "near and far", "red", f"{described}: nothing lies between", "set sampler.near below sampler.far"
        )
    if distances is None or len(distances) < MIN_POINTS:
        if foggy:
            remedy = "set sampler.near to less than the distance of the nearest thing"
            return Check("near and far", "yellow", f"{described}, where density can grow before the lens", remedy)
        return Check("near and far", "green", f"{described}; nothing is known of the surface")
    nearest, farthest = (distances.quantile(q).item() for q in (0.005, 0.995))
    described += f"; the surface is seen at {nearest:.3g} to {farthest:.3g}"
    before, behind = (
        (distances < near).float().mean().item(),
        (distances > config.far).float().mean().item(),
    )
    if before > CLIPPED:
        found = f"{described}: near clips {before:.0%} of it"
        return Check("near and far", "red", found, f"set sampler.near={0.5 * nearest:.3g}")
    if behind > CLIPPED:
        found = f"{described}: far clips {behind:.0%} of it"
        return Check("near and far", "red", found, f"set sampler.far={1.5 * farthest:.3g}")
    if foggy:
        found = f"{described}. Inside the box, density can grow before the lens and be fog elsewhere"
        return Check("near and far", "yellow", found, f"set sampler.near={0.5 * nearest:.3g}")
    return Check("near and far", "green", described)


def check_memory(plan: MemoryPlan, free: int, device: str) -> Check:
    """Whether the run fits its device, of which so many bytes are free."""
    share = plan.total / free
    found = f"{plan.total / 2**30:.2f} GiB of {free / 2**30:.2f} GiB that are free on {device}"
    if share < TIGHT:
        return Check("memory", "green", found)
    remedy = (
        "lower field.num_voxels (done by itself on a GPU where it is not given) or train.rays_per_step, raise "
        "dataset.downscale, or set train.images=host on a GPU"
    )
    return Check("memory", "red" if share > TOO_MUCH else "yellow", found, remedy)


def seen_distances(cameras: Cameras, points: Tensor) -> Tensor:
    """Distances [S] from each camera to the points [P,3] that fall into its image, hidden or not."""
    seen = []
    for index in range(len(cameras)):
        pixels, z = cameras.project(index, points)
        size = pixels.new_tensor(cameras.size(index))
        visible = ((pixels >= 0) & (pixels <= size)).all(-1) & (z > 0)
        seen.append((points[visible] - cameras.centers[index]).norm(dim=-1))
    return torch.cat(seen)


def world_box(box: SceneBox) -> Tensor | None:
    """The part of the world [2,3] with the finest cells: a box, or an inner box; None for forward-facing scenes."""
    if isinstance(box.space, FrustumSpace):
        return None
    if isinstance(box.space, ContractedSpace):
        return torch.stack([box.space.center - box.space.half, box.space.center + box.space.half])
    return box.aabb


def _check_frustum(space: FrustumSpace, points: Tensor) -> Check:
    """Whether the near plane of a forward-facing scene lies before what the images show."""
    described = (
        f"forward-facing: all that lies behind a plane {space.near_plane:.3g} before the cameras' middle"
    )
    if len(points) < MIN_POINTS:
        return Check(
            "box", "yellow", f"{described}; nothing is known of the surface", "look at the cameras below"
        )
    depths = (space.c2w[:, 3] - points) @ space.c2w[:, 2]
    behind = (depths > space.near_plane).float().mean().item()
    found = f"{described}, as do {behind:.0%} of {len(points)} surface points"
    if behind < 1 - CLIPPED:
        nearest = depths.quantile(0.005).item()
        remedy = f"set sampler.near={0.5 * nearest:.3g}" if nearest > 0 else "use dataset.kind=unbounded"
        return Check("box", "red" if behind < INSIDE else "yellow", found, remedy)
    return Check("box", "green", found)


def _inside(extent: Tensor, points: Tensor) -> Tensor:
    return ((points >= extent[0]) & (points <= extent[1])).all(-1)


def _sees(cameras: Cameras, index: int, extent: Tensor) -> bool:
    """Whether any point of a lattice in a box [2,3] falls into an image."""
    steps = torch.linspace(0, 1, 9)
    lattice = torch.cartesian_prod(steps, steps, steps) * (extent[1] - extent[0]) + extent[0]
    return len(seen_distances(cameras[index], lattice)) > 0


def _reach(cameras: Cameras, index: int) -> float:
    """Mean distance to the images that one is compared with; infinite where there are none."""
    beside = neighbors(cameras, index)
    if len(beside) == 0:
        return float("inf")
    return (cameras.centers[beside] - cameras.centers[index]).norm(dim=-1).mean().item()


def _of_images(agreement: Agreement, indices: Sequence[int]) -> Agreement:
    chosen = torch.isin(agreement.images, torch.tensor(indices))
    return Agreement(
        *(getattr(agreement, name)[chosen] for name in ("scores", "images", "points", "colors", "distances"))
    )


def _score(name: str, agreement: Agreement) -> ConventionScore:
    return ConventionScore(name, agreement.score, agreement.standard_error)


def _paired_gain(a: Agreement, b: Agreement) -> tuple[float, float]:
    """By how much a is ahead of b, image by image: mean and standard error."""
    first, second = a.by_image(), b.by_image()
    gains = torch.stack([first[image] - second[image] for image in second])
    return gains.mean().item(), (gains.std() / len(gains) ** 0.5).item() if len(gains) > 1 else float("inf")


def _lift(score: float, chance: float) -> float:
    return (score - chance) / max(1 - chance, 1e-6)


def _is_flat(picture: Tensor) -> bool:
    return bool(picture[:3].std() < SAME / 255)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _numbers(vector: Tensor) -> str:
    return ",".join(f"{x:.4g}" for x in vector.tolist())
