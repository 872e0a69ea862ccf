"""nerf benchmark mode=scenes from the command line: what is done is kept, what fails is named."""

import json
from pathlib import Path

import pytest
from PIL import Image
from script_runs import ROOT, run_script

pytestmark = pytest.mark.slow
SETTINGS = ("mode=scenes", "budget_steps=[4]", "dataset.downscale=8", "evaluation.every=10", "device=cpu")


def test_every_scene_is_trained_once_and_a_broken_one_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "broken").mkdir(parents=True)
    (data / "broken" / "transforms_train.json").write_text("{")
    (data / "bricks").symlink_to(ROOT / "data" / "bricks")
    given = (*SETTINGS, f"dataset.root={data}", "hydra.run.dir=out", "field.num_voxels=4096")
    out = run_script("benchmark", *given, cwd=tmp_path)
    assert out.returncode == 2 and "1 of 2 runs failed" in out.stderr and "captures_broken" in out.stderr
    assert "Traceback" not in out.stderr and "| bricks" in out.stdout
    result = json.loads((tmp_path / "out" / "scenes.json").read_text())
    (run,) = result["runs"]
    assert (run["scene"], run["steps"], run["image_size"]) == ("bricks", 4, [25, 25])
    worst = min(run["psnr"]["per_view"])
    assert abs(run["worst_view"]["psnr"] - worst) < 1e-3
    with Image.open(tmp_path / "out" / run["worst_view"]["picture"]) as picture:
        assert picture.width > 3 * 25
    again = run_script("benchmark", *given, "scenes=[bricks]", cwd=tmp_path)
    assert again.returncode == 0 and "bricks_4_steps: done already" in again.stderr
    other = run_script("benchmark", *given, "scenes=[bricks]", "seed=3", cwd=tmp_path)
    assert other.returncode == 2 and "other settings" in other.stderr
