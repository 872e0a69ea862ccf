"""The share of time in which a GPU runs nothing."""

import time

import pytest
import torch

from nerf.benchmarks.gpu_idle import covered, idle_fraction


@pytest.mark.parametrize(
    "spans, length",
    [
        ([], 0.0),
        ([(1, 3)], 2.0),
        ([(4, 6), (1, 3)], 4.0),
        ([(1, 5), (2, 3), (4, 7)], 6.0),
        ([(1, 2), (2, 3), (1, 2)], 2.0),
    ],
)
def test_what_overlaps_counts_once(spans: list[tuple[float, float]], length: float) -> None:
    assert covered(spans) == length


def test_a_host_that_sleeps_leaves_the_gpu_idle(cuda: str) -> None:
    x = torch.randn(4096, 4096, device=cuda)

    def busy(pause: float) -> None:
        for _ in range(5):
            torch.mm(x, x)
            torch.cuda.synchronize()
            time.sleep(pause)

    busy(0.0)
    assert idle_fraction(lambda: busy(0.05), torch.device(cuda)) > 0.5
    # Other tests may use the same GPU at the same time, which tears holes into this one's share of it.
    queued = (idle_fraction(lambda: [torch.mm(x, x) for _ in range(20)], torch.device(cuda)) for _ in range(10))
    assert any(share < 0.2 for share in queued)


def test_nothing_done_has_no_share(cuda: str) -> None:
    assert idle_fraction(lambda: None, torch.device(cuda)) is None
