"""A recorded step draws the numbers that a plain one would, its first replay too; its branch reads what it is given."""

import torch

from nerf.ops.branches import Branch
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


def test_what_a_branch_reads_is_kept_until_it_has(cuda: str) -> None:
    """The branch is late, and what it reads is dropped and as much memory asked for anew meanwhile."""
    branch, found = Branch(torch.device(cuda), first=True), torch.zeros(1000, device=cuda)

    def step() -> None:
        read = torch.ones(1000, device=cuda)
        with branch.beside(read):
            torch.cuda._sleep(CYCLES // 10)
            found.add_(read)
        del read
        torch.full((1000,), 5.0, device=cuda)
        branch.join()

    runner = StepRunner(step, graphed=True)
    for _ in range(WARM_UP_STEPS + 2):
        runner.step()
    assert torch.equal(found, torch.full_like(found, WARM_UP_STEPS + 2))
