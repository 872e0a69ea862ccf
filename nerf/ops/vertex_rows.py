"""Sparse grids: values at some vertices of a lattice, a row for each, and a table that finds a vertex's row.

The table is a bit vector with ranks (Jacobson 1989, "Space-efficient static trees and graphs"): one int64 word for
every 32 vertices along z. Its lower half has a bit for each vertex that has a row, its upper half the row of the first
of them; the row of another one is that plus the number of bits below its own. That is a quarter of a byte per vertex of
the lattice. Rows stand in the order of the vertices, so neighbors along z are neighbors in memory.

Legend: X Y Z vertices of the lattice, L vertices that have a row, C channels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

VERTICES_PER_WORD = 32
LOWER_HALF = (1 << 32) - 1
AT_A_TIME = 1 << 23  # vertices, to bound memory


@dataclass(frozen=True)
class VertexRows:
    """The vertices of a lattice that have a row in a sparse grid [L,C], in rising order, and how to find it."""

    resolution: tuple[int, int, int]  # X, Y, Z
    vertices: Tensor  # [L] int64, rising: (x * Y + y) * Z + z of each row
    table: Tensor  # [X,Y,ceil(Z/32)] int64

    @staticmethod
    def of(vertices: Tensor, resolution: tuple[int, int, int]) -> "VertexRows":
        """vertices [L] int64: rising, each once (OccupancyGrid.active_vertices)."""
        x, y, z = resolution
        words = -(-z // VERTICES_PER_WORD)
        table, count = vertices.new_zeros(x * y * words), vertices.new_zeros(x * y * words)
        for some in vertices.split(AT_A_TIME):
            line = some.div(z, rounding_mode="floor")
            z_of = some - line * z
            word = line * words + z_of.div(VERTICES_PER_WORD, rounding_mode="floor")
            one = torch.ones_like(word)
            table.index_add_(0, word, one << (z_of % VERTICES_PER_WORD))
            count.index_add_(0, word, one)
        table += (count.cumsum(0) - count) << 32  # the rows before those of a word
        return VertexRows(resolution, vertices, table.view(x, y, words))

    @property
    def arguments(self) -> tuple[Tensor, int]:
        """table and size_z, as operations take them."""
        return self.table, self.resolution[2]

    def rows(self, vertices: Tensor) -> Tensor:
        """The row of each of these vertices [K] int64, -1 where it has none."""
        z, found = self.resolution[2], torch.empty_like(vertices)
        for some, rows in zip(vertices.split(AT_A_TIME), found.split(AT_A_TIME), strict=True):
            line = some.div(z, rounding_mode="floor")
            rows.copy_(rows_at(self.table.flatten(0, 1), len(self.vertices), line, some - line * z))
        return found

    def expanded(self, values: Tensor) -> Tensor:
        """Values [L,C] as a dense grid [X,Y,Z,C], zero at vertices without a row."""
        x, y, z = self.resolution
        dense = values.new_zeros(x * y * z, values.shape[1])
        return dense.index_copy_(0, self.vertices, values).view(x, y, z, -1)


def rows_at(lines: Tensor, count: int, line: Tensor, z: Tensor) -> Tensor:
    """The rows of vertices z [K] of the lines x * Y + y [K], -1 where there is none.

    lines [X*Y,ceil(Z/32)]: the table. count: the number of rows that exist.
    """
    word = lines[line, z.div(VERTICES_PER_WORD, rounding_mode="floor")]
    bit = z % VERTICES_PER_WORD
    bits = word & LOWER_HALF
    row = (word >> 32 & LOWER_HALF) + bits_set(bits & ((torch.ones_like(bit) << bit) - 1))
    return torch.where((bits >> bit & 1 > 0) & (row < count), row, -1)


def listed_vertices(table: Tensor, size_z: int) -> Tensor:
    """The vertices [L] int64 that have a row in a table."""
    bit = torch.arange(VERTICES_PER_WORD, device=table.device)
    there = (table[..., None] >> bit & 1).flatten(2)[..., :size_z]
    return there.flatten().nonzero()[:, 0]


def bits_set(x: Tensor) -> Tensor:
    """The number of bits that are 1 in numbers of 32 bits (Warren 2012, "Hacker's Delight", section 5-1)."""
    x = x - (x >> 1 & 0x55555555)
    x = (x & 0x33333333) + (x >> 2 & 0x33333333)
    x = x + (x >> 4) & 0x0F0F0F0F
    return (x * 0x01010101 >> 24) & 0xFF
