"""The checks of a dry run, with their thresholds, messages and remedies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras.cameras import Cameras
from nerf.config.schema import SamplerConfig
from nerf.datasets.capture import FEWEST_POINTS
from nerf.datasets.plane_sweep import PlaneSweep
from nerf.datasets.posed_images import PosedImages
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace
from nerf.scene.ndc import NdcSpace
from nerf.training.memory import MemoryPlan

SAME = 0.6  # largest mean difference between copies of one image at working size, in 8-bit levels
ELSEWHERE = 0.05  # camera distance, relative to their mean distance from the center, from which copies are an error
THUMBNAIL = 16  # side in pixels at which copies are searched
INSIDE, HARDLY_INSIDE = 0.9, 0.1  # fractions of the points
ROOMY = 50  # volume of a box that is too large, relative to the volume of the points
CLIPPED, MUCH_CLIPPED = 0.01, 0.1  # fractions of the surface that near or far may clip; a few points are mismatches
# Of the distance of the nearest surface: rays that begin before it pass much that is empty. A guessed near is a tenth
# of it or less; one from depths is .25 of it (room, a few points of which are nearer) or more.
EARLY = 0.125
MARGIN = 0.05  # of the points' extent, added on each side
TIGHT, TOO_MUCH = 0.7, 0.95  # fractions of the free memory


@dataclass(frozen=True)
class Check:
    """One question about a scene, and its answer."""

    name: str
    verdict: str  # green, yellow or red
    found: str
    remedy: str = ""


def check_duplicates(sweep: PlaneSweep, images: PosedImages) -> Check:
    """Checks for duplicate images."""
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
    shown = listed([f"{images.names[a]} and {images.names[b]}" for a, b in elsewhere or pairs])
    if elsewhere:
        found = f"{len(elsewhere)} pairs of frames show the same picture from different places: {shown}"
        return Check("duplicates", "red", found, "one pose of each pair is wrong: leave that frame out")
    found = f"{len(pairs)} pairs of frames show the same picture: {shown}"
    return Check("duplicates", "yellow", found, "leave one of each pair out: it counts twice in training")


def check_blank(sweep: PlaneSweep, names: Sequence[str]) -> Check:
    """Checks for images of a single color."""
    flat = [index for index, picture in enumerate(sweep.pictures) if _is_flat(picture)]
    if not flat:
        return Check("pictures", "green", "every image shows something")
    found = f"{len(flat)} of {len(names)} images show one color: {listed([names[i] for i in flat])}"
    verdict = "yellow" if len(flat) < len(names) / 2 else "red"
    return Check("pictures", verdict, found, "leave them out, or copy them again")


def check_box(box: SceneBox, cameras: Cameras, names: Sequence[str], points: Tensor) -> Check:
    """Checks that the box contains the scene. points [P,3]: reliable points of the surface, may be empty.

    For an unbounded scene the inner box is checked; forward-facing scenes have no box.
    """
    extent = world_box(box)
    if extent is None:
        return _check_frustum(box.space, points)
    size, unbounded = extent[1] - extent[0], isinstance(box.space, ContractedSpace)
    described = f"{'inner box' if unbounded else 'box'} {_numbers(extent[0])} to {_numbers(extent[1])}"
    if box.space.axes is not None:
        described += ", within it the one that is turned to the object"
    blind = [i for i in range(len(cameras)) if not _sees(cameras, i, extent)]
    if blind:
        found = f"{described}: {len(blind)} of {len(cameras)} cameras look past it"
        verdict, remedy = "red", "set dataset.aabb=[x0,y0,z0,x1,y1,z1] to what they see, or mend the poses"
        if len(blind) <= len(cameras) / 2:
            found += f": {listed([names[i] for i in blind])}"
            verdict, remedy = "yellow", "leave them out or mend their poses, or set dataset.aabb=[x0,y0,z0,x1,y1,z1]"
        return Check("box", verdict, found, remedy)
    if len(points) < FEWEST_POINTS:
        return Check("box", "yellow", f"{described}; nothing is known of the surface", "look at the box below")
    inside = _inside(extent, points).float().mean().item()
    low, high = _quantiles(points, 0.01, 0.99)
    margin = MARGIN * (high - low)
    tight = f"dataset.aabb=[{_numbers(low - margin)},{_numbers(high + margin)}]"
    found = f"{described}: {inside:.0%} of {len(points)} surface points lie inside"
    if unbounded:
        found += ", the others in the shell around it"
    if unbounded and inside < HARDLY_INSIDE:
        return Check("box", "yellow", f"{found}, where cells are larger", f"{tight} holds 98% of them along each axis")
    if inside < INSIDE and not unbounded:
        remedy = f"if the scene has no background that should be shown, {tight} holds 98% of the points along each axis"
        return Check("box", "red" if inside < HARDLY_INSIDE else "yellow", found, remedy)
    filled = (high - low + 2 * margin).prod().item()
    if size.prod().item() > ROOMY * filled:
        found += f", which fill {filled / size.prod().item():.1%} of it: voxels will be coarse"
        return Check("box", "yellow", found, f"set {tight}")
    return Check("box", "green", found)


def check_near_far(config: SamplerConfig, box: SceneBox, cameras: Cameras, distances: Tensor | None) -> Check:
    """Checks that near and far do not clip the surface. distances [P]: from cameras to points they see."""
    extent, near = world_box(box), max(config.near, box.space.near)
    far = math.inf if config.far is None else config.far
    begin, end = seen_range(config, box, cameras)
    described = f"near {begin:.3g}, far {'without end' if end == math.inf else f'{end:.3g}'}"
    foggy = False
    if extent is not None:
        inside = _inside(extent, cameras.centers)
        described += f"; {int(inside.sum())} of {len(cameras)} cameras stand inside the box"
        foggy = bool(inside.any()) and near == 0
    if near >= far:
        return Check("near and far", "red", f"{described}: nothing lies between", "set sampler.near below sampler.far")
    if distances is None or len(distances) < FEWEST_POINTS:
        if foggy:
            remedy = "set sampler.near to less than the distance of the nearest thing"
            return Check("near and far", "yellow", f"{described}, where density can grow before the lens", remedy)
        return Check("near and far", "green", f"{described}; nothing is known of the surface")
    nearest, farthest = _quantiles(distances, 0.005, 0.995).tolist()
    described += f"; the surface is seen at {nearest:.3g} to {farthest:.3g}"
    before, behind = (
        (distances < near).float().mean().item(),
        (distances > far).float().mean().item(),
    )
    if before > CLIPPED:
        found, verdict = f"{described}: near clips {before:.0%} of it", "red" if before > MUCH_CLIPPED else "yellow"
        return Check("near and far", verdict, found, f"set sampler.near={0.5 * nearest:.3g}")
    if behind > CLIPPED:
        found, verdict = f"{described}: far clips {behind:.0%} of it", "red" if behind > MUCH_CLIPPED else "yellow"
        return Check("near and far", verdict, found, f"set sampler.far={1.5 * farthest:.3g}")
    if foggy:
        found = f"{described}. Inside the box, density can grow before the lens and be fog elsewhere"
        return Check("near and far", "yellow", found, f"set sampler.near={0.5 * nearest:.3g}")
    # A near that was set is left alone, and in a box rays begin where it does.
    if config.near == 0 and isinstance(box.space, ContractedSpace | NdcSpace) and begin < EARLY * nearest:
        found = f"{described}. Rays begin long before it, where density can be fog and voxels are spent on nothing"
        remedy = f"set sampler.near={0.5 * nearest:.3g}, unless something stands nearer"
        return Check("near and far", "yellow", found, remedy)
    return Check("near and far", "green", described)


def check_memory(plan: MemoryPlan, free: int, device: str) -> Check:
    """Checks that the run fits into the free bytes of its device."""
    used = plan.total / free
    found = f"{plan.total / 2**30:.2f} GiB of {free / 2**30:.2f} GiB that are free on {device}"
    if plan.in_host:
        found += f", and {plan.in_host / 2**30:.2f} GiB in host memory"
    if used < TIGHT:
        return Check("memory", "green", found)
    remedy = (
        "lower field.num_voxels (done by itself on a GPU where it is not given) or train.rays_per_step, raise "
        "dataset.downscale, or set train.images=host or train.features=host on a GPU"
    )
    return Check("memory", "red" if used > TOO_MUCH else "yellow", found, remedy)


def seen_range(config: SamplerConfig, box: SceneBox, cameras: Cameras) -> tuple[float, float]:
    """Smallest and largest distance from a camera to a sample, by the settings and by the scene's space.

    The largest is infinite for unbounded and forward-facing scenes unless sampler.far is set.
    """
    near, far = max(config.near, box.space.near), math.inf if config.far is None else config.far
    extent = world_box(box)
    if isinstance(box.space, NdcSpace):
        ahead = (box.space.c2w[:, 3] - cameras.centers) @ box.space.c2w[:, 2]  # of the middle, along the view
        return max(near, (box.space.near_plane - ahead.max()).item()), far
    if isinstance(box.space, ContractedSpace):
        return near, far
    to_box = torch.maximum(extent[0] - cameras.centers, cameras.centers - extent[1]).clamp(min=0)
    to_corner = torch.maximum((extent[0] - cameras.centers).abs(), (extent[1] - cameras.centers).abs())
    return max(near, to_box.norm(dim=-1).min().item()), min(far, to_corner.norm(dim=-1).max().item())


def seen_distances(cameras: Cameras, points: Tensor) -> Tensor:
    """Distances [S] from each camera to the points [P,3] in its image, occluded or not."""
    distances = []
    for index in range(len(cameras)):
        pixels, z = cameras.project(index, points)
        size = pixels.new_tensor(cameras.size(index))
        visible = ((pixels >= 0) & (pixels <= size)).all(-1) & (z > 0)
        distances.append((points[visible] - cameras.centers[index]).norm(dim=-1))
    return torch.cat(distances)


def world_box(box: SceneBox) -> Tensor | None:
    """A box [2,3] along the axes of the world around the scene's, or around the inner box of an unbounded scene.

    None for forward-facing scenes.
    """
    if isinstance(box.space, NdcSpace):
        return None
    if isinstance(box.space, ContractedSpace):
        return torch.stack([box.space.center - box.space.half, box.space.center + box.space.half])
    corners = box.space.to_world(torch.cartesian_prod(*box.aabb.T))
    return torch.stack([corners.amin(0), corners.amax(0)])


def _check_frustum(space: NdcSpace, points: Tensor) -> Check:
    """Checks that the near plane of a forward-facing scene lies before the surface."""
    described = f"forward-facing: all that lies behind a plane {space.near_plane:.3g} before the cameras' middle"
    if len(points) < FEWEST_POINTS:
        return Check("box", "yellow", f"{described}; nothing is known of the surface", "look at the cameras below")
    depths = (space.c2w[:, 3] - points) @ space.c2w[:, 2]
    behind = (depths > space.near_plane).float().mean().item()
    found = f"{described}, as do {behind:.0%} of {len(points)} surface points"
    if behind < 1 - CLIPPED:
        (nearest,) = _quantiles(depths, 0.005).tolist()
        remedy = f"set sampler.near={0.5 * nearest:.3g}" if nearest > 0 else "use dataset.kind=unbounded"
        return Check("box", "red" if behind < INSIDE else "yellow", found, remedy)
    return Check("box", "green", found)


def _quantiles(values: Tensor, *shares: float) -> Tensor:
    """Quantiles along the first axis, of any number of values: PyTorch's own takes no more than 2^24."""
    return torch.from_numpy(np.quantile(values.numpy(), shares, axis=0))


def _inside(extent: Tensor, points: Tensor) -> Tensor:
    return ((points >= extent[0]) & (points <= extent[1])).all(-1)


def _sees(cameras: Cameras, index: int, extent: Tensor) -> bool:
    """Whether any point of a lattice in a box [2,3] projects into an image."""
    steps = torch.linspace(0, 1, 9)
    lattice = torch.cartesian_prod(steps, steps, steps) * (extent[1] - extent[0]) + extent[0]
    return len(seen_distances(cameras[index], lattice)) > 0


def _is_flat(picture: Tensor) -> bool:
    return bool(picture[:3].std() < SAME / 255)


def listed(names: Sequence[str]) -> str:
    """Up to eight names, and the number of the remaining ones."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _numbers(vector: Tensor) -> str:
    return ",".join(f"{x:.4g}" for x in vector.tolist())
