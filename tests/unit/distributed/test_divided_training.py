"""Several ranks train as one process does: the same parameters in float64, up to 1e-12 after some steps of Adam."""

from collections.abc import Iterator
from unittest import mock

import pytest
import torch
from divided_runs import config_of, double_state, trained
from ranks import on_ranks
from tiny_runs import run_to, tiny_config, tiny_images, tiny_state

from nerf.cameras.rays import Rays
from nerf.cli.ranks import divided
from nerf.distributed.combine import front_to_back
from nerf.distributed.parts import divide
from nerf.distributed.segments import marched
from nerf.distributed.world import World
from nerf.fields import voxel_field
from nerf.ops import backend as backends
from nerf.runs.run import TrainingRun
from nerf.training import pruning
from nerf.training.state import make_sampler

# Doublings after steps 8 and 24, prunings from step 10 on, several rays of a pixel from step 20 on.
ON_TWO = {
    "native deferred global rays poses": 26,
    "native unbounded beside": 12,
    "mlp": 3,
    "native sh sparse gain": 11,
    "native deferred averaged": 14,  # to the end
    "native deferred averaged looked at": 14,
    "native sh sparse averaged looked at": 14,
}
# One process has dense grids up to the second doubling of the second one; ranks have sparse ones all the time.
ON_THREE = {
    "native sh": 11,
    "native sh global sparse": 26,
    "native deferred poses sparse": 26,
    "native sh averaged": 14,
}


@pytest.fixture(autouse=True)
def usual_dtype() -> Iterator[None]:
    """The default dtype after a test whose numbers are float64."""
    yield
    torch.set_default_dtype(torch.float32)


def all_trained(world: World | None, runs: dict[str, int]) -> dict[str, dict[str, torch.Tensor]]:
    backend = {kind: "native" if "native" in kind else "torch" for kind in runs}
    return {kind: trained(world, kind, step, backend[kind]) for kind, step in runs.items()}


def check_equal(ranks: int, runs: dict[str, int]) -> None:
    found = on_ranks(ranks, all_trained, runs)
    for kind, whole in all_trained(None, runs).items():
        stores = [whole.pop("sparse"), *(found[rank][kind].pop("sparse") for rank in range(ranks))]
        if "gain" not in kind:  # whose coarse grids are full
            assert stores == [float("sparse" in kind)] * (ranks + 1)
        for rank in range(ranks):
            stored = found[rank][kind].pop("stored", None)
            for name, value in found[rank][kind].items():
                expected, where = whole[name], f"{kind}: {name} on rank {rank} of {ranks}"
                if stored is not None and name.endswith("_grid"):  # rank 0 has all
                    value, expected = (x.flatten(0, -2)[stored] for x in (value, expected))
                torch.testing.assert_close(value, expected, rtol=0, atol=1e-12, msg=lambda m, w=where: f"{w}: {m}")


def test_two_ranks_train_as_one() -> None:
    check_equal(2, ON_TWO)


def test_three_ranks_train_as_one() -> None:
    check_equal(3, ON_THREE)


def saved_averages(world: World | None) -> dict[str, torch.Tensor]:
    """What rank 0 saves of the means, in the middle of averaging."""
    few_rays_to_prune = mock.patch.dict(pruning.RAYS_PER_CHUNK, cpu=1 << 11)
    with mock.patch.object(voxel_field, "SPARSE_FROM", 0), few_rays_to_prune:
        config, state = double_state(config_of("deferred averaged"), "native")
        if world is not None:
            state.divide(world)
        run_to(config, state, 12)
        state.collect()
        saved = state.state_dict()["optimizer"]
    return {name: value for name, value in saved.items() if "average" in name}


def test_rank_0_saves_the_means_of_all_parts() -> None:
    alone, (first, *_) = saved_averages(None), on_ranks(2, saved_averages)
    assert alone.keys() == first.keys() and alone["averaged"] == first["averaged"] == 3
    for name, value in alone.items():
        torch.testing.assert_close(first[name], value, rtol=0, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def met_again(world: World) -> tuple[int, bool, bool]:
    """A ray that leaves a part of contracted space and comes back: segments, and whether their order is that of t."""
    config, state = double_state(config_of("unbounded"))
    sampler = make_sampler(config, state)
    sampler.occupancy.occupied = torch.ones_like(sampler.occupancy.occupied)
    upper = sampler.occupancy.occupied.clone()
    upper[: len(upper) // 2] = False
    division = divide(upper, world.size)  # its cut passes by the middle; one through it is met once
    (_, cut), *_ = division.boxes[0]  # cells below it along x are rank 0's
    edge = sampler.grid_map.to_scene(torch.full((1, 3), float(cut)))[0, 0]
    # Along y, a little towards higher x: x grows to the face of the inner box and shrinks towards 0 behind it.
    origins = torch.tensor([[float(edge) - 0.02, -0.5, 0.1], [-0.3, 0.2, -0.2]])
    directions = torch.nn.functional.normalize(torch.tensor([[0.06, 1.0, 0.0], [1.0, 0.1, 0.2]]), dim=-1)
    rays = Rays(origins, directions, 1)
    samples, segment, count = marched(world, division, sampler, rays, None)
    slot = samples.ray_indices * count + segment
    first = torch.full((2 * count,), torch.inf).scatter_reduce(0, slot, samples.t_starts, "amin").view(2, count)
    order = front_to_back(world, torch.ones_like(first), first).order
    # Every sample of all ranks, in the order of the segments, against the order of t.
    mine = [samples.t_starts[slot == i].tolist() for i in range(2 * count)]
    everyone = world.all_gather_objects(mine)
    rising = True
    for ray in range(2):
        times = [t for k in order[ray].tolist() for t in everyone[k // count][ray * count + k % count]]
        rising &= times == sorted(times)
    whole = sampler.sample(rays).t_starts
    complete = sum(len(x) for rank in everyone for x in rank) == len(whole)
    return count, rising, complete


def test_a_bent_ray_may_meet_a_part_twice() -> None:
    for count, rising, complete in on_ranks(2, met_again):
        assert count == 2 and rising and complete


@mock.patch.object(voxel_field, "SPARSE_FROM", 0)
def moments_after_a_cut_moved(world: World | None) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Active rows and a moment of the density after steps and another occupancy, whose division is another one.

    Also how many vertices the grids store when they are collected, in the next step, and how many they are to store.
    """
    config, state = double_state(config_of("native sh sparse"), "native")
    if world is not None:
        state.divide(world)
    run_to(config, state, 4)
    stored = [len(state.field.density_grid)]
    if world is not None:
        state.parts.begin_step(state.field, state.optimizer)
        stored += [len(state.field.density_grid), len(state.parts.division.stored(world.rank))]
    state.occupancy.occupied = state.occupancy.occupied.clone()
    state.occupancy.occupied[: len(state.occupancy.occupied) // 2] = False
    if world is None:
        state.optimizer.set_active(state.occupancy.active_vertices())
    else:
        state.parts.redivide(state.field, state.occupancy, state.optimizer)
    return state.optimizer.active_vertices, state.optimizer.moments["density_grid"][0], stored


def test_vertices_take_their_moments_to_another_rank() -> None:
    rows, whole, (stored,) = moments_after_a_cut_moved(None)
    for rank, (own, moment, (collected, needed, listed)) in enumerate(on_ranks(2, moments_after_a_cut_moved)):
        assert needed == listed < 0.75 * stored and collected == (needed if rank else stored)
        assert 0 < len(own) < len(rows) and moment.abs().sum() > 0
        torch.testing.assert_close(moment, whole[torch.searchsorted(rows, own)], rtol=0, atol=1e-12)


def dtypes_on_ranks(world: World) -> tuple[str, set[torch.dtype]]:
    backends.adds_bfloat16 = lambda device, deterministic: True  # as on a GPU
    config, state = tiny_state(tiny_config(moments="bfloat16"))
    assert state.field.appearance_grid.dtype == torch.float16
    training = divided(TrainingRun(config, tiny_images(), state), world)
    moments = training.state.optimizer.moments.values()
    grids = [x for grid in state.field.grids for x in (grid, grid.grad)]
    return training.config.train.moments, {x.dtype for x in (*grids, *(m for pair in moments for m in pair))}


def test_ranks_keep_grids_and_moments_as_float32() -> None:
    """Rounded by the numbers of vertices, which each rank counts in its own way, those of replicas would differ."""
    assert on_ranks(2, dtypes_on_ranks) == 2 * [("float32", {torch.float32})]
