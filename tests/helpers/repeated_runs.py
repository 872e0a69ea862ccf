"""Runs with deterministic=true on one process or several, and what they leave, to compare two of them to the bit."""

from dataclasses import asdict, replace
from pathlib import Path

import torch
from resumed_runs import MIDDLE
from tiny_runs import FAR_OFF, run_to, supersampled, tiny_config, tiny_images, tiny_state
from torch import Tensor

from nerf.config.schema import FIELDS, Config, DatasetConfig, ExposureConfig, TrainConfig
from nerf.distributed.world import World
from nerf.ops.backend import select
from nerf.rendering.render import render_image
from nerf.runs import checkpoint
from nerf.training import pruning
from nerf.training.loop import Callback, train
from nerf.training.state import TrainState, make_sampler


class LogsAtAnyTime(Callback):
    """Asks for a log where a clock would have: at other steps in each run."""

    def __init__(self, every: int) -> None:
        self.every = every

    def wants_log(self, state: TrainState) -> bool:
        return state.clock.step % self.every == 0


def variants() -> dict[str, Config]:
    """The kinds of runs, and of scenes, whose backward passes differ."""
    steps = tiny_config(steps=40, rays_per_step=512)
    plain = {name: replace(tiny_config(name, steps=40, rays_per_step=512), deterministic=True) for name in FIELDS}
    learned = replace(plain["voxel_mlp"], poses=FAR_OFF, exposure=ExposureConfig(learn=True, vignetting=True))
    unbounded = DatasetConfig(scene="sphere", background="learned", kind="unbounded")
    return plain | {
        "learned cameras": learned,
        "contracted": replace(learned, dataset=unbounded),
        "images in host memory": replace(
            plain["voxel_sh"], train=TrainConfig(**{**asdict(steps.train), "images": "host"})
        ),
        "antialiased": supersampled(plain["voxel_deferred"], 0.5),
        "without a graph": replace(
            plain["voxel_deferred"], train=TrainConfig(**{**asdict(steps.train), "cuda_graph": False})
        ),
    }


def divided_variants() -> dict[str, Config]:
    """Those for several ranks, with a loss that is a sum over pairs of samples of all of them."""
    whole = variants()
    del whole["without a graph"]  # ranks have none
    return {name: replace(x, loss=replace(x.loss, distortion=0.01)) for name, x in whole.items()}


def trained(config: Config, device: str, every: int) -> dict[str, Tensor]:
    """All that a run of this config leaves: tensors by name."""
    config, state = tiny_state(config, select("native", device, deterministic=True))
    list(train(config, state, [LogsAtAnyTime(every)]))
    return left(config, state)


def trained_on_ranks(
    world: World, configs: dict[str, Config], device: str, every: int, folder: str, stopped: bool = False
) -> dict[str, dict[str, Tensor]]:
    """The same of each config on one of several ranks: its own values and moments, of rank 0 files and a picture too.

    stopped: a run is saved in the middle and goes on from its file.
    """
    found = {}
    pruning.RAYS_PER_CHUNK["cpu"] = 1 << 11  # as many as tiny grids ask for; of this rank, which is a process
    for name, config in configs.items():
        place = Path(folder) / name
        place.mkdir(exist_ok=True)
        config = replace(config, train=replace(config.train, moments="float32"))  # as nerf/cli/ranks.py:divided has it
        config, state = tiny_state(config, select("native", device, deterministic=True))
        state.divide(world)
        if stopped:
            run_to(config, state, MIDDLE)
            if world.leads:
                checkpoint.save(place, config, state, tiny_images().cameras)
            world.all_gather_objects(None)  # the file is there
            content = checkpoint.load_resume(place)
            state = checkpoint.restore_run(content, config, tiny_images(), state.field.backend)
            state.divide(world)
        list(train(config, state, [LogsAtAnyTime(every)]))
        found[name] = {"rows": state.parts.rows.cpu()} | tensors("moments", state.optimizer.moments)
        for number, grid in enumerate(state.field.grids):
            found[name][f"grid {number}"] = state.field.values_at(grid.detach(), state.parts.rows).cpu()
        if world.leads:
            checkpoint.save(place, config, state, tiny_images().cameras)
            found[name] |= left(config, state)
            for kind, content in (("model", checkpoint.load(place)), ("resume", checkpoint.load_resume(place))):
                found[name] |= tensors(kind, content)
    return found


def left(config: Config, state: TrainState) -> dict[str, Tensor]:
    """What a state that was trained has, but for the seconds of its clock, and a picture of it."""
    found = {"occupied": state.occupancy.occupied.cpu()}
    background = state.background.eval(state.device)
    with torch.no_grad():
        rendering = render_image(state.field, make_sampler(config, state), state.cameras, 0, background)
    found["picture"] = rendering.rgb.cpu()
    return found | tensors("", {"field": dict(state.field.state_dict()), "state": state.state_dict()})


def tensors(name: str, thing: object) -> dict[str, Tensor]:
    """The tensors and numbers in nested dictionaries by name. Seconds are left out: they are others in each run."""
    if isinstance(thing, Tensor):
        return {name: thing.detach().cpu().clone()}
    if isinstance(thing, bytes):
        return {name: torch.frombuffer(bytearray(thing), dtype=torch.uint8)}
    if isinstance(thing, (list, tuple)):
        thing = dict(enumerate(thing))
    if isinstance(thing, dict):
        found: dict[str, Tensor] = {}
        for key, value in thing.items():
            if key not in ("clock", "elapsed"):
                found |= tensors(f"{name}.{key}", value)
        return found
    return {name: torch.tensor(float(thing))} if isinstance(thing, (bool, int, float)) else {}


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """The names of what two runs have left, where it is not equal to the bit."""
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])]
