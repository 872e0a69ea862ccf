"""Gaussians to pixels, differentiably: the splatting of Zwicker et al. 2001 as Kerbl et al. 2023 have it.

Each Gaussian is projected to an ellipse on the image plane. The pairs of a pixel and an ellipse that covers it are
sorted by pixel and then by depth, and composited by the operation that composites samples along rays. To fit colors,
every n-th pixel of rows and columns is enough; all Gaussians still take part.

Legend: N Gaussians, M pairs, R pixels.
"""

from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import OPENCV_SIGNS
from nerf.cameras.se3 import rotation_from_quaternion
from nerf.export.splats.gaussians import Gaussians

BLUR = 0.3  # added to the variance in both directions, in pixels: no ellipse falls between pixel centers
FAINTEST, MOST_OPAQUE = 1 / 255, 0.99  # opacities of a pair: below, it is left out; above, it is cut
MIN_TRANSMITTANCE = 1e-4
NEAREST = 0.01  # depth in front of the camera, in distances of the Gaussians' median
MARGIN = 1.3  # tangents beyond this many half fields of view are cut where the projection is linearized


@dataclass(frozen=True)
class Lattice:
    """Which pixels of a picture are rendered: every n-th column and row, from the first one on."""

    stride: int = 1
    column: int = 0
    row: int = 0

    def of(self, image: Tensor) -> Tensor:
        """The pixels of an image [H,W,...], in the order in which they are rendered."""
        return image[self.row :: self.stride, self.column :: self.stride].flatten(0, 1)


def rasterize(
    gaussians: Gaussians, cameras: Cameras, index: int, ops: ModuleType, lattice: Lattice = Lattice()
) -> tuple[Tensor, Tensor]:
    """Light [R,3], not over any background, and opacity [R] of the pixels of the lattice, row by row.

    cameras: pinholes. ops: Backend.ops. Differentiable in the Gaussians.
    """
    width, height = cameras.size(index)
    columns = len(range(lattice.column, width, lattice.stride))
    rows = len(range(lattice.row, height, lattice.stride))
    seen, ellipses, colors, depth = _project(gaussians, cameras, index)
    if len(seen) == 0:
        return colors.new_zeros(rows * columns, 3), colors.new_zeros(rows * columns)
    order = depth.detach().argsort()
    ellipses = _take(torch.cat([ellipses, colors], dim=-1), order, ops)
    with torch.no_grad():
        owner, pixel, at = _pairs(ellipses, lattice, columns, rows)
    pairs = _take(ellipses, owner, ops)
    alpha, _ = _alpha(pairs, at)
    counts = torch.bincount(pixel, minlength=rows * columns)
    offsets = functional.pad(counts.cumsum(0), (1, 0))
    starts = torch.zeros_like(alpha)
    light, opacity, _, _ = ops.composite_rays(
        -torch.log1p(-alpha), pairs[:, 6:].contiguous(), starts, starts + 1, offsets, MIN_TRANSMITTANCE
    )
    return light, opacity


def _project(gaussians: Gaussians, cameras: Cameras, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gaussians in front of a camera: row numbers, ellipses [N,6] (center, inverse covariance, opacity), colors, depth.

    Camera axes are those of images here: x right, y down, z forwards.
    """
    c2w = cameras.c2w[index]
    fx, fy, cx, cy = cameras.intrinsics[index].unbind()
    width, height = cameras.size(index)
    to_camera = (c2w[:, :3] * c2w.new_tensor(OPENCV_SIGNS)).T
    with torch.no_grad():
        x, y, z = ((gaussians.means - c2w[:, 3]) @ to_camera.T).unbind(-1)
        # The principal point of a photo that was cropped is not in its middle.
        wide, high = MARGIN * torch.maximum(cx, width - cx) / fx, MARGIN * torch.maximum(cy, height - cy) / fy
        size = gaussians.log_scales.exp().amax(-1)
        inside = z > NEAREST * z.abs().median()
        inside &= (x.abs() < wide * z + 4 * size) & (y.abs() < high * z + 4 * size)
        seen = inside.nonzero()[:, 0]
    some = gaussians[seen]
    x, y, z = ((some.means - c2w[:, 3]) @ to_camera.T).unbind(-1)
    u, v = fx * x / z + cx, fy * y / z + cy
    axes = to_camera @ rotation_from_quaternion(some.rotations) * some.log_scales.exp()[:, None, :]
    slope_x = torch.minimum(torch.maximum(x / z, -wide), wide)
    slope_y = torch.minimum(torch.maximum(y / z, -high), high)
    across = (fx / z)[:, None] * (axes[:, 0] - slope_x[:, None] * axes[:, 2])
    down = (fy / z)[:, None] * (axes[:, 1] - slope_y[:, None] * axes[:, 2])
    a, b, c = (across * across).sum(-1) + BLUR, (across * down).sum(-1), (down * down).sum(-1) + BLUR
    determinant = a * c - b * b
    inverse = c / determinant, -b / determinant, a / determinant
    ellipses = torch.stack([u, v, *inverse, torch.sigmoid(some.logits)], dim=-1)
    return seen, ellipses, some.colors(c2w[:, 3]), z


def _pairs(ellipses: Tensor, lattice: Lattice, columns: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of an ellipse and a pixel that it covers, by pixel and depth: ellipse [M], pixel [M], pixel center [M,2].

    ellipses [N,6+]: front to back.
    """
    u, v, a, b, c, opacity = ellipses[:, :6].unbind(-1)
    reach = 2 * torch.log((opacity / FAINTEST).clamp(min=1))  # squared, in standard deviations
    determinant = (a * c - b * b).clamp(min=1e-12)
    box = []
    for center, inverse, start, count in ((u, c, lattice.column, columns), (v, a, lattice.row, rows)):
        half = (reach * inverse / determinant).sqrt()
        first, last = ((center + side * half - 0.5 - start) / lattice.stride for side in (-1, 1))
        first, last = first.clamp(0, count).ceil().long(), last.clamp(-1, count - 1).floor().long()
        box.append((first, (last - first + 1).clamp(min=0)))
    (left, wide), (top, high) = box
    covered = wide * high
    owner = torch.repeat_interleave(covered)
    within = torch.arange(len(owner), device=owner.device) - (covered.cumsum(0) - covered)[owner]
    wide = wide[owner]
    column, row = left[owner] + within % wide, top[owner] + within // wide
    at = torch.stack([lattice.stride * column + lattice.column, lattice.stride * row + lattice.row], dim=-1) + 0.5
    keep = (_alpha(ellipses[owner], at)[1] >= FAINTEST).nonzero()[:, 0]
    pixel, order = (row * columns + column)[keep].sort(stable=True)
    keep = keep[order]
    return owner[keep], pixel, at[keep]


def _alpha(ellipses: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Opacities [M] of ellipses [M,6+] at points [M,2], cut and not cut."""
    dx, dy = at[:, 0] - ellipses[:, 0], at[:, 1] - ellipses[:, 1]
    a, b, c = ellipses[:, 2], ellipses[:, 3], ellipses[:, 4]
    alpha = ellipses[:, 5] * torch.exp(-0.5 * (a * dx * dx + c * dy * dy) - b * dx * dy)
    return alpha.clamp(max=MOST_OPAQUE), alpha


def _take(table: Tensor, index: Tensor, ops: ModuleType) -> Tensor:
    return _TakeRows.apply(table, index, ops)


class _TakeRows(torch.autograd.Function):
    """Rows of a table [N,C] at index [M]; PyTorch's own backward pass is slow on a CPU."""

    @staticmethod
    def forward(ctx, table: Tensor, index: Tensor, ops: ModuleType) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape, ctx.ops = table.shape, ops
        return table.index_select(0, index)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
        total = grad.new_zeros(ctx.shape)
        ctx.ops.index_add(total, 0, ctx.saved_tensors[0], grad.contiguous())
        return total, None, None
