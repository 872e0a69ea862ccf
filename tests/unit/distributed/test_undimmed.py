"""What samples weigh in their own part of a ray, and the light through it, by definition; the same bits every time."""

import pytest
import torch

from nerf.distributed.segments import undimmed
from nerf.ops.backend import select

COUNTS = [3, 0, 1, 40, 0, 0, 7, 0]  # samples of the slots
KINDS = {
    "mist": lambda depth: 0.1 * depth,
    "opaque": lambda depth: 3 * depth,
    "nothing": torch.zeros_like,
    "a wall": lambda depth: torch.where(depth > 0.7, torch.inf, 0.0).to(depth),
}


def some(counts: list[int], dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.nn.functional.pad(torch.tensor(counts).cumsum(0), (1, 0))
    return torch.rand(int(starts[-1]), dtype=dtype).to(device), starts.to(device)


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_transmittances_are_those_of_the_definition(kind, dtype, backend, device) -> None:
    depth, starts = some(COUNTS, dtype, device)
    depth = KINDS[kind](depth)
    found = [x.cpu().double() for x in undimmed(select(backend, device), depth, starts)]
    weight, in_front, through = [], [], []
    for one in depth.cpu().double().split(COUNTS):
        before = torch.cat([one.new_zeros(1), one.cumsum(0)])
        in_front.append(torch.exp(-before[:-1]))
        weight.append(in_front[-1] * -torch.expm1(-one))
        through.append(torch.exp(-before[-1:]))
    # Both multiply 1 - alpha of each sample, whose rounding is relative to 1.
    bound = 40 * torch.finfo(dtype).eps
    for name, x, expected in zip(("weight", "in front", "through"), found, (weight, in_front, through), strict=True):
        torch.testing.assert_close(x, torch.cat(expected), rtol=0, atol=bound, msg=lambda m, n=name: f"{n}: {m}")


def test_without_samples_all_light_comes_through(device) -> None:
    depth, starts = some([0, 0], torch.float32, device)
    weight, in_front, through = undimmed(select("native", device), depth, starts)
    assert (len(weight), len(in_front), through.tolist()) == (0, 0, [1, 1])


def test_a_gpu_gives_the_same_bits_every_time(cuda) -> None:
    depth, starts = some(torch.randint(0, 300, (8192,)).tolist(), torch.float32, cuda)
    first = undimmed(select("native", cuda), 0.05 * depth, starts)
    for _ in range(50):
        again = undimmed(select("native", cuda), 0.05 * depth, starts)
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
