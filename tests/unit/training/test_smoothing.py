"""How the grids are smoothed in training: where a batch came by, and later everywhere, in turns."""

from dataclasses import replace

import pytest
import torch
from tiny_runs import tiny_config, tiny_state

from nerf.config.schema import LossConfig
from nerf.ops import reference
from nerf.ops.backend import Backend, select
from nerf.training import step as training_step
from nerf.training.cuda_graph import StepRunner
from nerf.training.loop import train
from nerf.training.step import TrainStep
from nerf.training.total_variation import TV_SUBSETS, add_total_variation, regularize_grids, round_robin_rows


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return select(request.param, "cpu")


def test_total_variation_is_added_where_the_batch_left_a_gradient(backend: Backend) -> None:
    grid = torch.nn.Parameter(torch.randn(5, 4, 3, 2))
    before = torch.randn(5, 4, 3, 2) * (torch.rand(5, 4, 3, 2) < 0.5)
    (slope,) = torch.autograd.grad(reference.total_variation(grid), grid)
    grid.grad = before.clone()
    add_total_variation(grid, 0.25, backend)
    torch.testing.assert_close(grid.grad, torch.where(before != 0, before + 0.25 * slope, before))


def test_of_listed_vertices_nothing_is_left_out(backend: Backend) -> None:
    """A list that holds all vertices with a gradient, and some without, changes nothing."""
    grid = torch.nn.Parameter(torch.randn(5, 4, 3, 2))
    before = torch.randn(5, 4, 3, 2) * (torch.rand(5, 4, 3, 1) < 0.5)
    rows = (before.view(60, 2) != 0).any(1).logical_or(torch.rand(60) < 0.2).nonzero()[:, 0]
    results = []
    for active_vertices in (None, rows):
        grid.grad = before.clone()
        add_total_variation(grid, 0.25, backend, active_vertices)
        results.append(grid.grad)
    assert torch.equal(*results) and not torch.equal(results[0], before)


def test_total_variation_everywhere_asks_for_no_gradient(backend: Backend) -> None:
    grid, rows = torch.nn.Parameter(torch.randn(5, 4, 3, 2)), torch.tensor([0, 7, 58])
    before = torch.randn(5, 4, 3, 2) * (torch.rand(5, 4, 3, 2) < 0.5)
    (slope,) = torch.autograd.grad(reference.total_variation(grid), grid)
    grid.grad = before.clone()
    add_total_variation(grid, 0.25, backend, rows, touched_only=False)
    expected = before.clone().view(60, 2)
    expected[rows] += 0.25 * slope.view(60, 2)[rows]
    torch.testing.assert_close(grid.grad.view(60, 2), expected)


@pytest.mark.parametrize(("vertices", "left_out"), [(80, 0), (83, 3), (7, 7), (0, 0)])
def test_every_vertex_has_its_turn(vertices: int, left_out: int) -> None:
    rows = torch.arange(10, 10 + vertices)
    turns = [round_robin_rows(rows, torch.tensor([float(step)])) for step in range(TV_SUBSETS, 2 * TV_SUBSETS)]
    assert len({len(turn) for turn in turns}) == 1  # a recorded step knows no other
    assert torch.cat(turns).sort().values.tolist() == rows[: vertices - left_out].tolist()


def test_without_weight_there_is_no_total_variation(backend: Backend) -> None:
    grid = torch.nn.Parameter(torch.randn(3, 3, 3, 1))
    add_total_variation(grid, 0.0, backend)
    assert grid.grad is None


@pytest.mark.parametrize("progress", [0.4, 0.6])
def test_weights_are_those_of_the_share_of_the_run(progress: float) -> None:
    """Of each grid its own where a batch came by; later one at all listed vertices, each in its turn."""
    _, state = tiny_state(tiny_config())
    field, early = state.field, progress < 0.5
    rows = torch.arange(0, field.density_grid.numel() // (2 * TV_SUBSETS) * 2 * TV_SUBSETS, 2)
    listed = torch.zeros(field.density_grid.shape).view(-1).index_fill_(0, rows, 1.0).view(field.density_grid.shape)
    met = torch.rand(field.density_grid.shape) < 0.3
    expected = []
    for grid, weight in ((field.density_grid, 0.5), (field.sh_grid, 0.25)):
        grid.data, grid.grad = torch.rand_like(grid), met.expand(grid.shape).float()
        (slope,) = torch.autograd.grad(reference.total_variation(grid), grid)
        expected.append(grid.grad + (weight * met / 4 if early else TV_SUBSETS * 0.125 / len(rows)) * listed * slope)
    loss = LossConfig(tv_density=0.5, tv_color=0.25, tv_until=0.5, tv_global=0.125)
    for step in range(1 if early else TV_SUBSETS):
        regularize_grids(field, loss, progress, 4, rows, torch.tensor([float(step)]))
    for grid, wanted in zip((field.density_grid, field.sh_grid), expected, strict=True):
        torch.testing.assert_close(grid.grad, wanted)


def test_what_no_ray_meets_is_smoothed_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for weight in (0.0, 1e-3):
        config = tiny_config()
        config, state = tiny_state(replace(config, loss=replace(config.loss, tv_until=0.0, tv_global=weight)))
        grid, met = state.field.density_grid, []
        grid.data = torch.rand_like(grid)
        before = grid.detach().clone()

        def noted(*arguments: object, met: list = met, grid: torch.Tensor = grid) -> tuple[float, ...]:
            met.append(grid.grad != 0)
            return regularize_grids(*arguments)

        monkeypatch.setattr(training_step, "regularize_grids", noted)
        TrainStep(config, state)()
        moved = (grid.detach() != before) & ~met[0]
        assert moved.any() == (weight > 0)


def test_a_step_that_does_something_else_is_recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[float] = []
    config = tiny_config()
    config = replace(config, loss=replace(config.loss, tv_until=0.5), occupancy=replace(config.occupancy, start=1.0))
    config, state = tiny_state(replace(config, field=replace(config.field, upsample_at=[])))

    def invalidate(self: StepRunner, rewarm: bool = False) -> None:
        assert rewarm
        forgotten.append(state.clock.progress)

    monkeypatch.setattr(StepRunner, "invalidate", invalidate)
    list(train(config, state))
    assert forgotten == [0.5]


@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_left_to_adam_is_what_was_added_before(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, where adam_step makes two passes, to the bit."""
    trained = []
    for left in (False, True):
        monkeypatch.setattr(Backend, "smooths_in_adam", property(lambda _, left=left: left))
        config = tiny_config()
        config = replace(config, loss=replace(config.loss, tv_density=1e-2, tv_color=1e-2, tv_until=1.0))
        config, state = tiny_state(replace(config, field=replace(config.field, sparse=sparse)))
        with torch.no_grad():
            for grid in state.field.grids:
                grid.copy_(torch.rand(grid.shape, generator=torch.Generator().manual_seed(1)))
        if left:  # nothing may be added twice
            monkeypatch.setattr("nerf.training.total_variation.add_total_variation", None)
        step = TrainStep(config, state)
        for _ in range(2):
            step.advance()
            step()
        trained.append([grid.detach().clone() for grid in state.field.grids])
    assert all(map(torch.equal, *trained))
