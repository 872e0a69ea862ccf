"""Spark, a viewer of splats for three.js that is not ours, in a browser without a window.

Its packages come from npm: npm install -g @sparkjsdev/spark three@0.180, or NODE_PATH names the folder that has them.
"""

import functools
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import browser, picture, wait_for
from torch import Tensor

from nerf.cameras.cameras import Cameras

PAGE = Path(__file__).with_name("spark_page.html")
NEEDED = ("@sparkjsdev/spark/dist/spark.module.js", "three/build/three.module.js")


def node_modules() -> Path:
    """The folder with Spark and three.js; skips the test where there is none."""
    folders = os.environ.get("NODE_PATH", "").split(os.pathsep)
    if shutil.which("npm"):
        folders.append(subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=True).stdout.strip())
    for folder in filter(None, folders):
        if all(Path(folder, name).is_file() for name in NEEDED):
            return Path(folder)
    pytest.skip("no Spark: npm install -g @sparkjsdev/spark three@0.180")


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
def spark(splats: Path) -> Iterator[Any]:
    """A browser in which Spark shows a file."""
    handler = functools.partial(_Files, splats=splats, modules=node_modules())
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, browser() as driver:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            driver.get(f"http://127.0.0.1:{server.server_port}/?{splats.name}")
            wait_for(lambda: driver.execute_script("return 'draw' in window"))
            yield driver
        finally:
            server.shutdown()
            thread.join()


def spark_picture(driver: Any, cameras: Cameras, index: int, background: float) -> Tensor:
    """What Spark draws for a camera: [H,W,3] in [0,1]."""
    width, height = cameras.size(index)
    view = {
        "pose": [*cameras.c2w[index].tolist(), [0, 0, 0, 1]],
        "intrinsics": cameras.intrinsics[index].tolist(),
        "width": width,
        "height": height,
        "background": background,
    }
    start = (
        "window.drawn = null; window.draw(arguments[0]).then((x) => { drawn = x }, (error) => { drawn = `! ${error}` })"
    )
    driver.execute_script(start, view)
    data = wait_for(lambda: driver.execute_script("return window.drawn"))
    assert not data.startswith("! "), data
    return picture(data, width, height).flip(0)
