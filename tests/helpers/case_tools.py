"""What cases are made with: numbers that are the same at every call, and arguments in any dtype, place and layout."""

from collections.abc import Callable

import torch
from torch import Tensor

Case = Callable[[torch.dtype, str], tuple]

CHANNELS = (1, 3, 4, 7, 12, 28)  # the plain loops, rows of whole 16 bytes, counts with code of their own


def numbers(*shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Tensor:
    """Uniform float64 numbers, the same at every call."""
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def as_case(make: Callable[..., tuple], **options: object) -> Case:
    """make(**options) as a case: float64 becomes dtype."""

    def place(x: object, dtype: torch.dtype, device: str) -> object:
        return x.to(device, dtype if x.dtype == torch.float64 else x.dtype) if isinstance(x, Tensor) else x

    return lambda dtype, device: tuple(place(x, dtype, device) for x in make(**options))


def with_gaps(case: Case, first: int = 0) -> Case:
    """The same numbers with a gap in memory after each, from the first argument on that may have gaps."""

    def spread(x: object) -> object:
        return torch.stack([x, x], dim=-1)[..., 0] if isinstance(x, Tensor) else x

    def build(dtype: torch.dtype, device: str) -> tuple:
        arguments = case(dtype, device)
        return *arguments[:first], *map(spread, arguments[first:])

    return build
