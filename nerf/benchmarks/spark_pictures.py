"""What Spark draws of a file of splats: a viewer for three.js that is not ours, in a browser without a window.

Its packages come from npm: npm install -g @sparkjsdev/spark three@0.180, or NODE_PATH names the folder that has them.
"""

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from nerf.benchmarks.page_pictures import BrowserMissing, browser, picture, wait_for
from nerf.cameras.cameras import Cameras

PAGE = Path(__file__).with_name("spark_page.html")
PACKAGES = {"@sparkjsdev/spark": "dist/spark.module.js", "three": "build/three.module.js"}
DRAW = "window.drawn = null; draw(arguments[0]).then((x) => { drawn = x }, (error) => { drawn = `! ${error}` })"


def spark_pictures(path: Path, cameras: Cameras, background: float, full: bool = False) -> list[Tensor]:
    """Spark's pictures [H,W,3] in [0,1] of a file for pinhole cameras, over a gray background.

    Gaussians are blurred by 0.3 pixels and sorted by depth, as those of 3D Gaussian Splatting are. full: their centers
    stay float32 (Spark's extSplats), not float16 as by default. Raises BrowserMissing, and RuntimeError where Spark
    fails.
    """
    with _serving(path, _node_modules()) as address, browser() as driver:
        driver.get(f"{address}#full" if full else address)
        if not wait_for(lambda: driver.execute_script("return 'draw' in window")):
            raise RuntimeError("the page with Spark did not load")
        return [_picture(driver, cameras, index, background) for index in range(len(cameras))]


def spark_version() -> str:
    """Of Spark and of three.js, which draws for it. Raises BrowserMissing."""
    modules = _node_modules()
    spark, three = (json.loads((modules / name / "package.json").read_text())["version"] for name in PACKAGES)
    return f"Spark {spark} on three.js {three}"


def _picture(driver: Any, cameras: Cameras, index: int, background: float) -> Tensor:
    width, height = cameras.size(index)
    view = {
        "pose": [*cameras.c2w[index].tolist(), [0, 0, 0, 1]],
        "intrinsics": cameras.intrinsics[index].tolist(),
        "width": width,
        "height": height,
        "background": background,
    }
    driver.execute_script(DRAW, view)
    data = wait_for(lambda: driver.execute_script("return window.drawn")) or "! it took too long"
    if data.startswith("! "):
        raise RuntimeError(f"Spark drew nothing: {data[2:]}")
    return picture(data, width, height).flip(0)


def _node_modules() -> Path:
    """The folder that has Spark and three.js. Raises BrowserMissing."""
    folders = os.environ.get("NODE_PATH", "").split(os.pathsep)
    if shutil.which("npm"):
        folders.append(subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=True).stdout.strip())
    for folder in filter(None, folders):
        if all(Path(folder, name, file).is_file() for name, file in PACKAGES.items()):
            return Path(folder)
    raise BrowserMissing("no Spark: npm install -g @sparkjsdev/spark three@0.180")


class _Files(http.server.SimpleHTTPRequestHandler):
    """The page, the splats, and the packages."""

    def __init__(self, *arguments: Any, splats: Path, modules: Path) -> None:
        self.named = {"/": PAGE, f"/{splats.name}": splats}
        self.modules = modules
        super().__init__(*arguments)

    def translate_path(self, path: str) -> str:
        path = path.partition("?")[0]
        return str(self.named.get(path) or self.modules / path.lstrip("/"))

    def log_message(self, *arguments: Any) -> None:
        """Nothing."""


@contextmanager
def _serving(splats: Path, modules: Path) -> Iterator[str]:
    """The address of the page that shows a file."""
    handler = functools.partial(_Files, splats=splats, modules=modules)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/?{splats.name}"
        finally:
            server.shutdown()
            thread.join()
