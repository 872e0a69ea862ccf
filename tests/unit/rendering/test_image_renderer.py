"""Replayed pictures are those that render_image makes, whatever has changed since one was recorded."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tiny_runs import STEPS, run_to, supersampled, tiny_config, tiny_images, tiny_state

from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import Lenses
from nerf.ops.backend import select
from nerf.rendering.image_renderer import ImageRenderer
from nerf.rendering.render import Rendering, render_image
from nerf.training.state import TrainState, make_sampler


def trained(device: str, field: str = "voxel_deferred") -> tuple[TrainState, ImageRenderer, Cameras]:
    config = supersampled(tiny_config(field), 0.5)
    config, state = tiny_state(config, select("native", device))
    run_to(config, state, STEPS)
    renderer = ImageRenderer(state.field, make_sampler(config, state), torch.ones(3, device=device))
    return state, renderer, tiny_images("test").cameras.to(device)


def check(renderer: ImageRenderer, cameras: Cameras, index: int, with_normals: bool = False) -> Rendering:
    found = renderer.render(cameras, index, with_normals)
    expected = render_image(renderer.field, renderer.sampler, cameras, index, renderer.background, with_normals)
    for name in ("rgb", "opacity", "depth", "normals"):
        seen, plain = getattr(found, name), getattr(expected, name)
        assert seen is plain is None or torch.equal(seen, plain), name
    return found


@pytest.mark.parametrize("field", ["voxel_deferred", "voxel_sh"])
def test_every_camera_is_seen(field: str, device: str) -> None:
    _, renderer, cameras = trained(device, field)
    pictures = [check(renderer, cameras, index).rgb for index in (0, 1, 2, -1, 1)]
    assert torch.equal(pictures[1], pictures[4]) and not torch.equal(pictures[1], pictures[2])
    assert (renderer._recorded is not None) == (device == "cuda" and field == "voxel_deferred")
    check(renderer, cameras, 0, with_normals=True)


def test_a_graph_knows_which_frequencies_have_come_in(device: str) -> None:
    state, renderer, cameras = trained(device)
    whole = renderer._addresses(cameras, 0)
    state.field.anneal(0.5)
    assert renderer._addresses(cameras, 0) != whole


def test_what_is_recorded_is_recorded_anew_where_it_has_to_be(cuda: str) -> None:
    state, renderer, cameras = trained(cuda)

    def recorded(cameras: Cameras) -> object:
        for index in range(4):
            check(renderer, cameras, index)
        return renderer._recorded

    first = recorded(cameras)
    assert first is not None
    with torch.no_grad():  # in place: the graph reads what is there now
        state.field.density_grid.mul_(0.5)
        state.field.mlp[-1].bias.add_(0.5)
    assert recorded(cameras) is first
    small = recorded(cameras.resized(scale=0.5))
    assert small is not first
    state.field.upsample(tuple(n + 3 for n in state.field.resolution), None)
    occupied = torch.ones([n - 1 for n in state.field.resolution], dtype=torch.bool, device=cuda)
    renderer.sampler.occupancy.occupied = occupied
    renderer.sampler = replace(renderer.sampler, grid_map=state.field.grid_map)
    assert recorded(cameras.resized(scale=0.5)) not in (None, small)


def test_lenses_are_replayed_each_with_its_own(cuda: str) -> None:
    _, renderer, cameras = trained(cuda)
    coefficients = [(0.1 * k / len(cameras), 0.02) for k in range(len(cameras))]
    lenses = Lenses.of(["perspective"] * len(cameras), coefficients).to(cuda)
    bent = replace(cameras, lenses=lenses)
    for index in (0, 1, 2, 3, 1):
        check(renderer, bent, index)
    assert renderer._recorded is not None


def test_what_a_picture_depends_on_is_where_things_are(device: str) -> None:
    state, renderer, cameras = trained(device)
    field = state.field

    def changed(change: Callable[[], None]) -> bool:
        before = renderer._addresses(cameras, 0)
        change()
        return renderer._addresses(cameras, 0) != before

    def values() -> None:
        with torch.no_grad():
            field.density_grid.add_(0.1)
            field.mlp[0].weight.mul_(0.9)

    def occupancy() -> None:
        renderer.sampler.occupancy.occupied = renderer.sampler.occupancy.occupied.clone()

    assert renderer._addresses(cameras, 1) == renderer._addresses(cameras, 0)
    assert renderer._addresses(cameras.resized(scale=0.5), 0) != renderer._addresses(cameras, 0)
    assert not changed(values)
    assert changed(occupancy)
    assert changed(lambda: field.upsample(field.resolution, None))
    assert changed(lambda: setattr(field, "view_weight", torch.ones(1, device=device)))
