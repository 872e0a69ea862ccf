"""On a GPU the operations whose order of sums is one, or is asked to be, give the same bits again and again.

`make fuzz` sets NERF_REPEATS=300. The column "order of sums" of cuda_ext/README.md, "Promises".
"""

import pytest
import torch
from case_tools import each_tensor
from cases import CASES
from test_repeatable import REPEATS, arguments_of, bits

ASKED = ("interpolate_trilinear_grad", "index_add")  # whose argument deterministic says it
FREE = ("interpolate_trilinear_backward",)


def on_gpu(name: str, cuda: str) -> tuple:
    """Arguments whose rows meet: the last one of those that are asked is deterministic."""
    arguments = tuple(each_tensor(lambda x: x.to(cuda), x) for x in arguments_of(name))
    return (*arguments[:-1], True) if name in ASKED else arguments


@pytest.mark.cuda
@pytest.mark.parametrize("name", [name for name in CASES if name not in FREE])
def test_the_same_bits_again_and_again(name, cuda):
    arguments = on_gpu(name, cuda)
    expected = bits(name, arguments)
    for _ in range(REPEATS):
        assert all(map(torch.equal, bits(name, arguments), expected))


@pytest.mark.cuda
@pytest.mark.parametrize("channels", [1, 3, 16, 28])
@pytest.mark.parametrize("size", [2, 40])
def test_points_in_one_order(channels, size, cuda):
    """Hundreds of points a cell, or a few: in any number of blocks, and in a captured graph."""
    generator = torch.Generator(cuda).manual_seed(3)
    points = 200_000
    coords = torch.rand(points, 3, generator=generator, device=cuda) * (size - 1)
    grad_out = torch.randn(points, channels, generator=generator, device=cuda)
    grad_out[::3] = 0
    grad = torch.zeros(size, size, size, channels, device=cuda)

    def add() -> torch.Tensor:
        grad.zero_()
        torch.ops.nerf.interpolate_trilinear_grad(grad, grad_out, coords, True)
        return grad

    expected = add().clone()
    exact = torch.zeros(grad.shape, dtype=torch.float64, device=cuda)
    torch.ops.nerf.interpolate_trilinear_grad(exact, grad_out.double(), coords.double(), False)
    scale = exact.abs().max()
    assert (expected - exact).abs().max() < 1e-5 * scale + 1e-5
    for _ in range(REPEATS):
        assert torch.equal(add(), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add()
    for _ in range(3):
        grad.fill_(7)
        graph.replay()
        assert torch.equal(grad, expected)
