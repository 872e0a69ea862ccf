"""The division of the lattice: boxes of equal load, every cell in one, and the vertices that are exchanged."""

import pytest
import torch

from nerf.distributed.parts import divide
from nerf.errors import UserError
from nerf.scene.occupancy import OccupancyGrid, cells_to_vertices, with_neighbors

ONE = torch.ones(1, dtype=torch.int64)


def ball(size: int) -> torch.Tensor:
    """Cells near a spherical surface that is off the middle."""
    axes = torch.meshgrid(*[torch.arange(n, dtype=torch.float32) for n in (size, size - 3, size + 4)], indexing="ij")
    distance = sum((x - 0.4 * size) ** 2 for x in axes).sqrt()
    return (distance - 0.3 * size).abs() < 1


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_each_cell_has_one_owner_and_loads_are_even(ranks: int) -> None:
    occupied = ball(30)
    division = divide(occupied, ranks)
    covered = torch.zeros_like(occupied, dtype=torch.uint8)
    cells = torch.ones_like(occupied).nonzero()
    for rank, box in enumerate(division.boxes):
        inside = tuple(slice(*side) for side in box)
        covered[inside] += 1
        assert division.in_box(rank, cells).sum() == covered[inside].numel()
    assert (covered == 1).all()
    loads = torch.stack([division.own_cells(rank).sum() for rank in range(ranks)])
    assert loads.sum() == occupied.sum()
    assert loads.max() <= 1.25 * occupied.sum() / ranks


def test_shared_rows_and_halo_are_the_border() -> None:
    occupied = torch.ones(6, 4, 4, dtype=torch.bool)
    division = divide(occupied, 2)
    x = {name: (getattr(division, name) // 25).unique().tolist() for name in ("shared", "halo")}
    assert division.boxes == (((0, 3), (0, 4), (0, 4)), ((3, 6), (0, 4), (0, 4)))
    assert x == {"shared": [3], "halo": [2, 4]}  # the plane of the cut, and the layers beside it
    assert len(division.shared) == 25 and len(division.halo) == 50
    assert torch.equal(division.all_rows(), cells_to_vertices(occupied).view(-1).nonzero()[:, 0])


def test_a_part_may_be_empty_but_not_its_box() -> None:
    occupied = torch.zeros(2, 2, 1, dtype=torch.bool)
    occupied[0, 0, 0] = True
    assert len(divide(occupied, 4).boxes) == 4
    with pytest.raises(UserError, match="5 ranks are more than the 4 parts"):
        divide(occupied, 5)


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_each_value_is_kept_and_each_rank_stores_what_it_needs(ranks: int, everywhere: bool) -> None:
    occupied = ball(30)
    division = divide(occupied, ranks, everywhere)
    shape = [n + 1 for n in occupied.shape]
    kept = torch.cat([division.kept(rank) for rank in range(ranks)])
    values = torch.arange(torch.Size(shape).numel()) if everywhere else OccupancyGrid(occupied).stored_vertices()
    assert torch.equal(kept.unique(), values)
    assert torch.equal(kept[torch.isin(kept, division.shared, invert=True)].unique(return_counts=True)[1].unique(), ONE)
    for rank in range(ranks):
        own = cells_to_vertices(division.own_cells(rank))
        assert torch.equal(division.rows(rank), own.view(-1).nonzero()[:, 0])
        needed = with_neighbors(own).view(-1)
        needed[division.kept(rank)] = True
        assert torch.equal(division.stored(rank), needed.nonzero()[:, 0])
    trained = [cells_to_vertices(division.own_cells(rank)) for rank in range(ranks)]
    beside = torch.stack([with_neighbors(own) & ~own for own in trained]).any(0)
    assert torch.equal(division.halo, (beside & torch.stack(trained).any(0)).view(-1).nonzero()[:, 0])


def test_a_rank_of_two_stores_little_more_than_half() -> None:
    occupied = ball(80)
    division = divide(occupied, 2, everywhere=False)
    whole = len(OccupancyGrid(occupied).stored_vertices())
    assert max(len(division.stored(rank)) for rank in range(2)) < 0.55 * whole
