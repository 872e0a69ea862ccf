"""Web pages of tiny runs, and a browser's tab that has opened one."""

from pathlib import Path
from typing import Any

import torch
from browser import wait_for
from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state

from nerf.export.web.export import export_web
from nerf.runs.open_run import LoadedRun
from nerf.training.state import make_sampler


def tiny_run(diffuse: bool | None = None) -> LoadedRun:
    """A trained run whose color is deferred, as a page asks for; diffuse: its setting, None as it is."""
    config = tiny_config("voxel_deferred")
    if diffuse is not None:
        config.field.diffuse = diffuse
    config, state = tiny_state(config)
    run_to(config, state, STEPS)
    cameras = tiny_images().cameras
    return LoadedRun(None, config, state.field, make_sampler(config, state), cameras, cameras)


def written(run: LoadedRun, folder: Path, steps: int = 400) -> Path:
    """A run's page; with few steps of distilling it is made fast, and its colors are wrong."""
    path = folder / "scene.html"
    export_web(path, run.field, run.sampler, run.cameras, torch.ones(3), "a <scene>", steps=steps)
    return path


def opened(driver: Any, path: Path) -> None:
    """Opens a page and waits until it shows the scene."""
    driver.get(path.as_uri())
    wait_for(lambda: driver.execute_script("return 'nerf' in window || !message.textContent.startsWith('loading')"))
    assert driver.execute_script("return 'nerf' in window"), driver.find_element("id", "message").text
