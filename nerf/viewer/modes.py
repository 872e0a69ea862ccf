"""The kinds of picture in the viewer: color, depth, normals, opacity, features, error and occupancy.

Legend: P pixels, R rays, M samples.
"""

import time

import torch
from torch import Tensor
from torch.nn import functional

from nerf.calibration.vignetting import middles, vignetted
from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.images import visualize
from nerf.images.srgb import exposed_by_stops
from nerf.rendering.render import Rendering, render_rays, render_samples, visible_samples
from nerf.rendering.sampler import RaySampler, depth_range
from nerf.viewer.features import has_features, mean_features
from nerf.viewer.look import Look
from nerf.viewer.scene import Scene

MODES = ("color", "depth", "normals", "opacity", "features", "error", "occupancy")
UNSEEN = visualize.UNSEEN  # what the nearest photo does not show, in the error picture
TURN_LENGTH = 1.0  # a turn by one radian counts as a move by this fraction of the distance between the cameras' mean


def modes_of(scene: Scene) -> list[str]:
    """The kinds of picture that a scene has: error only with photos, features only with an appearance grid."""
    absent = {"error": scene.photos is None, "features": not has_features(scene.field)}
    return [mode for mode in MODES if not absent.get(mode, False)]


@torch.no_grad()
def draw_pixels(scene: Scene, look: Look, cameras: Cameras, first: int, end: int, rays_per_pixel: int) -> Tensor:
    """Pixels first to end - 1 of camera 0, [P,3] uint8 on the CPU. cameras: on the device."""
    sampler, ops = look.limit(scene.sampler), scene.sampler.backend.ops
    rays = cameras.pixel_range_rays(0, first, end, rays_per_pixel, ops)
    background = scene.background
    if look.background is not None:
        background = torch.tensor(look.background, device=background.device)
    pixels = _pixels(scene, sampler, look.mode, cameras, rays, background)
    if look.mode == "color":
        pixels = exposed_by_stops(pixels, look.exposure)
    return (pixels.clamp(0, 1) * 255 + 0.5).to(torch.uint8).cpu()


def timed_part(
    scene: Scene, look: Look, cameras: Cameras, first: int, end: int, rays_per_pixel: int
) -> tuple[Tensor, float]:
    """draw_pixels of cameras on any device, as far as the picture goes, and the seconds that it took."""
    start = time.perf_counter()
    cameras = cameras.to(scene.sampler.backend.device)
    pixels = draw_pixels(scene, look, cameras, first, min(end, cameras.width * cameras.height), rays_per_pixel)
    return pixels, time.perf_counter() - start


def _pixels(scene: Scene, sampler: RaySampler, mode: str, cameras: Cameras, rays: Rays, background: Tensor) -> Tensor:
    if mode == "occupancy":
        return _occupied_cells(scene, sampler, rays, background)
    if mode == "features":
        features, opacity = mean_features(scene.field, sampler, rays)
        return opacity[:, None] * scene.feature_colors(features) + (1 - opacity)[:, None] * background
    if mode == "normals":
        samples = visible_samples(scene.field, sampler, rays)
        seen = render_samples(scene.field, sampler, samples, background, with_normals=True)
        return visualize.color_normals(seen.normals[None], seen.opacity[None])[0]
    seen = render_rays(scene.field, sampler, rays, background)
    if mode == "depth":
        near, far = depth_range(scene.sampler, scene.cameras)
        return visualize.color_depth(seen.depth[None], seen.opacity[None], near, far)[0]
    if mode == "opacity":
        return seen.opacity[:, None].expand(-1, 3)
    if mode == "error":
        return _error(scene, cameras, rays, seen)
    return seen.rgb


def _occupied_cells(scene: Scene, sampler: RaySampler, rays: Rays, background: Tensor) -> Tensor:
    """The first occupied cell along each pixel's ray, in false color by distance, neighbors in two shades."""
    rays = Rays(rays.origins[:: rays.per_pixel], rays.directions[:: rays.per_pixel], 1)
    samples = sampler.sample(rays)
    first, last = samples.ray_offsets[:-1].long(), samples.ray_offsets[1:].long()
    hit = (last > first).nonzero()[:, 0]
    pixels = background.expand(len(first), 3).clone()
    if len(hit) == 0:
        return pixels
    coords = samples.coords(sampler.grid_map).index_select(0, first[hit])
    distance = torch.zeros_like(rays.origins[:, 0])
    positions = samples.world_positions().index_select(0, first[hit])
    distance[hit] = (positions - rays.origins[hit]).norm(dim=-1)
    near, far = depth_range(scene.sampler, scene.cameras)
    colors = visualize.color_depth(distance[None], torch.ones_like(distance)[None], near, far)[0]
    shade = 1 - 0.25 * (coords.floor().long().sum(-1) % 2)
    pixels[hit] = colors[hit] * shade[:, None]
    return pixels


def nearest_camera(cameras: Cameras, pose: Tensor) -> int:
    """The training camera whose picture is most like that of a pose [3,4]: near, and turned alike."""
    pose = pose.to(cameras.c2w)
    spread = (cameras.centers - cameras.centers.mean(0)).norm(dim=-1).mean().clamp(min=1e-9)
    moved = (cameras.centers - pose[:, 3]).norm(dim=-1) / spread
    cosine = (cameras.c2w[:, :, 2] * pose[:, 2]).sum(-1).clamp(-1, 1)
    cosine = torch.where(cameras.panoramas, 1.0, cosine)  # they look that way too
    return int((moved + TURN_LENGTH * torch.acos(cosine)).argmin())


def _error(scene: Scene, cameras: Cameras, rays: Rays, seen: Rendering) -> Tensor:
    """The difference to the nearest photo at the surface points that the pixels show.

    Each pixel's point, from its depth, is looked up in the photo. What is empty, beyond the photo's edge, behind its
    camera or left out by its mask is gray. From a training camera's own place this is the error image of evaluation.
    What the photo does not see because something stands before it counts as an error. The picture is darkened by the
    photo's vignetting.
    """
    if scene.photos is None:
        return torch.full_like(seen.rgb, UNSEEN)
    index = nearest_camera(scene.cameras, cameras.c2w[0])
    origins, directions = rays.origins[:: rays.per_pixel].cpu(), rays.pixel_directions().cpu()
    points = origins + directions * seen.distance().cpu()[:, None]
    places, z = scene.cameras.project(index, points)
    width, height = scene.cameras.size(index)
    photo = scene.photos.image_over(index, scene.background.cpu())
    inside = (z > 0) & (places >= 0).all(-1) & (places[:, 0] < width) & (places[:, 1] < height)
    inside &= seen.opacity.cpu() > 0.5
    valid = scene.photos.valid_mask(index)
    if valid is not None:
        column, row = torch.where(inside[:, None], places, 0).long().unbind(-1)
        inside &= valid[row, column]
    grid = 2 * places / torch.tensor([width, height]) - 1
    truth = functional.grid_sample(
        photo.permute(2, 0, 1)[None], grid[None, None].nan_to_num(), padding_mode="border", align_corners=False
    )[0, :, 0].T
    rgb = seen.rgb.cpu()
    if scene.vignetting is not None:
        cx, cy, scale = middles(scene.cameras)[index]
        squares = (places - torch.stack([cx, cy])).square().sum(-1) * scale
        rgb = vignetted(rgb, torch.ones_like(rgb[:, :1]), scene.vignetting[index], squares)
    error = visualize.color_error(rgb[None], truth[None])[0]
    return torch.where(inside[:, None], error, UNSEEN)
