"""A run that is watched: pictures between two steps, at a bounded price, and the same run as without a viewer."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tiny_runs import STEPS, tiny_config, tiny_images, tiny_state

from nerf.rendering.render import render_image
from nerf.training.loop import train
from nerf.training.state import TrainState
from nerf.viewer.allowance import MOST_SAVED, MOVED_LATELY, MOVING, RESTING, Allowance
from nerf.viewer.live import LiveScene
from nerf.viewer.scene import Scene, SceneClosed

PATIENCE = 120  # seconds until a condition counts as never met


def picture(scene: Scene) -> torch.Tensor:
    return render_image(scene.field, scene.sampler, scene.cameras, 0, scene.background, with_normals=True).rgb


def watched(live: LiveScene, state: TrainState, config: object) -> list:
    """Trains to the end while a thread asks for one picture after another; returns these."""
    found, ended = [], threading.Event()

    def ask() -> None:
        while not ended.is_set():
            try:
                found.append(live.run(picture, resting=len(found) % 2 == 0))
            except SceneClosed:
                return

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in train(config, state, [live]):
            pass
        live.settle()
    finally:
        ended.set()
        live.close()
        asking.join(PATIENCE)
    assert not asking.is_alive()
    return found


def test_a_watched_run_ends_as_one_that_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nerf.viewer.allowance.RESTING", 1.0)  # as many pictures as there can be
    monkeypatch.setattr("nerf.viewer.allowance.MOVING", 1.0)
    config, alone = tiny_state(tiny_config("voxel_deferred"))
    for _ in train(config, alone):
        pass
    config, state = tiny_state(tiny_config("voxel_deferred"))
    live = LiveScene(config, state, tiny_images())
    found = watched(live, state, config)
    assert len(found) >= 3 and not found[0].equal(found[-1])
    assert [m.step for m in live.history][-1] == STEPS
    expected = alone.field.state_dict()
    for name, value in state.field.state_dict().items():
        assert value.equal(expected[name]), name
    assert alone.batches.generator.get_state().equal(state.batches.generator.get_state())


def test_pause_holds_the_run_and_shows_it_and_stop_ends_it() -> None:
    config, state = tiny_state(tiny_config())
    live = LiveScene(config, state)
    live.pause(True)
    with ThreadPoolExecutor() as pool:
        training = pool.submit(lambda: [metrics.step for metrics in train(config, state, [live])])
        first = pool.submit(live.run, picture).result(PATIENCE)
        step = state.clock.step
        assert step >= 1 and not state.clock.running
        assert pool.submit(live.run, picture, True).result(PATIENCE).equal(first)
        assert state.clock.step == step and not training.done()
        live.stop()
        assert training.result(PATIENCE)[-1] == step
    assert not state.clock.finished


def test_a_pause_from_another_page_does_not_hold_up_a_run_that_is_to_end() -> None:
    config, state = tiny_state(tiny_config("voxel_sh"))
    live = LiveScene(config, state, tiny_images())
    live.stop()
    live.pause(True)
    assert live.stop_asked and not live.paused
    live.close()


def test_a_signal_ends_a_pause() -> None:
    config, state = tiny_state(tiny_config())
    live = LiveScene(config, state, interrupted=lambda: True)
    live.pause(True)
    assert [metrics.step for metrics in train(config, state, [live])][-1] == STEPS


def test_an_error_goes_to_who_asked_and_closing_frees_who_waits() -> None:
    config, state = tiny_state(tiny_config())
    live = LiveScene(config, state)
    with ThreadPoolExecutor() as pool:
        broken = pool.submit(live.run, lambda scene: 1 // 0)
        live.pause(True)
        training = pool.submit(lambda: list(train(config, state, [live])))
        with pytest.raises(ZeroDivisionError):
            broken.result(PATIENCE)
        live.stop()
        training.result(PATIENCE)
        waiting = pool.submit(live.run, picture)
        while not live._jobs:
            pass
        live.close()
        with pytest.raises(SceneClosed):
            waiting.result(PATIENCE)
    with pytest.raises(SceneClosed):
        live.run(picture)


def test_after_training_whoever_asks_renders() -> None:
    config, state = tiny_state(tiny_config())
    live = LiveScene(config, state)
    assert live.changes and live.frame_seconds is not None
    live.settle()
    assert not live.changes and live.frame_seconds is None
    assert live.run(lambda scene: threading.current_thread()) is threading.current_thread()


@pytest.mark.parametrize(("moving", "share"), [(False, RESTING), (True, MOVING)])
def test_pictures_take_their_share_of_the_time_and_no_more(moving: bool, share: float) -> None:
    allowance, trained, spent = Allowance(), 0.0, 0.0
    allowance.earn(MOVED_LATELY, moving=False)
    for _ in range(10_000):
        if allowance.seconds > 0:
            allowance.spend(0.07)
            spent += 0.07
        else:
            allowance.earn(0.01, moving)
            trained += 0.01
    assert spent / trained == pytest.approx(share, rel=0.05)


def test_what_is_not_used_is_saved_for_one_picture_only() -> None:
    allowance = Allowance()
    allowance.earn(3600, moving=True)
    assert allowance.seconds == MOST_SAVED
