"""Runs that each version of the checkpoint wrote, kept in tests/golden/checkpoints: they load, render and go on.

Those of versions 4 and 5 are of their last commit, that of 6 is of one of its first. They have no folder of the scene:
`experiment=smoke`, 20 steps, 300 voxels. A new version puts one of its own beside them.
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
VERSIONS = {4: "voxel_sh", 5: "voxel_mlp", 6: "voxel_deferred"}  # with the field of the run
FILES = (checkpoint.MODEL_FILE, checkpoint.RESUME_FILE)


def test_each_version_that_is_read_has_a_run():
    assert tuple(VERSIONS) == READABLE_VERSIONS


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_of_this_version_shows_the_picture_that_it_had_then(version, name, tmp_path):
    assert torch.load(KEPT / str(version) / name, weights_only=True)["version"] == version
    shutil.copy(KEPT / str(version) / name, tmp_path)
    run = open_run.load(tmp_path, "native", "cpu")
    assert run.config.field.name == VERSIONS[version]
    picture = run.render(run.views("test").cameras, 0).rgb.clamp(0, 1).mul(255).round().numpy()
    then = np.asarray(Image.open(KEPT / str(version) / "test_r_0.png").convert("RGB"))
    assert np.abs(picture - then).max() <= 2  # grids of the model file have half precision


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_of_this_version_goes_on(version, tmp_path):
    shutil.copytree(KEPT / str(version), tmp_path / "run")
    run = resume(tmp_path / "run", steps=24)
    assert run.state.clock.step == 20
    losses = [metrics.losses["photometric"] for metrics in run.train()]
    assert run.state.clock.step == 24 and all(0 < loss < 0.1 for loss in losses)
