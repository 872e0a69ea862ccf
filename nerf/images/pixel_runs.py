"""Sets of pixels as runs of neighbours: a few megabytes where a list of the pixels would take gigabytes.

Pixels are counted image by image, row by row; a run may go on from one row to the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class PixelRuns:
    """A set of pixels, K runs of them, none overlapping, in rising order."""

    starts: Tensor  # [K] int64, first pixel of each run
    ranks: Tensor  # [K+1] int64, pixels of the set before each run; the last: all of them
    count: int  # all of them, known on the host

    @staticmethod
    def of_bounds(bounds: Tensor) -> "PixelRuns":
        """By the first pixel of each run and the one after its last, [K,2] int64."""
        ranks = pad((bounds[:, 1] - bounds[:, 0]).cumsum(0), (1, 0))
        return PixelRuns(bounds[:, 0].contiguous(), ranks, int(ranks[-1]))

    @staticmethod
    def of_mask(mask: Tensor, first: int = 0) -> "PixelRuns":
        """By whether each of N pixels, from the pixel first on, is in the set: mask [N] bool."""
        edges = pad(mask.to(torch.int8), (1, 1)).diff()
        bounds = torch.stack([(edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]], dim=-1)
        return PixelRuns.of_bounds(bounds + first)

    @staticmethod
    def join(parts: Sequence["PixelRuns"]) -> "PixelRuns":
        """Sets one after another, each beyond the pixels of the one before; at least one."""
        return PixelRuns.of_bounds(torch.cat([part.bounds for part in parts]))

    def __len__(self) -> int:
        return self.count

    @property
    def bounds(self) -> Tensor:
        """First pixel of each run and the one after its last, [K,2] int64."""
        return torch.stack([self.starts, self.starts + self.ranks.diff()], dim=-1)

    def to(self, device: torch.device | str) -> "PixelRuns":
        return PixelRuns(self.starts.to(device), self.ranks.to(device), self.count)

    def pixels(self, ranks: Tensor) -> Tensor:
        """The pixels [R] int64 that have so many others of the set before them: ranks [R] int64, 0 to count - 1."""
        run = torch.searchsorted(self.ranks, ranks, right=True) - 1
        return self.starts.index_select(0, run) + ranks - self.ranks.index_select(0, run)

    def mask(self, first: int, end: int) -> Tensor:
        """Whether each of the pixels first to end - 1 is in the set, [end - first] bool."""
        return self.holds(torch.arange(first, end, device=self.starts.device))

    def holds(self, pixels: Tensor) -> Tensor:
        """Whether each of pixels [R] int64 is in the set, [R] bool."""
        if len(self.starts) == 0:
            return torch.zeros_like(pixels, dtype=torch.bool)
        run = torch.searchsorted(self.starts, pixels, right=True) - 1
        known = run.clamp(min=0)
        length = self.ranks.index_select(0, known + 1) - self.ranks.index_select(0, known)
        return (run >= 0) & (pixels - self.starts.index_select(0, known) < length)
