"""The page of `export format=web` and its window: the machine's pace, sizes, keys, and what a browser may lack."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import browser, wait_for
from web_pages import opened, tiny_run, written

FRAME = 1000 / 30  # milliseconds, as in main.js
# A GPU that takes .01 ms a ray, on a clock of its own. As in Chromium only what reads its pixels waits for it.
SLOW = """
const { renderer } = nerf, { gl, program } = renderer, draw = gl.drawArrays.bind(gl), read = gl.readPixels.bind(gl);
let clock = 0, queued = 0;
window.draws = [];
performance.now = () => clock;
gl.drawArrays = (...given) => {
  draw(...given);
  if (gl.getParameter(gl.CURRENT_PROGRAM) !== program) return;
  const [, , width, height] = gl.getParameter(gl.SCISSOR_BOX), rays = gl.getUniform(program, renderer.at.uRays);
  draws.push({ rays, took: 0.01 * width * height * rays });
  queued += draws.at(-1).took;
};
gl.readPixels = (...given) => {
  read(...given);
  clock += queued;
  queued = 0;
};
"""
MOVING = """
const done = arguments[arguments.length - 1];
let frames = 30;
(function next() {
  nerf.change();
  if (frames--) requestAnimationFrame(next);
  else done();
})();
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tiny_run(), tmp_path_factory.mktemp("page"), steps=8)


@pytest.fixture(scope="module")
def window() -> Iterator[Any]:
    with browser() as driver:
        yield driver


@pytest.fixture
def page(window: Any, file: Path) -> Any:
    opened(window, file)
    return window


def at_rest(page: Any) -> None:
    """Waits for the picture in full."""
    wait_for(lambda: page.execute_script("return state.textContent === `${nerf.canvas.width} x ${nerf.canvas.height}`"))


def test_a_slow_gpu_draws_fewer_pixels_and_few_rows_at_a_time(page: Any) -> None:
    at_rest(page)
    page.execute_script(SLOW)
    page.execute_async_script(MOVING)
    width, height = page.execute_script("return [nerf.canvas.width, nerf.canvas.height]")
    scale = page.execute_script("return nerf.scale")
    assert 0.01 * width * height * scale**2 == pytest.approx(FRAME, rel=0.2)
    at_rest(page)
    rows = [draw["took"] for draw in page.execute_script("return draws") if draw["rays"] == 4]
    assert sum(rows) == pytest.approx(0.04 * width * height) and max(rows) < 1.5 * FRAME
