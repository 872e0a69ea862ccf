"""`export format=splats` of the bundled scene, drawn by a renderer that is not ours beside our pictures."""

from pathlib import Path

import numpy as np
import pytest
from script_runs import script_caller

from nerf.benchmarks.splat_renderer import PinholeCamera, read_splats, render
from nerf.runs.open_run import load

pytest.importorskip("plyfile", reason="reads the files: pip install plyfile")


def test_the_bundled_scene_as_splats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call = script_caller(monkeypatch, tmp_path)
    assert call("train", "train.steps=100", "dataset.downscale=2", "evaluation.every=100", "hydra.run.dir=run") == 0
    assert call("export", "run", "format=splats", "max_splats=8000", "splats_steps=80", "hydra.run.dir=out") == 0
    assert Path("out/splats.ply").stat().st_size < 8000 * 62 * 4 + 2000
    run, splats, found = load("run"), read_splats(Path("out/splats.ply")), []
    views = run.views("test")
    white = run.background[0].item()
    for index in range(0, len(views.cameras), len(views.cameras) // 3):
        pose, lens = views.cameras.c2w[index].double().numpy(), views.cameras.intrinsics[index].tolist()
        picture = render(splats, PinholeCamera.of_opengl(pose, lens, *views.cameras.size(index)), white)
        ours = run.render(views.cameras, index).rgb.clamp(0, 1).double().numpy()
        found.append(-10 * np.log10(np.square(picture - ours).mean()))
    assert np.mean(found) >= 29  # 31 found
