"""scripts/benchmark.py: rooflines against counting by hand, the stopwatch, wrong rows, the script."""

import json
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import warm_python
from fake_time import FakeTime
from script_runs import TIMEOUT
from torch import Tensor

from nerf.benchmarks import timing as benchmark_timing
from nerf.benchmarks.kernel_notes import KERNEL_NOTES
from nerf.benchmarks.ops import error, measure_case, summaries, wrong_rows
from nerf.benchmarks.ops_cases import OPS, all_cases, near_a_surface, touched_vertices
from nerf.benchmarks.ops_rows import Row, in_order, load_variants, rows_of
from nerf.benchmarks.photo_cases import compare_beside
from nerf.benchmarks.problems import SIZES, Case, Problem, Size
from nerf.benchmarks.timing import (
    LEAST_RUNS,
    Call,
    Ceilings,
    Stopwatch,
    flush_bytes,
    measure_ceilings,
    summary,
)
from nerf.errors import UserError
from nerf.ops import native, reference  # noqa: F401  loads the library

ROOT = Path(__file__).resolve().parents[3]
CPU = torch.device("cpu")
TINY = SIZES["tiny"]
CEILINGS = Ceilings(summary([0.001]), summary([0.004]), summary([1e9]), None, None, None, None)


@pytest.fixture
def little_to_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_timing, "flush_bytes", lambda device: 4096)  # hundreds of MiB take most of a test


def problems(op: str, size: Size = TINY) -> dict[str, Problem]:
    return {case.name: case.make(CPU) for case in all_cases(size) if case.op == op}


def bytes_of(*tensors: Tensor) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)


# Floors


def test_roofline_of_interpolation_by_hand():
    """Two points in one cell of a grid of 3^3 vertices with 5 channels touch eight vertices."""
    coords = torch.tensor([[0.5, 0.5, 0.5], [0.25, 0.0, 0.75]])
    assert touched_vertices(coords, (3, 3, 3)) == 8
    assert touched_vertices(torch.tensor([[0.5, 0.5, 0.5], [1.5, 0.5, 0.5]]), (3, 3, 3)) == 12
    size = Size(3, (2, 1), 2, 1, 9, (1, 1, 1), (1, 1), 4, 1 << 10)
    problem = problems("interpolate_trilinear", size)["3^3, 12 channels, random"]
    touched = touched_vertices(problem.arguments["coords"], (3, 3, 3))
    row = 12 * 4
    assert problem.rooflines["forward"].num_bytes == 2 * 3 * 4 + touched * row + 2 * row
    assert problem.rooflines["backward"].num_bytes == 2 * 3 * 4 + 2 * row + 27 * row
    assert problem.rooflines["accumulate"].num_bytes == 2 * 3 * 4 + 2 * row + 2 * touched * row
    assert problem.rooflines["backward"].reductions == 2 * 8 * 12


def test_rooflines_are_the_bytes_of_inputs_and_outputs():
    """Where every input is read and every output written once, the roofline counts the sum of their sizes."""
    for problem in problems("composite_rays").values():
        a = dict(problem.arguments)
        tensors = [x for x in a.values() if isinstance(x, Tensor)]
        outputs = reference.composite_rays(**a)
        assert problem.rooflines["forward"].num_bytes == bytes_of(*tensors, *outputs)
        gradients = (*outputs, a["density"], a["values"])
        assert problem.rooflines["backward"].num_bytes == bytes_of(*tensors, outputs[3], *gradients)
    for problem in problems("camera_rays").values():
        outputs = reference.camera_rays(**problem.arguments)
        assert problem.rooflines["forward"].num_bytes == bytes_of(problem.arguments["pixel_indices"], *outputs)
    for problem in problems("march_rays").values():
        a = dict(problem.arguments)
        outputs = reference.march_rays(**a)
        tensors = [x for x in a.values() if isinstance(x, Tensor)]
        assert len(outputs[1]) == a["capacity"] > 0
        assert problem.rooflines["forward"].num_bytes == bytes_of(*tensors, *outputs[:4])
    for problem in problems("sample_images").values():
        outputs = reference.sample_images(**problem.arguments)
        indices, channels = problem.arguments["pixel_indices"], outputs.shape[1]
        assert problem.rooflines["forward"].num_bytes == bytes_of(indices, outputs) + len(indices) * channels
    for problem in problems("total_variation_grad").values():
        assert problem.rooflines["forward"].num_bytes == 3 * bytes_of(problem.arguments["grid"])


def test_roofline_of_adam_counts_what_is_touched():
    dense, touched, visited = problems("adam_step").values()
    whole = bytes_of(dense.arguments["param"])
    assert dense.rooflines["forward"].num_bytes == 8 * whole
    updated = 4 * int((touched.arguments["grad"] != 0).sum())
    assert 0 < updated < 0.2 * whole
    assert touched.rooflines["forward"].num_bytes == whole + 7 * updated
    rows = bytes_of(visited.arguments["rows"])
    assert visited.rooflines["forward"].num_bytes == rows + 8 * updated


def test_vertices_near_a_surface_are_that_share_and_have_neighbors():
    near = near_a_surface(80, 0.05, CPU)[..., 0]
    assert near.float().mean() == pytest.approx(0.05, rel=0.01)
    assert (near[:, :, :-1] & near[:, :, 1:]).sum() > near.sum() / 3  # scattered ones: a twentieth


def test_roofline_of_index_add_counts_each_target_once():
    problem = next(p for name, p in problems("index_add").items() if name.startswith("[32, 16, 16], 16"))
    index, src = problem.arguments["index"], problem.arguments["src"]
    targets = len(set(index.tolist()))
    assert problem.rooflines["forward"].num_bytes == bytes_of(index, src) + 2 * targets * 16 * 16 * 4
    assert problem.rooflines["forward"].reductions == src.numel()


def test_every_operation_of_the_library_has_a_case_and_a_ladder():
    """An operation that only serves another one is measured as its backward, or in steps: docs/large_scenes.md."""
    names = {s.name.removeprefix("nerf::") for s in torch._C._jit_get_all_schemas() if s.name.startswith("nerf::")}
    serving = {f"{name}_backward" for name in names} | {"interpolate_trilinear_grad"}
    serving |= {"mark_vertices", "bring_rows", "adam_rows"}
    assert names - serving <= set(OPS) == set(KERNEL_NOTES)


# The stopwatch


def test_stopwatch_counts_runs_and_leaves_preparation_out(fake_time: FakeTime):
    fake_time.rule(benchmark_timing)
    watch, calls = Stopwatch(CPU, repeats=5, seconds=60), []

    def prepare() -> str:
        fake_time.now += 1
        return "prepared"

    times = watch.times(Call(calls.append, prepare), cold=False)
    assert times == [0] * 5 and calls == ["prepared"] * 7  # two warm up
    slow = watch.times(Call(lambda _: fake_time.wait(0.02)), cold=True)
    assert slow == pytest.approx([20] * 5)


def test_stopwatch_ends_after_its_seconds_but_three_runs():
    watch = Stopwatch(CPU, repeats=50, seconds=0.0)
    assert len(watch.times(Call(lambda _: None), cold=False)) == LEAST_RUNS
    watch = Stopwatch(CPU, repeats=2, seconds=0.0)
    assert len(watch.times(Call(lambda _: None), cold=False)) == 2


def test_stopwatch_flushes_where_it_is_cold(device):
    watch = Stopwatch(torch.device(device), repeats=3, seconds=60)
    for cold, flushes in ((False, 0), (True, 5)):
        before = watch._flush[0].item()
        watch.times(Call(lambda _: None), cold)
        assert watch._flush[0].item() - before == flushes
    assert watch._flush.numel() * 4 == flush_bytes(torch.device(device)) >= 1 << 26


def test_the_device_waits_as_long_as_it_is_told(quiet_cuda):
    """Else short calls are timed with the gap in which the device waits for the host."""
    watch = Stopwatch(torch.device(quiet_cuda), repeats=3, seconds=60)
    waited = [watch._between_events(lambda: torch.cuda._sleep(int(watch._cycles_per_ms))) for _ in range(5)]
    assert 0.7 < statistics.median(waited) < 1.4
    word = torch.zeros(1, device=quiet_cuda)
    cold, warm = (min(watch.times(Call(lambda _: word.zero_()), c)) for c in (True, False))  # of three: hosts pause
    assert warm < cold + 0.004


def test_times_on_a_gpu_are_the_devices(quiet_cuda):
    """A thousand milliseconds of Python before a kernel are not the kernel's; its own are."""
    watch = Stopwatch(torch.device(quiet_cuda), repeats=3, seconds=60)
    x = torch.zeros(1 << 28, device=quiet_cuda)  # 1 GiB, at least 0.2 ms
    fill = statistics.median(watch.times(Call(lambda _: x.zero_()), cold=False))
    assert 0.1 < fill < 5

    def many(_: object) -> None:
        for _ in range(20):
            x[:32].zero_()

    assert statistics.median(watch.times(Call(many), cold=False)) < 0.2  # 20 launches of a few microseconds each


def test_ceilings(device):
    ceilings = measure_ceilings(Stopwatch(torch.device(device), repeats=3, seconds=1), 1 << 24)
    measured = [
        ceilings.gather_bytes,
        ceilings.lookups,
        ceilings.scalar_reductions,
        ceilings.vector_reductions,
    ]
    assert ceilings.copy_bytes["median"] > 1e8
    assert all((x is not None) == (device == "cuda") for x in measured)
    assert ceilings.lookup_ms["median"] > 0 and CEILINGS.roofline_ms(10, lookups=3) == 0.004
    assert replace(CEILINGS, lookups=summary([1e6])).roofline_ms(10, lookups=3) == pytest.approx(0.007)
    assert CEILINGS.roofline_ms(10) == 0.001 and CEILINGS.roofline_ms(1 << 20) == pytest.approx(1.048576)


def test_random_reads_refuse_what_they_cannot_read(cuda):
    source, sums = torch.zeros(1 << 12, device=cuda), torch.zeros(1024, device=cuda)
    for width in (1, 32):
        torch.ops.nerf_ceilings.gather_at_random(source + 1, width, 1 << 12, sums)
        assert set(sums.unique().tolist()) <= {0.0, 1.0 if width == 1 else 4.0} and bool(sums.any())
    with pytest.raises(ValueError, match="width is 4"):
        torch.ops.nerf_ceilings.gather_at_random(source, 4, 1, sums)
    with pytest.raises(ValueError, match="power of two"):
        torch.ops.nerf_ceilings.gather_at_random(source[:96], 1, 1, sums)


def test_random_reductions_add_up(cuda):
    for width in (1, 4):
        target = torch.zeros(1 << 14, device=cuda)
        torch.ops.nerf_ceilings.add_at_random(target, width, 1 << 16)
        assert target.sum().item() == width << 16 and target.max().item() < 64
    with pytest.raises(ValueError, match="width is 3"):
        torch.ops.nerf_ceilings.add_at_random(target, 3, 1)
    with pytest.raises(ValueError, match="power of two"):
        torch.ops.nerf_ceilings.add_at_random(torch.zeros(12, device=cuda), 1, 1)


# Errors and rows


def test_error_by_hand():
    expected = (torch.tensor([3.0, 4.0]).double(),)
    assert error((torch.tensor([3.0, 4.5]),), expected) == pytest.approx((0.125, 0.1))
    assert error((torch.tensor([3.0]),), expected) is None
    assert error((torch.tensor([3.0, torch.nan]),), expected) is None
    assert error((*expected, *expected), expected) is None


def case_of(op: str) -> Case:
    return next(case for case in all_cases(TINY) if case.op == op)


def measured(op: str, rows: list[Row], deadline: float = float("inf")) -> dict:
    return measure_case(case_of(op), rows, Stopwatch(CPU, 2, 0.1), CEILINGS, deadline)


@pytest.mark.usefixtures("little_to_flush")
@pytest.mark.parametrize("op", [op for op in OPS if hasattr(torch.ops.nerf, op)])
def test_every_case_and_row_is_right(op, device):
    place = torch.device(device)
    rows = rows_of(op, place, False, None)
    assert {"fast", "torch"} <= {row.kind for row in rows}
    assert ("plain" in {row.kind for row in rows}) == (device == "cuda")
    for case in all_cases(TINY):
        if case.op == op:
            result = measure_case(case, rows, Stopwatch(place, 1, 0.0), CEILINGS, float("inf"))
            assert wrong_rows({"cases": [result]}) == []
            assert len(summaries(result)) == len(result["floors"]) + ("backward" in result["floors"])


def test_a_case_that_shows_nothing_is_refused():
    case = case_of("compare_beside")
    blank = replace(case, make=lambda device: _without_contrast(case.make(device)))
    with pytest.raises(ValueError, match="zeros alone"):
        measure_case(blank, rows_of("compare_beside", CPU, False, None), Stopwatch(CPU, 1, 0.0), CEILINGS, float("inf"))


def _without_contrast(problem: Problem) -> Problem:
    return replace(problem, arguments={**problem.arguments, "images": problem.arguments["images"] * 0})


def test_photos_of_any_size_show_their_pixels_beside():
    photos = (4, 800, 800)  # the full size's, fewer of them
    problem = compare_beside(replace(SIZES["full"], images=photos), CPU)
    said = torch.ops.nerf.compare_beside(*problem.arguments.values()) > 0
    assert said.float().mean() > 0.5


def test_a_wrong_row_is_told_and_counts_for_nothing():
    rows = rows_of("composite_rays", CPU, False, None)

    def twice(*arguments: object) -> tuple[Tensor, ...]:
        return tuple(2 * x for x in reference.composite_rays(*arguments))

    result = measured("composite_rays", [rows[0], Row("torch: twice", "torch", twice), rows[1]])
    assert {name.split(" (")[0] for name in wrong_rows({"cases": [result]})} == {"torch: twice"}
    assert {line["cold_ms"]["best_label"] for line in summaries(result)} == {rows[1].label}
    ours_wrong = measured("composite_rays", [Row("ours", "fast", twice), rows[1]])
    assert summaries(ours_wrong) == []


def test_rows_without_time_or_compiler_say_so():
    rows = rows_of("sample_images", CPU, False, None)
    result = measured("sample_images", rows, deadline=0.0)
    assert all("benchmark.max_seconds" in row["missing"] for row in result["rows"])

    def broken(*arguments: object) -> None:
        raise RuntimeError("no C++ compiler")

    compiled = Row("torch: compile", "torch", broken, compiles=True)
    result = measured("sample_images", [rows[0], compiled])
    assert result["rows"][1]["missing"].endswith("RuntimeError: no C++ compiler")
    with pytest.raises(RuntimeError):
        measured("sample_images", [Row("variant", "variant", broken)])


def test_the_best_of_both_directions_is_one_row():
    """The quickest forward and the quickest backward of two rows do not make a third one."""

    def row(label: str, kind: str, forward: float, backward: float) -> dict:
        times = {"forward": forward, "backward": backward}
        directions = {
            name: {"agrees": True, "cold_ms": summary([ms]), "warm_ms": summary([ms])} for name, ms in times.items()
        }
        return {"label": label, "kind": kind, "missing": None, "directions": directions}

    rows = [row("ours", "fast", 1, 1), row("a", "torch", 2, 9), row("b", "torch", 5, 4)]
    floors = {name: {"floor_ms": 0.5} for name in ("forward", "backward")}
    lines = summaries({"op": "o", "case": "c", "floors": floors, "rows": rows})
    assert [line["cold_ms"]["best_label"] for line in lines] == ["a", "b", "b"]
    assert [line["cold_ms"]["ratio"] for line in lines] == [2, 4, 4.5]
    assert lines[2]["times_floor"] == 2


def test_accumulate_is_measured_or_derived():
    rows = rows_of("interpolate_trilinear", CPU, False, None)
    result = measured("interpolate_trilinear", rows[:2])
    ours, theirs = (row["directions"] for row in result["rows"])
    assert not ours["accumulate"]["less_zero_fill"] and theirs["accumulate"]["less_zero_fill"]
    for mode in ("cold_ms", "warm_ms"):
        fill, backward = result["zero_fill"][mode]["median"], theirs["backward"][mode]["all"]
        expected = [max(0.0, ms - fill) for ms in backward]
        assert theirs["accumulate"][mode]["all"] == pytest.approx(expected, abs=1e-6)


def test_what_one_order_costs_is_a_row_of_a_gpu():
    assert "ordered" in {row.kind for row in rows_of("interpolate_trilinear", torch.device("cuda"), False, None)}
    assert "ordered" not in {row.kind for row in rows_of("interpolate_trilinear", CPU, False, None)}
    (row,) = measured("interpolate_trilinear", [in_order()])["rows"]
    assert row["label"] == "ours, in order"
    assert all(row["directions"][direction]["agrees"] for direction in ("forward", "backward", "accumulate"))


def test_bad_variants_are_named(tmp_path):
    with pytest.raises(UserError, match=r"benchmark.variants=.*missing.py is no file"):
        load_variants(str(tmp_path / "missing.py"))
    path = tmp_path / "mine.py"
    path.write_text("def interpolate():\n    pass\n")
    with pytest.raises(UserError, match="no function named like an operation"):
        load_variants(str(path))
    rows = [*rows_of("composite_rays", CPU, False, None)][:1]
    detached = Row("variant: mine", "variant", lambda *a: tuple(x.detach() for x in reference.composite_rays(*a)))
    with pytest.raises(UserError, match="variant: mine has no derivative"):
        measured("composite_rays", [*rows, detached])


# The script


def script(folder: Path, *settings: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "scripts" / "benchmark.py"), "device=cpu", "benchmark.size=tiny"]
    command += ["benchmark.repeats=2", "benchmark.seconds=0", "benchmark.compile=False", *settings]
    return warm_python.run([*command, f"hydra.run.dir={folder}"], capture_output=True, text=True, timeout=TIMEOUT)


@pytest.mark.slow
def test_script_with_a_right_and_a_wrong_variant(tmp_path):
    variants = tmp_path / "mine.py"
    variants.write_text(
        "from nerf.ops import reference\n"
        "def composite_rays(*arguments):\n    return reference.composite_rays(*arguments)\n"
        "def sample_images(images, pixel_indices):\n    return 2 * reference.sample_images(images, pixel_indices)\n"
    )
    run = script(tmp_path, "benchmark.ops=[composite_rays,sample_images]", f"benchmark.variants={variants}")
    assert run.returncode == 1, run.stderr
    assert "variant: mine WRONG" in run.stdout
    assert "these differ from float64: variant: mine (sample_images: 8 pixels, forward)." in run.stderr
    result = json.loads((tmp_path / "benchmark.json").read_text())
    assert {case["op"] for case in result["cases"]} == {"composite_rays", "sample_images"}
    for case in result["cases"]:
        for row in case["rows"]:
            for figures in row["directions"].values():
                for mode in ("cold_ms", "warm_ms"):
                    assert figures[mode]["median"] == pytest.approx(statistics.median(figures[mode]["all"]), abs=1e-5)
                    assert len(figures[mode]["all"]) == 2
    assert result["summaries"] == [line for case in result["cases"] for line in summaries(case)]
    assert {"device", "torch", "commit", "command", "date", "ceilings", "flush_bytes"} <= set(result)


@pytest.mark.slow
def test_script_without_time_leaves_cases_out(tmp_path):
    run = script(tmp_path, "benchmark.max_seconds=0", "benchmark.ops=[sample_images]")
    assert run.returncode == 0, run.stderr
    assert json.loads((tmp_path / "benchmark.json").read_text())["left_out"] == ["sample_images: 8 pixels"]
    assert "There was no time left for sample_images: 8 pixels." in run.stdout


@pytest.mark.slow
def test_script_answers_mistakes(tmp_path):
    run = script(tmp_path, "benchmark.ops=[interpolate]")
    assert run.returncode == 2 and "there is no operation interpolate" in run.stderr and "Traceback" not in run.stderr
    assert not (tmp_path / "benchmark.json").exists()
