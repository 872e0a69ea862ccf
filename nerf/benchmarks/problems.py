"""What a case of scripts/benchmark.py is: inputs of an operation at a size, and the least that it has to move."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

FLOAT, LONG = 4, 8  # bytes


@dataclass(frozen=True)
class Size:
    """How large the cases are."""

    vertices: int  # of a grid, per axis
    lines: tuple[int, int]  # whose points interpolate_trilinear takes, and of each consecutive ones at half-voxel steps
    pixels: int  # of a step
    rays_per_pixel: int
    samples_per_ray: int  # visible ones
    images: tuple[int, int, int]  # I, H, W
    cells: tuple[int, int]  # N, F of interpolate_cells
    rows: int  # of index_add's matrices; their width is 1024 in full size
    ceiling_bytes: int

    @property
    def rays(self) -> int:
        return self.pixels * self.rays_per_pixel


# Of lego: on a GPU in the second half of 60 seconds, on a CPU at 100x100 (benchmark.py mode=step tells).
SIZES = {
    "full": Size(256, (8192, 128), 32768, 4, 9, (100, 800, 800), (65536, 256), 1024, 1 << 30),
    "small": Size(80, (2048, 64), 4096, 1, 24, (20, 200, 200), (4096, 256), 128, 1 << 27),
    "tiny": Size(10, (16, 8), 8, 2, 9, (2, 5, 6), (24, 8), 16, 1 << 20),
}


@dataclass(frozen=True)
class Roofline:
    """The minimum work of one direction of an operation."""

    num_bytes: int
    reductions: int = 0  # floats that are added to shared memory locations
    lookups: int = 0  # dependent reads: their address comes from another read


# The largest errors beside float64 that count as right: RMS error over RMS value, largest error over largest value. Far
# above float32 rounding, far below the effect of a mistake.
FLOAT32_TOLERANCE = 1e-3, 1e-2
# Of results that are made of numbers rounded to bfloat16: sums of float32 and of float64 that lie on either side of the
# middle between two of these are rounded apart, and so are the gradients that follow from them.
BFLOAT16_TOLERANCE = 2**-8, 2**-3


@dataclass(frozen=True)
class Problem:
    """Inputs of an operation on a device."""

    arguments: dict[str, object]  # of the function in reference.py, by name
    rooflines: dict[str, Roofline]  # by direction: forward, backward, accumulate
    leaves: tuple[str, ...] = ()  # arguments whose gradients backward computes
    written: tuple[str, ...] = ()  # arguments written in place
    cleared: tuple[str, ...] = ()  # those of `written` that are restored before each run
    tolerance: tuple[float, float] = FLOAT32_TOLERANCE
    always_same: bool = False  # results are discrete, so float64 inputs would give other samples, not more exact ones

    def as_float64(self) -> "Problem":
        """The same problem in float64, for the reference results."""
        if self.always_same:
            return self
        wide = {
            name: x.double() if isinstance(x, Tensor) and x.is_floating_point() and name not in ("lr", "step") else x
            for name, x in self.arguments.items()
        }
        return replace(self, arguments=wide)


@dataclass(frozen=True)
class Case:
    op: str
    name: str
    make: Callable[[torch.device], Problem] = field(repr=False)


def random_numbers(device: torch.device, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Uniform float32 numbers, the same at every call."""
    generator = torch.Generator(device).manual_seed(0)
    return torch.empty(shape, device=device).uniform_(low, high, generator=generator)
