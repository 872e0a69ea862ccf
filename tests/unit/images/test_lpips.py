"""LPIPS in an evaluation: computed where its package and weights are there, else one line that says what is missing.

The package is a stub with the interface of the real one; that and VGG's weights are not part of the tests' environment.
"""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from script_runs import run_script
from tiny_runs import run_to, tiny_config, tiny_images, tiny_state, write_tiny_scene

from nerf.images.lpips import WEIGHTS, Lpips, LpipsUnavailable
from nerf.runs import checkpoint

STUB = '''
import torch

class LPIPS(torch.nn.Module):
    """Ten times the mean absolute difference; and refuses what the real one would score wrongly."""

    def __init__(self, net="alex", verbose=True):
        assert net == "vgg" and not verbose
        super().__init__()

    def forward(self, in0, in1, retPerLayer=False, normalize=False):
        assert not self.training and not torch.is_grad_enabled() and not normalize
        for x in (in0, in1):
            assert x.shape == (1, 3, 20, 20) and x.dtype == torch.float32
            assert -1 <= x.min() < -0.1 and 0.9 < x.max() <= 1, "white background, dark spots"
        return 10 * (in0 - in1).abs().mean().view(1, 1, 1, 1)
'''
DAMAGED = STUB.replace("super().__init__()", 'raise RuntimeError("PytorchStreamReader failed\\nmore")')


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny trained run."""
    folder = tmp_path_factory.mktemp("run")
    write_tiny_scene(folder / "scene")
    config, state = tiny_state(tiny_config())
    config.dataset.root = str(folder / "scene")
    run_to(config, state, 40)
    checkpoint.save(folder, config, state, tiny_images().cameras)
    return folder


def install(folder: Path, stub: str, weights: bool) -> dict[str, str]:
    """Writes the stub, and the weights' file or not; the environment in which they are found."""
    (folder / "packages").mkdir()
    (folder / "packages" / "lpips.py").write_text(stub)
    if weights:
        (folder / "home" / "hub" / "checkpoints").mkdir(parents=True)
        (folder / "home" / "hub" / "checkpoints" / WEIGHTS).write_bytes(b"the stub does not read them")
    return {"PYTHONPATH": str(folder / "packages"), "TORCH_HOME": str(folder / "home")}


def evaluate(run: Path, folder: Path, **env: str) -> tuple[dict, str]:
    """The metrics that the script writes and what it prints of LPIPS."""
    arguments = (f"run={run}", "device=cpu", "every=4", f"hydra.run.dir={folder}/out")
    found = run_script("evaluate", *arguments, cwd=folder, **env)
    assert found.returncode == 0, found.stderr
    (line,) = (line for line in found.stdout.splitlines() if line.startswith("LPIPS "))
    return json.loads((folder / "out" / "metrics.json").read_text()), line.split(maxsplit=1)[1]


def test_lpips_is_scored_where_it_can_be_had(run: Path, tmp_path: Path) -> None:
    metrics, line = evaluate(run, tmp_path, **install(tmp_path, STUB, weights=True))
    assert metrics["lpips"].keys() == {"mean", "per_view"} and len(metrics["lpips"]["per_view"]) == 2
    assert metrics["lpips"]["mean"] == pytest.approx(sum(metrics["lpips"]["per_view"]) / 2)
    for lpips, psnr in zip(metrics["lpips"]["per_view"], metrics["psnr"]["per_view"], strict=True):
        most = 20 * 10 ** (-psnr / 20)  # a mean is below its root mean square; the inputs span two
        assert 0.05 * most < lpips < most
    assert line == f"{metrics['lpips']['mean']:.4f} (VGG, inputs in [-1,1])"


@pytest.mark.skipif(importlib.util.find_spec("lpips") is not None, reason="lpips is installed here")
def test_without_the_package_one_line_says_so(run: Path, tmp_path: Path) -> None:
    """Nor does a score of another split, which training left in metrics.json, stay among the new ones."""
    (run / "metrics.json").write_text('{"lpips": {"mean": 1.0, "per_view": [1.0]}, "steps": 40}')
    metrics, line = evaluate(run, tmp_path)
    assert line == "not computed: the package lpips is not installed; pip install lpips"
    assert "lpips" not in metrics and metrics["steps"] == 40 and len(metrics["ssim"]["per_view"]) == 2


@pytest.mark.parametrize(
    ("stub", "weights", "expected"),
    [
        ("import nonexistent", True, "package lpips cannot be imported (No module named 'nonexistent'); pip"),
        ("raise RuntimeError('torchvision::nms does not exist')", True, "cannot be imported (torchvision::nms does"),
        (STUB, False, f"checkpoints/{WEIGHTS} are missing; download them once with: python -c"),
        (DAMAGED, True, f"{WEIGHTS} cannot be loaded (PytorchStreamReader failed); remove it"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub: str, weights: bool, expected: str
) -> None:
    env = install(tmp_path, stub, weights)
    monkeypatch.syspath_prepend(env["PYTHONPATH"])
    monkeypatch.setenv("TORCH_HOME", env["TORCH_HOME"])
    monkeypatch.delitem(sys.modules, "lpips", raising=False)
    with pytest.raises(LpipsUnavailable) as caught:
        Lpips(torch.device("cpu"))
    assert expected in str(caught.value) and "\n" not in str(caught.value)
    sys.modules.pop("lpips", None)
