"""From a trained run's field to the page."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.panoramas import views_ahead
from nerf.cameras.poses import estimate_target, estimate_up
from nerf.errors import UserError
from nerf.export.web.bake import Baked
from nerf.export.web.distill import distill
from nerf.export.web.network import SmallMlp
from nerf.export.web.page import cell_bricks, feature_limits, network_weights, pack, shader, texture_bytes, write_page
from nerf.fields.field import Field
from nerf.fields.voxel_deferred import VoxelDeferred
from nerf.rendering.sampler import RaySampler, depth_range
from nerf.scene.ndc import NdcSpace

MOST_ON_GPU = 2 << 30  # bytes of textures that a browser can be expected to hold
# Sines of the angle between up and the view. Up to the first, up hardly tells how a picture is turned; a page begins at
# the second or more, outside of what controls.js keeps free around the poles.
ALONG_UP, LEAST_ALONG_UP = 0.1, 0.03


@dataclass(frozen=True)
class WebPage:
    """What was written."""

    num_bytes: int
    gpu_bytes: int  # of textures, in the browser
    distilled_psnr: float  # dB, of the small network against the run's own, at training pixels


def export_web(
    path: Path,
    field: Field,
    sampler: RaySampler,
    cameras: Cameras,
    background: Tensor,
    title: str,
    channels: int = 7,
    width: int = 32,
    steps: int | None = None,
) -> WebPage:
    """Writes a trained field as one HTML file, which opens from a disk and needs WebGL 2.

    cameras: those of training, any device. background [3]. channels: features of a vertex that are kept, 3, 7 or 11;
    width: of the network that decodes them; steps: for which it is trained, None: distill.STEPS.
    Raises UserError for a field whose color is not deferred, a scene that is empty or too large for browsers, a path
    that cannot be written.
    """
    if not isinstance(field, VoxelDeferred):
        raise UserError(
            f"format=web shows fields whose color is made once a pixel, and this run's is {field.config.name}; train "
            "one with field=voxel_deferred."
        )
    cameras = cameras.to(field.density_grid.device)
    on_gpu = texture_bytes(len(cell_bricks(sampler.occupancy.occupied)), channels + 1)
    if on_gpu > MOST_ON_GPU:
        voxels, fewer = math.prod(field.resolution), f"web_features=3 (now {channels}), or " if channels > 3 else ""
        raise UserError(
            f"the page's textures would take {on_gpu / 2**30:.1f} GiB of memory in a browser, at most "
            f"{MOST_ON_GPU / 2**30:.1f} are expected to fit; export with {fewer}a run of fewer voxels: this one has "
            f"{voxels}, train one with a smaller field.num_voxels."
        )
    baked, network, psnr = distill(field, sampler, cameras, channels, width, steps)
    data, counts = pack(baked, sampler.occupancy.occupied)
    header = {"name": title, **counts, **_header(field, sampler, baked, network, cameras, background)}
    most = int(4 * sum(field.resolution) / sampler.config.step_size_voxels) + 64
    return WebPage(write_page(path, title, header, shader(network, most), data), on_gpu, psnr)


def _header(
    field: VoxelDeferred, sampler: RaySampler, baked: Baked, network: SmallMlp, cameras: Cameras, background: Tensor
) -> dict[str, object]:
    """What the page's programs know of the scene."""
    space, config = sampler.grid_map.space, sampler.config
    low, high = baked.density_range
    feature_low, feature_range = feature_limits(baked)
    axes, center, frustum = torch.eye(3), torch.zeros(3), [0, 1]
    if isinstance(space, NdcSpace):
        axes, center, frustum = space.c2w[:, :3], space.c2w[:, 3], [space.near_plane, space.thickness]
    elif space.axes is not None:
        axes = space.axes
    return {
        "resolution": list(field.resolution),
        "chunks": len(feature_low) // 4,
        "lower": sampler.grid_map.lower.tolist(),
        "scale": sampler.grid_map.scale.tolist(),
        "step": sampler.step_size,
        "near": max(config.near, space.near),
        "far": 1e30 if config.far is None else config.far,
        "minTransmittance": config.min_transmittance,
        "minWeight": config.min_weight,
        "density": [low, high - low, field.density_shift, field.density_scale],
        "featureLow": feature_low,
        "featureRange": feature_range,
        "contraction": space.contraction,
        "axes": axes.T.flatten().tolist(),
        "center": center.tolist(),
        "frustum": frustum,
        "depthRange": list(depth_range(sampler, cameras)),
        "background": background.tolist(),
        "network": {"weights": network_weights(network)},
        "start": _start(cameras),
    }


def _target(c2w: Tensor) -> Tensor | None:
    """What the cameras look at, [3]; None where they look at nothing in common."""
    try:
        return estimate_target(c2w)
    except ValueError:
        return None


def _off_the_pole(c2w: Tensor, up: Tensor) -> Tensor:
    """The backward axis [3] with which a page, whose camera is level with respect to up [3], begins as the pose [3,4].

    The pose's own, unless that lies along up, as a drone's that looks straight down: then it is leaned towards the top
    of that camera's picture, so that this stays the top.
    """
    backward, top = c2w[:, 2], c2w[:, 1] - (c2w[:, 1] @ up) * up
    sine = (backward - (backward @ up) * up).norm().item()
    if sine > ALONG_UP:
        return backward
    sine = max(sine, LEAST_ALONG_UP)
    leaned = math.sqrt(1 - sine**2) * up - sine * top / top.norm()
    return leaned if backward @ up > 0 else -leaned


def _start(cameras: Cameras) -> dict[str, object]:
    """Where the page begins: at the first training camera, around what all of them look at."""
    c2w = cameras.c2w.double().cpu()
    center, up = c2w[0, :, 3], estimate_up(c2w)
    target = None if cameras.has_panoramas else _target(c2w)
    if target is None:  # as far ahead as they stand apart
        reach = (c2w[:, :, 3] - center).norm(dim=-1).max().clamp(min=1e-6)
        target = center - reach * c2w[0, :, 2]
    if cameras.has_panoramas:
        cameras = views_ahead(cameras[:1])
    width, height = cameras.size(0)
    # In front of the camera, where it looks: the picture begins as that camera's.
    distance = ((target - center) @ -c2w[0, :, 2]).item()
    distance = distance if distance > 0 else (target - center).norm().clamp(min=1e-6).item()
    aimed = center - distance * c2w[0, :, 2]
    center = aimed + distance * _off_the_pole(c2w[0], up)
    focal = cameras.intrinsics[0, 1].item() / height
    start = {"center": center.tolist(), "target": aimed.tolist(), "up": up.tolist(), "focal": focal}
    return {**start, "aspect": width / height}
