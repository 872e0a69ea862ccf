"""The first 200 losses of each field in each kind of scene are those of tests/golden (helpers/golden_curves.py)."""

import pytest
import torch
from golden_curves import EVERY, RUNS, STEPS, curve, golden

# Another processor rounds its vectors otherwise; a changed formula moves a loss by more.
TOLERANCE = 1e-3
BAND = 1.25  # times what three seeds span on a GPU, where additions are in another order on other processors


@pytest.fixture(autouse=True)
def same_threads():
    """A run that is repeated takes one thread."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize("field, kind", RUNS)
def test_losses_on_a_cpu_are_the_golden_ones(field, kind):
    steps, expected = zip(*golden("cpu")[field, kind], strict=True)
    assert list(steps) == list(range(2 * EVERY, STEPS + 1, EVERY))
    assert curve(field, kind) == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("field, kind", RUNS)
def test_losses_on_a_gpu_stay_in_their_band(field, kind, cuda):
    steps, lowest, highest = zip(*golden("cuda")[field, kind], strict=True)
    assert list(steps) == list(range(2 * EVERY, STEPS + 1, EVERY))
    found = curve(field, kind, cuda)
    outside = [
        s for s, low, high, x in zip(steps, lowest, highest, found, strict=True) if not low / BAND <= x <= high * BAND
    ]
    assert outside == []
