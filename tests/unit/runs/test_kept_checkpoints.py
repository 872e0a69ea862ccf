"""Runs that each version of the checkpoint wrote, kept in tests/golden/checkpoints: they load, render and go on.

Those of versions 4 and 5 are of their last commit, 6 is of one of the first of its version and 6_exposure of a later
one. They have no folder of the scene: `experiment=smoke`, 20 steps, 300 voxels. A new version adds one of its own.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nerf.runs import checkpoint, open_run
from nerf.runs.archive import READABLE_VERSIONS
from nerf.runs.run import resume

KEPT = Path(__file__).parents[2] / "golden" / "checkpoints"
RUNS = {  # folder: version, and the field of the run
    "4": (4, "voxel_sh"),
    "5": (5, "voxel_mlp"),
    "6": (6, "voxel_deferred"),
    "6_exposure": (6, "voxel_deferred"),  # exposure and vignetting are learned, settings of moments and grids are later
}
FILES = (checkpoint.MODEL_FILE, checkpoint.RESUME_FILE)


def test_each_version_that_is_read_has_a_run():
    assert {version for version, _ in RUNS.values()} == set(READABLE_VERSIONS)
    assert {path.name for path in KEPT.iterdir()} == set(RUNS)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", RUNS)
def test_a_run_of_this_version_shows_the_picture_that_it_had_then(kept, name, tmp_path):
    version, field = RUNS[kept]
    assert torch.load(KEPT / kept / name, weights_only=True)["version"] == version
    shutil.copy(KEPT / kept / name, tmp_path)
    run = open_run.load(tmp_path, "native", "cpu")
    assert run.config.field.name == field
    picture = run.render(run.views("test").cameras, 0).rgb.clamp(0, 1).mul(255).round().numpy()
    then = np.asarray(Image.open(KEPT / kept / "test_r_0.png").convert("RGB"))
    assert np.abs(picture - then).max() <= 2  # grids of the model file have half precision


@pytest.mark.parametrize("kept", RUNS)
def test_a_run_of_this_version_goes_on(kept, tmp_path):
    shutil.copytree(KEPT / kept, tmp_path / "run")
    run = resume(tmp_path / "run", steps=24)
    assert run.state.clock.step == 20
    losses = [metrics.losses["photometric"] for metrics in run.train()]
    assert run.state.clock.step == 24 and all(0 < loss < 0.1 for loss in losses)
