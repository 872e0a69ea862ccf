"""What deterministic=true changes besides the operations, wherever it runs; the bits themselves: tests/integration."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny_runs import tiny_config, tiny_images, tiny_state

from nerf.ops.backend import Backend, select
from nerf.training import loop
from nerf.training.batches import choose_image_storage
from nerf.training.loop import Callback, train
from nerf.training.state import TrainState


class Looks(Callback):
    """Asks for a log after some step, as a save does at the clock's time."""

    def __init__(self, step: int) -> None:
        self.step = step

    def wants_log(self, state: TrainState) -> bool:
        return state.clock.step == self.step


@pytest.mark.parametrize("repeatable", [False, True])
def test_a_log_at_the_clocks_time_raises_no_capacity(repeatable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[int] = []
    read = loop.TrainStep.read
    monkeypatch.setattr(loop.TrainStep, "read", lambda step: replace(read(step), dropped_rays=1))
    monkeypatch.setattr(loop, "raise_capacity", lambda state: raised.append(state.clock.step))
    config, state = tiny_state(tiny_config(log_every=15))
    list(train(replace(config, deterministic=repeatable), state, [Looks(4)]))
    assert 15 in raised and (4 in raised) != repeatable


def test_the_free_memory_of_a_gpu_does_not_choose_where_images_are(monkeypatch: pytest.MonkeyPatch) -> None:
    images = tiny_images()
    memory = images.pixels.nbytes * 100
    gpu = Backend("native", torch.device("cuda"), "", SimpleNamespace())
    for free in (memory, 0):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, memory))
        assert choose_image_storage("auto", images, replace(gpu, deterministic=True)) == "device"
        assert choose_image_storage("auto", images, gpu) == ("device" if free else "host")


def test_grids_are_told_to_add_in_one_order() -> None:
    asked: list[dict] = []
    backend = select("native", "cpu")

    def interpolated(grid: torch.Tensor, coords: torch.Tensor, grad: torch.Tensor, **more: object) -> torch.Tensor:
        asked.append(more)
        return backend.ops.interpolate_trilinear(grid, coords, grad)

    spying = SimpleNamespace(**{**vars(backend.ops), "interpolate_trilinear": interpolated})
    _, state = tiny_state(tiny_config())
    for repeatable, expected in ((False, {}), (True, {"deterministic": True})):
        state.field.backend = replace(backend, ops=spying, deterministic=repeatable)
        state.field.raw_density(torch.ones(1, 3))
        assert asked.pop() == expected
