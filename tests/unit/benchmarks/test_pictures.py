"""Pictures of results appear whole or not at all, as the files beside them do."""

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import numpy as np
import pytest
from PIL import Image

from nerf.benchmarks.ablation_plot import plot_ablation
from nerf.benchmarks.curve_plot import plot_curve
from nerf.errors import UserError

ABLATION = {"devices": {}, "rows": [], "resolution": [], "scene": "", "field": "", "torch": "", "commit": ""}

CURVE = {"scene": "lego", "image_size": [8, 8], "device": "CPU"}


def half(place: Path, **_: object) -> None:
    """A disk that is full before the picture ends."""
    place.write_bytes(b"half")
    raise OSError(errno.ENOSPC, "No space left on device", str(place))


def draw_ablation(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = ModuleType("matplotlib.figure")  # optional
    matplotlib.Figure = MagicMock()
    matplotlib.Figure.return_value.subplots.return_value = np.empty((0, 1), object)
    matplotlib.Figure.return_value.savefig = half
    monkeypatch.setitem(sys.modules, "matplotlib.figure", matplotlib)
    plot_ablation(ABLATION, path)


def draw_curve(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image.Image, "save", lambda image, place, **format_: half(place))
    psnr = {"median": 30.0, "low": 29.0, "high": 31.0}
    budget = {"seconds": 5.0, "train_seconds": {"median": 5.0}, "psnr": psnr, "runs": []}
    plot_curve([CURVE | {"budgets": [budget]}], None, path)


@pytest.mark.parametrize("draw", [draw_ablation, draw_curve])
def test_a_picture_that_cannot_be_written_leaves_the_one_before(
    draw: Callable[[Path, pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "picture.png").write_text("whole")
    with pytest.raises(UserError, match="picture.png cannot be written"):
        draw(tmp_path / "picture.png", monkeypatch)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]
    assert (tmp_path / "picture.png").read_text() == "whole"
