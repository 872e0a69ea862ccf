"""The features of a page's vertices, tuned so that what rays composite of them is decoded to the colors of the field.

A linear map of the field's features, as the page begins with, serves all vertices alike. The vertices are many more
numbers: each learns what it lacks, as in training, while density stays as it is.

Legend: B pixels of a batch, K channels that are kept, up to a multiple of four.
"""

import torch
from torch import Tensor
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.export.web import lessons
from nerf.export.web.bake import VISIBLE, Baked
from nerf.export.web.lessons import PIXELS, Lessons
from nerf.export.web.network import SmallMlp
from nerf.fields.voxel_deferred import SMALLEST_OPACITY, VoxelDeferred
from nerf.optim.adam import MaskedAdam, ParameterGroup
from nerf.rendering.render import evaluated_samples, visible_samples
from nerf.rendering.sampler import RaySampler

BATCH = {"cuda": 1 << 17, "cpu": 1 << 11}
RATE, NETWORK_RATE = 0.05, 2e-3  # of the features and of the network, at first
LAST = 0.03  # the share of both at the end
BETA1, BETA2 = 0.9, 0.99


class _Page:
    """The features of the vertices and the network that decodes them, as an optimizer sees them."""

    def __init__(self, page: VoxelDeferred, network: SmallMlp) -> None:
        self.page, self.network = page, network

    def parameter_groups(self) -> list[ParameterGroup]:
        grid = ParameterGroup("features", self.page.feature_grid, (RATE,), on_vertices=True, rows=self.page.rows)
        decoder = enumerate(self.network.decoder())
        return [grid, *(ParameterGroup(f"network.{i}", parameter, (NETWORK_RATE,)) for i, parameter in decoder)]


def tune(
    baked: Baked,
    network: SmallMlp,
    field: VoxelDeferred,
    sampler: RaySampler,
    cameras: Cameras,
    taught: Lessons,
    steps: int,
    generator: torch.Generator,
) -> Baked:
    """The page with tuned features. The network's decoder is tuned with them, in place.

    taught: pixels of the cameras, and the colors that the field makes of them, to begin with. Others are drawn once
    about as many were seen: vertices are more than the pixels of one draw, and each needs some of its own.
    """
    page, kept = baked.as_field(field), baked.features.shape[1]
    page.feature_grid.requires_grad_(True)
    for parameter in network.decoder():
        parameter.grad = None
    optimizer = MaskedAdam(_Page(page, network), BETA1, BETA2, field.backend)
    batch = BATCH[generator.device.type]
    for step in tqdm(range(steps), desc="tuning", unit="step", leave=False):
        optimizer.decay.fill_(LAST ** (step / steps))
        if step and step % (PIXELS // batch) == 0:
            taught = lessons.draw(field, sampler, cameras, generator)
        rows = torch.randint(len(taught.pixels), (batch,), generator=generator, device=generator.device)
        values, opacity = _composited(page, sampler, cameras, taught.pixels[rows])
        means = values[:, :kept] / opacity.clamp(min=SMALLEST_OPACITY)[:, None]
        error = network.decode(means, taught.directions[rows]) - taught.colors[rows]
        (error * torch.minimum(opacity, taught.opacity[rows])[:, None]).square().mean().backward()
        optimizer.step()
    features = page.values_at(page.feature_grid.detach(), baked.rows.to(generator.device))[:, :kept]
    return baked.with_features(features, baked.raw_density().to(features) > field.raw_density_of(VISIBLE))


def _composited(page: VoxelDeferred, sampler: RaySampler, cameras: Cameras, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Values [B,K] and opacity [B] of pixels [B], differentiable in the page's features."""
    rays = cameras.rays_through(pixels, sampler.rays_per_pixel, sampler.backend.ops)
    samples = visible_samples(page, sampler, rays)
    intervals = (samples.t_starts, samples.t_ends, samples.ray_offsets)
    density, values = evaluated_samples(page, sampler, samples)
    values, opacity, _, _ = sampler.backend.ops.composite_rays(
        density, values, *intervals, sampler.config.min_transmittance
    )
    return rays.pixel_means(values), rays.pixel_means(opacity)
