"""Stochastic weight averaging in a run: when, with which learning rates, and what is saved on the way."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from resumed_runs import stop_and_restore
from state_facts import differing, facts
from tiny_runs import PRUNE_STEPS, STEPS, few_rays_to_prune, run_to, tiny_config, tiny_images, tiny_state

from nerf.config.recipes import resolve_config
from nerf.config.schema import Config, ExposureConfig, PosesConfig, TrainConfig
from nerf.errors import UserError
from nerf.optim.averages import Averages
from nerf.runs import checkpoint
from nerf.runs.resolve import check_features
from nerf.runs.run import resume
from nerf.training.loop import Callback, train
from nerf.training.state import TrainState

FROM = 0.7
FIRST = 28  # the first step whose parameters count
FIELDS_AVERAGED = ["voxel_sh", "voxel_deferred"]


@pytest.fixture(autouse=True)
def pruned_with_few_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    few_rays_to_prune(monkeypatch)


def averaged(field: str = "voxel_sh", **settings: object) -> Config:
    return tiny_config(field, **{"average_from": FROM, "average_lr": 0.5, "lr_decay": 0.1, **settings})


def parameters(state: TrainState) -> dict[str, torch.Tensor]:
    modules = {"field": state.field, **state.auxiliary_modules()}
    named = ((f"{m}.{n}", p) for m, module in modules.items() for n, p in module.named_parameters())
    return {name: p.detach().clone() for name, p in named}


class Recorder(Callback):
    """What parameters were after each step, and the factor of their learning rates."""

    def __init__(self) -> None:
        self.parameters: list[dict[str, torch.Tensor]] = []
        self.factors: list[float] = []
        self.cells: list[int] = []

    def on_step(self, state: TrainState) -> None:
        self.parameters.append(parameters(state))
        self.factors.append(state.optimizer.decay.item())
        self.cells.append(int(state.occupancy.occupied.sum()))


def trained(config: Config, averages: bool = True) -> tuple[TrainState, Recorder]:
    """A run to its end, with its averages or, all else alike, without."""
    config, state = tiny_state(config)
    if not averages:
        state.num_averages = 10**9  # so none is due
    seen = Recorder()
    list(train(config, state, [seen]))
    return state, seen


@pytest.mark.parametrize("field", FIELDS_AVERAGED)
def test_a_run_ends_with_the_mean_of_its_last_steps(field: str) -> None:
    config = replace(averaged(field), exposure=ExposureConfig(learn=True))
    state, found = trained(config)
    _, plain = trained(config, averages=False)
    assert state.num_averages and state.clock.finished
    assert all(torch.equal(found.parameters[-1][name], plain.parameters[-1][name]) for name in plain.parameters[-1])
    for name, final in parameters(state).items():
        mean = torch.stack([values[name] for values in plain.parameters[FIRST - 1 :]]).mean(0)
        torch.testing.assert_close(final, mean, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
        assert not torch.equal(final, plain.parameters[-1][name]), name


def test_learning_rates_fall_to_a_floor_where_parameters_are_averaged() -> None:
    _, seen = trained(averaged())
    assert seen.factors == pytest.approx([max(0.1 ** (step / STEPS), 0.5) for step in range(STEPS)], rel=1e-6)
    config, _ = tiny_state(averaged(average_from=1.0))
    assert config.train.rate_factor(1.0) == pytest.approx(0.1)


def test_nothing_is_pruned_while_parameters_are_averaged() -> None:
    state, seen = trained(averaged())
    assert PRUNE_STEPS[-2:] == (30, 35) and state.num_occupancy_updates == len([s for s in PRUNE_STEPS if s < FIRST])
    assert len(set(seen.cells[FIRST:])) == 1


@pytest.mark.parametrize("field", FIELDS_AVERAGED)
@pytest.mark.parametrize("stop", [FIRST - 2, FIRST + 5])
def test_a_run_that_was_stopped_on_the_way_ends_alike(tmp_path: Path, field: str, stop: int) -> None:
    whole, _ = trained(averaged(field))
    config, state = tiny_state(averaged(field))
    run_to(config, state, stop)
    config, state = stop_and_restore(tmp_path, config, state)
    assert state.optimizer.averages.count == max(0, stop - FIRST + 1)
    run_to(config, state, STEPS)
    assert differing(facts(whole), facts(state)) == []


def test_the_model_of_an_unfinished_run_has_the_means_so_far(tmp_path: Path) -> None:
    config, state = tiny_state(averaged())
    seen = Recorder()
    for _ in train(config, state, [seen]):
        if state.clock.step == 30:
            break
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    model, resumed = checkpoint.load(tmp_path), checkpoint.load_resume(tmp_path)
    now = seen.parameters[-1]["field.density_grid"]
    assert torch.equal(state.field.density_grid, now) and torch.equal(resumed["field"]["density_grid"], now)
    mean = torch.stack([values["field.density_grid"] for values in seen.parameters[FIRST - 1 :]]).mean(0)
    known = model["field"]["density_grid"] != 0  # of occupied cells, in half precision
    assert known.any() and not torch.allclose(mean[known], now[known], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(model["field"]["density_grid"][known], mean[known], rtol=1e-3, atol=1e-3)


def test_a_finished_run_that_goes_on_averages_anew(tmp_path: Path) -> None:
    config, state = tiny_state(averaged())
    run_to(config, state, STEPS)
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    again = resume(tmp_path, steps=2 * STEPS, images=tiny_images())
    assert "0.5 times their initial value" in again.notes[0]
    run_to(again.config, again.state, STEPS + 30)  # progress .875 of the second half of a schedule
    assert again.state.optimizer.averages.count == 30 - round((FROM - 0.5) / 0.5 * STEPS) + 1


def test_a_run_that_was_stopped_as_its_time_was_up_has_its_means(tmp_path: Path) -> None:
    config, state = tiny_state(averaged())
    run_to(config, state, FIRST + 5)
    means = {name: mean.clone() for name, mean in state.optimizer.averages.values.items()}
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    state.clock.steps = state.clock.step
    assert list(train(config, state)) == [] and state.optimizer.averages.count == 0
    saved = checkpoint.load_resume(tmp_path)
    config = replace(config, train=replace(config.train, steps=FIRST + 5))
    checkpoint._write(tmp_path / checkpoint.RESUME_FILE, saved | {"config": asdict(config)})
    extended = resume(tmp_path, steps=2 * STEPS, images=tiny_images()).state
    assert extended.optimizer.averages.count == 0
    for name, mean in means.items():
        for found in (state, extended):
            grid = dict(found.field.named_parameters())[name].detach()
            rows = found.optimizer.active_rows if grid.dim() == 4 else None
            grid = grid if rows is None else grid.view(-1, grid.shape[-1])[rows]
            torch.testing.assert_close(grid, mean.view_as(grid), rtol=0, atol=0)


def test_a_save_that_finds_no_memory_for_the_means_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    config, state = tiny_state(averaged())
    run_to(config, state, FIRST + 5)
    before, count = parameters(state), state.optimizer.averages.count

    def fail(self: Averages, *arguments: object) -> None:
        state.field.density_grid.detach().zero_()
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Averages, "put_in_place", fail)
    with pytest.raises(torch.OutOfMemoryError), state.averaged():
        raise AssertionError("they are not in place")
    assert all(torch.equal(before[name], now) for name, now in parameters(state).items())
    assert state.optimizer.averages.count == count and state.optimizer.averages.values


def test_features_in_host_memory_have_no_averages() -> None:
    config, _ = tiny_state(averaged("voxel_deferred"))
    away = replace(config, field=replace(config.field, sparse=True), train=replace(config.train, features="host"))
    with pytest.raises(
        UserError, match=r"train\.average_from=0\.7 with train\.features=host.*set train\.average_from=1"
    ):
        check_features(away)
    check_features(replace(away, train=replace(away.train, average_from=1.0)))


def test_a_file_whose_averages_lack_one_is_damaged(tmp_path: Path) -> None:
    config, state = tiny_state(averaged())
    run_to(config, state, FIRST + 2)
    del state.optimizer.averages.values["density_grid"]
    state.optimizer.averaged = lambda: torch.inference_mode()
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    with pytest.raises(UserError, match="averages"):
        checkpoint.load_resume(tmp_path)


LESS, MORE = (0.8, 0.4), (0.6, 0.6)


@pytest.mark.parametrize(
    ("device", "seconds", "expected"),
    [
        ("cpu", 38, {"bounded": LESS, "forward_facing": LESS, "unbounded": LESS}),
        ("cuda", 2, {"bounded": MORE, "forward_facing": LESS, "unbounded": MORE}),
        ("cuda", 5, {"bounded": MORE, "forward_facing": LESS, "unbounded": MORE}),
        ("cuda", 15, {"bounded": LESS, "forward_facing": LESS, "unbounded": LESS}),
        ("cuda", 60, {"bounded": LESS, "forward_facing": LESS, "unbounded": MORE}),
        ("cuda", 270, {"bounded": LESS, "forward_facing": LESS, "unbounded": MORE}),
    ],
)
def test_which_recipes_average(device: str, seconds: float, expected: dict[str, tuple[float, float]]) -> None:
    """Those of given poses and of nearly correct ones, and of any where all cameras face one way."""
    config = Config(train=TrainConfig(max_seconds=seconds))
    for kind, values in expected.items():
        found = resolve_config(config, device, kind).train
        assert (found.average_from, found.average_lr) == values, kind
        for far_off in (0.0, 2.0):
            poses = PosesConfig(mode="refine", perturb_degrees=far_off)
            learned = resolve_config(replace(config, poses=poses), device, kind).train
            assert learned.average_from == (1.0 if far_off and kind != "forward_facing" else values[0])
        assert resolve_config(in_host_memory(config), device, kind).train.average_from == 1.0


def in_host_memory(config: Config) -> Config:
    return replace(config, train=replace(config.train, features="host"))


def test_older_runs_go_on_without(tmp_path: Path) -> None:
    config, state = tiny_state(tiny_config("voxel_deferred", average_from=1.0))
    run_to(config, state, 5)
    older = replace(config, train=replace(config.train, average_from=None, average_lr=None))
    checkpoint.save(tmp_path, older, state, tiny_images().cameras)
    assert checkpoint.restore_config(checkpoint.load_resume(tmp_path)).train.average_from == 1.0
