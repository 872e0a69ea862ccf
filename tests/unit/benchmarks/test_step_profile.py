"""mode=step of benchmark.py: a training step by its stages, each over its floor."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from script_runs import script_caller
from test_tables import lines_with, tables, write_readme
from tiny_runs import supersampled, tiny_config, tiny_images, write_tiny_scene

from nerf.benchmarks import step_profile
from nerf.benchmarks import timing as benchmark_timing
from nerf.benchmarks.problems import SIZES
from nerf.benchmarks.step_profile import (
    OF_BACKWARD,
    OTHERS,
    STAGES,
    draw_batch,
    measure_step,
    names_up,
    stage_of,
    work_of_step,
)
from nerf.benchmarks.step_table import busy_table
from nerf.fields import voxel_field
from nerf.fields.bf16_mlp import Bf16Mlp
from nerf.ops.backend import select
from nerf.rendering.render import visible_samples
from nerf.runs.run import TrainingRun, start
from nerf.training.state import make_sampler

TINY = ("mode=step", "device=cpu", "dataset=bricks", "dataset.root=scene", "train.rays_per_step=64", "train.steps=40")
TINY += ("train.log_every=2", "field.num_voxels=1000", "field.min_level_steps=1", "hydra.run.dir=step")


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device can do is not the matter here, and measuring it takes longer than all else."""
    monkeypatch.setattr(benchmark_timing, "flush_bytes", lambda device: 1 << 20)
    monkeypatch.setattr(step_profile, "SIZES", dict.fromkeys(SIZES, SIZES["tiny"]))


def tiny_run(field: str, device: str = "cpu") -> TrainingRun:
    return start(tiny_config(field, log_every=4), tiny_images(), select("native", device))


def test_an_event_belongs_to_the_innermost_stage() -> None:
    assert stage_of(["aten::mm", "AddmmBackward0", OF_BACKWARD + "AddmmBackward0"]) == "MLP backward"
    assert stage_of(["aten::sum", OF_BACKWARD + "AddmmBackward0"]) == "MLP backward"
    inner = ["nerf::composite_rays_backward", "GeneratedBackwardFor_nerf_composite_rays_defaultBackward"]
    assert stage_of(inner) == "composite backward"
    assert stage_of(["aten::mul", "MulBackward0"]) == stage_of(["nerf::composite"]) == OTHERS


def test_a_kernel_is_of_the_stage_that_its_operation_is_part_of() -> None:
    whole = SimpleNamespace(name="AddmmBackward0", cpu_parent=None)
    part = SimpleNamespace(name="aten::t", cpu_parent=SimpleNamespace(name="aten::mm", cpu_parent=whole))
    assert list(names_up(part)) == ["aten::t", "aten::mm", "AddmmBackward0"] and list(names_up(None)) == []
    assert stage_of(names_up(part)) == "MLP backward"


def test_stages_are_of_operations_that_there_are() -> None:
    select("native", "cpu")  # loads them
    named = [name for names in STAGES.values() for name in names]
    assert len(named) == len(set(named))
    ours = [name.removeprefix("nerf::") for name in named if name.startswith("nerf::")]
    assert ours and all(hasattr(torch.ops.nerf, name) for name in ours)
    assert Bf16Mlp.__name__ in named


@pytest.mark.parametrize("field", ["voxel_deferred", "voxel_mlp", "voxel_sh"])
def test_every_stage_of_a_step_is_found_and_has_a_floor(field: str) -> None:
    found = measure_step(tiny_run(field))
    stages = {stage["stage"]: stage for stage in found["stages"]}
    expected = {"pixels and rays", "march", "interpolate", "composite", "composite backward", "interpolate backward"}
    expected |= {"basis", "basis backward"} if field == "voxel_sh" else {"MLP", "MLP backward"}
    expected |= {"finite check", "adam", OTHERS}
    expected |= {"network's inputs", "network's inputs backward"} if field == "voxel_deferred" else set()
    expected |= {"pixel colors", "pixel colors backward"} if field == "voxel_deferred" else set()
    assert expected <= stages.keys() <= {*STAGES, OTHERS}
    assert all(stage["ms"] > 0 and stage["launches"] > 0 for stage in stages.values())
    assert all(stage["floor_ms"] > 0 for name, stage in stages.items() if name not in (OTHERS, "total variation"))
    assert stages[OTHERS]["floor_ms"] is None and found["idle_share"] is None
    assert 0.1 < sum(stage["ms"] for stage in stages.values()) / found["step_ms"] < 10


def test_the_run_is_left_near_its_end_and_trains_on() -> None:
    run = tiny_run("voxel_sh")
    measure_step(run)
    assert 0.9 <= run.state.clock.progress < 1 and not run.finished
    assert [look.progress for look in run.train()][-1] == 1


def test_the_work_of_a_step_by_hand() -> None:
    """Points, vertices and channels counted anew; bytes of the stages that can be told from them at once."""
    config = supersampled(tiny_config("voxel_deferred"), start=0.0, rays_per_pixel=2)
    run = start(config, tiny_images(), select("native", "cpu"))
    for _ in run.train():
        pass
    state, generator = run.state, run.state.batches.generator.get_state()
    batch = draw_batch(run)
    work = work_of_step(run, batch)
    state.batches.generator.set_state(generator)
    rays, jitter = state.batches.draw_rays(run.config.train.rays_per_step, 2)
    sampler = make_sampler(run.config, state)
    samples = visible_samples(state.field, sampler, rays, jitter)
    corners = {
        (int(x) + i, int(y) + j, int(z) + k)
        for x, y, z in samples.coords(sampler.grid_map).floor().tolist()
        for i in (0, 1)
        for j in (0, 1)
        for k in (0, 1)
    }
    channels = 1 + state.field.feature_grid.shape[-1]
    assert batch.rays == 2 * batch.pixels == 2 * run.config.train.rays_per_step
    assert (batch.samples, batch.vertices) == (len(samples.t_starts), len(corners))
    assert (batch.channels, batch.visited) == (channels, len(state.optimizer.active_vertices))
    m, v = batch.samples, batch.vertices
    assert work["pixels and rays"].num_bytes == batch.pixels * (6 * 8 + 4 + 4 * 4) + batch.rays * 6 * 4
    state.batches.paired = True  # half of the pixels have an index, a shift and a result, and no search
    of_pairs = work_of_step(run, batch)["pixels and rays"].num_bytes
    assert of_pairs == work["pixels and rays"].num_bytes - 8 * (batch.pixels // 2)
    assert work["interpolate"].num_bytes == 2 * 12 * m + 4 * channels * (v + m)
    assert work["interpolate backward"].reductions == 8 * m * channels
    layers = [p for p in state.field.mlp.parameters() if p.dim() == 2]
    assert work["MLP"].operations == 2 * batch.pixels * sum(layer.numel() for layer in layers)
    assert work["MLP backward"].operations == 2 * work["MLP"].operations
    features, width = state.field.feature_grid.shape[-1], layers[0].shape[1]
    assert work["network's inputs"].num_bytes == 4 * batch.pixels * (2 * features + 1 + 3 + width)  # with noise
    assert work["network's inputs backward"].num_bytes == 4 * batch.pixels * (3 * features + 2)
    assert work["pixel colors"].num_bytes == 4 * batch.pixels * (3 + 1 + 3 + 3)
    assert work["pixel colors backward"].num_bytes == 4 * batch.pixels * (10 + 3 + 1 + 3)
    visited, weights = batch.visited, sum(p.numel() for p in state.field.mlp.parameters())
    assert work["adam"].num_bytes == 4 * (channels * (visited + 7 * v) + 8 * weights) + 2 * 8 * visited
    assert work["finite check"].num_bytes == 4 * (1 + m + weights)
    assert work["total variation"].num_bytes == 0  # it is over
    state.field.config.diffuse = True  # as on photos: three values of a pixel are read, and the gradient is of all
    of_photos = work_of_step(run, batch)
    assert of_photos["pixel colors"].num_bytes == work["pixel colors"].num_bytes + 4 * batch.pixels * 3
    backward, more = (each["pixel colors backward"].num_bytes for each in (work, of_photos))
    assert more == backward + 4 * batch.pixels * features
    run = replace(run, config=replace(run.config, loss=replace(run.config.loss, tv_global=1e-4)))
    turn, everywhere = visited // 8, work_of_step(run, batch)
    assert everywhere["total variation"].num_bytes == turn * (4 * 3 * channels + 2 * 8)
    assert everywhere["adam"].num_bytes == work["adam"].num_bytes + 4 * 7 * channels * turn


def test_sparse_grids_are_no_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are matrices too, of millions of rows: taken for layers, the MLP had a floor of 5 ms in a step of 2."""
    work = {}
    for sparse in (False, True):
        if sparse:  # however small and full
            monkeypatch.setattr(voxel_field, "SPARSE_FROM", 1)
            monkeypatch.setattr(voxel_field, "SPARSE_BELOW", 2.0)
        config = tiny_config("voxel_deferred")
        run = start(replace(config, field=replace(config.field, sparse=sparse)), tiny_images(), select("native", "cpu"))
        assert (run.state.field.rows is not None) == sparse
        work[sparse] = work_of_step(run, draw_batch(run))
    for stage in ("MLP", "MLP backward"):
        assert work[True][stage] == work[False][stage] and work[True][stage].operations > 0


def test_on_a_gpu_stages_are_kernels_and_the_step_is_recorded(cuda: str) -> None:
    run = tiny_run("voxel_deferred", cuda)

    def undisturbed() -> bool:
        found = measure_step(run)
        stages = {stage["stage"]: stage for stage in found["stages"]}
        assert {"march", "interpolate", "MLP", "MLP backward", "interpolate backward", "adam"} <= stages.keys()
        assert stages["interpolate"]["launches"] == 2 and 0 <= found["idle_share"] < 1
        kernels = sum(stage["ms"] for stage in stages.values())
        return 0.3 * kernels < found["step_ms"] * (1 - found["idle_share"]) < 2 * kernels

    # Other processes may have had the GPU while the whole step was timed; not each time.
    assert any(undisturbed() for _ in range(10))


# The script


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    result = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))
    return result


def test_the_script_writes_what_the_table_of_readme_is_made_of(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call("benchmark", *TINY) == 0
    result = json.loads(Path("step/step.json").read_text())
    assert result["budget"] == {"steps": 40, "seconds": None} and result["command"].startswith("python ")
    shown = capsys.readouterr().out
    results = tmp_path / "results"
    results.mkdir()
    (results / "step_tiny.json").write_text(json.dumps(result))
    readme = write_readme(tmp_path, "step")
    assert tables(readme, results).returncode == 0
    line = lines_with(readme, "| interpolate backward")[0]
    stage = next(stage for stage in result["stages"] if stage["stage"] == "interpolate backward")
    assert line[2] == f"{stage['ms']:.3f}"
    assert float(line[-1]) == pytest.approx(stage["ms"] / stage["floor_ms"], abs=0.06)
    whole = sum(stage["ms"] for stage in result["stages"])
    assert lines_with(readme, "| all ")[0][2] == f"{whole:.3f}"
    assert "near the end of 40 steps: 64 pixels" in shown and f"{result['step_ms']:.2f} ms. CPU" in shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("backend=torch",), "backend=torch cannot be profiled"),
        (("curve.looks=2",), "curve.looks=2 has no effect with mode=step; leave it out, or give mode=curve."),
        (("benchmark.size=tiny",), "benchmark.size=tiny has no effect with mode=step"),
    ],
)
def test_settings_that_fit_no_step_are_answered(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    assert call("benchmark", *TINY, *arguments) == 2
    message = capsys.readouterr().err
    assert expected in message and message.count("\n") == 1 and not Path("step").exists()


def test_a_run_that_stops_says_why(call: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("benchmark", *TINY, "occupancy.min_weight=0.9", "occupancy.min_steps=1") == 2
    assert "error: the run stopped: after step" in capsys.readouterr().err


def test_the_busiest_unit_of_long_kernels_and_what_all_could_take() -> None:
    units = {"issue": 40, "l1": 10, "l2": 80, "dram": 30}
    kernels = [{"kernel": "adam", "us": 100.0, **units}, {"kernel": "short", "us": 10.0, **units}]
    step = {"scene": "lego", "kernels_us": 110, "at_the_busiest_unit_us": 88, "kernels": kernels}
    of = {"device": "a GPU", "torch": "2", "commit": "abc", "date": "2026-01-02", "note": "Shares."}
    shown = busy_table({"steps": [step], **of})
    assert "second cache" in next(line for line in shown.splitlines() if "adam" in line).rsplit("|", 2)[1]
    assert "short" not in shown and "lego 88 of 110 us, 80%. Shares. a GPU, torch 2, commit abc, 2026-01-02." in shown
