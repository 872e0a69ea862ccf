"""What a page draws, read back from a browser without a window: `export format=web`. Needs selenium and Chromium."""

import base64
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras

PATIENCE = 600  # seconds for one picture; a CPU takes a minute for one of 800x800 with four rays a pixel
# The software rasterizer: a machine without a GPU draws the same picture.
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--window-size=320,240",
)  # fmt: skip
READ = """
const bytes = window.nerf.renderer.pixels(...arguments);
let text = "";
for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
return btoa(text);
"""
READY = "return 'nerf' in window || !message.textContent.startsWith('loading')"


class BrowserMissing(Exception):
    """What a machine lacks to draw the page."""


def page_pictures(path: Path, cameras: Cameras, rays_per_pixel: int) -> list[Tensor]:
    """The page's pictures [H,W,3] in [0,1] for cameras. Raises BrowserMissing."""
    with browser() as driver:
        driver.get(path.absolute().as_uri())
        wait_for(lambda: driver.execute_script(READY))
        if not driver.execute_script("return 'nerf' in window"):
            raise BrowserMissing(f"the page says: {driver.find_element('id', 'message').text}")
        return [_picture(driver, cameras, index, rays_per_pixel) for index in range(len(cameras))]


def _picture(driver: Any, cameras: Cameras, index: int, rays_per_pixel: int) -> Tensor:
    (width, height), c2w = cameras.size(index), cameras.c2w[index]
    camera = {
        "axes": c2w[:, :3].T.tolist(),
        "center": c2w[:, 3].tolist(),
        "intrinsics": cameras.intrinsics[index].tolist(),
    }
    return picture(driver.execute_script(READ, camera, width, height, rays_per_pixel), width, height)


def picture(base64_rgba: str, width: int, height: int) -> Tensor:
    """RGB [H,W,3] in [0,1] of bytes RGBA that a page sent."""
    rgba = np.frombuffer(base64.b64decode(base64_rgba), np.uint8).reshape(height, width, 4)
    return torch.from_numpy(rgba[..., :3].copy()).float() / 255


def wait_for(condition: Callable[[], Any]) -> Any:
    """What condition returns once that is true, or after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """A driver of Chromium. Raises BrowserMissing."""
    try:
        from selenium import webdriver  # optional
    except ImportError as error:
        raise BrowserMissing("no selenium here: pip install selenium") from error
    program, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver_program is None:
        raise BrowserMissing("no browser here: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for option in OPTIONS:
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_program))
    try:
        driver.set_script_timeout(PATIENCE)
        driver.command_executor.client_config.timeout = PATIENCE  # a page that draws does not answer
        yield driver
    finally:
        driver.quit()
