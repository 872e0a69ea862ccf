"""The viewer in a browser: its picture is ours, a drag moves the camera, closing leaves no thread."""

import contextlib
import io
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio
import numpy as np
import pytest
import torch
from browser import browser, tab, wait_for
from PIL import Image
from script_runs import start_script
from viewed import tiny_scene

from nerf.cameras.path_file import read_camera_path
from nerf.images.metrics import psnr
from nerf.rendering.render import render_image
from nerf.viewer.scene import StillScene

pytestmark = pytest.mark.slow
pytest.importorskip("viser", reason="no viser: pip install viser")
PANEL = 340  # pixels on the right that the controls cover
# A note covers the picture where the page draws without a GPU; its height depends on the fonts of the machine.
CLOSE_NOTES = "document.querySelectorAll('.mantine-Notification-closeButton').forEach(button => button.click())"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from nerf.viewer.server import Viewer

    run = tmp_path_factory.mktemp("run")
    with Viewer(StillScene(tiny_scene()), "127.0.0.1", free_port(), run) as viewer:
        yield viewer


@pytest.fixture(scope="module")
def window() -> Iterator[Any]:
    with browser(800, 500) as driver:
        yield driver


@pytest.fixture
def page(viewer: Any, window: Any) -> Iterator[Any]:
    with tab(window) as driver:
        driver.get(viewer.url)
        wait_for(lambda: viewer.pages)
        yield driver
    wait_for(lambda: not viewer.pages)


def threads(*names: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in names]


def rests(page: Any) -> bool:
    """Whether the newest picture is whole and has the size of the window."""
    return "moving" not in page.status.content and " x " in page.status.content


def shown(driver: Any) -> torch.Tensor:
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    return torch.from_numpy(np.array(picture)).float() / 255


def test_the_browser_shows_what_we_render(viewer: Any, page: Any) -> None:
    client = viewer.pages[0]
    scene = tiny_scene()

    def alike() -> bool:
        page.execute_script(CLOSE_NOTES)
        if not rests(client):
            return False
        view = client.renderer.camera
        cameras = view.cameras(view.width, view.height)
        expected = render_image(scene.field, scene.sampler, cameras, 0, scene.background).rgb.clamp(0, 1)
        found = shown(page)[: view.height, : view.width]
        assert found.shape == expected.shape
        part = slice(None), slice(0, view.width - PANEL if view.width > 700 else view.width)
        assert expected[part].std() > 0.05  # the object is in it
        return psnr(found[part], expected[part]) >= 35

    wait_for(alike)


def drag(driver: Any) -> None:
    from selenium.webdriver import ActionChains

    canvas = driver.find_element("tag name", "canvas")
    begin = ActionChains(driver).move_to_element_with_offset(canvas, -100, 100)
    begin.click_and_hold().move_by_offset(60, 20).perform()
    ActionChains(driver).release().perform()


def press(driver: Any, label: str) -> None:
    """Clicks a button, also where the panel would have to be scrolled."""
    find = "return [...document.querySelectorAll('button')].find(button => button.textContent.trim() == arguments[0])"
    driver.execute_script("arguments[0].click()", wait_for(lambda: driver.execute_script(find, label)))


def open_tab(driver: Any, title: str) -> None:
    from selenium.common.exceptions import WebDriverException

    def opened() -> bool:
        with contextlib.suppress(WebDriverException):  # while the panel moves to its place nothing can be clicked
            tab = driver.find_element("xpath", f"//*[@role='tab'][@title='{title}']")
            tab.click()
            return tab.get_attribute("aria-selected") == "true"
        return False

    wait_for(opened)


def test_a_drag_moves_the_camera_and_a_new_picture_comes(viewer: Any, page: Any) -> None:
    client = viewer.pages[0]
    wait_for(lambda: rests(client))
    before = client.renderer.camera.c2w.clone()
    drag(page)
    wait_for(lambda: (client.renderer.camera.c2w - before).abs().max() > 0.05)
    wait_for(lambda: rests(client))


def test_a_path_is_made_played_saved_and_rendered(viewer: Any) -> None:
    with browser(1000, 700) as driver:
        driver.get(viewer.url)
        client = wait_for(lambda: viewer.pages)[0]
        wait_for(lambda: rests(client))
        open_tab(driver, "Camera path")
        for number in (1, 2):
            press(driver, "add key frame")
            wait_for(lambda number=number: len(client.path.path) == number)
            before = client.renderer.camera.c2w.clone()
            drag(driver)
            wait_for(lambda before=before: (client.renderer.camera.c2w - before).abs().max() > 0.05)
        first, last = (key.c2w for key in client.path.path.keys)
        assert (first - last).abs().max() > 0.05

        client.path.seconds.value = 0.4
        client.path.fps.value, client.path.size.value = 10.0, (64.0, 48.0)
        press(driver, "preview")
        wait_for(lambda: (client.renderer.camera.c2w - last).abs().max() < 1e-3 and client.path.play.label == "preview")

        client.files.name.value = "../model"
        press(driver, "save path")
        wait_for(lambda: "'../model' cannot be used" in driver.find_element("tag name", "body").text)
        client.files.name.value = "path"
        press(driver, "save path")
        wait_for(lambda: "saved" in client.files.status.content)
        saved = read_camera_path(viewer.folder.folder / "path.json")
        assert saved.fps == 10 and len(saved.cameras) == 4 and saved.cameras.size(0) == (64, 48)
        torch.testing.assert_close(saved.cameras.c2w[[0, -1]], torch.stack([first, last]), rtol=0, atol=1e-4)
        press(driver, "delete")
        wait_for(lambda: len(client.path.path) == 1)
        press(driver, "load path")
        wait_for(lambda: len(client.path.path) == 2 and client.path.total.value == 0.4)

        press(driver, "render MP4")
        wait_for(lambda: "written:" in client.video.status.content)
        video = viewer.folder.folder / "path.mp4"
        assert imageio.v2.get_reader(video).count_frames() == 4
        video.unlink()
        client.path.total.value, client.path.size.value = 600.0, (640.0, 480.0)  # longer than a browser takes to leave
        press(driver, "render MP4")
        wait_for(lambda: "of 6000 frames" in client.video.status.content)
    wait_for(lambda: not viewer.pages)  # the browser has left while a video was rendered
    wait_for(lambda: not threads("viewer-video"))
    client.video.render.value = client.path.play.value = True  # clicks that were on their way
    assert not threads("viewer-video", "viewer-preview")
    assert [file.name for file in viewer.folder.folder.iterdir()] == ["path.json"]


def test_its_controls_change_the_look(viewer: Any, page: Any) -> None:
    client = viewer.pages[0]
    client.view.mode.value = "depth"
    client.view.crop[2].value = (0.0, 0.5)
    wait_for(lambda: client.renderer.look.mode == "depth" and client.renderer.look.crop_upper[2] == 0.5)
    client.cameras.shown.value = True
    wait_for(lambda: len(client.cameras.frusta) == len(tiny_scene().cameras))


def test_two_clients_each_have_a_camera_and_one_may_go(viewer: Any, page: Any) -> None:
    with browser(400, 300) as other:
        other.get(viewer.url)
        wait_for(lambda: len(viewer.pages) == 2)
        sizes = {client.renderer.camera.width for client in viewer.pages}
        assert len(sizes) == 2
    wait_for(lambda: len(viewer.pages) == 1)
    viewer.pages[0].move()
    wait_for(lambda: rests(viewer.pages[0]))


def test_closing_leaves_no_thread(window: Any, tmp_path: Path) -> None:
    from nerf.viewer.server import Viewer

    before = set(threading.enumerate())
    with Viewer(StillScene(tiny_scene()), "127.0.0.1", free_port(), tmp_path) as viewer, tab(window) as driver:
        driver.get(viewer.url)
        wait_for(lambda: viewer.pages and rests(viewer.pages[0]))
        viewer.close()
    wait_for(lambda: not [thread for thread in set(threading.enumerate()) - before if thread.is_alive()])


def test_a_training_run_is_watched_paused_and_stopped(tmp_path: Path) -> None:
    port = free_port()
    settings = ("viewer=true", f"port={port}", "train.steps=100000", "dataset.downscale=8", "train.log_every=20")
    command = start_script("train", *settings, "device=cpu", "hydra.run.dir=run", cwd=tmp_path)
    try:
        assert "localhost" in command.stdout.readline(), command.stderr.read()
        with browser(1000, 700) as driver:
            driver.get(f"http://localhost:{port}")

            def text() -> str:
                return driver.find_element("tag name", "body").text

            wait_for(lambda: "samples a ray" in text() and " x " in text())
            press(driver, "pause")
            wait_for(lambda: "paused" in text() and "moving" not in text())
            press(driver, "go on")
            step = int(text().split("step ")[1].split()[0])
            wait_for(lambda: "left" in text() and int(text().split("step ")[1].split()[0]) > step)
            press(driver, "stop and save")
            out, err = command.communicate(timeout=300)
    finally:
        command.kill()
    assert command.returncode == 0, err
    assert "Resume it with" in out and "Traceback" not in err
    assert (tmp_path / "run" / "resume.pt").exists()


def test_ctrl_c_ends_the_command_without_a_traceback(tmp_path: Path) -> None:
    from script_runs import run_script

    settings = ("train.steps=10", "dataset.downscale=8", "device=cpu", "hydra.run.dir=run")
    assert run_script("train", *settings, cwd=tmp_path).returncode == 0
    command = start_script("view", "run=run", f"port={free_port()}", "device=cpu", cwd=tmp_path)
    line = command.stdout.readline()
    while "http://localhost" not in line:
        assert line, command.stderr.read()
        line = command.stdout.readline()
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=300)
    assert command.returncode == 128 + signal.SIGINT
    assert "Traceback" not in out + err
    assert list(tmp_path.rglob("outputs/views/*")) == []  # no empty folder stays
