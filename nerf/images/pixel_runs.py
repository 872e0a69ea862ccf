"""Run-length-encoded sets of pixels: a few megabytes where a list of pixels would take gigabytes.

Pixels are numbered image by image, row by row; a run may continue in the next row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import pad

from nerf.ops import reference


@dataclass(frozen=True)
class PixelRuns:
    """A set of pixels as K runs, rising and not overlapping."""

    starts: Tensor  # [K] int64, first pixel of each run
    offsets: Tensor  # [K+1] int64, number of pixels of the set before each run; last entry: of the whole set
    shifts: Tensor  # [K] int64, starts - offsets: a step draws pixels, and two lookups take twice as long as one
    count: int  # number of pixels, on the host

    @staticmethod
    def of_bounds(bounds: Tensor) -> "PixelRuns":
        """From the first pixel of each run and the one after its last, [K,2] int64."""
        offsets = pad((bounds[:, 1] - bounds[:, 0]).cumsum(0), (1, 0))
        starts = bounds[:, 0].contiguous()
        return PixelRuns(starts, offsets, starts - offsets[:-1], int(offsets[-1]))

    @staticmethod
    def of_mask(mask: Tensor, first: int = 0) -> "PixelRuns":
        """From a mask [N] bool of N pixels, of which the first has number `first`."""
        edges = pad(mask.to(torch.int8), (1, 1)).diff()
        bounds = torch.stack([(edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]], dim=-1)
        return PixelRuns.of_bounds(bounds + first)

    @staticmethod
    def join(parts: Sequence["PixelRuns"]) -> "PixelRuns":
        """The union of at least one set; each has larger pixels than the one before."""
        return PixelRuns.of_bounds(torch.cat([part.bounds for part in parts]))

    def __len__(self) -> int:
        return self.count

    @property
    def bounds(self) -> Tensor:
        """First pixel of each run and the one after its last, [K,2] int64."""
        return torch.stack([self.starts, self.starts + self.offsets.diff()], dim=-1)

    def to(self, device: torch.device | str) -> "PixelRuns":
        return PixelRuns(*(x.to(device) for x in (self.starts, self.offsets, self.shifts)), self.count)

    def draw(self, random: Tensor, ops: ModuleType = reference) -> Tensor:
        """A pixel from each of R equal parts of the set, rising, [R] int64, by random [R] in [0,1): where in its part.

        ops: nerf.ops.native or nerf.ops.reference (ops.draw_pixels).
        """
        return ops.draw_pixels(random, self.offsets, self.shifts, self.count)

    def mask(self, first: int, end: int) -> Tensor:
        """Whether each of the pixels first to end - 1 is in the set, [end - first] bool."""
        return self.contains(torch.arange(first, end, device=self.starts.device))

    def contains(self, pixels: Tensor) -> Tensor:
        """Whether each of pixels [R] int64 is in the set, [R] bool."""
        if len(self.starts) == 0:
            return torch.zeros_like(pixels, dtype=torch.bool)
        run = torch.searchsorted(self.starts, pixels, right=True) - 1
        known = run.clamp(min=0)
        length = self.offsets.index_select(0, known + 1) - self.offsets.index_select(0, known)
        return (run >= 0) & (pixels - self.starts.index_select(0, known) < length)
