"""The page of `export format=web` in a browser: it draws what our renderer draws, and does what its buttons say."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser import browser, picture, tab, wait_for
from PIL import Image
from torch import Tensor
from web_pages import opened, tiny_run, written

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import look_at
from nerf.errors import UserError
from nerf.export.web.export import export_web
from nerf.images.metrics import psnr
from nerf.runs.open_run import LoadedRun
from nerf.scene.contraction import ContractedSpace
from nerf.scene.ndc import NdcSpace
from nerf.scene.space import WorldSpace

READ = """
const bytes = window.nerf.renderer.pixels(...arguments);
let text = "";
for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
return btoa(text);
"""


@pytest.fixture(scope="module")
def trained() -> LoadedRun:
    return tiny_run()


@pytest.fixture(scope="module")
def window() -> Iterator[Any]:
    with browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def page(window: Any, trained: LoadedRun, tmp_path_factory: pytest.TempPathFactory) -> Any:
    opened(window, written(trained, tmp_path_factory.mktemp("page")))
    return window


def drawn(driver: Any, cameras: Cameras, index: int, rays: int) -> Tensor:
    (width, height), c2w = cameras.size(index), cameras.c2w[index]
    camera = {
        "axes": c2w[:, :3].T.tolist(),
        "center": c2w[:, 3].tolist(),
        "intrinsics": cameras.intrinsics[index].tolist(),
    }
    return picture(driver.execute_script(READ, camera, width, height, rays), width, height)


def worst_psnr(driver: Any, run: LoadedRun, cameras: Cameras) -> float:
    """The least PSNR in dB of pictures in the browser beside our own, over a white background."""
    rays = run.sampler.rays_per_pixel
    pairs = [(drawn(driver, cameras, i, rays), run.render(cameras, i).rgb.clamp(0, 1)) for i in range(len(cameras))]
    return min(psnr(found, expected) for found, expected in pairs)


def test_the_browser_draws_what_we_draw(page: Any, trained: LoadedRun) -> None:
    assert worst_psnr(page, trained, trained.cameras[:3].resized(width=80)) >= 43


def test_its_title_is_text(page: Any) -> None:
    assert page.title == "a <scene>"


def test_a_drag_turns_the_camera_and_a_double_click_brings_it_back(page: Any) -> None:
    from selenium.webdriver import ActionChains

    def center() -> list[float]:
        return page.execute_script("return window.nerf.orbit.center")

    start = center()
    canvas = page.find_element("id", "view")

    def dragged() -> bool:
        ActionChains(page).drag_and_drop_by_offset(canvas, 60, 20).perform()
        return center() != start

    wait_for(dragged)  # Chromium drops what comes from a mouse before a new page has first been shown
    turned = center()
    assert sum(x * x for x in turned) == pytest.approx(sum(x * x for x in start), rel=0.05)  # around the scene
    ActionChains(page).double_click(canvas).perform()
    wait_for(lambda: center() == start)


def test_it_rests_in_full_and_shows_depth(page: Any) -> None:
    """At rest the canvas has its full size; the button goes through the kinds of picture."""
    size = page.execute_script("return [nerf.canvas.clientWidth, nerf.canvas.clientHeight].join(' x ')")
    wait_for(lambda: page.find_element("id", "state").text == size)
    page.find_element("id", "mode").click()
    assert page.execute_script("return window.nerf.mode") == 1
    wait_for(lambda: page.find_element("id", "state").text == size)
    page.find_element("id", "mode").click()
    page.find_element("id", "mode").click()
    assert page.execute_script("return window.nerf.mode") == 0


def test_the_canvas_follows_the_window(page: Any) -> None:
    page.set_window_size(420, 400)
    wait_for(lambda: page.execute_script("return nerf.canvas.width === Math.round(innerWidth * devicePixelRatio)"))
    page.set_window_size(320, 240)


def test_two_fingers_zoom_and_one_turns(page: Any) -> None:
    """Touches as the browser makes them of fingers."""

    def touch(kind: str, *points: tuple[int, int]) -> None:
        fingers = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})

    def distance() -> float:
        return page.execute_script("return Math.hypot(...nerf.orbit.center.map((x, i) => x - nerf.orbit.target[i]))")

    before = page.get_window_size()
    page.set_window_size(500, 340)
    on_canvas = "return [80, 150, 220].every((x) => document.elementFromPoint(x, 80) === nerf.canvas)"
    wait_for(lambda: page.execute_script(on_canvas))  # no button is in the way
    page.execute_script("nerf.orbit.reset()")
    far, center = distance(), page.execute_script("return nerf.orbit.center")
    touch("touchStart", (140, 80), (160, 80))
    for apart in (20, 40, 60):
        touch("touchMove", (140 - apart, 80), (160 + apart, 80))
    touch("touchEnd")
    wait_for(lambda: distance() < 0.5 * far)
    page.execute_script("nerf.orbit.reset()")
    touch("touchStart", (150, 80))
    touch("touchMove", (190, 80))
    touch("touchEnd")
    wait_for(lambda: page.execute_script("return nerf.orbit.center") != center)
    assert distance() == pytest.approx(far)
    page.execute_script("nerf.orbit.reset()")
    page.set_window_size(before["width"], before["height"])


def test_it_fills_the_screen_and_back(page: Any) -> None:
    button = page.find_element("id", "full")
    button.click()
    wait_for(lambda: page.execute_script("return document.fullscreenElement !== null"))
    button.click()
    wait_for(lambda: page.execute_script("return document.fullscreenElement === null"))


def test_the_picture_is_saved(page: Any, tmp_path: Path) -> None:
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    size = page.execute_script("return [nerf.canvas.clientWidth, nerf.canvas.clientHeight]")
    wait_for(lambda: page.find_element("id", "state").text == " x ".join(map(str, size)))
    page.find_element("id", "save").click()
    (path,) = wait_for(lambda: list(tmp_path.glob("*.png")))
    picture = np.asarray(Image.open(path).convert("RGB"))
    assert picture.shape[1::-1] == tuple(size) and picture.std() > 1


def test_a_browser_without_webgl_is_told_so(window: Any, trained: LoadedRun, tmp_path: Path) -> None:
    path = written(trained, tmp_path)
    text = path.read_text().replace('getContext("webgl2"', 'getContext("none"')
    path.write_text(text)
    with tab(window) as driver:
        driver.get(path.as_uri())
        wait_for(lambda: "WebGL 2" in driver.find_element("id", "message").text)


def warped(run: LoadedRun, space: NdcSpace | ContractedSpace) -> LoadedRun:
    """The same values at the vertices, in another space: what was learned in a box is a scene there too."""
    box = replace(run.field.box, space=space)
    if isinstance(space, NdcSpace):
        box = replace(box, aabb=torch.tensor([[-0.5, -0.5, 0.0], [0.5, 0.5, space.thickness]]))
    run.field.box = box
    run.field.set_resolution(run.field.resolution)
    sampler = replace(
        run.sampler, grid_map=run.field.grid_map, step_size=run.config.sampler.step_size_voxels * run.field.voxel_size
    )
    return replace(run, sampler=sampler)


@pytest.mark.parametrize("kind", ["forward_facing", "unbounded", "turned"])
def test_warped_scenes_are_drawn_alike(kind: str, window: Any, tmp_path: Path) -> None:
    run = tiny_run(diffuse=True)  # as photos have it
    center = torch.tensor([0.0, 0.0, 4.0])
    pose = look_at(center, torch.zeros(3), torch.tensor([0.0, 1.0, 0.0]))
    if kind == "forward_facing":
        space = NdcSpace(pose, near_plane=2.0, thickness=1.0, near=0.1)
    elif kind == "turned":
        space = WorldSpace(0.1, look_at(torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3), pose[:, 1])[:, :3])
    else:
        space = ContractedSpace(torch.zeros(3), torch.full((3,), 0.5), contraction=1.0, near=0.1)
    run = warped(run, space)
    poses = torch.stack([look_at(center + shift, torch.zeros(3), pose[:, 1]) for shift in 0.4 * torch.randn(4, 3)])
    seen = Cameras(poses, torch.tensor([[40.0, 40.0, 24.0, 24.0]]).expand(4, 4), 48, 48)
    run = replace(run, cameras=seen, given_cameras=seen)
    assert run.render(seen, 0).opacity.mean() > 0.05
    with tab(window) as driver:
        opened(driver, written(run, tmp_path))
        assert worst_psnr(driver, run, seen[:2]) >= 43
        driver.execute_script("nerf.renderer.gl.getExtension('WEBGL_lose_context').loseContext()")
        wait_for(lambda: "reload" in driver.find_element("id", "message").text)


def test_a_scene_too_large_for_browsers_says_what_to_lower(
    trained: LoadedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nerf.export.web.export.MOST_ON_GPU", 4 * 2 * 9**3)  # one brick of two textures
    monkeypatch.delattr("nerf.export.web.export.distill")  # known before minutes of teaching
    with pytest.raises(UserError, match=r"web_features=3.*field\.num_voxels"):
        written(trained, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_memory_on_the_gpu_is_that_of_the_textures(page: Any, trained: LoadedRun, tmp_path: Path) -> None:
    size = page.execute_script(
        "const { gl, program, at } = nerf.renderer; return [...gl.getUniform(program, at.uAtlasSize)]"
    )
    chunks = page.execute_script("return nerf.scene.chunks")
    again = export_web(
        tmp_path / "a.html", trained.field, trained.sampler, trained.cameras, torch.ones(3), "a", steps=2
    )
    assert again.gpu_bytes == 4 * chunks * math.prod(map(int, size))
