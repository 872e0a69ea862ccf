"""A scene of several ranks with a viewer on the first, which waits for no other while its clock is stopped."""

import faulthandler
import threading
import time

from ranks import on_ranks
from tiny_runs import STEPS, tiny_config, tiny_state

from nerf.distributed.world import World
from nerf.rendering.render import render_image
from nerf.training.loop import Callback, train
from nerf.training.state import TrainState
from nerf.viewer.live import LiveScene
from nerf.viewer.scene import Scene

PATIENCE = 300  # seconds until ranks count as waiting for each other for ever
PAUSED = 0.2  # seconds


def picture(scene: Scene) -> float:
    return render_image(scene.field, scene.sampler, scene.cameras, 0, scene.background).rgb.mean().item()


def pause_and_look(live: LiveScene, found: list[float]) -> None:
    found.append(live.run(picture))
    live.pause(True)
    found.append(live.run(picture))
    time.sleep(PAUSED)
    live.pause(False)


class UntilSeen(Callback):
    """Holds each step until the thread of the viewer has asked for what it wants, or has all of it."""

    def __init__(self, live: LiveScene, asking: threading.Thread) -> None:
        self.live, self.asking = live, asking

    def wants_log(self, state: TrainState) -> bool:
        while self.asking.is_alive() and not (self.live._jobs or self.live.paused):
            time.sleep(0.001)
        return False


def watched(world: World) -> tuple[int, list[float]]:
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    config, state = tiny_state(tiny_config("voxel_deferred"))
    state.divide(world)
    hooks, found = [], []
    if world.leads:
        live = LiveScene(config, state)
        asking = threading.Thread(target=pause_and_look, args=(live, found), daemon=True)
        asking.start()
        hooks = [UntilSeen(live, asking), live]
    for _ in train(config, state, hooks):
        pass
    faulthandler.cancel_dump_traceback_later()
    return state.clock.step, found


def test_a_picture_and_a_pause_of_one_rank_hold_up_the_others_only_so_long() -> None:
    (first, found), (second, _) = on_ranks(2, watched)
    assert first == second == STEPS
    assert len(found) == 2 and all(0 < value < 1 for value in found)
