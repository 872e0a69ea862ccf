"""A recorded step draws the random numbers that a plain one would, its first replay too."""

import torch

from nerf.training.cuda_graph import WARM_UP_STEPS, StepRunner

CYCLES = 400_000_000  # a fifth of a second or more


def test_the_first_replay_draws_the_numbers_that_come_next(cuda: str) -> None:
    """Beginning a capture zeroes the generator's offset on the stream of the capture, here long after it was asked."""
    generator, other = torch.Generator(cuda).manual_seed(1), torch.Generator(cuda).manual_seed(1)
    drawn, late = torch.zeros(64, device=cuda), 0

    def step() -> None:
        torch.cuda._sleep(late)
        drawn.copy_(torch.rand(64, generator=generator, device=cuda))

    runner = StepRunner(step, [generator], graphed=True)
    for number in range(WARM_UP_STEPS + 4):
        if (
            number == WARM_UP_STEPS + 2
        ):  # this step is recorded anew; before the first record memory is freed, which waits
            runner.invalidate()
            with torch.cuda.stream(runner._side_stream):
                torch.cuda._sleep(CYCLES)
            late = 3 * CYCLES
        runner.step()
        assert torch.equal(drawn, torch.rand(64, generator=other, device=cuda)), number
