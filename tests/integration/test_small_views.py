"""Views of a few pixels: a run on them ends with its scores, and says what is other than usual about these."""

import json
from pathlib import Path

import pytest
from fixtures import write_sphere_scene
from script_runs import script_caller

TINY = ("dataset=blender", "dataset.root=scene", "device=cpu", "train.steps=4", "train.rays_per_step=64")
TINY += ("field.num_voxels=1000", "field.min_level_steps=1", "hydra.run.dir=run")


@pytest.mark.parametrize(("side", "window"), [(10, 9), (5, 5), (1, 1)])
def test_views_smaller_than_ssims_window_are_scored_with_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], side: int, window: int
) -> None:
    call = script_caller(monkeypatch, tmp_path)
    write_sphere_scene(Path("scene"), views=8, size=side)
    assert call("train", *TINY) == 0
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["ssim_window"] == window and 0 < metrics["ssim"]["mean"] <= 1 and len(metrics["views"]) == 8
    printed = capsys.readouterr().out
    assert f"the window has {window} pixels, not 11" in printed
    assert "needs views of 16 pixels at least" in printed
    assert call("evaluate", "run=run", "hydra.run.dir=scores") == 0
    assert json.loads(Path("scores/metrics.json").read_text())["ssim_window"] == window
