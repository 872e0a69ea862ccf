"""Tiny runs in float64, on one process and on several: what work does on each rank of tests/unit/distributed."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from tiny_runs import FAR_OFF, run_to, supersampled, tiny_config, tiny_images

from nerf.config.recipes import resolve_config
from nerf.config.schema import Config, DatasetConfig, ExposureConfig
from nerf.datasets.posed_images import PosedImages
from nerf.distributed.world import World
from nerf.fields import voxel_field
from nerf.ops.backend import select
from nerf.scene import bounds
from nerf.scene.box import SceneBox
from nerf.training import pruning
from nerf.training.initial_state import init_state
from nerf.training.loop import Callback, StopWhen, train
from nerf.training.state import TrainState

EPS = 1e-7  # of Adam: far below the gradients of these runs, far above their rounding


def config_of(kind: str) -> Config:
    """A run of 40 steps with doublings and prunings, and what its kind says."""
    config = tiny_config("voxel_deferred" if "deferred" in kind else "voxel_mlp" if "mlp" in kind else "voxel_sh")
    config = replace(config, loss=replace(config.loss, distortion=0.01, opacity_entropy=1e-3, pair_ssim=0.1))
    if "beside" in kind:
        config = replace(config, loss=replace(config.loss, multi_view=0.1))
    if "poses" in kind:
        config = replace(config, poses=FAR_OFF, exposure=ExposureConfig(learn=True, vignetting=True))
    if "global" in kind:
        config = replace(config, loss=replace(config.loss, tv_until=0.3, tv_global=1e-3))
    if "sparse" in kind:
        gain = {"num_voxels": 8**3, "sparse_gain": 8.0} if "gain" in kind else {"num_voxels": 24**3}
        field = replace(config.field, sparse=True, **gain)
        occupancy = replace(config.occupancy, alpha_threshold=0.02)
        config = replace(config, field=field, occupancy=occupancy)
    if "averaged" in kind:
        config = replace(config, train=replace(config.train, steps=14, average_from=0.7))
    if "rays" in kind:
        config = supersampled(config, 0.5)
    if "unbounded" in kind:
        aabb = [-0.6, -0.6, -0.6, 0.6, 0.6, 0.6]
        dataset = DatasetConfig(scene="sphere", background="random", kind="unbounded", aabb=aabb)
        config = replace(config, dataset=dataset)
    return config


def double_state(config: Config, backend: str = "torch") -> tuple[Config, TrainState]:
    """A state whose numbers are all float64."""
    torch.set_default_dtype(torch.float64)
    chosen = select(backend, "cpu")
    adam, ops = chosen.ops.adam_step, SimpleNamespace(**vars(chosen.ops))

    def adam_step(param, exp_avg, exp_avg_sq, grad, lr, step, *rest):
        # Rates and step are float32 alone. Without EPS a gradient that is the last bits of a sum becomes a whole step.
        *others, _ = rest
        adam(param, exp_avg, exp_avg_sq, grad, lr.float(), step.float(), *others, EPS)

    ops.adam_step = adam_step
    chosen = replace(chosen, ops=ops)
    kind = config.dataset.kind if config.dataset.kind != "auto" else "bounded"
    config = resolve_config(config, "cpu", kind)
    images = tiny_images()
    if config.loss.multi_view > 0:
        images = taken_beside_each_other(images)
    images = replace(images, cameras=replace(images.cameras, **_doubled(images.cameras)))
    make_box = bounds.make_box

    def double_box(*arguments, **named):
        box = make_box(*arguments, **named)
        return SceneBox(box.aabb.double(), replace(box.space, **_doubled(box.space)))

    with mock.patch.object(bounds, "make_box", double_box):
        return config, init_state(config, images, chosen)


def taken_beside_each_other(images: PosedImages) -> PosedImages:
    """One opaque picture of waves, as cameras would see it that stand a hundredth of their distance apart."""
    cameras, place = images.cameras, torch.arange(images.cameras.width * images.cameras.height)
    c2w = cameras.c2w[:1].repeat(len(cameras), 1, 1)
    c2w[:, :, 3] += 0.04 * torch.arange(len(cameras))[:, None] * c2w[:, :, 0]
    waves = torch.sin(0.9 * (place % cameras.width)) + torch.sin(0.7 * (place // cameras.width))
    pixels = images.pixels.clone().view(len(cameras), -1, 4)
    pixels[..., :3], pixels[..., 3] = (127 + 60 * waves).byte()[:, None], 255
    return replace(images, pixels=pixels.flatten(0, 1), cameras=replace(cameras, c2w=c2w))


def _doubled(thing: Any) -> dict[str, torch.Tensor]:
    found = {name: getattr(thing, name) for name in thing.__dataclass_fields__}
    return {name: x.double() for name, x in found.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}


class Looking(Callback):
    """A page of the viewer, for which rank 0 has the whole scene after every step."""

    def __init__(self, looks: bool) -> None:
        self._looks = looks

    def wants_whole(self, state: TrainState) -> bool:
        return self._looks


def trained(world: World | None, kind: str, step: int, backend: str = "torch") -> dict[str, torch.Tensor]:
    """All parameters after some steps, of ranks but the first those of their own vertices ("stored")."""
    few_rays_to_prune = mock.patch.dict(pruning.RAYS_PER_CHUNK, cpu=1 << 11)
    with mock.patch.object(voxel_field, "SPARSE_FROM", 0), few_rays_to_prune:
        config, state = double_state(config_of(kind), backend)
        if world is not None:
            state.divide(world)
        run_to(config, state, step - 2)  # rank 0 has the whole scene there, and goes on with its part
        looking = Looking("looked at" in kind and (world is None or world.leads))
        list(train(config, state, [StopWhen(lambda: state.clock.step >= step), looking]))
        return parameters(state)


def parameters(state: TrainState) -> dict[str, torch.Tensor]:
    state.collect()
    field, own = state.field, {id(grid) for grid in state.field.grids}
    found = {name: field.dense(x) if id(x) in own else x for name, x in field.named_parameters()}
    for name, module in state.auxiliary_modules().items():
        found |= {f"{name}.{key}": value for key, value in module.named_parameters()}
    found = {name: value.detach().clone() for name, value in found.items()}
    if state.parts is not None and not state.parts.world.leads:
        found["stored"] = state.parts.division.stored(state.parts.world.rank)
    found["sparse"] = torch.tensor(float(field.rows is not None))
    return found | {"occupied": state.occupancy.occupied.double(), "step": torch.tensor(float(state.clock.step))}
