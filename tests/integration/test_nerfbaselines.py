"""NerfBaselines itself trains, renders and scores, where it is installed; its scores are those of our own."""

import json
import os
import sys
from pathlib import Path

import pytest
import warm_python
from script_runs import ROOT, TIMEOUT, run_script
from tiny_runs import write_tiny_scene

pytest.importorskip("nerfbaselines", reason="no nerfbaselines: pip install nerfbaselines, in an environment of its own")

# Theirs needs networks that are downloaded for LPIPS; PSNR is its own, with its rounding to bytes.
PROTOCOL = """
import numpy as np
from nerfbaselines import metrics
from nerfbaselines.evaluation import DefaultEvaluationProtocol
from nerfbaselines.utils import image_to_srgb


class Psnr(DefaultEvaluationProtocol):
    _name = "psnr"

    def evaluate(self, predictions, dataset):
        how = {"color_space": "srgb", "background_color": dataset["metadata"]["background_color"]}
        pair = [image_to_srgb(x, np.uint8, **how) / 255.0 for x in (predictions["color"], dataset["images"][0])]
        return {"psnr": float(metrics.psnr(metrics.mse(*(x.astype(np.float32)[None] for x in pair))).mean())}
"""
PROTOCOL_SPEC = """
from nerfbaselines import register

register({"id": "psnr", "evaluation_protocol_class": "psnr_protocol:Psnr"})
"""
LOADER = "nerfbaselines.datasets.blender:load_blender_dataset"
SHORT = ("train.steps=40", "field=voxel_sh", "field.num_voxels=1728", "train.rays_per_step=256", "device=cpu")


def test_it_trains_and_scores_as_we_do(tmp_path: Path) -> None:
    scene, out = tmp_path / "sphere", tmp_path / "out"
    write_tiny_scene(scene)
    for split in ("train", "test"):
        path = scene / f"transforms_{split}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "w": 20, "h": 20}))
    info = {"loader": LOADER, "id": "blender", "scene": "sphere", "evaluation_protocol": "psnr"}
    (scene / "nb-info.json").write_text(json.dumps(info))
    (tmp_path / "psnr_protocol.py").write_text(PROTOCOL)
    (tmp_path / "psnr_spec.py").write_text(PROTOCOL_SPEC)
    specs = [ROOT / "nerf" / "benchmarks" / "nerfbaselines_spec.py", tmp_path / "psnr_spec.py"]
    environment = os.environ | {
        "NERFBASELINES_REGISTER": ":".join(map(str, specs)),
        "NERFBASELINES_PREFIX": str(tmp_path / "prefix"),
        "PYTHONPATH": f"{ROOT}:{tmp_path}",
    }

    def nerfbaselines(*arguments: str) -> None:
        command = [sys.executable, "-m", "nerfbaselines", *arguments]
        done = warm_python.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    settings = [word for setting in SHORT for word in ("--set", setting)]
    where = ["--data", str(scene), "--backend", "python"]
    nerfbaselines("train", "--method", "nerf-voxel", *where, "--output", str(out), "--logger", "none", *settings)
    again = tmp_path / "again.tar.gz"
    nerfbaselines("render", "--checkpoint", str(out / "checkpoint-40"), *where, "--output", str(again))
    nerfbaselines("evaluate", str(again), "--output", str(tmp_path / "again.json"))
    theirs = json.loads((tmp_path / "again.json").read_text())["metrics"]["psnr"]
    assert theirs == json.loads((out / "results-40.json").read_text())["metrics"]["psnr"]

    ours = {}
    common = (f"root={scene}", "device=cpu", "hydra.run.dir=scored")
    assert run_script("evaluate", f"run={out / 'checkpoint-40'}", *common, cwd=tmp_path).returncode == 0
    ours["the same run"] = json.loads((tmp_path / "scored" / "metrics.json").read_text())
    common = (f"dataset.root={scene}", "dataset=blender", "dataset.scene=sphere", "log=none", "hydra.run.dir=trained")
    assert run_script("train", *common, *SHORT, cwd=tmp_path).returncode == 0
    ours["a run of our own"] = json.loads((tmp_path / "trained" / "metrics.json").read_text())
    for name, metrics in ours.items():
        assert metrics["psnr"]["mean"] == pytest.approx(theirs, abs=0.05), name
