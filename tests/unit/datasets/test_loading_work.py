"""What loading photos takes of processor and memory."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures import official_scene, random_images
from PIL import Image

from nerf.datasets import decoding
from nerf.datasets.blender import load_blender

PEAK = """
import resource, sys, threading
from pathlib import Path
import numpy as np
from nerf.datasets.capture import Capture, Frame
from nerf.datasets.photos import load_photos
frames = [Frame(path, np.eye(4)[:3], 3000, 2000, (1.0, 1.0, 1.0, 1.0)) for path in sorted(Path(sys.argv[1]).iterdir())]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
posed = load_photos(Capture("test", Path(sys.argv[1]), frames), "train", test_every=0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before, posed.pixels.nbytes)
"""


@pytest.mark.slow
def test_memory_is_that_of_the_pixels_and_of_the_few_photos_in_work(tmp_path: Path) -> None:
    """30 photos of 6 megapixels: as they come, 0.5 GB; two threads hold some 80 MB each, however many photos follow."""
    original = tmp_path / "0.jpg"
    Image.fromarray(random_images(20, 30, 3)).resize((3000, 2000)).save(original)
    for index in range(1, 30):
        os.link(original, tmp_path / f"{index}.jpg")
    root = str(Path(__file__).resolve().parents[3])
    two_cores = "os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:2])"
    program = f"import os, sys; sys.path.insert(0, {root!r}); {two_cores}{PEAK}"
    result = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    used, pixels = map(int, result.stdout.split())
    assert pixels == 30 * 3000 * 2000 * 3
    assert used - pixels < 250e6


def test_loading_photos_of_lego_is_little_more_work_than_to_decode_them(tmp_path: Path) -> None:
    """Both are measured here, one after the other, in processor time: not what a busy machine adds in waiting."""
    folder = official_scene("lego")
    content = json.loads((folder / "transforms_train.json").read_text())
    content["frames"] = content["frames"][:20]
    paths = [folder / f"{frame['file_path']}.png" for frame in content["frames"]]
    for frame, path in zip(content["frames"], paths):
        frame["file_path"] = str(path.resolve())
    (tmp_path / "transforms_train.json").write_text(json.dumps(content))

    def work(do: Callable[[], object]) -> float:
        before = time.process_time()
        do()
        return time.process_time() - before

    assert load_blender(tmp_path, "train").pixels.shape == (20 * 800 * 800, 4)
    ratios = [
        work(lambda: load_blender(tmp_path, "train")) / work(lambda: [Image.open(path).load() for path in paths])
        for _ in range(3)
    ]
    assert min(ratios) < 2


@pytest.mark.parametrize(("terminal", "seconds", "lines"), [(False, 0.01, 1), (False, 60.0, 0), (True, 0.01, 0)])
def test_reading_that_takes_long_is_told_once_where_no_bar_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool, seconds: float, lines: int
) -> None:
    monkeypatch.setattr(decoding, "LONG", seconds)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    assert decoding.read_all(lambda index: time.sleep(0.02) or index, 20, "images") == list(range(20))
    said = capsys.readouterr().err
    assert len(re.findall(r"note: images: \d+ of 20 so far, still reading\n", said)) == lines
    assert said.count("note:") == lines
