"""What mode=ranks counts as the grid part of a step, and how its table sets ranks beside one process."""

from itertools import count
from typing import Any

import torch
from tiny_runs import run_to, tiny_config, tiny_state

from nerf.benchmarks.ranks import GridClock, scene_bytes
from nerf.benchmarks.ranks_table import features_table, ranks_table
from nerf.ops.backend import select


def test_operations_on_grids_count_forward_and_backward_and_the_network_does_not() -> None:
    ops = select("native", "cpu").ops
    grid = torch.randn(4, 4, 4, 4, requires_grad=True)
    params = torch.randn(4 * 64 + 64 + 64 * 3 + 3, requires_grad=True)
    with GridClock(count().__next__) as clock:
        features = ops.interpolate_trilinear(grid, torch.rand(5, 3))
        assert clock.seconds == 1  # from one look at the clock to the next
        colors = ops.mlp(features, params, 64, 1, 3, False)
        assert clock.seconds == 1
        colors.sum().backward()
    assert clock.seconds == 2
    assert grid.grad is not None and params.grad is not None


def test_means_of_parameters_are_memory_of_the_scene() -> None:
    """Four bytes a number of the active vertices, and of the networks."""
    config, state = tiny_state(tiny_config(average_from=0.5))
    run_to(config, state, 19)
    before = scene_bytes(state)
    run_to(config, state, 39)
    after, optimizer = scene_bytes(state), state.optimizer
    active = len(optimizer.active_vertices)
    each = [active * g.parameter.shape[-1] if g.on_vertices else g.parameter.numel() for g in optimizer.groups]
    assert before["averages"] == 0 and after["averages"] == 4 * sum(each) > 0
    assert 2 * after["averages"] == after["moments"]  # of float32 here


def result(*ranks: tuple[float, float | None]) -> dict[str, Any]:
    each = {"samples_per_step": 1.0, "vertices": 8, "scene_bytes": {"values": 1000}, "bytes_per_step": {}}
    names = "scene", "device", "field", "clock", "torch", "commit", "date", "command"
    return {
        **{name: name for name in names},
        **{"sparse": True, "cores": 2, "resolution": [2, 2, 2], "rays_per_step": 1, "imbalance": 1.0},
        "ranks": [each | {"seconds_per_step": s, "grid_seconds_per_step": grids} for s, grids in ranks],
    }


def test_the_slowest_grid_part_stands_beside_half_of_one_process() -> None:
    header, _, alone, two, *_ = ranks_table([result((1.0, 0.8)), result((0.6, 0.48), (0.7, 0.5))]).splitlines()
    cells = [cell.strip() for cell in two.split("|")]
    columns = [cell.strip() for cell in header.split("|")]
    assert cells[columns.index("over the ideal")] == "1.40 x"
    assert cells[columns.index("grid part")] == "1.25 x"
    assert "1.00 x" in alone


def test_a_result_without_it_has_a_dash() -> None:
    header, _, _, two, *_ = ranks_table([result((1.0, None)), result((0.7, None), (0.7, None))]).splitlines()
    columns = [cell.strip() for cell in header.split("|")]
    assert [cell.strip() for cell in two.split("|")][columns.index("grid part")] == "-"


def test_features_in_host_memory_stand_beside_those_on_the_device() -> None:
    """Of a batch each; what is in host memory takes none of the device's."""
    runs = []
    for rays, seconds, brought in ((256, (0.001, 0.0015), 20), (1024, (0.002, 0.005), 30)):
        for where, held in enumerate(({"values": 100, "brought": 0, "in host memory": 0}, {"values": 10})):
            away = {"brought": brought * 10**6, "in host memory": 90 * 10**6} if where else {}
            scene = {kind: count * 10**6 for kind, count in held.items()} | away
            rank = {"seconds_per_step": seconds[where], "samples_per_step": 5000.0, "scene_bytes": scene}
            run = {"scene": "bricks", "field": "voxel_deferred", "resolution": [9, 9, 9], "device": "a GPU"}
            run |= {"torch": "2", "commit": "abc", "date": "2026-11-25", "command": "python", "ranks": [rank]}
            runs.append(run | {"rays_per_step": rays})
    _, _, few, many, *notes = features_table([{"runs": runs[::-1]}]).splitlines()
    assert [x.strip() for x in few.split("|")[2:-2]] == [
        "256", "5000", "100.0", "1.00", "30.0", "20.0", "1.50", "1.50 x", "3.3 x less"
    ]  # fmt: skip
    assert "2.50 x" in many and "2.5 x less" in many and any("9 x 9 x 9 vertices, a GPU" in note for note in notes)
