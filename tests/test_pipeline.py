"""The whole: first losses against golden/, native against PyTorch, every config, and mistakes answered in words."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from script_runs import run_script
from tiny_runs import run_to, tiny_config, tiny_state
from torch.utils._python_dispatch import TorchDispatchMode

from nerf.ops.backend import select
from nerf.training import training_step

GOLDEN = Path(__file__).parent / "golden"
FIELDS = ("voxel_sh", "voxel_mlp")
FIRST_STEPS = 10


def first_losses(field: str, backend: str) -> list[float]:
    """Mean squared errors of the first steps of the tiny run."""
    config, state = tiny_state(tiny_config(field, log_every=1), select(backend, "cpu"))
    return [10 ** (-report.psnr / 10) for report in run_to(config, state, FIRST_STEPS)]


@pytest.mark.parametrize("field", FIELDS)
def test_first_losses_are_the_golden_ones(field: str) -> None:
    golden = [float(line.split()[1]) for line in (GOLDEN / f"losses_{field}.txt").read_text().splitlines()]
    assert first_losses(field, "native") == pytest.approx(golden, rel=1e-4)


@pytest.mark.parametrize("field", FIELDS)
def test_both_backends_train_alike(field: str) -> None:
    assert first_losses(field, "native") == pytest.approx(first_losses(field, "torch"), rel=1e-3)


class CountOurOps(TorchDispatchMode):
    """Counts the calls of torch.ops.nerf."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "nerf":
            self.calls[func.__name__.partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_native_calls_our_ops_and_torch_none(backend: str) -> None:
    config, state = tiny_state(tiny_config(), select(backend, "cpu"))
    with CountOurOps() as counter:
        training_step(config, state, torch.zeros(4))
    if backend == "torch":
        assert not counter.calls
        return
    assert set(counter.calls) == {
        "march_rays",
        "interpolate_trilinear",
        "interpolate_trilinear_backward",
        "composite_rays",
        "composite_rays_backward",
        "sample_images",
        "adam_step",
        "total_variation_grad",
    }


def test_no_background_is_left_to_chance_when_it_is_white() -> None:
    config, state = tiny_state(tiny_config())
    config = replace(config, dataset=replace(config.dataset, background="white"))
    generator = state.batches.generator.get_state()
    training_step(config, state, torch.zeros(4))
    after = state.batches.generator.get_state()
    state.batches.generator.set_state(generator)
    state.batches.draw(config.train.rays_per_step)
    assert torch.equal(after, state.batches.generator.get_state())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian.steps=3"], ["trian.steps", "did you mean 'train.steps'"]),
        (["dataset=legoo"], ["legoo", "Did you mean dataset=lego"]),
        (["train.steps=-1"], ["train.steps", "out of range"]),
        (["device=cuda"], ["device=cuda cannot run here", "device=cpu"]),
        (["dataset.downscale=3"], ["dataset.downscale=3", "use one of"]),
        (["dataset=lego", "dataset.root=nowhere"], ["nowhere", "dataset.root"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_mistake_is_answered_in_words(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    if arguments == ["device=cuda"] and torch.cuda.is_available():
        pytest.skip("a GPU is here, so device=cuda is no mistake")
    run = run_script("train", *arguments, cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    assert all(word in run.stderr for word in words) and "Traceback" not in run.stderr


def test_train_evaluate_and_render_on_the_bundled_scene(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for name, arguments in (
        ("train", ["experiment=smoke", "device=cpu", f"hydra.run.dir={folder}"]),
        ("evaluate", [f"run={folder}", "device=cpu", "every=10", f"hydra.run.dir={tmp_path}/scores"]),
        ("render", [f"run={folder}", "device=cpu", "frames=3", "width=32", f"hydra.run.dir={tmp_path}/views"]),
    ):
        run = run_script(name, *arguments, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
    metrics, scores = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("run", "scores"))
    promised = {"psnr", "ssim", "train_seconds", "steps", "rays_per_second", "peak_memory_bytes", "backend", "device"}
    assert promised | {"commit", "seed", "date", "median_depth_error"} <= metrics.keys()
    assert scores["psnr"] == metrics["psnr"]
    for name in ("config.yaml", "checkpoint.pt", "contact_sheet.png", "orbit.mp4"):
        assert (folder / name).stat().st_size > 0
    assert len(list((tmp_path / "views").glob("*/*.png"))) == 9 and (tmp_path / "views" / "video.mp4").is_file()
