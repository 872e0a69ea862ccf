"""A small network for a browser, taught by the network of a deferred field.

The network of a run has a hundred neurons per layer and more; a fragment shader evaluates one of 32 at every pixel of
a frame. The first layer maps the field's features to a few channels without looking at the direction. That map is
linear, and so is compositing: it can be applied to the vertices instead of the pixels, and only its few channels have
to be stored.

Legend: P pixels, F channels of the field, K channels that are kept.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.errors import UserError
from nerf.export.web.bake import Baked, bake
from nerf.fields.view_encoding import encode_view, encoding_width
from nerf.fields.voxel_deferred import SMALLEST_OPACITY, VoxelDeferred
from nerf.optim.muon import muon_step
from nerf.rendering.render import composited_grid
from nerf.rendering.sampler import RaySampler

FREQUENCIES = 4  # of the view direction, the most that fields have by default
LAYERS = 2  # hidden ones
SEED = 0
PIXELS, BATCH = 1 << 19, 1 << 13
RATE, LAST_RATE = 1e-2, 1e-4
HIDDEN_RATE = 0.1  # of Muon at first, for the hidden layers' matrices; it falls as RATE does
MOMENTUM = 0.9
STEPS = {"cuda": 30000, "cpu": 4000}  # half a minute on either
SMALLEST_VARIANCE = 1e-4  # of a principal component; one of less is not scaled up to 1, as it may be rounding
OPAQUE = 0.05  # pixels that meet less teach nothing


class SmallMlp(nn.Module):
    """Colors [P,3] from composited features [P,F] and unit directions [P,3].

    diffuse: the first three kept channels are also a color, added to the network's.
    """

    def __init__(self, features: int, kept: int, width: int, layers: int, diffuse: bool = False) -> None:
        super().__init__()
        self.diffuse = diffuse
        self.projection = nn.Linear(features, kept, bias=False)
        widths = [kept + encoding_width(FREQUENCIES)] + [width] * layers
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False))
        self.color = nn.Linear(width, 3)

    @torch.no_grad()
    def begin(self, features: Tensor) -> None:
        """Makes the kept channels the principal components of the features [P,F], each of variance 1; they are learned
        from there. If diffuse, the first three stay the first three features, which are a color in such a field.
        """
        weight, own = self.projection.weight, 3 if self.diffuse else 0
        rest = features[:, own:].double().cpu()
        rest = rest - rest.mean(0)
        variances, axes = torch.linalg.eigh(rest.T @ rest / len(rest))  # in rising order
        scales = variances.clamp(min=SMALLEST_VARIANCE).rsqrt()
        components = (axes * scales).T.flip(0)[: len(weight) - own]
        weight[:own] = torch.eye(own, weight.shape[1])
        weight[own : own + len(components), :own] = 0
        weight[own : own + len(components), own:] = components.to(weight)

    def forward(self, features: Tensor, directions: Tensor) -> Tensor:
        return self.decode(self.projection(features), directions)

    def decode(self, kept: Tensor, directions: Tensor) -> Tensor:
        """Colors [P,3] from the kept channels [P,K]."""
        x = torch.cat([kept, encode_view(directions, FREQUENCIES, encoding_width(FREQUENCIES))], dim=-1)
        for layer in self.hidden:
            x = functional.relu(layer(x))
        rgb = torch.sigmoid(self.color(x))
        return rgb + kept[:, :3] if self.diffuse else rgb


@torch.no_grad()
def composited(field: VoxelDeferred, sampler: RaySampler, cameras: Cameras, pixels: Tensor) -> tuple[Tensor, ...]:
    """Mean features [P,F], opacity [P] and unit directions [P,3] of pixels [P], counted over all cameras."""
    parts = []
    for some in pixels.split(1 << 15):
        rays = cameras.rays_through(some, sampler.rays_per_pixel, sampler.backend.ops)
        values, opacity, _ = composited_grid(field, sampler, rays, field.feature_grid)
        parts.append((values / opacity.clamp(min=SMALLEST_OPACITY)[:, None], opacity, rays.pixel_directions()))
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def distill(
    field: VoxelDeferred,
    sampler: RaySampler,
    cameras: Cameras,
    kept: int,
    width: int,
    steps: int | None = None,
) -> tuple[Baked, SmallMlp, float]:
    """The field as bytes, the small network that decodes them, and its PSNR in dB against the field's own network.

    cameras: those of training; random pixels of theirs are the lessons. Half of the steps train the projection with the
    network on exact features, the other half train the network on what the bytes composite to.
    Raises UserError where the cameras meet nothing.
    """
    device = field.density_grid.device
    steps = STEPS[device.type] if steps is None else steps
    generator = torch.Generator(device=device).manual_seed(SEED)
    count = cameras.first_pixel(len(cameras))
    pixels = torch.randint(count, (min(PIXELS, count),), generator=generator, device=device)
    features, opacity, directions = composited(field, sampler, cameras, pixels)
    met = (opacity > OPAQUE).nonzero()[:, 0]
    if len(met) == 0:
        raise UserError("the scene is empty: no training camera meets anything; train longer, or look at its renders.")
    pixels, features, opacity, directions = (x[met] for x in (pixels, features, opacity, directions))
    target = _own_colors(field, features, opacity, directions)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        network = SmallMlp(features.shape[1], kept, width, LAYERS, field.config.diffuse).to(device)
    network.begin(features)
    hidden = [layer.weight for layer in network.hidden]
    _teach(lambda rows: network(features[rows], directions[rows]), [*network.parameters()], hidden, target, opacity,
           steps // 2, generator)  # fmt: skip
    baked = bake(field, sampler.occupancy, network.projection.weight.detach())
    seen, now_opaque, _ = composited(baked.as_field(field), sampler, cameras, pixels)
    opacity = torch.minimum(opacity, now_opaque)
    decoder = [*network.hidden.parameters(), *network.color.parameters()]
    psnr = _teach(lambda rows: network.decode(seen[rows], directions[rows]), decoder, hidden, target, opacity,
                  steps // 2, generator)  # fmt: skip
    return baked, network, psnr


@torch.no_grad()
def _own_colors(field: VoxelDeferred, features: Tensor, opacity: Tensor, directions: Tensor) -> Tensor:
    """What the field's own network makes of mean features: colors [P,3], unclamped light taken apart from opacity."""
    parts = zip(features.split(1 << 16), opacity.split(1 << 16), directions.split(1 << 16), strict=True)
    colors = [field.shade(f * o[:, None], o, d) / o[:, None] for f, o, d in parts]
    return torch.cat(colors).clamp(0, 1)


def _teach(
    student: Callable[[Tensor], Tensor],
    parameters: list[nn.Parameter],
    hidden: list[nn.Parameter],
    target: Tensor,
    opacity: Tensor,
    steps: int,
    generator: torch.Generator,
) -> float:
    """Lessons by the squared error of light (color times opacity), with Muon for hidden matrices and Adam for all else.

    Returns the PSNR in dB of the last tenth of the steps.

    hidden: matrices among the parameters. student: colors [B,3] for rows [B] of the target [P,3].
    """
    means = [torch.zeros_like(matrix) for matrix in hidden]
    rate, counts = torch.full((1,), HIDDEN_RATE, device=target.device), torch.ones(1, device=target.device)
    optimizer = torch.optim.Adam([p for p in parameters if all(p is not matrix for matrix in hidden)], lr=RATE)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, (LAST_RATE / RATE) ** (1 / max(1, steps)))
    errors = []
    for _ in tqdm(range(max(1, steps)), desc="distilling", unit="step", leave=False):
        rows = torch.randint(len(target), (BATCH,), generator=generator, device=target.device)
        loss = ((student(rows) - target[rows]) * opacity[rows, None]).square().mean()
        for parameter in parameters:
            parameter.grad = None
        loss.backward()
        optimizer.step()
        for matrix, mean in zip(hidden, means, strict=True):
            muon_step(matrix, mean, matrix.grad, rate * (decay.get_last_lr()[0] / RATE), counts, MOMENTUM)
        decay.step()
        errors.append(loss.detach())
    return -10 * torch.stack(errors[-max(1, steps // 10) :]).mean().log10().item()
