"""Backward passes and updates give the same bits again and again on the CPU, for one thread and for two.

`make fuzz` sets NERF_REPEATS=300. On CUDA the order of atomic additions is free: cuda_ext/README.md, "Promises".
"""

import os

import pytest
import torch
from cases import CASES
from march_cases import march_through_density
from proofs import argument_names, operation, written
from torch import Tensor

from nerf.ops import native  # noqa: F401  loads the library

REPEATS = int(os.environ.get("NERF_REPEATS", "50"))
THREADS = (1, 2)


def bits(name: str, arguments: tuple) -> list[Tensor]:
    """What a call yields, as whole numbers: NaN is NaN, and -0 is not 0."""
    named = dict(zip(argument_names(name), arguments, strict=False))
    named |= {key: named[key].clone() for key in written(name)}
    found = operation(name)(*named.values())
    found = [named[key] for key in written(name)] or ([found] if isinstance(found, Tensor) else found)
    return [x.view(torch.uint8) if x.dim() and x.numel() else x for x in map(Tensor.contiguous, found)]


def many_times(x: object, times: int) -> object:
    return torch.cat([x] * times) if isinstance(x, Tensor) and x.dim() else x


def arguments_of(name: str) -> tuple:
    """Large enough that two threads share the work, and points of the same cells meet."""
    if name == "march_visible":
        return tuple(
            x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in march_through_density(rays=600)
        )
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    named = dict(zip(argument_names(name), arguments, strict=False))
    rows = {
        "interpolate_trilinear_backward": ("grad_out", "coords"),
        "interpolate_trilinear_grad": ("grad_out", "coords"),
        "interpolate_cells_backward": ("grad_out", "feats", "points"),
        "contract_basis_backward": ("grad_out", "ray_indices"),
        "index_add": (),
    }
    for key in rows.get(name, ()):
        named[key] = many_times(named[key], 40)
    if name == "index_add":
        named |= {
            "dim": 0,
            "dst": torch.rand(31, 64),
            "index": torch.randint(31, (2000,)),
            "src": torch.rand(2000, 64),
        }
    return tuple(named.values())


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.endswith("_backward") or written(name) or name == "march_visible"]
)
def test_the_same_bits_again_and_again(name):
    arguments, before = arguments_of(name), torch.get_num_threads()
    try:
        torch.set_num_threads(THREADS[0])
        expected = bits(name, arguments)
        for threads in THREADS:
            torch.set_num_threads(threads)
            for _ in range(REPEATS):
                assert all(map(torch.equal, bits(name, arguments), expected)), threads
    finally:
        torch.set_num_threads(before)
