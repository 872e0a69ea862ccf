"""benchmark.py mode=exports: page, splats and mesh of a run, beside its photos and its own pictures."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from script_runs import script_caller
from tiny_runs import write_tiny_scene

from nerf.benchmarks import page_pictures
from nerf.benchmarks.delivery_tables import exports_table, viewer_table
from nerf.benchmarks.exports import straightened
from nerf.benchmarks.splat_renderer import PinholeCamera, render_file
from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import Lenses
from nerf.datasets.posed_images import PosedImages

RUN = ("experiment=smoke", "dataset.root=scene", "dataset.downscale=1", "device=cpu", "log=none", "hydra.run.dir=run")
SMALL = ("mode=exports", "exports.run=run", "device=cpu", "exports.web_steps=20", "exports.splats_steps=2")
SMALL += ("exports.max_splats=200", "exports.views=2", "hydra.run.dir=out")


def test_the_exports_of_a_run_are_scored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    call = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))
    assert call("train", *RUN) == 0
    monkeypatch.setattr(page_pictures.shutil, "which", lambda name: None)
    monkeypatch.delenv("NODE_PATH", raising=False)
    monkeypatch.setattr("nerf.benchmarks.exports.usable_cores", lambda: 1)
    assert call("benchmark", *SMALL) == 0
    found = json.loads(Path("out/exports.json").read_text())
    assert "apt install chromium" in found["web"]["not_drawn"] and found["web"]["distilled_psnr"] > 19
    assert found["web"]["bytes"] == Path("out/scene.html").stat().st_size
    assert len(found["views"]) == len(found["splats"]["ours"]["per_view"]) == 2 and found["splats"]["count"] <= 200
    assert found["splats"]["ours"]["mean"] > 15
    assert "npm install" in found["splats"]["spark"]["not_drawn"]
    assert found["mesh"]["triangles"] > 100 and 0 <= found["mesh"]["voxels_off"]["median"] < 3
    assert found["mesh"]["uncovered"] < 0.1
    assert "Gaussians" in capsys.readouterr().out
    table = exports_table([found])
    assert f"{found['splats']['photos']['mean']:.2f}" in table and table.count("\n") == 4
    found["splats"]["spark"] = {"photos": {"mean": 12.34}, "ours": {"mean": 43.21}}
    line = next(line for line in exports_table([found]).splitlines() if "splats in Spark" in line)
    assert "12.34" in line and "43.21" in line and f"{found['splats']['count']} Gaussians" in line

    written = Path("out/splats.ply").stat().st_mtime_ns
    assert call("benchmark", *SMALL, "exports.formats=[splats]", "exports.splats_file=out/splats.ply") == 0
    again = json.loads(Path("out/exports.json").read_text())
    assert again["splats"]["photos"] == found["splats"]["photos"] and "web" not in again
    assert Path("out/splats.ply").stat().st_mtime_ns == written

    pinhole = PinholeCamera(np.eye(4), (20.0, 20.0, 10.0, 10.0), 20, 20)
    alone = render_file(Path("out/splats.ply"), [pinhole], 1.0, 1)
    beside = render_file(Path("out/splats.ply"), [pinhole, pinhole], 1.0, 2)
    assert np.array_equal(alone[0], beside[0]) and np.array_equal(alone[0], beside[1])


@pytest.mark.parametrize("coefficients", [(-0.3, 0.05), (0.2,)])
def test_photos_are_compared_without_the_lens_that_took_them(coefficients: tuple[float, ...]) -> None:
    """Exports draw pinholes. Here a color is the direction of its ray, whichever lens the ray came through."""
    poses, intrinsics = torch.eye(4)[:3].expand(2, 3, 4), torch.tensor([[40.0, 42.0, 31.0, 23.0]]).expand(2, 4)
    cameras = Cameras(poses, intrinsics, 60, 48, None, Lenses.of(["perspective"] * 2, [coefficients, (0.0,)]))
    bent = torch.cat([cameras.image_rays(i).directions for i in range(2)])
    photos = PosedImages((255 * (0.5 + 0.5 * bent)).round().byte(), cameras, ["a", "b"])
    pinholes = Cameras(poses, intrinsics, 60, 48)
    for index in range(2):
        expected = 0.5 + 0.5 * pinholes.image_rays(index).directions.view(48, 60, 3)
        found = straightened(photos, index, torch.ones(3))
        error = (found - expected).abs().amax(-1)
        seen = error[6:-6, 6:-6] if coefficients[0] > 0 else error  # a lens that stretches has cut the edges off
        assert seen.max() < 2 / 255
    assert (photos.image_over(0, torch.ones(3)) - straightened(photos, 0, torch.ones(3))).abs().max() > 6 / 255


def test_formats_and_settings_that_have_no_effect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    call = script_caller(monkeypatch, tmp_path)
    assert call("benchmark", "mode=exports", "exports.formats=[web,stl]") == 2
    assert "expected some of web, splats, mesh" in capsys.readouterr().err
    assert call("benchmark", "mode=exports", "exports.splats_file=none.ply") == 2
    assert "none.ply is no PLY file" in capsys.readouterr().err
    assert call("benchmark", "mode=exports", "train.steps=3") == 2
    assert "train.steps=3 has no effect with mode=exports" in capsys.readouterr().err
    assert call("benchmark", "mode=viewer", "exports.views=3") == 2
    assert "give mode=exports" in capsys.readouterr().err


def test_the_viewers_table() -> None:
    page = {"cost": 0.034, "all": [0.03, 0.034, 0.05], "pictures_per_second": 2.0}
    result = {"scene": "lego", "device": "a GPU", "commit": "abcdef012345", "window": [1280, 720], "step_ms": 1.5}
    table = viewer_table([result | {"still": page, "moving": page | {"cost": 0.16}}])
    assert "3.4%" in table and "3.0% to 5.0%" in table and "16.0%" in table and "1280x720" in table
