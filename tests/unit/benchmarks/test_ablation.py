"""scripts/ablate.py: its table against its numbers, its step against training's, rows that fail."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import warm_python
from script_runs import TIMEOUT

from nerf.benchmarks import ablation
from nerf.benchmarks.ablation import AblationConfig, make_start, measure_rows, resolved_for_steps, speedups
from nerf.benchmarks.ablation_row import Batch, Row
from nerf.benchmarks.torch_variants import EAGER
from nerf.config.recipes import resolve_config
from nerf.config.schema import Config
from nerf.datasets.blender import load_blender
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.fields.voxel_sh import VoxelShConfig
from nerf.images.pixel_runs import PixelRuns
from nerf.ops.backend import select
from nerf.rendering.background import Background
from nerf.training.batches import RayBatches
from nerf.training.initial_state import init_state
from nerf.training.loop import train
from nerf.training.step import TrainStep

ROOT = Path(__file__).resolve().parents[3]
TINY = (
    "experiment=smoke",
    "dataset.downscale=4",
    "train.rays_per_step=256",
    "occupancy.min_steps=30",
    "ablation.warm_steps=60",
    "ablation.timed_steps=4",
    "ablation.num_batches=3",
    "ablation.compile=False",
    "ablation.equal_steps=20",
    "evaluation.every=5",
    "device=cpu",
)
UNFUSED = "native, unfused: gather + interpolate_cells + index_add"
SETTINGS = AblationConfig(warm_steps=20, timed_steps=2, num_batches=2, compile=False)


@pytest.fixture(scope="module")
def images() -> PosedImages:
    return load_blender(ROOT / "data" / "bricks", "train", 8)


@pytest.fixture
def config() -> Config:
    config = Config(field=VoxelShConfig(num_voxels=4000, upsample_at=[0.4]), device="cpu")
    return replace(config, train=replace(config.train, rays_per_step=256))


def ablate(folder: Path, *settings: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "scripts" / "ablate.py"), *settings, f"hydra.run.dir={folder}"]
    return warm_python.run(command, capture_output=True, text=True, cwd=folder, timeout=TIMEOUT)


@pytest.mark.slow
def test_script_writes_a_table_that_follows_from_its_numbers(tmp_path: Path) -> None:
    run = ablate(tmp_path, *TINY)
    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "ablation.json").read_text())
    rows = {row["label"]: row for row in result["rows"]}
    eager = [f"torch: {variant.label}" for variant in EAGER]
    assert list(rows) == ["native", UNFUSED, *eager, "native, again"]
    assert [label for label, row in rows.items() if row["backend"] == "torch"] == eager
    assert all(label in run.stdout for label in rows)
    for row in rows.values():
        assert (row["device"], row["missing"], row["steps"], row["rays_per_step"]) == ("cpu", None, 4, 256)
        assert row["agrees"] and row["loss_difference"] <= 1e-4 and row["gradient_difference"] <= 1e-3
        assert math.isclose(row["loss"], rows["native"]["loss"], rel_tol=1e-4)
        stages = {name: figures["mean"] for name, figures in row["stages_ms"].items()}
        assert math.isclose(sum(stages.values()), row["step_ms"]["mean"], rel_tol=1e-9)
        operations = sum(stages[name] for name in ("march", "interpolate", "composite", "backward"))
        assert math.isclose(operations, row["operations_ms"]["mean"], rel_tol=1e-9)
    for name, key in (("operations", "operations_ms"), ("step", "step_ms")):
        best = min(row[key]["median"] for row in rows.values() if row["backend"] == "torch")
        found = result["speedups"]["cpu"][name]
        assert math.isclose(found["ratio"], best / rows["native"][key]["median"], rel_tol=1e-9)
        assert rows[found["best_torch"]][key]["median"] == best
    native, torch_run = result["trainings"]
    assert (native["backend"], torch_run["backend"]) == ("native", "torch")
    assert abs(native["psnr"]["mean"] - torch_run["psnr"]["mean"]) < 0.1
    assert {"commit", "command", "date", "torch", "settings", "devices", "resolution"} <= result.keys()
    assert (tmp_path / "ablation.png").is_file() or "matplotlib is missing" in run.stdout


def test_script_refuses_a_backend(tmp_path: Path) -> None:
    run = ablate(tmp_path, "backend=torch")
    assert run.returncode == 2
    assert run.stderr.startswith("error: backend=torch") and "Traceback" not in run.stderr


@pytest.mark.slow
def test_script_refuses_poses_of_its_own(tmp_path: Path) -> None:
    result = ablate(tmp_path, "poses.from_run=outputs/RUN")
    assert result.returncode == 2 and "poses.from_run" in result.stderr and "leave them out" in result.stderr


@pytest.mark.parametrize("losses", [{}, {"distortion": 0.1, "pair_ssim": 0.1, "alpha": 0.1}])
def test_step_is_the_step_of_training(config: Config, images: PosedImages, losses: dict[str, float]) -> None:
    """The step that is timed leaves the very parameters behind that a step of training leaves."""
    config = replace(config, loss=replace(config.loss, **losses))
    start = make_start(config, SETTINGS, images, select("native", "cpu"))
    native = select("native", "cpu")
    trained = Row(start, native, 256)
    timed = Row(start, native, 256)
    generator = start.source.generator
    before = generator.get_state()
    TrainStep(start.config, trained.state)()
    generator.set_state(before)
    batch = start.source.draw(256)
    timed.batches = [Batch(batch, Background("white").draw(256, generator, native.device))]
    timed.step(0)
    expected = dict(trained.state.field.named_parameters())
    for name, parameter in timed.state.field.named_parameters():
        # Training looks at density in the march, whose midpoints are rounded otherwise.
        close = torch.isclose(parameter, expected[name], rtol=1e-3, atol=1e-4)
        assert close.double().mean() > 0.99, name
        assert not torch.equal(parameter, start.field["field"][name]), f"{name} did not move"


@pytest.mark.parametrize(("drawn", "taken"), [(256, 256), (256, 100), (255, 100), (255, 99)])
def test_a_part_of_a_batch_keeps_its_pairs(images: PosedImages, drawn: int, taken: int) -> None:
    batches = RayBatches(images, select("native", "cpu"), 0, paired=True)
    batches.valid_pixels = PixelRuns.of_bounds(torch.tensor([[0, len(images.pixels)]]))
    whole = batches.draw(drawn)
    part = Batch(whole, torch.rand(drawn, 3)).to(torch.device("cpu"), taken).rays
    assert len(part.pixels) == len(part.rays) == taken
    assert torch.equal(part.pixels[: taken // 2], whole.pixels[: taken // 2])
    assert torch.equal(part.pixels[-(taken // 2) :], whole.pixels[-(drawn // 2) :][: taken // 2])


def test_every_row_starts_from_the_same_state(config: Config, images: PosedImages) -> None:
    start = make_start(config, SETTINGS, images, select("native", "cpu"))
    row = Row(start, select("torch", "cpu"), 256)
    row.step(0)
    row.step(1)
    row.reset()
    assert all(torch.equal(p, start.field["field"][n]) for n, p in row.state.field.named_parameters())
    moments = row.state.optimizer.state_dict()
    assert all(torch.equal(value, start.optimizer[name]) for name, value in moments.items())


@pytest.mark.slow
def test_wrong_row_is_marked_and_counts_for_nothing(
    config: Config, images: PosedImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(EAGER[0], label="wrong", ops=type(EAGER[0].ops)(**vars(EAGER[0].ops)))
    wrong.ops.interpolate_trilinear = lambda grid, coords, grad=None: (
        1.01 * EAGER[0].ops.interpolate_trilinear(grid, coords)
    )
    monkeypatch.setattr(ablation, "EAGER", (EAGER[0], wrong))
    native = select("native", "cpu")
    rows = measure_rows(make_start(config, SETTINGS, images, native), SETTINGS, native, 256, lambda what: None)
    assert {row["label"]: row["agrees"] for row in rows} == {
        "native": True,
        UNFUSED: True,
        "torch: gather + index_add": True,
        "torch: wrong": False,
        "native, again": True,
    }
    for row in rows:  # neither a wrong row nor a native one is a rival, however fast
        if row["label"] in ("torch: wrong", UNFUSED):
            row["step_ms"]["median"] = row["operations_ms"]["median"] = 0.0
    assert speedups(rows)["cpu"]["step"]["best_torch"] == "torch: gather + index_add"


@pytest.mark.slow
def test_torch_compile_that_fails_is_a_row_that_says_why(
    config: Config, images: PosedImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_compiler(*arguments: object, **options: object) -> object:
        def call(*tensors: object) -> object:
            raise RuntimeError("no C++ compiler\nand a long story")

        return call

    monkeypatch.setattr(torch, "compile", no_compiler)
    monkeypatch.setattr(ablation, "EAGER", EAGER[:2])
    native, settings = select("native", "cpu"), replace(SETTINGS, compile=True)
    rows = measure_rows(make_start(config, settings, images, native), settings, native, 256, lambda what: None)
    failed = [row for row in rows if row["missing"]]
    assert failed and all(row["missing"].endswith("RuntimeError: no C++ compiler") for row in failed)
    assert "cpu" in speedups(rows)


def test_too_few_steps_for_the_final_resolution(config: Config, images: PosedImages) -> None:
    config.field.upsample_at = [0.4, 1.0]
    with pytest.raises(UserError, match="ablation.warm_steps"):
        make_start(config, SETTINGS, images, select("native", "cpu"))


def test_opaque_renders_before_black_are_trained_before_black(config: Config, images: PosedImages) -> None:
    opaque = replace(images, pixels=torch.where(images.pixels[:, 3:] > 0, images.pixels[:, :3], 0))
    start = make_start(config, SETTINGS, opaque, select("native", "cpu"))
    assert start.config.dataset.background == "black"
    assert make_start(config, SETTINGS, images, select("native", "cpu")).config.dataset.background == "white"


def test_short_schedule_reaches_every_level_and_prunes(config: Config, images: PosedImages) -> None:
    config.field.upsample_at = None
    for steps in (60, 300, 3000):
        short = resolved_for_steps(config, steps, "cpu", "bounded")
        levels = len(short.field.upsample_at)
        assert (levels + 1) * short.field.min_level_steps < steps
        assert short.occupancy.min_steps < steps
    assert resolved_for_steps(config, 3000, "cpu", "bounded").field == resolve_config(config, "cpu", "bounded").field


@pytest.mark.parametrize("name", [v.label for v in EAGER])
def test_equal_training_runs_with_every_variant(config: Config, images: PosedImages, name: str) -> None:
    variant = next(v for v in EAGER if v.label == name)
    backend = replace(select("torch", "cpu"), ops=variant.ops)
    short = resolved_for_steps(config, 6, backend.device.type, "bounded")
    looks = list(train(short, init_state(short, images, backend)))
    assert math.isfinite(looks[-1].psnr)
