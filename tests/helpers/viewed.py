"""A tiny trained scene as the viewer has it; shared by its tests."""

from functools import cache

from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state

from nerf.rendering.background import Background
from nerf.training.state import make_sampler
from nerf.viewer.scene import Scene


@cache
def tiny_scene() -> Scene:
    config, state = tiny_state(tiny_config("voxel_deferred"))
    run_to(config, state, STEPS)
    background = Background.of(config.dataset, state.field.background).eval(state.device)
    images = tiny_images()
    return Scene(state.field, make_sampler(config, state), background, images.cameras, images)
