"""Pose refinement: camera poses that are learned with the scene (BARF, Lin et al. 2021), as bounded SE(3) increments.

Pivot. An increment moves its camera about a point in front of it, at the distance of the scene's middle. Then a
rotation turns the scene in the image and a translation shifts it. About the camera's own center, both would shift it,
and Adam, which scales each number separately, would zigzag between them. Increments are in the camera's axes: angles in
radians, translations as fractions of the distance to the scene. A step of any of the six numbers moves the image by
about the same amount, so one learning rate serves all numbers and scenes.

View dependence. Until poses have settled, color does not depend on the direction (Field.view_weight). Otherwise each
camera would get colors that hide its pose error, and its gradient would vanish.

Schedule. A scene that is trained long with wrong poses explains the photos by fog, which then holds the poses. So in a
box poses move from the first step, and at full rate after PosesConfig.warmup_steps, however long the run is.

Gradients. Samples keep their t along the ray, and positions are differentiated through the ray's origin and direction.
The view direction of color is detached: it carries little information about the pose.

Legend: R rays, I cameras.
"""

import math
from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor, nn

from nerf.cameras.cameras import Cameras, posed_rays
from nerf.cameras.panoramas import common_target
from nerf.cameras.rays import Rays
from nerf.cameras.se3 import exponential
from nerf.config.schema import PosesConfig
from nerf.errors import UserError
from nerf.ops.backend import Backend
from nerf.optim.adam import MaskedAdam, ParameterGroup
from nerf.optim.clock import RunClock
from nerf.scene.box import SceneBox

MAX_LENS_SHIFT = 0.2  # bound of the intrinsics' correction: log focal length, and principal point in focal lengths
SETTLING = 0.2  # fraction of the run at its end in which the rate falls to 0, so that the scene becomes sharp
VIEW_RISE = 0.1  # fraction of the run in which the weight of the view direction rises from 0 to 1


class PoseRefinement(nn.Module):
    """The pose increments of I cameras and, optionally, one correction of the intrinsics for all cameras."""

    def __init__(
        self, cameras: Cameras, radius: float, config: PosesConfig, backend: Backend, keep_scale: bool = True
    ) -> None:
        """cameras: the given ones, on the backend's device. radius: of the scene, world units (scene_radius).

        keep_scale: fixes the cameras' mean distance to the scene. If the scene is learned too, its scale is
        undetermined and would drift, because a larger scene has finer voxels. Raises UserError where intrinsics are
        to be learned of panoramas.
        """
        super().__init__()
        if config.intrinsics and cameras.has_panoramas:
            raise UserError(
                "poses.intrinsics=true learns focal length and principal point, which panoramas (EQUIRECTANGULAR) do "
                "not have; set poses.intrinsics=false."
            )
        self.given, self.config, self.backend, self.keep_scale = cameras, config, backend, keep_scale
        self.distances = scene_distances(cameras)
        angle = (self.distances / radius).clamp(min=1)
        one = torch.ones_like(angle)
        self.units = torch.stack([angle, angle, angle, one, one, angle], dim=-1)
        self.increments = nn.Parameter(cameras.c2w.new_zeros(len(cameras), 6))
        self.lens = nn.Parameter(cameras.c2w.new_zeros(1, 4)) if config.intrinsics else None
        # Tensors, because a captured step cannot read numbers from the host.
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

    def set_progress(self, clock: RunClock) -> None:
        """Sets learning rates and view_weight for the clock's progress. Call it outside of a CUDA graph."""
        config, progress = self.config, clock.progress
        fraction = max(0.0, (progress - config.start) / (1 - config.start))
        rise = max(_part(fraction, config.warmup), _part(clock.step, config.warmup_steps))
        rise = rise if progress >= config.start else 0.0
        fall = min(1.0, (1 - fraction) / SETTLING)
        self.optimizer.decay.fill_(rise * fall * config.lr_decay**fraction)
        self.view_weight.fill_(min(1.0, max(0.0, (progress - config.view_dependence_start) / VIEW_RISE)))

    def bounded(self) -> Tensor:
        """The increments [I,6], with rotation and translation each bounded by its limit."""
        x = self.increments * self.units
        if self.keep_scale:
            x = torch.cat([x[:, :5], x[:, 5:] - x[:, 5:].mean()], dim=-1)
        x = (x / self.limits).view(-1, 2, 3)
        x = x / (1 + x.square().sum(-1, keepdim=True)).sqrt()
        return x.view(-1, 6) * self.limits

    def c2w(self) -> Tensor:
        """Refined poses [I,3,4]: given pose times T exp(increment) T^-1, where T translates to the pivot."""
        rotation, shift = exponential(self.bounded())
        # The camera is at +z, one distance from the pivot; its rotated position is the new one.
        moved = (rotation[:, :, 2] - self.backward_axis + shift) * self.distances[:, None]
        axes, center = self.given.c2w[:, :, :3], self.given.c2w[:, :, 3]
        return torch.cat([axes @ rotation, (axes @ moved[:, :, None]) + center[:, :, None]], dim=-1)

    def rays_through(self, pixel_indices: Tensor, per_pixel: int = 1, ops: ModuleType | None = None) -> Rays:
        """Rays of the refined cameras through pixels [P], differentiable in the increments.

        pixel_indices, per_pixel: see Cameras.rays_through. ops: unused, because its camera_rays has no derivative.
        """
        points, image = self.given.plane_points(pixel_indices, per_pixel)
        if self.lens is not None:
            scale, shift = self._lens()
            points = points * scale + shift
        in_camera = self.given.directions_through(points, image)
        poses = take_rows(self.c2w().flatten(1), image, self.backend)
        return posed_rays(in_camera, poses.view(-1, 3, 4), per_pixel)

    def _lens(self) -> tuple[Tensor, Tensor]:
        """Scale [2] and shift [2] of the points of Cameras.plane_points, x and y."""
        scale, shift = (MAX_LENS_SHIFT * torch.tanh(self.lens[0] / MAX_LENS_SHIFT)).view(2, 2)
        return scale.exp(), shift

    @torch.no_grad()
    def refined(self) -> Cameras:
        """The cameras with their current poses and intrinsics."""
        intrinsics = self.given.intrinsics
        if self.lens is not None:
            scale, shift = self._lens()
            focal = intrinsics[:, :2] / scale
            intrinsics = torch.cat([focal, intrinsics[:, 2:] - shift * focal], dim=-1)
        return replace(self.given, c2w=self.c2w(), intrinsics=intrinsics)

    def step(self, apply: Tensor | None = None) -> None:
        """One Adam step with the current gradients, which are then dropped. apply: see MaskedAdam.step."""
        self.optimizer.step(apply)


def _part(done: float, whole: float) -> float:
    """done / whole, at most 1; 1 if whole is 0."""
    return min(1.0, done / whole) if whole > 0 else 1.0


def take_rows(table: Tensor, index: Tensor, backend: Backend) -> Tensor:
    """Rows [R,C] of a short table [I,C] at index [R] int64; the backward pass adds up gradients with index_add."""
    return _TakeRows.apply(table, index, backend)


class _TakeRows(torch.autograd.Function):
    """index_select whose backward pass is our own operation, which is fast for many rows with few targets."""

    @staticmethod
    def forward(ctx, table, index, backend):
        ctx.save_for_backward(index)
        ctx.shape, ctx.backend = table.shape, backend
        return table.index_select(0, index)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        total = grad.new_zeros(ctx.shape)
        ctx.backend.ops.index_add(total, 0, ctx.saved_tensors[0], grad, deterministic=ctx.backend.deterministic)
        return total, None, None


def scene_radius(box: SceneBox) -> float:
    """Root mean square distance of the points of a box from its center, world units.

    Infinite for forward-facing scenes, which have no far end.
    """
    if box.space.kind == "forward_facing":
        return math.inf
    return box.size.norm().item() / math.sqrt(12)


def scene_distances(cameras: Cameras) -> Tensor:
    """The distance of each camera to the common point of their optical axes, [I] in world units.

    If the axes have no common point (parallel, pointing outwards, or those of panoramas), it is the cameras' largest
    distance from their mean.
    """
    c2w = cameras.c2w.double().cpu()
    centers = c2w[:, :, 3]
    try:
        distances = (centers - common_target(cameras)).norm(dim=-1)
    except ValueError:
        spread = (centers - centers.mean(0)).norm(dim=-1).max().item()
        distances = torch.full((len(cameras),), spread if spread > 0 else 1.0, dtype=torch.float64)
    return distances.clamp(min=1e-3 * distances.max().item()).to(cameras.c2w)
