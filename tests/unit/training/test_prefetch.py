"""Images in host memory: the batches gathered ahead are those that would be drawn at each step, and resume as such."""

import gc
import itertools
import threading
import weakref
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from resumed_runs import MIDDLE, stop_and_restore
from script_runs import TIMEOUT
from state_facts import differing, facts
from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state, write_tiny_scene
from torch import Tensor

import nerf
from nerf.images.pixel_runs import PixelRuns
from nerf.ops.backend import select
from nerf.rendering.background import Background
from nerf.training.batches import RayBatches, choose_image_storage
from nerf.training.multi_view import ViewsBeside
from nerf.training.prefetch import NUM_SLOTS, NUM_THREADS
from nerf.training.state import TrainState

COUNT = 96
BATCHES = 3 * NUM_SLOTS  # round the ring and round again


def ray_batches(device: str = "cpu", on_host: bool = False, paired: bool = False) -> RayBatches:
    """Of the tiny scene, every pixel in the pool."""
    batches = RayBatches(tiny_images(), select("native", device), 5, on_host, paired)
    batches.valid_pixels = PixelRuns.of_bounds(torch.tensor([[0, len(tiny_images().pixels)]]))
    return batches


def step_tensors(batches: RayBatches, per_pixel: int = 1) -> list[Tensor]:
    """A copy of what a step gets."""
    batch, background = batches.next(COUNT, Background(Background("random")), per_pixel)
    assert batch.rays.per_pixel == per_pixel and len(batch.rays) == per_pixel * len(batch.rgba)
    return [x.clone() for x in (batch.rays.origins, batch.rays.directions, batch.rgba, batch.jitter, background)]


def fed_tensors(batches: RayBatches, per_pixel: int = 1) -> list[Tensor]:
    batches.advance(COUNT, Background(Background("random")))
    return step_tensors(batches, per_pixel)


def wait_until_all_is_drawn(batches: RayBatches) -> None:
    wait([chosen.result() for chosen, _ in batches._feed._drawn])


# The same batches


@pytest.mark.parametrize("paired", [False, True])
def test_batches_gathered_ahead_are_those_drawn_at_each_step(paired: bool) -> None:
    plain, fed = ray_batches(paired=paired), ray_batches(paired=paired)
    fed.prefetch()
    for number in range(BATCHES):
        per_pixel = 1 if number < BATCHES // 2 else 4  # pixels are gathered ahead, and their rays are not
        expected = step_tensors(plain, per_pixel)
        assert all(map(torch.equal, fed_tensors(fed, per_pixel), expected)), number
        if number % 5 == 0:
            wait_until_all_is_drawn(fed)
        assert torch.equal(fed.generator.get_state(), plain.generator.get_state()), number
        if number in (3, 4, 11):  # between two steps, as pruning does
            drawn, wanted = fed.draw(50), plain.draw(50)
            assert torch.equal(drawn.rgba, wanted.rgba) and torch.equal(drawn.jitter, wanted.jitter)


def test_rays_alone_are_those_of_a_batch(device: str) -> None:
    """From images on the device; where these are on the host, from another generator."""
    whole, alone = ray_batches(device), ray_batches(device)
    for count, per_pixel in ((50, 1), (60, 4)):
        batch = whole.draw(count, per_pixel)
        rays, jitter = alone.draw_rays(count, per_pixel)
        assert len(rays) == per_pixel * count and len(jitter) == count
        wanted = batch.rays.origins, batch.rays.directions, batch.jitter
        assert all(map(torch.equal, (rays.origins, rays.directions, jitter), wanted))
        for batches in (whole, alone):  # other rays meet the scene from now on
            batches.valid_pixels = PixelRuns.of_bounds(torch.tensor([[7, 300]]))


def test_rays_of_images_on_the_host_are_made_on_the_device(cuda: str) -> None:
    drawn = []
    for _ in range(2):
        batches = ray_batches(cuda, on_host=True)
        before = batches.generator.get_state()
        drawn += [batches.draw_rays(5000), batches.draw_rays(5000)]
        assert not torch.equal(before, batches.generator.get_state())
    assert all(rays.directions.is_cuda and jitter.is_cuda for rays, jitter in drawn)
    first, second, first_again, second_again = (rays.directions for rays, _ in drawn)
    assert torch.equal(first, first_again) and torch.equal(second, second_again), "a run that resumes draws the same"
    assert not torch.equal(first, second)


def test_batches_of_another_size_follow_in_order() -> None:
    plain, fed = ray_batches(), ray_batches()
    fed.prefetch()
    for count in (COUNT, 7, COUNT):
        fed.advance(count, Background("white"))
        (ours, color), (theirs, wanted) = fed.next(count, Background("white")), plain.next(count, Background("white"))
        assert torch.equal(ours.rgba, theirs.rgba) and torch.equal(color, wanted)


def test_a_step_reads_the_same_memory_every_time() -> None:
    """As a recorded CUDA graph needs it, after a rest too."""
    fed = ray_batches()
    fed.prefetch()
    places = set()
    for number in range(BATCHES):
        fed.advance(COUNT, Background(Background("random")))
        batch, background = fed.next(COUNT, Background(Background("random")))
        places.add((batch.rgba.data_ptr(), batch.jitter.data_ptr(), background.data_ptr()))
        if number % 5 == 4:
            fed.stop_prefetch()
    assert len(places) == 1


@pytest.mark.parametrize("ahead", [False, True])
def test_images_are_let_go(ahead: bool) -> None:
    batches = ray_batches()
    batches.images = batches.images.clone()  # the tiny scene is kept for other tests
    batches.beside = ViewsBeside.of(batches.images, batches.cameras)
    if ahead:
        batches.prefetch()
    fed_tensors(batches)
    pixels = weakref.ref(batches.images)
    batches.drop_images()
    gc.collect()
    assert pixels() is None


def test_a_thread_works_without_helpers_and_leaves_the_caller_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, before, seen = ray_batches(), torch.get_num_threads(), []
    gather = batches._gather
    monkeypatch.setattr(batches, "_gather", lambda ranks: seen.append(torch.get_num_threads()) or gather(ranks))
    torch.set_num_threads(2)
    try:
        batches.prefetch()
        fed_tensors(batches)
        wait_until_all_is_drawn(batches)
        assert seen and set(seen) == {1} and torch.get_num_threads() == 2
    finally:
        batches.stop_prefetch()
        torch.set_num_threads(before)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_batches_come_in_order_whichever_thread_is_first(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    plain, fed = ray_batches(), ray_batches()
    gather, turn, started = fed._gather, {number: threading.Event() for number in range(5)}, itertools.count()
    turn[order[0]].set()

    def gather_in_turn(ranks: Tensor) -> tuple[Tensor, Tensor]:
        number = next(started)
        if number < len(order):
            assert turn[number].wait(10)
            result = gather(ranks)
            place = order.index(number) + 1
            turn[order[place] if place < len(order) else len(order)].set()
            return result
        return gather(ranks)

    monkeypatch.setattr(fed, "_gather", gather_in_turn)
    fed.prefetch()
    for number in range(BATCHES):
        assert all(map(torch.equal, fed_tensors(fed), step_tensors(plain))), number
    assert next(started) > len(order)


def test_batches_are_gathered_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones wait for each other, which would be for ever if one began where another has ended."""
    fed = ray_batches()
    gather, begun, all_begun = fed._gather, itertools.count(), threading.Barrier(NUM_THREADS)

    def gather_together(ranks: Tensor) -> object:
        if next(begun) < NUM_THREADS:
            all_begun.wait(TIMEOUT)
        return gather(ranks)

    monkeypatch.setattr(fed, "_gather", gather_together)
    fed.prefetch()
    fed.advance(COUNT, Background("random"))


def test_an_error_of_a_thread_reaches_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(ranks: Tensor) -> tuple[Tensor, Tensor]:
        raise MemoryError("of a thread")

    fed = ray_batches()
    fed.prefetch()
    monkeypatch.setattr(fed, "_gather", fail)
    with pytest.raises(MemoryError, match="of a thread"):
        fed.advance(COUNT, Background(Background("random")))


def test_an_empty_pool_is_said_before_anything_is_drawn() -> None:
    batches = ray_batches()
    batches.valid_pixels = PixelRuns.of_bounds(torch.empty(0, 2, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="no pixel to draw"):
        batches.draw(COUNT)


# Training


def fed_state(state: TrainState) -> TrainState:
    state.batches.prefetch()
    return state


def test_a_run_is_the_same_to_the_last_bit() -> None:
    """Through doublings and prunings, which draw between the steps."""
    config, plain = tiny_state(tiny_config())
    run_to(config, plain, STEPS)
    config, state = tiny_state(tiny_config())
    run_to(config, fed_state(state), STEPS)
    assert state.batches._feed is not None
    assert differing(facts(plain), facts(state)) == []


def test_resumed_equals_never_stopped_however_far_ahead_it_had_drawn(tmp_path: Path) -> None:
    config, plain = tiny_state(tiny_config())
    run_to(config, plain, STEPS)
    config, state = tiny_state(tiny_config())
    for step in (1, MIDDLE, STEPS):
        run_to(config, fed_state(state), step)
        wait_until_all_is_drawn(state.batches)
        config, state = stop_and_restore(tmp_path, config, state)
    assert differing(facts(plain), facts(state)) == []


def test_on_a_cpu_host_is_where_they_are(tmp_path: Path) -> None:
    """No thread, no copy, and the same run."""
    write_tiny_scene(tmp_path / "scene")
    states = []
    for where in ("auto", "host"):
        config = tiny_config(images=where)
        config.device, config.dataset.root = "cpu", str(tmp_path / "scene")
        run = nerf.start(config)
        assert run.config.train.images == {"auto": "device", "host": "host"}[where]
        list(run.train())
        assert run.state.batches._feed is None
        states.append(facts(run.state))
    assert differing(*states) == []


@pytest.mark.parametrize(("free", "expected"), [(4.1, "device"), (3.9, "host")])
def test_auto_leaves_the_grids_their_room(monkeypatch: pytest.MonkeyPatch, free: float, expected: str) -> None:
    images = tiny_images()
    memory = int(free * images.pixels.nbytes)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (memory, 10 * memory))
    on_gpu = replace(select("native", "cpu"), device=torch.device("cuda"))
    assert choose_image_storage("auto", images, on_gpu) == expected
    assert (
        choose_image_storage("host", images, on_gpu) == "host"
        and choose_image_storage("device", images, on_gpu) == "device"
    )
    assert choose_image_storage("auto", images, select("native", "cpu")) == "device"


# On a GPU


def test_batches_on_the_gpu_are_the_cpus_while_steps_are_queued(cuda: str) -> None:
    """Each step is slow, so that a copy that did not wait for it would overwrite its batch."""
    plain, fed = ray_batches(), ray_batches(cuda, on_host=True)
    assert fed.images.device.type == fed.valid_pixels.starts.device.type == "cpu"
    seen = []
    for number in range(BATCHES):
        fed.advance(COUNT, Background(Background("random")))
        torch.cuda._sleep(20_000_000 if number % 3 else 0)  # clock cycles, some ten milliseconds
        seen.append(step_tensors(fed))
    for tensors in seen:
        for ours, theirs in zip(tensors, step_tensors(plain), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-6)


def test_the_host_stays_ahead_of_the_gpu(cuda: str) -> None:
    """Queueing a step returns at once: only some steps later the host waits for the ring."""
    fed = ray_batches(cuda, on_host=True)
    fed_tensors(fed)
    wait_until_all_is_drawn(fed)
    torch.cuda.synchronize()
    torch.cuda._sleep(20_000_000_000)  # clock cycles, ten seconds
    awake = torch.cuda.Event()
    awake.record()
    fed.advance(COUNT, Background("random"))
    assert not awake.query()


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_mlp"])
def test_a_run_in_cuda_graphs_learns_from_images_in_host_memory(cuda: str, field: str) -> None:
    reached = {}
    for where in ("device", "host"):
        config, state = tiny_state(tiny_config(field, images=where, steps=200), select("native", cuda))
        looks = run_to(config, state, 200)
        assert state.batches.images.device.type == {"device": "cuda", "host": "cpu"}[where]
        reached[where] = sum(look.psnr for look in looks[-5:]) / 5
        batch, background = state.batches.next(config.train.rays_per_step, Background(Background("random")))
        assert batch.rgba.device.type == background.device.type == "cuda"
    assert reached["host"] > 28 and abs(reached["host"] - reached["device"]) < 1.5  # seeds differ by half a dB
