"""Two runs of one seed with deterministic=true are equal to the bit: parameters, moments, occupancy and pictures.

On a CPU every run is (test_threads.py for the number of threads); the tests of a GPU are marked cuda.
"""

from dataclasses import asdict, replace

import pytest
import torch
from tiny_runs import supersampled, tiny_config, tiny_images, tiny_state
from torch import Tensor

from nerf.config.schema import FIELDS, Config, DatasetConfig, ExposureConfig, PosesConfig, TrainConfig
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.rendering.render import render_image
from nerf.runs.run import start
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
    learned = replace(
        plain["voxel_mlp"], poses=PosesConfig(mode="refine"), exposure=ExposureConfig(learn=True, vignetting=True)
    )
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


def trained(config: Config, device: str, every: int) -> dict[str, Tensor]:
    """All that a run of this config leaves: tensors by name."""
    config, state = tiny_state(config, select("native", device, deterministic=True))
    list(train(config, state, [LogsAtAnyTime(every)]))
    found = {"occupied": state.occupancy.occupied}
    background = state.background.eval(state.device)
    with torch.no_grad():
        rendering = render_image(state.field, make_sampler(config, state), state.cameras, 0, background)
    found["picture"] = rendering.rgb
    saved = {"field": dict(state.field.state_dict()), "state": state.state_dict()}
    saved["state"].pop("clock")  # the seconds are another number in each run

    def collect(name: str, x: object) -> None:
        if isinstance(x, Tensor):
            found[name] = x.detach().cpu().clone()
        elif isinstance(x, dict):
            for key, value in x.items():
                collect(f"{name}.{key}", value)
        else:
            found[name] = torch.tensor(float(x))

    collect("", saved)
    return found


@pytest.mark.cuda
@pytest.mark.parametrize("name", variants())
def test_two_runs_on_a_gpu_are_one(name, cuda):
    config = variants()[name]
    first, second = trained(config, cuda, 7), trained(config, cuda, 11)
    assert first.keys() == second.keys()
    assert [key for key in first if not torch.equal(first[key], second[key])] == []


def test_a_run_that_is_repeated_has_no_schedule_in_seconds():
    config = replace(tiny_config(steps=None, max_seconds=2.0), deterministic=True)
    threads = torch.get_num_threads()
    try:
        with pytest.raises(UserError, match=r"train.max_seconds=2: .*give train.steps"):
            start(config, tiny_images())
        run = start(replace(tiny_config(), deterministic=True), tiny_images())
        assert run.state.field.backend.deterministic
    finally:
        torch.set_num_threads(threads)
