"""A page is taught by its run: what its vertices keep, and the small network that decodes it.

Features are composited before a network looks at them, and compositing is linear. So a linear map of the field's
features to a few channels can be learned with the small network, and applied to the vertices (Hedman et al. 2021,
"Baking Neural Radiance Fields for Real-Time View Synthesis", section 4). From there the vertices are tuned themselves.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.export.web import lessons
from nerf.export.web.bake import Baked, bake
from nerf.export.web.lessons import Lessons
from nerf.export.web.network import SmallMlp
from nerf.export.web.tune import tune
from nerf.fields.voxel_deferred import VoxelDeferred
from nerf.optim.muon import muon_step
from nerf.rendering.sampler import RaySampler

SEED = 0
BATCH = {"cuda": 1 << 15, "cpu": 1 << 13}  # on a GPU the larger ones of both take no longer
RATE, LAST_RATE = 1e-2, 1e-4
HIDDEN_RATE = 0.1  # of Muon at first, for the hidden layers' matrices; it falls as RATE does
MOMENTUM = 0.9
STEPS = {"cuda": 12000, "cpu": 4000}


def distill(
    field: VoxelDeferred,
    sampler: RaySampler,
    cameras: Cameras,
    kept: int,
    width: int,
    steps: int | None = None,
) -> tuple[Baked, SmallMlp, float]:
    """The field as bytes, the small network that decodes them, and its PSNR in dB against the field's own network.

    cameras: those of training; random pixels of theirs are the lessons. Half of the steps train the projection to kept
    channels with the network on exact features, a quarter tunes what the vertices keep, and the last quarter trains the
    network on what the bytes composite to. Raises UserError where the cameras meet nothing.
    """
    device = field.density_grid.device
    steps = STEPS[device.type] if steps is None else steps
    generator = torch.Generator(device=device).manual_seed(SEED)
    taught = lessons.draw(field, sampler, cameras, generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        network = SmallMlp(taught.features.shape[1], kept, width, diffuse=field.config.diffuse).to(device)
    network.begin(taught.features)

    def exact(rows: Tensor) -> Tensor:
        return network(taught.features[rows], taught.directions[rows])

    _teach(exact, network, [*network.parameters()], taught, taught.opacity, steps // 2, generator)
    baked = bake(field, sampler.occupancy, network.projection.weight.detach())
    baked = tune(baked, network, field, sampler, cameras, taught, steps // 4, generator)
    seen, opacity, _ = lessons.composited(baked.as_field(field), sampler, cameras, taught.pixels)

    def of_bytes(rows: Tensor) -> Tensor:
        return network.decode(seen[rows, :kept], taught.directions[rows])

    opacity = torch.minimum(opacity, taught.opacity)
    return baked, network, _teach(of_bytes, network, network.decoder(), taught, opacity, steps // 4, generator)


def _teach(
    student: Callable[[Tensor], Tensor],
    network: SmallMlp,
    parameters: list[nn.Parameter],
    taught: Lessons,
    opacity: Tensor,
    steps: int,
    generator: torch.Generator,
) -> float:
    """Lessons by the squared error of light (color times opacity), with Muon for hidden matrices and Adam for all else.

    Returns the PSNR in dB of the last tenth of the steps.

    student: colors [B,3] for rows [B] of the lessons, by these parameters of the network. opacity [P]: of the light.
    """
    hidden = [layer.weight for layer in network.hidden]
    means = [torch.zeros_like(matrix) for matrix in hidden]
    rate, counts = opacity.new_full((1,), HIDDEN_RATE), opacity.new_ones(1)
    optimizer = torch.optim.Adam([p for p in parameters if all(p is not matrix for matrix in hidden)], lr=RATE)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, (LAST_RATE / RATE) ** (1 / max(1, steps)))
    errors = []
    for _ in tqdm(range(max(1, steps)), desc="distilling", unit="step", leave=False):
        rows = torch.randint(len(opacity), (BATCH[opacity.device.type],), generator=generator, device=opacity.device)
        loss = ((student(rows) - taught.colors[rows]) * opacity[rows, None]).square().mean()
        for parameter in parameters:
            parameter.grad = None
        loss.backward()
        optimizer.step()
        for matrix, mean in zip(hidden, means, strict=True):
            muon_step(matrix, mean, matrix.grad, rate * (decay.get_last_lr()[0] / RATE), counts, MOMENTUM)
        decay.step()
        errors.append(loss.detach())
    return -10 * torch.stack(errors[-max(1, steps // 10) :]).mean().log10().item()
