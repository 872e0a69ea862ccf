"""Cameras that are learned with the scene (BARF, Lin et al. 2021): bounded SE(3) increments on given poses.

An increment moves its camera about the point that it looks at, as far away as the middle of the scene: a rotation then
turns the scene in the image and a translation shifts it. About the camera's own centre both would shift it, and Adam,
which scales each number on its own, would zigzag between them. Increments are in the camera's axes, angles in radians
and translations as shares of the distance to the scene, and a step of any number moves the image by about as much: one
learning rate serves every number and every scene.

Until poses have settled, colour does not see the direction (Field.view_weight): else every camera gets the colours that
hide its error, and nothing pulls it any more.

A scene that has long learned from wrong poses explains the photos with fog that holds them fast: in a box poses move
from the first step on, and after PosesConfig.warmup_steps as fast as they ever will, however long the run.

Samples keep their place t along the ray: positions differentiate through the ray's origin and direction. Colour takes
the direction as given: that a surface looks different from elsewhere says little about where the camera is.

Legend: R rays, I cameras.
"""

import math
from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor, nn

from nerf.cameras.cameras import Cameras, posed_rays
from nerf.cameras.poses import estimate_target
from nerf.cameras.rays import Rays
from nerf.cameras.se3 import exponential
from nerf.config.schema import PosesConfig
from nerf.ops.backend import Backend
from nerf.optim.adam import MaskedAdam, ParameterGroup
from nerf.optim.clock import RunClock
from nerf.scene.box import SceneBox

MAX_LENS_SHIFT = 0.2  # of intrinsics: as the logarithm of the focal length, and as a share of it
SETTLING = 0.2  # share of the run over which poses come to rest, so that the scene is sharp where they end
VIEW_RISE = 0.1  # share of the run over which colour comes to see the direction


class PoseRefinement(nn.Module):
    """The increments of I cameras, and on request one correction of the intrinsics that all of them share."""

    def __init__(
        self, cameras: Cameras, radius: float, config: PosesConfig, backend: Backend, keep_scale: bool = True
    ) -> None:
        """cameras: as given, on the backend's device. radius: of the scene, world units (scene_radius).

        keep_scale: the cameras do not all draw back together. Where the scene is learned too it would follow: nothing
        tells its size, and a larger one has finer voxels.
        """
        super().__init__()
        self.given, self.config, self.backend, self.keep_scale = cameras, config, backend, keep_scale
        self.distances = scene_distances(cameras)
        angle = (self.distances / radius).clamp(min=1)
        one = torch.ones_like(angle)
        self.units = torch.stack([angle, angle, angle, one, one, angle], dim=-1)
        self.increments = nn.Parameter(cameras.c2w.new_zeros(len(cameras), 6))
        self.lens = nn.Parameter(cameras.c2w.new_zeros(1, 4)) if config.intrinsics else None
        # Made here, for a recorded step cannot take numbers from the host.
        self.limits = cameras.c2w.new_tensor([math.radians(config.max_rotation)] * 3 + [config.max_translation] * 3)
        self.backward_axis = cameras.c2w.new_tensor([0.0, 0.0, 1.0])
        self.view_weight = cameras.c2w.new_zeros(1)
        self.optimizer = MaskedAdam(self, config.beta1, config.beta2, backend)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Every parameter with its initial learning rate."""
        groups = [ParameterGroup("increments", self.increments, (self.config.lr,))]
        if self.lens is not None:
            groups.append(ParameterGroup("lens", self.lens, (self.config.lr_intrinsics,)))
        return groups

    def advance(self, clock: RunClock) -> None:
        """Sets the learning rates of a run that has come so far; called outside of a CUDA graph."""
        config, progress = self.config, clock.progress
        share = max(0.0, (progress - config.start) / (1 - config.start))
        moving = max(_part(share, config.warmup), _part(clock.step, config.warmup_steps))
        moving = moving if progress >= config.start else 0.0
        settling = min(1.0, (1 - share) / SETTLING)
        self.optimizer.decay.fill_(moving * settling * config.lr_decay**share)
        self.view_weight.fill_(min(1.0, max(0.0, (progress - config.view_from) / VIEW_RISE)))

    def bounded(self) -> Tensor:
        """The increments [I,6], their rotations and translations each shorter than their limit."""
        x = self.increments * self.units
        if self.keep_scale:
            x = torch.cat([x[:, :5], x[:, 5:] - x[:, 5:].mean()], dim=-1)
        x = (x / self.limits).view(-1, 2, 3)
        x = x / (1 + x.square().sum(-1, keepdim=True)).sqrt()
        return x.view(-1, 6) * self.limits

    def c2w(self) -> Tensor:
        """Refined poses [I,3,4]: T exp(increment) T^-1 behind the given ones, T moving to the pivot."""
        rotation, shift = exponential(self.bounded())
        # From the pivot, one distance in front, the camera is at +z; where the rotation takes it is its new place.
        moved = (rotation[:, :, 2] - self.backward_axis + shift) * self.distances[:, None]
        axes, center = self.given.c2w[:, :, :3], self.given.c2w[:, :, 3]
        return torch.cat([axes @ rotation, (axes @ moved[:, :, None]) + center[:, :, None]], dim=-1)

    def rays_through(self, pixel_indices: Tensor, per_pixel: int = 1, ops: ModuleType | None = None) -> Rays:
        """Rays of the refined cameras through pixels [P], differentiable in the increments.

        pixel_indices, per_pixel: see Cameras.rays_through. ops: not asked, its camera_rays has no derivative.
        """
        points, image = self.given.plane_points(pixel_indices, per_pixel)
        if self.lens is not None:
            scale, shift = self._lens()
            points = points * scale + shift
        in_camera = self.given.directions_through(points, image)
        poses = take_rows(self.c2w().flatten(1), image, self.backend)
        return posed_rays(in_camera, poses.view(-1, 3, 4), per_pixel)

    def _lens(self) -> tuple[Tensor, Tensor]:
        """Factors on what Cameras.plane_points gives, x and y [2], and what is added to it [2]."""
        scale, shift = (MAX_LENS_SHIFT * torch.tanh(self.lens[0] / MAX_LENS_SHIFT)).view(2, 2)
        return scale.exp(), shift

    @torch.no_grad()
    def refined(self) -> Cameras:
        """The cameras as they are learned now."""
        intrinsics = self.given.intrinsics
        if self.lens is not None:
            scale, shift = self._lens()
            focal = intrinsics[:, :2] / scale
            intrinsics = torch.cat([focal, intrinsics[:, 2:] - shift * focal], dim=-1)
        return replace(self.given, c2w=self.c2w(), intrinsics=intrinsics)

    def step(self, taken: Tensor | None = None) -> None:
        """One step of Adam with the gradients in place, which are dropped. taken: see MaskedAdam.step."""
        self.optimizer.step(taken)


def _part(done: float, whole: float) -> float:
    """How much of the whole is done, in [0, 1]; all where there is nothing to do."""
    return min(1.0, done / whole) if whole > 0 else 1.0


def coarse_to_fine(config: PosesConfig, num_voxels: int) -> list[float]:
    """Shares of the run at which voxels double, evenly from the coarsest grid on.

    A photo that is off by less than a voxel still pulls its camera the right way (as Lin et al. 2021, section 3.2).
    """
    doublings = max(0, round(math.log2(num_voxels / config.coarsest)))
    return [config.finest_at * (count + 1) / doublings for count in range(doublings)]


def take_rows(table: Tensor, index: Tensor, backend: Backend) -> Tensor:
    """Rows [R,C] of a short table [I,C] at index [R]; the gradients of many takers are added up by index_add."""
    return _TakeRows.apply(table, index, backend.ops.index_add)


class _TakeRows(torch.autograd.Function):
    """Selects rows; backward is our own operation, made for few targets of many rows."""

    @staticmethod
    def forward(ctx, table, index, index_add):
        ctx.save_for_backward(index)
        ctx.shape, ctx.index_add = table.shape, index_add
        return table.index_select(0, index)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        total = grad.new_zeros(ctx.shape)
        ctx.index_add(total, 0, ctx.saved_tensors[0], grad)
        return total, None, None


def scene_radius(box: SceneBox) -> float:
    """Root mean square distance of a box's points from its middle, world units.

    Infinite for forward-facing scenes, which go on behind what the cameras look at.
    """
    if box.space.kind == "forward":
        return math.inf
    return box.size.norm().item() / math.sqrt(12)


def scene_distances(cameras: Cameras) -> Tensor:
    """How far each camera is from what they all look at, [I] in world units.

    Cameras that look at no common point (side by side, or outwards) count as far from the scene as from each other.
    """
    c2w = cameras.c2w.double().cpu()
    centers = c2w[:, :, 3]
    try:
        distances = (centers - estimate_target(c2w)).norm(dim=-1)
    except ValueError:
        spread = (centers - centers.mean(0)).norm(dim=-1).max().item()
        distances = torch.full((len(cameras),), spread if spread > 0 else 1.0, dtype=torch.float64)
    return distances.clamp(min=1e-3 * distances.max().item()).to(cameras.c2w)
