"""What tests of operations are made with: numbers that are the same at every call, arguments in any dtype, place and
layout, and what the proofs have to know of an operation.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nerf.ops.vertex_rows import VertexRows

Case = Callable[[torch.dtype, str], tuple]

CHANNELS = (1, 3, 4, 7, 12, 20, 28, 32)  # the plain loops, rows of whole 16 bytes, counts with code of their own
LONG_RAYS = (33, 64, 130, 32, 31)  # samples per ray: around one, two and more rounds of a warp


@dataclass(frozen=True)
class Operation:
    """Named inputs of an operation, cases[case](dtype, device), and what the proofs that all go through ask of it.

    Numbers are drawn in float64 from a fixed seed and rounded to dtype, so both dtypes see the same case. Sizes are
    small: what counts is which branch of the code a case enters.
    """

    cases: dict[str, Case]
    no_derivative: str = ""  # the reason, of an operation that has none
    sizes: tuple[str, ...] = ()  # arguments that say how many rows the others have; none: the first argument does
    any_shape: tuple[str, ...] = ()  # arguments that may have one dimension more
    opcheck: tuple[str, ...] = ("typical", "empty", "non_contiguous")  # cases
    gradcheck: tuple[str, ...] = ("typical",)
    smooth: Callable[..., tuple] = lambda *arguments: arguments  # arguments where finite differences mean something
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)
    own_rule: bool = False  # how near native is to the reference is tested in its own file

    def derived(self, make: Callable[..., tuple], first_gap: int = 0, **facts: object) -> "Operation":
        """An operation whose arguments are made of this one's, as those of a backward one are: in the same cases."""

        def from_case(case: Case, dtype: torch.dtype, device: str) -> tuple:
            return make(*case(dtype, device))

        cases = {name: partial(from_case, case) for name, case in self.cases.items()}
        gaps = {"non_contiguous": with_gaps(cases["typical"], first_gap)}
        return Operation(cases | gaps, **{"opcheck": self.opcheck, "dtypes": self.dtypes} | facts)


def numbers(*shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Tensor:
    """Uniform float64 numbers, the same at every call."""
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def each_tensor(change: Callable[[Tensor], Tensor], argument: object) -> object:
    """An argument with its tensor changed, or those in its list."""
    if isinstance(argument, list):
        return [each_tensor(change, x) for x in argument]
    return change(argument) if isinstance(argument, Tensor) else argument


def tensors_in(arguments: Iterable[object]) -> list[Tensor]:
    """The tensors among arguments and in their lists."""
    listed = (x if isinstance(x, list) else [x] for x in arguments)
    return [x for some in listed for x in some if isinstance(x, Tensor)]


def as_case(make: Callable[..., tuple], **options: object) -> Case:
    """make(**options) as a case: float64 becomes dtype."""

    def build(dtype: torch.dtype, device: str) -> tuple:
        def placed(x: Tensor) -> Tensor:
            return x.to(device, dtype if x.dtype == torch.float64 else x.dtype)

        return tuple(each_tensor(placed, x) for x in make(**options))

    return build


def with_gaps(case: Case, first: int = 0) -> Case:
    """The same numbers with a gap in memory after each, from the first argument on that may have gaps."""

    def spread(x: Tensor) -> Tensor:
        return torch.stack([x, x], dim=-1)[..., 0]

    def build(dtype: torch.dtype, device: str) -> tuple:
        arguments = case(dtype, device)
        return *arguments[:first], *(each_tensor(spread, x) for x in arguments[first:])

    return build


def as_sparse(grid: Tensor, share: float = 0.7) -> tuple[Tensor, Tensor, int]:
    """Values, table and size_z of a sparse grid that has about this share of the vertices of a dense one."""
    size = tuple(grid.shape[:3])
    vertices = (numbers(*size, seed=51) < share).flatten().nonzero()[:, 0]
    return grid.flatten(0, 2)[vertices], *VertexRows.of(vertices, size).arguments


def cotangent(x: Tensor) -> Tensor:
    """A gradient for an output: numbers of both signs, none of them zero."""
    return torch.cos(torch.arange(x.numel(), device=x.device, dtype=torch.float64)).view(x.shape).to(x.dtype)


def packed_samples(
    counts: tuple[int, ...] = (5, 0, 3, 12, 1),
    channels: int = 3,
    density: float = 4.0,
    min_transmittance: float = 0.0,
    tail: int = 0,
) -> tuple:
    """Packed samples of rays with these counts; behind the last ray tail rows of index 0 and length 0."""
    samples = sum(counts)
    offsets = torch.tensor([0, *counts]).cumsum(0)
    starts = 1.0 + 0.11 * torch.arange(samples).double()
    ends = starts + numbers(samples, low=0.05, high=0.15, seed=9)
    starts, ends = (torch.nn.functional.pad(x, (0, tail)) for x in (starts, ends))
    densities, values = density * numbers(len(starts), seed=10), numbers(len(starts), channels, seed=11)
    return densities, 2 * values - 1, starts, ends, offsets, min_transmittance
