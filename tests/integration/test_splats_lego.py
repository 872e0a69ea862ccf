"""Official lego as splats, drawn by Spark beside the photos. docs/export.md has the figures at full size."""

import json
from pathlib import Path

import pytest
from fixtures import official_scene
from script_runs import script_caller

from nerf.benchmarks.page_pictures import BrowserMissing, browser
from nerf.benchmarks.spark_pictures import spark_version

TRAIN = ("dataset=lego", "dataset.downscale=8", "train.steps=600", "evaluation.every=100", "hydra.run.dir=run")
SCORE = (
    "mode=exports",
    "exports.run=run",
    "exports.formats=[splats]",
    "exports.views=4",
    "exports.splats_steps=250",
    "hydra.run.dir=out",
)


def test_spark_draws_lego_as_the_photos_show_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At 100x100 after a short run, where 1.3 pixels are the finest spacing: splats lose more than at 800x800."""
    root = official_scene("lego")
    try:
        spark_version()
        with browser():
            pass
    except BrowserMissing as missing:
        pytest.skip(str(missing))
    call = script_caller(monkeypatch, tmp_path)
    assert call("train", *TRAIN, f"dataset.root={root}") == 0
    assert call("benchmark", *SCORE) == 0
    splats = json.loads(Path("out/exports.json").read_text())["splats"]
    assert splats["count"] <= 500_000
    assert splats["spark"]["photos"]["mean"] >= 30  # 30.5 found
