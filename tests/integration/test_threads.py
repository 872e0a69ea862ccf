"""Training on a CPU gives the same bits for any number of threads, in batches that PyTorch divides among them.

It divides tensors of more than 32768 numbers: samples, their colors, and from 10923 rays on pixels.
"""

import os
import sys

import pytest
import torch
import warm_python
from script_runs import ROOT, TIMEOUT

pytestmark = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="promised where MKL multiplies matrices")
LARGE = "train.rays_per_step=2500 field.num_voxels=60000"
SHORT = "field.min_level_steps=2 occupancy.min_steps=4 occupancy.update_interval=0.3"
# The last one asks PyTorch for deterministic operations, which the process keeps.
RUNS = {
    "voxel_sh": f"train.steps=5 field=voxel_sh loss.distortion=0.01 {LARGE} {SHORT}",
    "voxel_mlp": f"train.steps=5 field=voxel_mlp field.hidden_width=64 poses=refine {LARGE} {SHORT}"
    " poses.initial_num_voxels=1000 train.rays_per_step=3000",
    "voxel_deferred": f"train.steps=6 field=voxel_deferred exposure.learn=true {SHORT} train.rays_per_step=11000",
    "unbounded": "train.steps=6 field=voxel_sh dataset.kind=unbounded poses=refine"
    f" {LARGE} {SHORT} train.rays_per_step=1000",
    "repeatable": f"train.steps=6 field=voxel_deferred deterministic=true {LARGE} {SHORT}",
}
# Two steps each, in which as many operations as can be are called.
STEPS = {
    "voxel_sh": "field=voxel_sh dataset.background=learned loss.distortion=0.01 loss.opacity_entropy=0.01"
    " loss.pair_ssim=0.1 loss.alpha=0.1 train.rays_per_step=11000",
    "voxel_mlp": "field=voxel_mlp poses=refine poses.intrinsics=true train.rays_per_step=3000",
    "voxel_deferred": "field=voxel_deferred field.feature_noise=0.1 field.feature_sines=true field.diffuse=true"
    " exposure.learn=true exposure.vignetting=true sampler.rays_per_pixel=4 train.antialias_start=0"
    " train.rays_per_step=11000",
    "host": "field=voxel_deferred field.sparse=true train.features=host loss.grad_scaling_distance=0.5"
    " loss.tv_until=0 train.rays_per_step=6000 field.num_voxels=200000",
}
# Sums of all numbers of a tensor, of which no parameter depends: the loss that is logged, and whether it is finite.
SUMS = {"aten.sum.default", "aten.mean.default", "aten.mse_loss.default"}


def said(*arguments: str) -> str:
    """What tests/helpers/thread_runs.py prints."""
    helper = ROOT / "tests" / "helpers" / "thread_runs.py"
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}  # as a user has it
    environment |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    command, where = [sys.executable, str(helper), *arguments], {"cwd": ROOT, "env": environment}
    ended = warm_python.run(command, **where, capture_output=True, text=True, timeout=TIMEOUT)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def trained() -> dict[str, list[str]]:
    """A line for each number of threads, of each run of RUNS. All in one process, which loads the images once."""
    lines = said(*" / ".join(RUNS.values()).split()).splitlines()
    assert len(lines) % len(RUNS) == 0
    each = len(lines) // len(RUNS)
    return {name: lines[each * at : each * (at + 1)] for at, name in enumerate(RUNS)}


@pytest.mark.parametrize("name", RUNS)
def test_one_two_and_three_threads_train_the_same_bits(name: str, trained: dict[str, list[str]]) -> None:
    threads, doublings, prunings, numbers = zip(*(line.split() for line in trained[name]), strict=True)
    assert threads == ("1", "2", "3") and len(set(numbers)) == 1
    assert int(prunings[0]) > 1 and (int(doublings[0]) > 0 or name == "unbounded")


@pytest.fixture(scope="module")
def differing() -> dict[str, set[str]]:
    """The operations whose results differ, of each run of STEPS. All in one process, as each would import PyTorch's
    compiler, which takes longer than the steps.
    """
    lines = said("--operations", "2", *" / ".join(STEPS.values()).split()).splitlines()
    return {name: set(line.split()) for name, line in zip(STEPS, lines, strict=True)}


@pytest.mark.parametrize("name", STEPS)
def test_operations_of_a_step_give_one_result_for_all_numbers_of_threads(
    name: str, differing: dict[str, set[str]]
) -> None:
    assert differing[name] <= SUMS
