"""What an error in a step leaves behind, and losses of one's own in other dtypes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from resumed_runs import stop_and_restore
from tiny_runs import few_rays_to_prune, run_to, tiny_config, tiny_state
from torch import Tensor

from nerf.cameras import cameras
from nerf.cameras.distortion import Lenses
from nerf.ops.backend import select
from nerf.rendering import sampler
from nerf.training import loop
from nerf.training import step as steps
from nerf.training.loop import train
from nerf.training.losses import LossInputs
from nerf.training.state import TrainState
from nerf.training.step import StepSums, TrainStep


@pytest.fixture(autouse=True)
def pruned_with_few_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    few_rays_to_prune(monkeypatch)


def gradients(state: TrainState) -> list[float]:
    found = [group.parameter.grad for optimizer in state.optimizers() for group in optimizer.groups]
    return [0.0 if grad is None else grad.abs().max().item() for grad in found]


def test_the_gradients_of_a_step_that_failed_are_not_added_to_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    config, state = tiny_state(tiny_config("voxel_deferred"))
    run_to(config, state, 5)
    seen: list[list[float]] = []

    def fails(*arguments: object) -> dict[str, float]:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(steps, "add_regularization", fails)
        with pytest.raises(RuntimeError, match="out of memory"):
            list(train(config, state))
    assert max(gradients(state)) > 0

    forward = steps.forward

    def looks(*arguments: object, **named: object) -> dict[str, Tensor]:
        seen.append(gradients(state))
        return forward(*arguments, **named)

    monkeypatch.setattr(steps, "forward", looks)
    run_to(config, state, 7)
    assert len(seen) == 2 and max(map(max, seen)) == 0


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_loss_of_ones_own_may_be_float64(backend: str) -> None:
    config, state = tiny_state(tiny_config(), select(backend, "cpu"))

    def own(inputs: LossInputs) -> Tensor:
        return 0.1 * inputs.rgb.double().mean()

    *_, last = train(config, state, losses={"own": own})
    assert last.losses["own"] > 0 and last.step == config.train.steps


def test_a_lens_has_a_derivative_on_its_axis() -> None:
    lenses = Lenses.of(["perspective"], [(0.1, -0.02, 0.0, 0.0)], [1.0])
    for points in (torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[1e-20, 0.0, 2.0]])):
        points.requires_grad_()
        lenses.distort(torch.zeros(1, dtype=torch.int64), points).sum().backward()
        expected = [1 / points[0, 2].item(), 1 / points[0, 2].item(), 0.0]
        assert points.grad[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_what_a_process_keeps_of_a_picture_made_in_inference_mode_can_be_trained_with() -> None:
    kept = (sampler._ends, (0.0, 1.0)), (cameras.subpixels, (4,))
    for make, arguments in kept:
        make.cache_clear()
        with torch.inference_mode():
            make(*arguments, torch.device("cpu"), torch.float32)
        found = make(*arguments, torch.device("cpu"), torch.float32)
        assert not any(tensor.is_inference() for tensor in found)


def test_depth_maps_go_with_the_images() -> None:
    _, state = tiny_state(tiny_config())
    state.batches.depths = torch.zeros(len(state.batches.images))
    state.batches.drop_images()
    assert len(state.batches.images) == 0 and state.batches.depths is None


@pytest.mark.parametrize("stop", [13, 20, 40])
def test_rays_that_a_repeatable_run_has_dropped_are_answered_at_the_same_step_after_a_stop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stop: int
) -> None:
    """Logs are due at steps 1, 10, 20, 30 and 40. Step 12 drops three rays, whenever that is read."""
    raised: list[int] = []
    monkeypatch.setattr(loop, "raise_capacity", lambda state: raised.append(state.clock.step))
    read, begun = TrainStep.read, {}

    def reads(step: TrainStep) -> StepSums:
        before, now = begun.get("step", 0), step.state.clock.step
        begun["step"] = now
        return replace(read(step), dropped_rays=3 if before < 12 <= now else 0)

    monkeypatch.setattr(TrainStep, "read", reads)
    config, state = tiny_state(replace(tiny_config(), deterministic=True))
    run_to(config, state, stop)
    assert state.dropped_rays == (3 if stop == 13 else 0)
    config, state = stop_and_restore(tmp_path, config, state)
    run_to(config, state, config.train.steps)
    assert raised == [20] and state.dropped_rays == 0
