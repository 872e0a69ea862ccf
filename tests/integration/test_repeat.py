"""Two runs of one seed with deterministic=true are equal to the bit: parameters, moments, occupancy and pictures.

On a CPU every run is (test_threads.py for the number of threads); the tests of a GPU are marked cuda. Several ranks on
one GPU talk by gloo here; scripts/train.py has them talk by NCCL, each on a GPU of its own.
"""

from dataclasses import replace

import pytest
import torch
from ranks import on_ranks
from repeated_runs import differing, divided_variants, trained, trained_on_ranks, variants
from resumed_runs import MIDDLE
from tiny_runs import tiny_config, tiny_images

from nerf.errors import UserError
from nerf.runs.run import start


def small(config, steps):
    """As many doublings and prunings, sooner and with fewer rays: on a CPU little is by chance."""
    return replace(config, train=replace(config.train, steps=steps, rays_per_step=96))


@pytest.mark.cuda
@pytest.mark.parametrize("name", variants())
def test_two_runs_on_a_gpu_are_one(name, cuda):
    config = variants()[name]
    assert differing(trained(config, cuda, 7), trained(config, cuda, 11)) == []


@pytest.mark.parametrize("count", [2, 3])
def test_two_runs_on_several_ranks_are_one(count, device, tmp_path):
    configs = divided_variants()
    if count > 2:
        configs = {"contracted": configs["contracted"]}
    elif device == "cpu":  # where little is by chance
        configs = {name: configs[name] for name in ("voxel_sh", "antialiased")}
    if device == "cpu":
        configs = {name: small(x, 20) for name, x in configs.items()}
    first, second = (on_ranks(count, trained_on_ranks, configs, device, every, str(tmp_path)) for every in (7, 11))
    for rank in range(count):
        for name in configs:
            assert differing(first[rank][name], second[rank][name]) == [], f"{name} on rank {rank}"


def test_ranks_that_were_stopped_end_as_if_never_stopped(device, tmp_path):
    configs = {"learned cameras": divided_variants()["learned cameras"]}
    if device == "cpu":
        configs = {name: small(x, 2 * MIDDLE) for name, x in configs.items()}
    through, stopped = (on_ranks(2, trained_on_ranks, configs, device, 7, str(tmp_path), x) for x in (False, True))
    for rank in range(2):
        assert differing(through[rank]["learned cameras"], stopped[rank]["learned cameras"]) == [], f"rank {rank}"


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
