"""Packed grids: what is stored is what rendering can read, and the file of a large grid is small."""

import math
from dataclasses import replace

import pytest
import torch
from tiny_runs import field_config

from nerf.cameras.rays import Rays
from nerf.config.schema import SamplerConfig
from nerf.fields.field import Field
from nerf.fields.registry import build_field
from nerf.ops.backend import select
from nerf.rendering.render import render_samples, visible_samples
from nerf.rendering.sampler import RaySampler
from nerf.runs.packed_grids import PackedGrids, deflated, inflated, pack, unpack
from nerf.scene.box import SceneBox
from nerf.scene.occupancy import OccupancyGrid, cells_to_vertices, vertices_to_cells

RESOLUTION = (24, 20, 23)
POISON = 1e30


@pytest.fixture(params=["voxel_sh", "voxel_mlp"])
def sparse(request: pytest.FixtureRequest) -> tuple[Field, OccupancyGrid]:
    """A field of random values with few occupied cells; their number is no multiple of 8."""
    box = SceneBox(torch.tensor([[-1.0, -1.1, -0.9], [1.2, 1.0, 1.1]]))
    field = build_field(field_config(request.param), box, RESOLUTION, 0.1, select("native", "cpu"))
    for name in ("density_grid", field.appearance_name):
        torch.nn.init.normal_(getattr(field, name))
    occupied = torch.rand([n - 1 for n in RESOLUTION]) < 0.01
    assert occupied.numel() % 8
    return field, OccupancyGrid(occupied)


def test_corners_of_cells_and_cells_at_corners() -> None:
    occupied = torch.rand(7, 5, 6) < 0.02
    corners, cells = torch.zeros(8, 6, 7, dtype=torch.bool), torch.zeros(7, 5, 6, dtype=torch.bool)
    for x, y, z in occupied.nonzero().tolist():
        corners[x : x + 2, y : y + 2, z : z + 2] = True
    for x, y, z in corners.nonzero().tolist():
        cells[max(x - 1, 0) : x + 1, max(y - 1, 0) : y + 1, max(z - 1, 0) : z + 1] = True
    assert corners.any() and not cells.all()
    assert torch.equal(cells_to_vertices(occupied), corners) and torch.equal(vertices_to_cells(corners), cells)


def test_there_and_back(sparse: tuple[Field, OccupancyGrid]) -> None:
    field, occupancy = sparse
    grids, occupied = unpack(pack(field, occupancy), field.resolution)
    assert torch.equal(occupied, occupancy.occupied)
    readable = cells_to_vertices(occupied)
    for name in ("density_grid", field.appearance_name):
        grid = getattr(field, name)
        assert torch.equal(grids[name][readable], grid[readable].half().float())
        assert not grids[name][~readable].any()


@pytest.mark.parametrize("occupied", [torch.zeros(3, 4, 5, dtype=torch.bool), torch.ones(3, 4, 5, dtype=torch.bool)])
def test_nothing_and_everything_occupied(occupied: torch.Tensor) -> None:
    backend, box = select("native", "cpu"), SceneBox(torch.tensor([[-1.0] * 3, [1.0] * 3]))
    field = build_field(field_config("voxel_deferred"), box, (4, 5, 6), 0.1, backend)
    torch.nn.init.normal_(field.density_grid)
    grids, found = unpack(pack(field, OccupancyGrid(occupied)), (4, 5, 6))
    assert torch.equal(found, occupied)
    assert torch.equal(grids["density_grid"], (field.density_grid * occupied.any()).half().float())


def test_values_beyond_half_precision_become_its_largest() -> None:
    backend, box = select("native", "cpu"), SceneBox(torch.tensor([[-1.0] * 3, [1.0] * 3]))
    field = build_field(field_config("voxel_deferred"), box, (4, 5, 6), 0.1, backend)
    torch.nn.init.constant_(field.density_grid, -1e6)
    grids, _ = unpack(pack(field, OccupancyGrid(torch.ones(3, 4, 5, dtype=torch.bool))), (4, 5, 6))
    assert grids["density_grid"].isfinite().all() and (grids["density_grid"] < -60_000).all()


def crossings(field: Field, occupancy: OccupancyGrid, count: int) -> tuple[RaySampler, Rays]:
    """Rays in the planes between cells, where a sample is as likely rounded into the one cell as into the other."""
    occupied, grid_map = occupancy.occupied, field.grid_map
    cells = torch.tensor(occupied.shape)
    start = torch.rand(count, 3) * cells
    plane = (torch.rand(count) * (cells[0] + 1)).floor()
    start[:, 0] = plane
    direction = torch.randn(count, 3) * torch.tensor([1e-5, 1.0, 1.0])
    direction = direction / direction.norm(dim=-1, keepdim=True)
    rays = Rays(grid_map.to_scene(start) - 4 * direction, direction)
    config = SamplerConfig(min_weight=0)
    return RaySampler(field.backend, grid_map, occupancy, 0.5 * field.voxel_size, config), rays


def test_vertices_that_are_not_stored_change_no_bit(sparse: tuple[Field, OccupancyGrid]) -> None:
    """They hold what would show from a millionth of a cell away; of many samples that lie on faces none reads it."""
    field, occupancy = sparse
    sampler, rays = crossings(field, occupancy, 50_000)
    expected = render(field, sampler, rays)
    readable = cells_to_vertices(occupancy.occupied)
    assert not readable.all()
    with torch.no_grad():
        for name in ("density_grid", field.appearance_name):
            getattr(field, name)[~readable] = POISON
    assert torch.equal(render(field, sampler, rays), expected)


def render(field: Field, sampler: RaySampler, rays: Rays) -> torch.Tensor:
    samples = visible_samples(field, sampler, rays)
    assert len(samples.t_starts) > 10_000
    with torch.no_grad():
        rendering = render_samples(field, sampler, samples, torch.ones(3))
    return torch.cat([rendering.rgb, rendering.opacity[:, None], rendering.depth[:, None]], dim=-1)


@pytest.mark.parametrize("wrong", ["bits", "values", "shape"])
def test_parts_that_do_not_fit_are_refused(sparse: tuple[Field, OccupancyGrid], wrong: str) -> None:
    field, occupancy = sparse
    packed = pack(field, occupancy)
    density = packed.values["density_grid"]
    damaged = {
        "bits": PackedGrids(packed.occupied[:-1], packed.values),
        "values": replace(packed, values={"density_grid": density[1:]}),
        "shape": replace(packed, values={"density_grid": density[:, 0]}),
    }[wrong]
    with pytest.raises(ValueError, match="bytes of occupancy, expected" if wrong == "bits" else "expected \\["):
        unpack(damaged, field.resolution)


def test_a_surface_in_a_grid_of_256_cubed_takes_less_than_100_mb() -> None:
    """A shell like that of a pruned scene: 4 % of the cells, three to four cells thick; all values in halves."""
    x = torch.arange(255) - 127.0
    radius = (x[:, None, None] ** 2 + x[:, None] ** 2 + x**2).sqrt()
    occupied = (radius - 122).abs() < 1.8
    assert 0.03 < occupied.float().mean() < 0.05
    stored = int(cells_to_vertices(occupied).sum())
    assert stored * (1 + field_config("voxel_deferred", "cuda").feature_channels) * 2 + occupied.numel() / 8 < 100e6


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5000, 5)])
def test_deflating_loses_nothing(shape: tuple[int, int]) -> None:
    values = torch.randn(shape).half()
    if len(values):
        values[0, 0] = math.nan
    found = inflated(deflated(values))
    assert found.dtype == torch.float16 and found.shape == shape
    assert torch.equal(found.view(torch.int16), values.view(torch.int16)), "every bit"


def test_deflated_numbers_of_one_size_take_less_room() -> None:
    content = deflated(torch.randn(100_000, 3).half())
    assert sum(len(plane) for plane in content["planes"]) < 0.9 * 2 * 300_000


def test_damaged_planes_are_found() -> None:
    content = deflated(torch.zeros(1000, 2).half())
    long, cut = deflated(torch.zeros(10**7, 2).half()), content["planes"][0][:5]
    for damaged, complaint in (
        ({"planes": content["planes"][:3]}, "3 planes, expected 4"),
        ({"planes": [cut, *content["planes"][1:]]}, "bytes, expected 1000"),
        ({"planes": long["planes"]}, "a plane of 1001 bytes, expected 1000"),
        ({"shape": [999, 2]}, "expected 999"),
    ):
        with pytest.raises(ValueError, match=complaint):
            inflated(content | damaged)
