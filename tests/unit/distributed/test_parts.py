"""The division of the lattice: boxes of equal load, every cell in one, and the vertices that are exchanged."""

import pytest
import torch

from nerf.distributed.parts import divide
from nerf.errors import UserError
from nerf.scene.occupancy import cells_to_vertices


def ball(size: int) -> torch.Tensor:
    """Cells near a spherical surface that is off the middle."""
    axes = torch.meshgrid(*[torch.arange(n, dtype=torch.float32) for n in (size, size - 3, size + 4)], indexing="ij")
    distance = sum((x - 0.4 * size) ** 2 for x in axes).sqrt()
    return (distance - 0.3 * size).abs() < 1


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_each_cell_has_one_owner_and_loads_are_even(ranks: int) -> None:
    occupied = ball(30)
    division = divide(occupied, ranks)
    covered = torch.zeros_like(division.owner)
    for rank, box in enumerate(division.boxes):
        inside = tuple(slice(*side) for side in box)
        covered[inside] += 1
        assert (division.owner[inside] == rank).all()
    assert (covered == 1).all()
    loads = torch.stack([division.own_cells(rank, occupied).sum() for rank in range(ranks)])
    assert loads.sum() == occupied.sum()
    assert loads.max() <= 1.25 * occupied.sum() / ranks


def test_shared_rows_and_halo_are_the_border() -> None:
    occupied = torch.ones(6, 4, 4, dtype=torch.bool)
    division = divide(occupied, 2)
    x = {name: (getattr(division, name) // 25).unique().tolist() for name in ("shared", "halo")}
    assert division.boxes == (((0, 3), (0, 4), (0, 4)), ((3, 6), (0, 4), (0, 4)))
    assert x == {"shared": [3], "halo": [2, 4]}  # the plane of the cut, and the layers beside it
    assert len(division.shared) == 25 and len(division.halo) == 50
    assert torch.equal(division.all_rows, cells_to_vertices(occupied).view(-1).nonzero()[:, 0])


def test_a_part_may_be_empty_but_not_its_box() -> None:
    occupied = torch.zeros(2, 2, 1, dtype=torch.bool)
    occupied[0, 0, 0] = True
    assert len(divide(occupied, 4).boxes) == 4
    with pytest.raises(UserError, match="5 ranks are more than the 4 parts"):
        divide(occupied, 5)
