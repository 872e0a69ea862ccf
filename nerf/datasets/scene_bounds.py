"""What kind of scene a capture shows, and its box, near and far, from cameras, sparse points and depth bounds.

Where a format tells no depth, a plane sweep over the photos does (nerf/datasets/swept_depths.py).

bounded: an object in a box and cameras around it, nothing else is visible. forward_facing: cameras on about one plane
that face one way. unbounded: everything else; its box is the inner part, at which cameras look.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from nerf.datasets.camera_rig import CameraRig, camera_rig
from nerf.datasets.capture import FEWEST_POINTS, POINT_QUANTILES, Capture, Frame
from nerf.datasets.swept_depths import SweptDepths
from nerf.errors import UserError
from nerf.scene.description import SceneDescription

# Forward-facing: 90% of the cameras look this close to one direction (fern: 9 degrees; fox, on one side of it: 48),
FORWARD_ANGLE = math.radians(30)
# and along it they stand within this fraction of the nearest depth, so that one plane lies in front of all of them
# (fern: 0.07; room: 0.2, whose cameras move through it: as a forward-facing scene it loses 2 dB).
FORWARD_DEPTH_FRACTION = 0.15
# Axes that meet in one point to this fraction of the distance were placed by a program or a turntable (lego: 1e-7; by
# hand 0.02 to 0.13).
EXACT_AXES = 5e-3
# What lies within this fraction of the camera distance from the target is the object.
OBJECT_FRACTION = 0.6
DEPTH_QUANTILES = (0.001, 0.999)
NEAR_SHARE = 0.05  # of the cameras whose own nearest depth is taken for a mistake
SWEPT_QUANTILES = (0.01, 0.99)  # of a few hundred points
FEW = 0.1  # of what panoramas see is nearer to them than the sides of their inner box
INSIDE_SHARE = 0.05  # of the cameras may stand in the box of an object of which no points are known
BOX_MARGIN = 0.05  # of the edge, on each side: sparse points stop short of the surfaces' ends
THINNEST = 0.02  # of the box's longest edge: points on one plane make no grid
LEAST_SEEN = 0.55  # of what the median camera sees around points, as a bare table has none
NEAR_MARGIN = 0.75  # of the nearest depth that is known: sparse points miss what lies nearer; as NeRF has it for LLFF
NEAR_FRACTION = 0.05  # of the median camera distance, where no depth is known

TRANSPARENT = "The photos are transparent around the object, so it is alone in a box."
OUTLINED = "Box: around what no photo shows as transparent."  # nerf/scene/visual_hull.py
ALONE = "The photos show an object before one even color, so it is alone in a box."
SOMETHING_AROUND = "The photos have no one even color along their edges, so they show what lies around the object too."


def describe_capture(
    capture: Capture,
    has_alpha: bool | None = None,
    sweep: Callable[[], SweptDepths] | None = None,
    alone: Callable[[], bool | None] | None = None,
) -> SceneDescription:
    """The kind of the scene that a capture shows, its box [2,3] float64, near and far, each with its reason.

    The box is the whole scene, of an unbounded one its inner part. Near and far are where rays may begin and end:
    distances along them, of a forward-facing scene depths (camera z).

    has_alpha: whether the photos store transparency, which says that the background was removed; None: not known.
    sweep: looks for depths in the photos; asked where the capture tells none and the scene is not in a box.
    alone: whether the photos show an object before one even color (True) or more around it (False), None: they do not
    say; asked of cameras around a place without alpha. A bare wall has no points, so cameras and points cannot tell.
    Training frames decide where there are splits. Raises UserError for frames from which no depth follows: cameras in
    one place without points and bounds.
    """
    rows = [index for index, frame in enumerate(capture.frames) if frame.split in (None, "train")]
    rows = rows or list(range(len(capture.frames)))
    frames = [capture.frames[index] for index in rows]
    bounds = None if capture.bounds is None else capture.bounds[rows]
    capture, bounds, why_not = _telling(capture, bounds)
    rig = camera_rig(frames)
    depths = _known_depths(capture.points, bounds, rig)
    kind, why = _kind(capture, rig, bounds, depths, has_alpha, alone)
    if depths is None and sweep is not None and kind != "bounded":
        depths, said = _swept_depths(sweep(), rig)
        why_not += said
        kind, why = _kind(capture, rig, bounds, depths, has_alpha, alone)
    extent = {"bounded": _box, "forward_facing": _forward_facing, "unbounded": _unbounded}[kind](
        capture, rig, frames, depths
    )
    how = [OUTLINED] if kind == "bounded" and has_alpha else extent.how
    box = torch.from_numpy(extent.aabb)
    return SceneDescription(kind, box, extent.near, extent.far, (*why_not, *why, *how), extent.bare)


def _telling(capture: Capture, bounds: np.ndarray | None) -> tuple[Capture, np.ndarray | None, list[str]]:
    """Capture and depth bounds without points that are too few to tell anything, and what is said about it.

    Bounds beside points were taken from them. A model for known poses often has no points at all.
    """
    points = capture.points
    if points is None or capture.has_points:
        return capture, bounds, []
    if len(points) < FEWEST_POINTS:
        said = f"Too few sparse points to tell where the scene is: {len(points)}, expected at least {FEWEST_POINTS}."
    else:
        said = f"The {len(points)} sparse points are all in one place, which does not tell where the scene is."
    return replace(capture, points=None), None, [said]


@dataclass(frozen=True)
class _Extent:
    """Where a scene is, and how that was found."""

    aabb: np.ndarray  # [2,3]
    near: float
    far: float
    how: list[str]
    bare: bool = False  # SceneDescription


@dataclass(frozen=True)
class _Depths:
    """Nearest and farthest depth that is known, one that few are nearer than, and whence."""

    near: float
    far: float
    source: str
    rarely: float  # FEW are nearer


def _known_depths(points: np.ndarray | None, bounds: np.ndarray | None, rig: CameraRig) -> _Depths | None:
    if bounds is not None:  # the smallest of a few images may be one outlier of many points
        near, far = np.quantile(bounds[:, 0], NEAR_SHARE), np.quantile(bounds[:, 1], 1 - NEAR_SHARE)
        return _Depths(float(near), float(far), "the depth bounds of the images", float(near))
    if points is None:
        return None
    return _seen_depths(points, rig, DEPTH_QUANTILES, f"{len(points)} sparse points")


def _seen_depths(points: np.ndarray, rig: CameraRig, ends: tuple[float, float], source: str) -> _Depths | None:
    """What points tell, near and far at two quantiles of the depths at which cameras see them; None if none does.

    Panoramas see what is far from most of them and near to one: near is that of the cameras' own nearest depths, but
    for a share of mistakes.
    """
    each = [depths for depths in rig.depths(points) if len(depths)]
    if not each:
        return None
    near, rarely, far = np.quantile(np.concatenate(each), [ends[0], FEW, ends[1]])
    if rig.panoramas.any():
        nearest = [np.quantile(depths, DEPTH_QUANTILES[0]) for depths in each]
        near = np.quantile(nearest, NEAR_SHARE, method="lower")
    return _Depths(float(near), float(far), source, float(rarely))


def _swept_depths(swept: SweptDepths, rig: CameraRig) -> tuple[_Depths | None, list[str]]:
    """The depths that a plane sweep found, rounded, so that every machine finds the same; else why there are none."""
    found = None if swept.points is None else _seen_depths(swept.points, rig, SWEPT_QUANTILES, swept.said)
    if found is None:
        return None, [f"No depth is known: not by the format, nor by {swept.said}."]
    near, far, rarely = (float(f"{depth:.3g}") for depth in (found.near, found.far, found.rarely))
    return _Depths(near, far, swept.said, rarely), []


def _kind(
    capture: Capture,
    rig: CameraRig,
    bounds: np.ndarray | None,
    depths: _Depths | None,
    has_alpha: bool | None,
    alone: Callable[[], bool | None] | None,
) -> tuple[str, list[str]]:
    if capture.aabb is not None:
        return "bounded", ["The format gives the scene's box."]
    if has_alpha:
        return "bounded", [TRANSPARENT]
    if rig.panoramas.any():
        return "unbounded", [f"{int(rig.panoramas.sum())} panoramas see in all directions: the scene lies around them."]
    turn = float(np.quantile(rig.turns, 0.9))
    looks = f"90% of the {len(rig.centers)} cameras look within {math.degrees(turn):.0f} degrees of one direction"
    limit = f"{math.degrees(FORWARD_ANGLE):.0f}"
    if turn <= FORWARD_ANGLE:
        along = float(np.ptp(rig.centers @ rig.mean_forward))
        nearest = depths.near if depths else _reach(rig)
        stand = f"stand within {along:.3g} along it, with the nearest depth at {nearest:.3g}"
        if along <= FORWARD_DEPTH_FRACTION * nearest:
            return "forward_facing", [
                f"{looks} (forward-facing: at most {limit}) and {stand}: one plane is before them all."
            ]
        return "unbounded", [f"{looks}, but they {stand}: they move on through the scene, so it has no end."]
    around = f"{looks} (forward-facing: at most {limit})"
    if rig.target is None:
        return "unbounded", [f"{around}, and they look at nothing in common: the scene lies around them."]
    seen = None if alone is None else alone()
    if seen:
        return "bounded", [f"{around}. {ALONE}"]
    kind, why = _kind_around(capture, rig, bounds)
    why = [f"{around}; {why}"]
    return ("unbounded", [*why, SOMETHING_AROUND]) if kind == "bounded" and seen is False else (kind, why)


def _kind_around(capture: Capture, rig: CameraRig, bounds: np.ndarray | None) -> tuple[str, str]:
    """Of cameras around a place, as their points, their bounds or else their axes tell: the kind, and why."""
    distance = float(np.median(rig.distances))
    if capture.points is not None:
        reach = float(np.quantile(np.linalg.norm(capture.points - rig.target, axis=1), 0.99)) / distance
        said = f"99% of the sparse points lie within {reach:.2f} of the camera distance from what the cameras look at"
    elif bounds is not None:
        reach = float(np.quantile(bounds[:, 1] / rig.distances, 0.9)) - 1
        said = f"the depth bounds end {reach:.2f} of the camera distance behind what the cameras look at"
    else:
        miss = float(np.median(rig.axis_misses)) / distance
        said = f"their axes miss what they look at by {miss:.2g} of the distance"
        if miss <= EXACT_AXES:
            return "bounded", f"{said}, as a program or a turntable places them around an object in a box."
        return "unbounded", f"{said}, as hands do, so the photos show what lies behind the object too."
    kind = "bounded" if reach <= OBJECT_FRACTION else "unbounded"
    return kind, f"{said} (an object alone: at most {OBJECT_FRACTION})."


def _reach(rig: CameraRig) -> float:
    """A depth for cameras of which none is known: to what they look at, else as far as they stand apart."""
    return float(np.median(rig.distances)) if rig.target is not None else rig.baseline


def _box(capture: Capture, rig: CameraRig, frames: Sequence[Frame], depths: _Depths | None) -> _Extent:
    if capture.aabb is not None:
        aabb, how = capture.aabb, "Box: as the format gives it."
    elif capture.points is not None:
        aabb = _around(capture.points)
        how = f"Box: around {_share()} of {len(capture.points)} sparse points along each axis, {BOX_MARGIN:.0%} wider."
    elif rig.target is not None:
        half = float((rig.distances * rig.slopes.max(axis=1)).max())
        said = "as much as the widest sees there"
        free = float(np.quantile(np.abs(rig.centers - rig.target).max(axis=1), INSIDE_SHARE))
        if half > free:  # one camera from afar would put the others into the box
            half, said = free, f"up to the nearest {INSIDE_SHARE:.0%} of the cameras"
        aabb = np.stack([rig.target - half, rig.target + half])
        how = f"Box: a cube of edge {2 * half:.3g} around what the cameras look at, {said}."
    else:
        raise UserError(
            f"{capture.root}: the cameras look at nothing in common and there are no points, so the box of the object "
            "cannot be found; set dataset.aabb."
        )
    to_box = np.maximum(0, np.maximum(aabb[0] - rig.centers, rig.centers - aabb[1]))
    to_corner = np.maximum(np.abs(aabb[0] - rig.centers), np.abs(aabb[1] - rig.centers))
    far = float(np.linalg.norm(to_corner, axis=1).max())
    gap = float(np.linalg.norm(to_box, axis=1).min())
    near = max(gap, NEAR_FRACTION * float(np.linalg.norm(rig.centers - aabb.mean(axis=0), axis=1).mean()))
    if depths and gap == 0:
        near = min(near, NEAR_MARGIN * depths.near)
    if gap:
        begin = f"Rays begin at the box, at least {near:.3g} from their cameras"
    else:
        begin = f"Some cameras are inside the box, where rays begin at the camera (sampler.near={near:.3g}: later)"
    return _Extent(aabb, near, far, [how, f"{begin}; they end at most {far:.3g} from it."])


def _forward_facing(capture: Capture, rig: CameraRig, frames: Sequence[Frame], depths: _Depths | None) -> _Extent:
    near, how = _near(capture, rig, depths)
    if depths:
        far, until = depths.far, depths.source
    else:
        far, until = _parallax_far(rig, frames, near)
    corners = rig.frusta_corners(near, far)
    aabb = np.stack([corners.min(axis=0), corners.max(axis=0)])
    seen = "Box: around what the cameras see between near and far."
    return _Extent(aabb, near, far, [how, f"Far {far:.3g}: {until}.", seen])


def _unbounded(capture: Capture, rig: CameraRig, frames: Sequence[Frame], depths: _Depths | None) -> _Extent:
    near, how = _near(capture, rig, depths)
    far, until = _parallax_far(rig, frames, depths.far if depths else near)
    aabb, box, bare = _inner_box(capture, rig, depths)
    return _Extent(aabb, near, far, [box, how, f"Far {far:.3g}: {until}."], bare)


def _inner_box(capture: Capture, rig: CameraRig, depths: _Depths | None) -> tuple[np.ndarray, str, bool]:
    """The inner box [2,3], how it was found, and whether what is seen around its points has none."""
    if rig.panoramas.any():
        wider = depths.rarely if depths else rig.baseline
        said = f"{1 - FEW:.0%} of what is seen is farther away" if depths else "as far as they stand apart"
        low, high = rig.centers.min(axis=0) - wider, rig.centers.max(axis=0) + wider
        return np.stack([low, high]), f"Inner box: {wider:.3g} around the cameras on all sides, {said}.", False
    if rig.target is None:
        middle = rig.centers.mean(axis=0)
        half = depths.near + rig.baseline if depths else rig.baseline
        around = "the cameras, which look at nothing in common, and what is near them"
        said = f"Inner box: a cube of edge {2 * half:.3g} around {around}."
        return np.stack([middle - half, middle + half]), said, False
    if capture.points is not None:
        offsets = np.linalg.norm(capture.points - rig.target, axis=1)
        nearer = capture.points[offsets < np.median(rig.distances)]
        if len(nearer) >= 0.5 * len(capture.points):
            return _around_points(nearer, rig)
    half, free = rig.seen_around(rig.target)
    said = "as much as the median camera sees there"
    if half > free:
        half, said = free, "up to the nearest camera"
    said = f"Inner box: a cube of edge {2 * half:.3g} around what the cameras look at, {said}."
    return np.stack([rig.target - half, rig.target + half]), said, False


def _around_points(points: np.ndarray, rig: CameraRig) -> tuple[np.ndarray, str, bool]:
    """An inner box around points, which holds some of what cameras see around them too; whether it had to grow."""
    aabb = _around(points)
    said = f"{_share()} of the {len(points)} sparse points that are nearer than the median camera, "
    said += f"{BOX_MARGIN:.0%} wider"
    middle, half = aabb.mean(axis=0), np.ptp(aabb, axis=0) / 2
    seen, free = rig.seen_around(middle)
    least = min(LEAST_SEEN * seen, free)
    bare = bool((half < least).any())
    if bare:
        half = np.maximum(half, least)
        said += f", and no narrower than {2 * least:.3g}, as what the median camera sees around them has hardly any"
    return np.stack([middle - half, middle + half]), f"Inner box: around {said}.", bare


def _near(capture: Capture, rig: CameraRig, depths: _Depths | None) -> tuple[float, str]:
    if depths:
        near = NEAR_MARGIN * depths.near
        return near, f"Near {near:.3g}: {NEAR_MARGIN:.0%} of the nearest depth by {depths.source}."
    near = NEAR_FRACTION * _reach(rig)
    if near == 0:
        raise UserError(
            f"{capture.root}: all cameras stand in one place and there are no points, so no depth follows; set "
            "dataset.aabb, sampler.near and sampler.far, or take photos from several places."
        )
    return (
        near,
        f"Near {near:.3g}: {NEAR_FRACTION:.0%} of the median distance to what the cameras look at; no depth is known.",
    )


def _parallax_far(rig: CameraRig, frames: Sequence[Frame], least: float) -> tuple[float, str]:
    """The depth at which the cameras' baseline moves a point by one pixel: what lies beyond is a backdrop."""
    focal = float(np.median([frame.intrinsics[0] for frame in frames]))
    far = max(rig.baseline * focal, 2 * least)
    return far, f"the cameras, {rig.baseline:.3g} apart, see a pixel of parallax there, and none beyond"


def _around(points: np.ndarray) -> np.ndarray:
    """The box [2,3] of the points' quantiles with a margin, in no direction thinner than THINNEST."""
    low, high = np.quantile(points, POINT_QUANTILES, axis=0)
    edges = high - low
    margin = np.maximum(BOX_MARGIN * edges, 0.5 * (THINNEST * edges.max() - edges))
    return np.stack([low - margin, high + margin])


def _share() -> str:
    return f"{POINT_QUANTILES[1] - POINT_QUANTILES[0]:.0%}"
