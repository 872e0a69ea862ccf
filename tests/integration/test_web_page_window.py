"""The page of `export format=web` and its window: the machine's pace, sizes, keys, and what a browser may lack."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import browser, tab, wait_for
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
BRIGHTNESS = """
const small = Object.assign(document.createElement("canvas"), { width: 32, height: 32 }).getContext("2d");
small.drawImage(nerf.canvas, 0, 0, 32, 32);
const { data } = small.getImageData(0, 0, 32, 32);
return data.filter((_, i) => i % 4 < 3).reduce((sum, value) => sum + value) / (3 * 32 * 32);
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


def test_a_canvas_of_other_pixels_is_drawn_anew(page: Any) -> None:
    """As when the page is zoomed, or its window is taken to another screen: its layout stays."""
    at_rest(page)
    width, height = page.execute_script("return [innerWidth, innerHeight]")
    before = page.execute_script(BRIGHTNESS)
    override = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", override)
    try:
        wait_for(lambda: page.execute_script("return nerf.canvas.width") == 2 * width)
        at_rest(page)
        assert page.execute_script(BRIGHTNESS) == pytest.approx(before, rel=0.05)
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("modifier", ["ctrlKey", "altKey", "metaKey"])
def test_the_browsers_own_keys_are_left_to_it(modifier: str, page: Any) -> None:
    press = """
        const [key, modifier] = arguments, how = { key, [modifier]: true, cancelable: true, bubbles: true };
        const event = new KeyboardEvent("keydown", how);
        const before = String(nerf.orbit.center);
        document.body.dispatchEvent(event);
        return [event.defaultPrevented, String(nerf.orbit.center) !== before];
    """
    for key in ("+", "-", "ArrowLeft"):
        assert page.execute_script(press, key, modifier) == [False, False]
        assert page.execute_script(press, key, "shiftKey") == [True, True]


def test_a_camera_at_the_pole_has_axes_and_can_be_turned(page: Any) -> None:
    axes, turned = page.execute_script("""
        const { orbit } = nerf;
        orbit.start.up = orbit.axes()[2];
        const axes = orbit.axes();
        orbit.orbit(0, 0.1);
        return [axes, orbit.axes()];
    """)
    for right, up, backward in (axes, turned):
        for one, other, product in ((right, right, 1), (up, up, 1), (right, up, 0), (right, backward, 0)):
            assert sum(a * b for a, b in zip(one, other, strict=True)) == pytest.approx(product, abs=1e-6)


@pytest.mark.parametrize("width", [60, 1000])
def test_what_is_dragged_stays_under_the_pointer(width: int, page: Any) -> None:
    found = page.execute_script(
        """
        const { orbit } = nerf, element = { clientWidth: arguments[0], clientHeight: 400 }, point = orbit.target;
        orbit.pointers.set(1, { clientX: 0, clientY: 0 });
        orbit.move({ pointerId: 1, clientX: 20, clientY: 10, shiftKey: true }, element);
        const { axes, center, intrinsics } = orbit.camera(element.clientWidth, element.clientHeight);
        const [x, y, z] = axes.map((axis) => dot(axis, plus(point, center, -1)));
        return [intrinsics[0] * x / -z, intrinsics[1] * y / z];
        """,
        width,
    )
    assert found == pytest.approx([20, 10], abs=0.01)


def test_only_a_finished_picture_is_saved(page: Any) -> None:
    page.execute_script("nerf.canvas.toBlob = () => { window.saved = nerf.canvas.toDataURL(); }")
    at_rest(page)
    page.execute_script("nerf.scale = 0.1; nerf.change(); requestAnimationFrame(() => save.click())")
    wait_for(lambda: page.execute_script("return window.saved"))
    at_rest(page)
    assert page.execute_script("return nerf.rows === null && saved === nerf.canvas.toDataURL()")


def test_a_picture_that_cannot_be_saved_is_answered(page: Any) -> None:
    page.execute_script("nerf.canvas.toBlob = (done) => done(null)")
    at_rest(page)
    page.find_element("id", "save").click()
    wait_for(lambda: "not saved" in page.find_element("id", "state").text)


def test_a_button_without_a_use_is_hidden(window: Any, file: Path, tmp_path: Path) -> None:
    """A page on an iPhone cannot fill the screen."""
    without = "delete Document.prototype.fullscreenEnabled; delete Element.prototype.requestFullscreen;"
    path = tmp_path / "scene.html"
    path.write_text(file.read_text().replace("</head>", f"<script>{without}</script></head>"))
    with tab(window) as driver:
        opened(driver, path)
        shown = {name: driver.find_element("id", name).is_displayed() for name in ("mode", "home", "full", "save")}
        assert shown == {"mode": True, "home": True, "full": False, "save": True}
