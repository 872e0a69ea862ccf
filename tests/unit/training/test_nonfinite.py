"""A loss or gradient that is not finite: the step is left out and counted, and the run goes on until it persists."""

import math
from collections.abc import Callable

import pytest
import torch
from resumed_runs import stop_and_restore
from state_facts import differing, facts
from tiny_runs import run_to, tiny_config, tiny_images, tiny_state

from nerf.images.pixel_runs import PixelRuns
from nerf.ops.backend import select
from nerf.training import losses
from nerf.training.loop import NonFiniteLoss, train
from nerf.training.nonfinite import SkippedSteps, all_finite
from nerf.training.state import TrainState
from nerf.training.step import TrainStep


class NanGradient(torch.autograd.Function):
    """The same value, but its derivative at the first ray is NaN."""

    @staticmethod
    def forward(ctx, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        return grad.index_fill(0, torch.tensor([0], device=grad.device), math.nan)


def nan_loss(rgb: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return (rgb - truth).square().mean() * math.nan


def nan_gradient(rgb: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return (NanGradient.apply(rgb) - truth).square().mean()


def broken_in(steps: set[int], how: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes these steps, counted from now on, those with a broken loss."""
    calls, photometric = [], losses.photometric

    def photometric_or_broken(rgb: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return (how if len(calls) in steps else photometric)(rgb, truth)

    monkeypatch.setattr(losses, "photometric", photometric_or_broken)


def all_rays_hit(state: TrainState) -> None:
    """Draws from pixels in the middle of the images alone, so that the first ray of every batch has samples."""
    state.batches.valid_pixels = PixelRuns.of_mask(tiny_images().pixels[:, 3] == 255)


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("field", ["voxel_sh", "voxel_mlp", "voxel_deferred"])
@pytest.mark.parametrize("how", [nan_loss, nan_gradient])
def test_a_broken_step_changes_nothing_and_is_counted(
    field: str, backend: str, how: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, state = tiny_state(tiny_config(field), select(backend, "cpu"))
    all_rays_hit(state)
    step = TrainStep(config, state)
    step()
    assert step.read().skipped == 0 and state.optimizer.step_number == 1
    before = facts(state)
    broken_in({1}, how, monkeypatch)
    step()
    sums = step.read()
    assert sums.skipped == 1 and sums.losses == {"photometric": 0.0, **dict.fromkeys(step.objective.names[1:], 0.0)}
    assert set(differing(before, facts(state))) == {".batches.generator"}
    grads = [p.grad for p in state.field.parameters() if p.grad is not None]
    assert not any(grad.any() for grad in grads), "a gradient was left for the next step"
    step()
    sums = step.read()
    assert sums.skipped == 0 and sums.losses["photometric"] > 0 and state.optimizer.step_number == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_density_is_checked_at_its_samples_and_where_they_are_not_known_in_its_grid(bad: float) -> None:
    _, state = tiny_state(tiny_config())
    loss, density = torch.ones(()), state.optimizer.groups[0].parameter
    fine, broken = torch.ones(5), torch.tensor([1.0, bad])
    for of_densities, expected in (([fine], True), ([fine, broken], False), ([], True), (None, True)):
        assert bool(all_finite(loss, of_densities, state.optimizer)) == expected
    assert not all_finite(loss * bad, [fine], state.optimizer)
    density.grad = torch.zeros_like(density).index_fill_(0, torch.tensor([3]), bad)
    assert not all_finite(loss, None, state.optimizer)


def test_a_step_knows_the_gradients_of_its_densities_and_forgets_them() -> None:
    config, state = tiny_state(tiny_config())
    all_rays_hit(state)
    field, coords = state.field, torch.full((4, 3), 2.0)
    field.raw_density(coords).sum().backward()
    assert field.take_density_gradients() is None
    field.begin_step()
    (2 * field.raw_density(coords)).sum().backward()
    assert [grad.tolist() for grad in field.take_density_gradients()] == [[2.0] * 4]
    TrainStep(config, state)()
    assert field.take_density_gradients() is None


def test_a_run_goes_on_past_broken_steps_and_tells_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    config, state = tiny_state(tiny_config())
    broken_in({13, 15}, nan_loss, monkeypatch)
    reports = {look.step: look for look in train(config, state)}
    assert [reports[step].skipped_steps for step in (10, 20, 30, 40)] == [0, 2, 0, 0]
    assert all(math.isfinite(look.psnr) for look in reports.values()) and reports[40].psnr > reports[10].psnr
    assert state.optimizer.step_number == 38


def test_a_resumed_run_with_a_broken_step_ends_as_one_that_never_stopped(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    for stop in (False, True):
        with monkeypatch.context() as patch:
            broken_in({13}, nan_gradient, patch)
            config, state = tiny_state(tiny_config())
            if stop:
                run_to(config, state, 14)
                config, state = stop_and_restore(tmp_path, config, state)
            run_to(config, state, 40)
            ends.append(facts(state))
    assert differing(*ends) == []


def test_trouble_persists_when_a_quarter_of_the_steps_is_left_out() -> None:
    trouble = SkippedSteps()
    for left_out, steps, persist in ((4, 10, False), (0, 10, False), (4, 10, False), (1, 20, False), (4, 5, True)):
        trouble.add(left_out, steps)
        assert trouble.should_abort == persist, (left_out, steps)


def test_single_looks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a look after every step too, the fifth broken one in a row stops the run."""
    config, state = tiny_state(tiny_config(log_every=1))
    broken_in(set(range(4, 100)), nan_loss, monkeypatch)
    with pytest.raises(NonFiniteLoss, match="5 of the 5 steps up to step 8"):
        run_to(config, state, 40)
    assert state.field.density_grid.isfinite().all()


def test_a_recorded_step_leaves_itself_out(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a CUDA graph: a factor on the device, which the recording reads, is NaN for two steps."""
    factor, photometric = torch.ones((), device=cuda), losses.photometric
    monkeypatch.setattr(losses, "photometric", lambda rgb, truth: photometric(rgb, truth) * factor)
    config, state = tiny_state(tiny_config(steps=100, log_every=2), select("native", cuda))
    left_out = {}
    for look in train(config, state):
        left_out[look.step] = look.skipped_steps
        factor.fill_(math.nan if look.step == 50 else 1.0)
    assert left_out.pop(52) == 2 and not any(left_out.values())
    assert state.optimizer.step_number == 98 and state.field.density_grid.isfinite().all()
