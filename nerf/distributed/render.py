"""Training pixels from the samples of all ranks.

Every rank composites its own samples, exchanges what that gives, and shades all pixels. Shading each rank's share alone
would cost a second exchange, of gradients, to save a part of a small MLP (docs/distributed.md reckons both).

Legend: R rays, P pixels, S segments of a ray in one part, M samples.
"""

import torch
from torch import Tensor

from nerf.distributed.combine import combine, exchange
from nerf.distributed.segments import PartSamples
from nerf.distributed.world import World
from nerf.fields.field import Field
from nerf.rendering.render import Rendering, evaluated_samples, shaded_pixels
from nerf.rendering.sampler import RaySampler


def render_parts(
    world: World, field: Field, sampler: RaySampler, part: PartSamples, background: Tensor, with_distortion: bool
) -> Rendering:
    """The pixels of a batch, the same on every rank, as rendering.render_samples has them. background: [3] or [P,3].

    with_distortion: also the distortion loss of each ray, which no rank could compute alone. Differentiable like
    render_samples, for a loss that every rank computes from the result and takes 1 / N of (combine.exchange). There are
    no weights of samples, because most are on other ranks.
    """
    samples = part.samples
    density, values = evaluated_samples(field, sampler, samples)
    channels, ops = values.shape[1], sampler.backend.ops
    intervals = (samples.t_starts, samples.t_ends, part.offsets)
    values, opacity, depth, weights = ops.composite_rays(density, values, *intervals, 0.0)
    columns = [values, opacity[:, None], depth[:, None]]
    if with_distortion:
        columns.append(ops.distortion_loss(weights, *intervals)[:, None])
    own = torch.cat(columns, dim=1).unflatten(0, (-1, part.segments))
    values, opacity, depth, distortion = combine(exchange(world, own), part.order.order, channels)
    return shaded_pixels(field, samples, values, opacity, depth, background, distortion)
