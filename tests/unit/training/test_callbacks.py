"""The training loop's hooks, losses by name, and losses of one's own."""

from collections import Counter

import pytest
import torch
from fake_time import FakeTime
from state_facts import differing, facts
from tiny_runs import PRUNE_STEPS, STEPS, UPSAMPLE_STEPS, run_to, tiny_config, tiny_images, tiny_state

from nerf.config.schema import LossConfig
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.rendering.render import render_image
from nerf.runs.run import start
from nerf.training.loop import Callback, TrainMetrics, train
from nerf.training.losses import LossInputs
from nerf.training.state import TrainState, make_sampler


class Viewer(Callback):
    """Renders the field after every step, and counts its calls."""

    def __init__(self, config) -> None:
        self.config, self.calls, self.picture = config, Counter(), None

    def on_step(self, state: TrainState) -> None:
        self.calls["step"] += 1
        with state.paused():
            assert not state.clock.running
            cameras = tiny_images().cameras.to(state.device)
            sampler, color = make_sampler(self.config, state), state.background.eval(state.device)
            self.picture = render_image(state.field, sampler, cameras, 0, color).rgb
        assert state.clock.running

    def on_log(self, state: TrainState, metrics: TrainMetrics) -> None:
        assert not state.clock.running and metrics.step == state.clock.step
        self.calls["log"] += 1

    def on_grid_change(self, state: TrainState) -> None:
        self.calls["grid"] += 1


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_deferred"])
def test_a_run_that_is_watched_at_every_step_is_the_same_to_the_last_bit(field: str) -> None:
    config, plain = tiny_state(tiny_config(field))
    run_to(config, plain, STEPS)
    config, state = tiny_state(tiny_config(field))
    viewer = Viewer(config)
    logs = list(train(config, state, [viewer]))
    assert differing(facts(plain), facts(state)) == []
    prunings = [step for step in PRUNE_STEPS if step < config.train.average_from * STEPS]
    changes = len({*UPSAMPLE_STEPS, *prunings})
    assert viewer.calls == {"step": STEPS, "log": len(logs), "grid": changes}
    shown = tiny_images().image_over(0, state.background.eval(state.device).cpu())
    assert (viewer.picture - shown).square().mean() < 0.03


def test_an_error_of_a_hook_stops_the_clock_and_training_goes_on_where_it_was(fake_time: FakeTime) -> None:
    fake_time.every_step_takes(1.0)

    class Fails(Callback):
        def on_step(self, state: TrainState) -> None:
            if state.clock.step == 7:
                raise RuntimeError("a hook's own")

    config, state = tiny_state(tiny_config())
    with pytest.raises(RuntimeError, match="a hook's own"):
        list(train(config, state, [Fails()]))
    assert not state.clock.running and state.clock.elapsed == 7
    fake_time.now += 1000  # nobody trains
    run_to(config, state, STEPS)
    assert state.clock.elapsed == STEPS
    config, plain = tiny_state(tiny_config())
    run_to(config, plain, STEPS)
    assert differing(facts(plain), facts(state)) == []


def test_a_recorded_step_stays_valid_while_a_viewer_looks(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many recordings as without, and the same result but for the order of atomic additions."""
    from nerf.training.cuda_graph import StepRunner

    recordings: Counter[bool] = Counter()
    record = StepRunner._record
    psnrs = {}
    for watched in (False, True):
        monkeypatch.setattr(StepRunner, "_record", lambda self, w=watched: recordings.update([w]) or record(self))
        config, state = tiny_state(tiny_config(steps=200), select("native", cuda))
        psnrs[watched] = list(train(config, state, [Viewer(config)] if watched else []))[-1].psnr
    assert recordings[True] == recordings[False] > 0
    assert psnrs[True] == pytest.approx(psnrs[False], abs=0.5)


def test_a_callback_asks_for_a_log_when_it_needs_one() -> None:
    class After7(Callback):
        def wants_log(self, state: TrainState) -> bool:
            return state.clock.step == 7

    config, state = tiny_state(tiny_config(log_every=1000))
    assert [metrics.step for metrics in train(config, state, [After7()])] == [1, 7, 10, STEPS]


def test_every_loss_is_told_by_its_name_and_they_add_up() -> None:
    config = tiny_config()
    config.loss = LossConfig(pair_ssim=0.1, alpha=0.2, opacity_entropy=0.01, distortion=0.02, tv_color=0)
    config, state = tiny_state(config)
    metrics = run_to(config, state, 1)[0]
    assert list(metrics.losses) == ["photometric", "pair_ssim", "alpha", "opacity_entropy", "distortion"]
    assert metrics.psnr == pytest.approx(-10 * torch.tensor(metrics.losses["photometric"]).log10().item(), rel=1e-5)
    assert all(value > 0 for value in metrics.losses.values())
    config.loss.pair_ssim = 0.0
    config, state = tiny_state(config)
    state.batches.paired = True  # the same batch
    assert "pair_ssim" not in (again := run_to(config, state, 1)[0].losses)
    assert again.items() <= metrics.losses.items()


def test_a_notebook_trains_with_a_loss_of_its_own() -> None:
    """A loss that asks for an emptier scene."""

    def emptiness(inputs: LossInputs) -> torch.Tensor:
        assert inputs.rgb.shape == inputs.target.shape == (128, 3) and inputs.pixels.shape == (128,)
        assert inputs.rendering.depth.shape == (128,)  # which losses of the config do not ask for
        return 0.03 * inputs.rendering.opacity.mean()

    opacity = {}
    for name, losses in (("plain", {}), ("own", {"emptiness": emptiness})):
        run = start(tiny_config(), tiny_images(), select("native", "cpu"))
        logs = list(run.train(losses=losses))
        opacity[name] = run.open().render(tiny_images().cameras).opacity.mean()
        assert list(logs[-1].losses) == ["photometric", "distortion", *losses]
    assert logs[0].losses["emptiness"] > 0
    assert opacity["own"] < 0.9 * opacity["plain"]


def test_a_loss_of_ones_own_takes_no_name_that_is_taken() -> None:
    config, state = tiny_state(tiny_config())
    with pytest.raises(UserError, match="'distortion'"):
        next(train(config, state, losses={"distortion": lambda inputs: inputs.rgb.sum()}))
