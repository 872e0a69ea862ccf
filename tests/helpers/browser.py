"""Debian's Chromium without a window, driven by selenium: what people see, read back as numbers."""

import base64
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

PATIENCE = 300  # seconds until a condition counts as never met; a machine at a tenth of its speed needs less
# The software rasteriser: a machine without a GPU draws the same picture.
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
)


@contextmanager
def browser(width: int = 320, height: int = 240) -> Iterator[Any]:
    """A browser; skips the test, with a reason, where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install selenium")
    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    if None in programs:
        pytest.skip("no browser: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for option in (*OPTIONS, f"--window-size={width},{height}"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    try:
        driver.set_script_timeout(PATIENCE)
        driver.set_page_load_timeout(PATIENCE)
        yield driver
    finally:
        driver.quit()


@contextmanager
def tab(driver: Any) -> Iterator[Any]:
    """The same browser with a new tab in front, which is closed again: a browser of its own starts for two seconds."""
    before = driver.current_window_handle
    driver.switch_to.new_window("tab")
    try:
        yield driver
    finally:
        driver.close()
        driver.switch_to.window(before)


def wait_for(condition: Callable[[], Any]) -> Any:
    """What condition returns once it is true. Fails after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("the page did not get there")


def picture(base64_rgba: str, width: int, height: int) -> Tensor:
    """RGB [H,W,3] in [0,1] of bytes RGBA that a page sent."""
    rgba = np.frombuffer(base64.b64decode(base64_rgba), np.uint8).reshape(height, width, 4)
    return torch.from_numpy(rgba[..., :3].copy()).float() / 255
