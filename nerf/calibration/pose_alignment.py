"""Comparison of poses: alignment of two sets of poses, the remaining errors, and perturbation for experiments.

Legend: I cameras.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nerf.calibration.pose_refinement import scene_distances
from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.cameras.se3 import exponential, rotation_angle
from nerf.config.schema import PosesConfig

ALIGNMENT_ROUNDS = 20
VIEW_ROUNDS = 100
EXACT = 1e-20  # squared misfits below this are rounding errors
OUTLYING = 3.0  # times the median misfit


@dataclass(frozen=True)
class Similarity:
    """x' = scale * rotation @ x + translation."""

    scale: float
    rotation: Tensor  # [3,3] float64
    translation: Tensor  # [3] float64

    def applied(self, cameras: Cameras) -> Cameras:
        """The transformed cameras. They see the transformed scene as the original cameras see the original scene."""
        c2w = cameras.c2w.double()
        center = self.scale * c2w[:, :, 3] @ self.rotation.T + self.translation
        moved = torch.cat([self.rotation @ c2w[:, :, :3], center[:, :, None]], dim=-1)
        return replace(cameras, c2w=moved.to(cameras.c2w))


@dataclass(frozen=True)
class PoseErrors:
    """Errors of aligned poses against the given ones, per camera."""

    rotation: list[float]  # degrees
    translation: list[float]  # world units of the given poses

    def summary(self) -> dict[str, float]:
        """Means and maxima as plain values, for metrics.json."""
        count = len(self.rotation)
        return {
            "rotation_degrees": sum(self.rotation) / count,
            "max_rotation_degrees": max(self.rotation),
            "translation": sum(self.translation) / count,
            "max_translation": max(self.translation),
        }


def align(given: Cameras, learned: Cameras) -> Similarity:
    """The similarity that maps given poses to learned ones, robust against outliers.

    Learned scenes and cameras are determined only up to a similarity. In plain least squares, one camera with a wrong
    pose would distort the alignment of all. So cameras that fit badly get small weights (iteratively reweighted least
    squares, Holland and Welsch 1977, with Cauchy weights).
    """
    source, target = given.c2w.double().cpu(), learned.c2w.double().cpu()
    weights = torch.ones(len(given), dtype=torch.float64)
    for _ in range(ALIGNMENT_ROUNDS):
        fit = _least_squares(source, target, weights / weights.sum())
        squares = _misfits(source, target, fit)
        typical = squares.median()
        if typical < EXACT:
            break
        weights = 1 / (1 + squares / (OUTLYING**2 * typical))
    return fit


def _misfits(source: Tensor, target: Tensor, fit: Similarity) -> Tensor:
    """Squared misfit of each pose [I,3,4]: axes in radians, centers in units of the centers' spread, [I]."""
    axes = (fit.rotation @ source[:, :, :3] - target[:, :, :3]).square().sum((1, 2)) / 2
    spread = fit.scale**2 * (source[:, :, 3] - source[:, :, 3].median(0).values).square().sum(-1).median()
    if spread == 0:
        return axes
    centers = fit.scale * source[:, :, 3] @ fit.rotation.T + fit.translation - target[:, :, 3]
    return axes + centers.square().sum(-1) / spread


def _least_squares(source: Tensor, target: Tensor, weights: Tensor) -> Similarity:
    """The least-squares similarity from source to target poses [I,3,4] (Umeyama 1991), weights [I] with sum 1.

    Centers, in units of their spread, and axes both enter the fit. So cameras at one point or on one line determine the
    rotation, too.
    """
    from_mean, to_mean = weights @ source[:, :, 3], weights @ target[:, :, 3]
    centers, moved = source[:, :, 3] - from_mean, target[:, :, 3] - to_mean
    spread, new_spread = weights @ centers.square().sum(-1), weights @ moved.square().sum(-1)
    covariance = (weights[:, None, None] * (target[:, :, :3] @ source[:, :, :3].mT)).sum(0)
    in_one_place = _vanishes(spread, from_mean) or _vanishes(new_spread, to_mean)
    weighted = weights[:, None] * centers
    if not in_one_place:
        covariance = covariance + moved.T @ weighted / (spread * new_spread).sqrt()
    rotation = _proper(covariance)
    scale = ((moved @ rotation * weighted).sum() / spread).item() if not in_one_place else 1.0
    return Similarity(scale, rotation, to_mean - scale * rotation @ from_mean)


def align_views(start: Similarity, given: Rays, learned: Rays, distances: Tensor, cameras: Tensor) -> Similarity:
    """Refines the result of align by scene points: maps points on the given cameras' rays to those on the learned ones.

    A small rotation and a small translation of a camera can have nearly the same effect on its image, so photos do not
    separate them well. align sees poses only and treats both as errors. If these are alike in all cameras, they add up
    to a wrong rotation and scale of the scene.

    start: the result of align. given, learned: rays [N] through the same pixels. distances [N]: along the learned rays
    to the surface, world units. cameras [N] int64: the camera of each ray; cameras that fit badly get small weights.
    """
    centers, along = given.origins.double(), distances.double()[:, None]
    before, targets = along * given.directions.double(), learned.origins.double() + along * learned.directions.double()
    count = int(cameras.max()) + 1
    of_camera, points = torch.ones(count, dtype=torch.float64), torch.bincount(cameras, minlength=count).clamp(min=1)
    fit = start
    for _ in range(VIEW_ROUNDS):
        weights = of_camera[cameras][:, None] / along.square()  # errors as angles, not as lengths
        weights = weights / weights.sum()
        sources = fit.scale * centers + before
        from_mean, to_mean = (weights * sources).sum(0), (weights * targets).sum(0)
        rotation = _proper(((targets - to_mean) * weights).T @ (sources - from_mean))
        fit = _scaled(centers @ rotation.T, targets - before @ rotation.T, weights, rotation)
        sources = fit.scale * centers + before
        misfits = (sources @ fit.rotation.T + fit.translation - targets).norm(dim=-1) / distances
        squares = torch.bincount(cameras, misfits.square(), minlength=count) / points
        typical = squares[cameras].median()
        if typical < EXACT:
            break
        of_camera = 1 / (1 + squares / (OUTLYING**2 * typical))
    return fit


def _scaled(turned: Tensor, moved: Tensor, weights: Tensor, rotation: Tensor) -> Similarity:
    """The similarity with this rotation that maps points, given after the rotation (turned [N,3]), to moved [N,3]."""
    from_mean, to_mean = (weights * turned).sum(0), (weights * moved).sum(0)
    spread = (weights * (turned - from_mean).square()).sum()
    shared = (weights * (turned - from_mean) * (moved - to_mean)).sum()
    scale = (shared / spread).item() if not _vanishes(spread, from_mean) and shared > 0 else 1.0
    return Similarity(scale, rotation, to_mean - scale * from_mean)


def _vanishes(spread: Tensor, mean: Tensor) -> bool:
    """Whether the mean squared distance from the mean [3] is only rounding, compared with that from the origin."""
    return bool(spread <= EXACT * (spread + mean @ mean))


def _proper(covariance: Tensor) -> Tensor:
    """The rotation, without reflection, that fits a covariance [3,3] best (Umeyama 1991)."""
    u, _, vh = torch.linalg.svd(covariance)
    return u @ torch.diag(torch.tensor([1.0, 1.0, torch.det(u @ vh).sign().item()], dtype=torch.float64)) @ vh


def pose_errors(given: Cameras, learned: Cameras) -> PoseErrors:
    """Rotation and translation errors of learned poses after alignment with the given ones, which are the reference."""
    fit = align(learned, given).applied(learned)
    one, other = given.c2w.double().cpu(), fit.c2w.double().cpu()
    angles = rotation_angle(one[:, :, :3].mT @ other[:, :, :3]) * 180 / math.pi
    return PoseErrors(angles.tolist(), (one[:, :, 3] - other[:, :, 3]).norm(dim=-1).tolist())


def perturbed(cameras: Cameras, config: PosesConfig, seed: int) -> Cameras:
    """Cameras [I] with the pose errors of the config; deterministic for a seed.

    perturb_degrees: rotation of each camera about its center by this angle, about a random axis. perturb_translation:
    displacement of its center in a random direction, as a fraction of its distance to the scene. perturb_sigma:
    standard deviation of the six numbers of an SE(3) increment, radians and world units, applied before world-to-camera
    (Lin et al. 2021, section 4.2).
    """
    if not config.perturbed:
        return cameras
    generator = torch.Generator().manual_seed(seed)
    axes, steps, noise = (torch.randn(len(cameras), n, dtype=torch.float64, generator=generator) for n in (3, 3, 6))
    axes, steps = (torch.nn.functional.normalize(x, dim=-1) for x in (axes, steps))
    c2w = cameras.c2w.double().cpu()
    if config.perturb_sigma > 0:
        rotation, shift = exponential(noise * config.perturb_sigma)
        center = rotation.mT @ (c2w[:, :, 3:] - shift[:, :, None])
        c2w = torch.cat([rotation.mT @ c2w[:, :, :3], center], dim=-1)
    angle = math.radians(config.perturb_degrees)
    rotation, _ = exponential(torch.cat([angle * axes, torch.zeros_like(axes)], dim=-1))
    distance = config.perturb_translation * scene_distances(cameras).double().cpu()
    center = c2w[:, :, 3] + distance[:, None] * steps
    moved = torch.cat([c2w[:, :, :3] @ rotation, center[:, :, None]], dim=-1)
    return replace(cameras, c2w=moved.to(cameras.c2w))
