"""scripts/tables.py: the tables of README.md and docs/ follow from docs/results, and those from their own numbers."""

import contextlib
import io
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from script_runs import TIMEOUT

from nerf.benchmarks.capture_table import capture_baselines_table
from nerf.benchmarks.ops import kernel_gains, summaries
from nerf.cli.help_text import setting_names
from nerf.cli.tables import command
from nerf.config.fields import field_settings
from nerf.config.recipes import KINDS, resolve_config
from nerf.config.schema import Config, PosesConfig, TrainConfig

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "docs" / "results" / "data"

RUN = {
    "scene": "lego",
    "image_size": [800, 800],
    "field": "voxel_sh",
    "seed": 0,
    "device": "NVIDIA H200",
    "commit": "0123456789ab",
    "psnr": {"mean": 31.25, "per_view": [31.0, 31.5]},
    "ssim": {"mean": 0.97, "per_view": [0.96, 0.98]},
    "train_seconds": 118.04,
    "peak_memory_bytes": 3 * 2**29,
    "render_seconds_per_view": 0.0123,
}


BENCHMARK = {
    "device": "NVIDIA H200",
    "size": "full",
    "ceilings": {
        "launch_ms": {"median": 0.002},
        "lookup_ms": {"median": 0.004},
        "copy_bytes": {"median": 4.2e12},
        "gather_bytes": {"median": 4.3e12},
        "lookups": {"median": 40.2e9},
        "scalar_reductions": {"median": 17.1e9},
        "vector_reductions": {"median": 68.3e9},
    },
    "left_out": ["adam_step: dense"],
    "summaries": [
        {
            "op": "composite_rays",
            "case": "8192 rays",
            "direction": direction,
            "cold_ms": {"fast": fast, "best_torch": 4 * fast, "best_label": "torch: eager", "ratio": 4.0},
            "warm_ms": {"fast": fast / 2, "best_torch": fast, "best_label": "torch: eager", "ratio": 2.0},
            "floor_ms": fast / 1.5,
            "times_floor": 1.5,
        }
        for direction, fast in (("forward", 0.25), ("backward", 1.5), ("forward + backward", 1.75))
    ],
    "ladder": [
        {
            "op": "composite_rays",
            "case": "8192 rays",
            "direction": "forward",
            "plain_ms": 0.75,
            "fast_ms": 0.25,
            "gain": 3.0,
            "plain": "a thread per ray",
            "fast": "a warp per ray",
        }
    ],
    "torch": "2.11.0",
    "commit": "0123456789ab",
    "date": "2026-01-02T03:04:05+00:00",
}


def row(label: str, milliseconds: float, **changed: object) -> dict:
    stages = ("march", "look", "interpolate", "composite", "backward", "adam", "rest")
    return {
        "label": label,
        "backend": "native" if label.startswith("native") else "torch",
        "device": "cuda",
        "rays_per_step": 8192,
        "missing": None,
        "agrees": True,
        "steps": 200,
        "stages_ms": {name: {"mean": milliseconds, "median": milliseconds} for name in stages},
        "operations_ms": {"mean": 4 * milliseconds, "median": 4 * milliseconds},
        "step_ms": {"mean": 7 * milliseconds, "median": 7 * milliseconds},
        "peak_memory_bytes": 2**30,
    } | changed


ABLATION = {
    "scene": "lego",
    "field": "voxel_sh",
    "resolution": [128, 224, 144],
    "devices": {"cuda": "NVIDIA H200"},
    "rows": [
        row("native", 0.25),
        row("native + CUDA graph", 0.2, stages_ms={}, operations_ms=None, idle_share=0.034),
        row("torch: gather", 2.0, agrees=False),
        {
            "label": "torch: compile",
            "backend": "torch",
            "device": "cuda",
            "rays_per_step": 8192,
            "missing": "no gcc",
        },
    ],
    "speedups": {"cuda": {"operations": {"ratio": 8.0, "best_torch": "torch: gather"}}},
    "trainings": [
        {"backend": name, "device": "cuda", "steps": 3000, "train_seconds": 9.5, "psnr": {"mean": psnr}}
        for name, psnr in (("native", 31.02), ("torch", 31.05))
    ],
    "torch": "2.11.0",
    "commit": "0123456789ab",
    "date": "2026-01-02T03:04:05+00:00",
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "training_lego.json").write_text(json.dumps(RUN))
    (folder / "training_ship.json").write_text(json.dumps(RUN | {"scene": "ship"}))
    (folder / "ablation_lego.json").write_text(json.dumps(ABLATION))
    (folder / "benchmark_h200.json").write_text(json.dumps(BENCHMARK))
    return folder


def write_readme(folder: Path, *names: str) -> Path:
    path = folder / "README.md"
    blocks = [f"<!-- table:{name} -->\nold\n<!-- end:{name} -->\n" for name in names]
    path.write_text("# Title\n\n" + "\ntext\n\n".join(blocks) + "\nend\n")
    return path


def tables(readme: Path, results: Path, *options: str) -> subprocess.CompletedProcess:
    """The command in this process: importing PyTorch again and again takes longer than the tables."""
    words, errors = ["tables", str(readme), "--results", str(results), *options], io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(errors):
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            command()
    return subprocess.CompletedProcess(words, ended.value.code, "", errors.getvalue())


def lines_with(readme: Path, text: str) -> list[list[str]]:
    """Cells of every table line that has the text."""
    lines = [line for line in readme.read_text().splitlines() if line.startswith("|") and text in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_training_table_has_a_line_for_each_run(tmp_path: Path, results: Path) -> None:
    readme = write_readme(tmp_path, "training")
    assert tables(readme, results).returncode == 0
    assert lines_with(readme, "H200") == [
        [
            scene,
            "800x800",
            "voxel_sh",
            "2",
            "0",
            "NVIDIA H200",
            "31.25",
            "-",
            "0.9700",
            "118.0",
            "1.50",
            "12.3",
            "0123456789ab",
        ]
        for scene in ("lego", "ship")
    ]
    assert "old" not in readme.read_text()
    assert readme.read_text().startswith("# Title\n") and readme.read_text().endswith("\nend\n")


def test_captures_and_poses_tell_their_settings_and_errors(tmp_path: Path, results: Path) -> None:
    command = "python scripts/train.py dataset=capture dataset.root=cup dataset.downscale=2 train.max_seconds=9 seed=0"
    errors = {"rotation_degrees": 2.0, "max_rotation_degrees": 3.0, "translation": 0.08}
    less = {name: value / 100 for name, value in errors.items()}
    run = RUN | {"scene": "cup", "command": f"{command} poses=refine hydra.run.dir=outputs/cup"}
    (results / "capture_cup.json").write_text(json.dumps(run))
    (results / "poses_cup.json").write_text(json.dumps(run | {"pose_error_before": errors, "pose_error": less}))
    taken = run | {"command": f"{command} poses.from_run=outputs/cup"}
    (results / "poses_cup_taken.json").write_text(json.dumps(taken))
    other = {"seed": 1, "psnr": {"mean": 32.25, "per_view": [31.0, 33.5]}}
    (results / "capture_cup_1.json").write_text(json.dumps(run | other))
    readme = write_readme(tmp_path, "captures", "poses")
    assert tables(readme, results).returncode == 0
    turned = ["2.000", "0.020", "0.030", "0.0800", "0.0008"]
    told, common = "`dataset.downscale=2` `poses=refine`", ["118", "1.5", "12.3", "0123456789ab"]
    taken = "`dataset.downscale=2` `poses.from_run=outputs/cup`"
    assert lines_with(readme, "cup") == [
        ["cup", "800x800", told, "NVIDIA H200", "2", "2", "31.75", "31.25 to 32.25", "0.9700", *common],
        ["cup", "800x800", told, "NVIDIA H200", "1", "2", "31.25", "-", "0.9700", *turned, *common],
        ["cup", "800x800", taken, "NVIDIA H200", "1", "2", "31.25", "-", "0.9700", *5 * ["-"], *common],
    ]


def test_another_systems_runs_on_captures_have_a_line_for_each_look(tmp_path: Path, results: Path) -> None:
    looks = [
        {"seconds": seconds, "steps": 40 * seconds, "psnr": {"mean": 20 + seconds / 10}, "ssim": {"mean": 0.8}}
        for seconds in (15, 30)
    ]
    run = {"scene": "cup", "recipe": "its own", "of_steps": 2000, "peak_memory_gib": 1.25, "looks": looks}
    file = {"system": "Other", "commit": "abcdef0", "device": "NVIDIA H200", "source": "Run here.", "runs": [run]}
    (results / "baseline_captures_other.json").write_text(json.dumps(file))
    readme = write_readme(tmp_path, "capture_baselines")
    assert tables(readme, results).returncode == 0
    assert lines_with(readme, "cup") == [
        ["cup", "Other abcdef0", "its own", "H200", "15", "600 of 2000", "21.50", "0.8000", "1.2"],
        ["cup", "Other abcdef0", "its own", "H200", "30", "1200 of 2000", "23.00", "0.8000", "1.2"],
    ]
    assert "Run here." in readme.read_text()
    assert "ahead" not in readme.read_text()


def test_runs_here_stand_below_the_other_systems_and_where_it_is_ahead_is_said() -> None:
    def run(scene: str, recipe: str, *looks: tuple[float, float, float], **more: int) -> dict:
        scored = [{"seconds": s, "steps": 100, "psnr": {"mean": p}, "ssim": {"mean": q}} for s, p, q in looks]
        return {"scene": scene, "recipe": recipe, "peak_memory_gib": 2.0, "looks": scored} | more

    theirs = [
        run("cup", "first", (5, 25, 0.7), (15, 26, 0.9), (30.2, 27, 0.8), of_steps=900),
        run("fox", "first", (15, 26, 0.8), of_steps=900),
    ]
    ours = [run("cup", "clock", (15.4, 26.5, 0.85), (30, 26.4, 0.86)), run("fox", "clock", (15.1, 27, 0.9))]
    ours[0]["commit"], ours[1]["commit"] = "0123456789ab", "fedcba98"
    file = {"system": "Other", "commit": "abc", "device": "NVIDIA H100", "source": "Run here.", "runs": theirs}
    table, _, note = capture_baselines_table([file | {"here": {"runs": ours}}]).split("\n\n")
    systems = [[cell.strip() for cell in line.split("|")[1:7]] for line in table.splitlines()[2:]]
    assert [line[:2] for line in systems] == (
        3 * [["cup", "Other abc"]] + 2 * [["cup", "nerf-voxel 0123456"]]
        + [["fox", "Other abc"], ["fox", "nerf-voxel fedcba9"]]
    )  # fmt: skip
    assert systems[0][3:] == ["H100", "5", "100 of 900"] and systems[3][3:] == ["H100", "15", "100"]
    assert note == (  # nothing here is as early as 5 s; the best of what is early enough counts
        "Of 3 scores Other is ahead at 2: cup, first, 15 s: 0.8500 here against 0.9000 in SSIM; "
        "cup, first, 30 s: 26.50 here against 27.00 dB."
    )
    best = capture_baselines_table([file | {"runs": theirs[1:], "here": {"runs": ours}}])
    assert best.endswith("Of 1 scores Other is ahead at none.")


def test_frames_table_has_a_line_for_each_number_of_rays(tmp_path: Path, results: Path) -> None:
    scored = {"device": "NVIDIA H200", "commit": "ba9876543210"}
    for rays in (1, 4):
        run = RUN | {"rays_per_pixel": rays, "scored_by": scored}
        (results / f"frames_lego_{rays}.json").write_text(json.dumps(run))
    readme = write_readme(tmp_path, "frames")
    assert tables(readme, results).returncode == 0
    assert lines_with(readme, "H200") == [
        ["lego", "800x800", rays, "2", "31.25", "0.9700", "12.30", "NVIDIA H200", "118.0", "ba9876543210"]
        for rays in ("1", "4")
    ]


def test_ablation_table_shows_rows_ratios_and_reasons(tmp_path: Path, results: Path) -> None:
    readme = write_readme(tmp_path, "ablation")
    assert tables(readme, results).returncode == 0
    native, graph, wrong, missing = lines_with(readme, "| cuda ")
    assert native[1] == "native" and graph[1] == "native + CUDA graph"
    assert native[2:] == ["200", *["0.250"] * 7, "1.00", "1.75", "1.00", "1.00", "-", "1.00"]
    assert graph[2:] == ["200", *["-"] * 8, "1.40", "-", "0.80", "3%", "1.00"]
    assert wrong[1] == "torch: gather WRONG" and wrong[-4:] == ["8.00", "8.00", "-", "1.00"]
    assert set(missing[2:]) == {"-"}
    text = readme.read_text()
    assert "torch: compile on cuda: no gcc." in text
    assert "operations 8.00x (torch: gather)" in text
    assert "difference -0.030 dB" in text


def test_benchmark_table_has_a_line_for_each_case_and_the_ladder(tmp_path: Path, results: Path) -> None:
    readme = write_readme(tmp_path, "benchmark")
    assert tables(readme, results).returncode == 0
    line, rung = lines_with(readme, "8192 rays")
    assert line[:2] == ["`composite_rays`", "8192 rays"]
    assert line[2:] == ["0.250", "1.50", "4.00", "1.50", "1.50", "4.00", "-", "-", "-", "4.00"]
    assert rung == ["`composite_rays`", "8192 rays", "forward", "0.750", "0.250", "3.00"]
    text = readme.read_text()
    assert "copy 4200 GB/s" in text and "40 G random numbers/s" in text
    assert "the smallest call 2.0 us, one that reads where another read says 4.0 us" in text
    assert "17.1 G floats/s one at a time, 68.3 G floats/s four at a time" in text
    assert "`composite_rays`: a thread per ray -> a warp per ray." in text
    assert "no time left for adam_step: dense." in text


def test_check_changes_nothing_and_tells_by_its_status(tmp_path: Path, results: Path) -> None:
    readme = write_readme(tmp_path, "training", "ablation")
    before = readme.read_text()
    assert tables(readme, results, "--check").returncode == 1
    assert readme.read_text() == before
    assert tables(readme, results).returncode == 0
    assert tables(readme, results, "--check").returncode == 0
    after = readme.read_text()
    assert tables(readme, results).returncode == 0
    assert readme.read_text() == after


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table:speed -->\n<!-- end:speed -->\n", "choose one of ablation, training, frames, captures"),
        ("<!-- table:training -->\n", "no partner"),
        ("<!-- table:training -->\n<!-- end:ablation -->\n", "no partner"),
    ],
)
def test_bad_marks_are_named(tmp_path: Path, results: Path, text: str, message: str) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text)
    run = tables(readme, results)
    assert run.returncode == 2
    assert run.stderr.startswith("error: ") and message in run.stderr and "Traceback" not in run.stderr
    assert readme.read_text() == text


def test_missing_and_foreign_results_are_named(tmp_path: Path, results: Path) -> None:
    readme = write_readme(tmp_path, "training")
    assert "no such file" in tables(readme, tmp_path / "nowhere").stderr
    (results / "training_ship.json").write_text("{}")
    run = tables(readme, results)
    assert run.returncode == 2 and "KeyError" in run.stderr and "training_ship.json" in run.stderr


def test_every_page_is_up_to_date() -> None:
    program = [sys.executable, str(ROOT / "scripts" / "tables.py"), "--check"]
    run = warm_python.run(program, capture_output=True, text=True, timeout=TIMEOUT)
    assert run.returncode == 0, run.stderr


def test_settings_page_tells_every_setting_and_what_its_recipe_makes_of_it() -> None:
    page = ROOT / "docs" / "configuration.md"
    named = {cells[0].strip("`") for cells in lines_with(page, "`")}
    for field in field_settings():
        assert set(setting_names(Config, field)) - {"field.name"} <= named
    kind, text = next(iter(KINDS)), page.read_text()
    begin = text.index(f"### GPU, {kind}\n")
    lines = text[begin : text.index("### ", begin + 1)].splitlines()
    column = [cell.strip() for cell in lines[2].split("|")].index("15 s")
    resolved = resolve_config(Config(train=TrainConfig(max_seconds=15.0)), "cuda", kind)
    for name in ("rays_per_step", "lr_decay"):
        (line,) = (line for line in lines if line.startswith(f"| `train.{name}`"))
        assert float(line.split("|")[column]) == getattr(resolved.train, name)
    other = resolve_config(Config(train=TrainConfig(max_seconds=15.0), poses=PosesConfig(mode="refine")), "cuda", kind)
    assert [float(line.split("|")[column]) for line in lines if "| `poses.lr`" in line] == [other.poses.lr]
    (said,) = (line for line in lines if line.startswith("With `poses=refine`"))
    assert "`field.num_voxels`" in said and "`train.lr_decay`" in said and "`loss.tv_density`" not in said


def test_several_files_are_written_and_each_one_out_of_date_is_named(tmp_path: Path, results: Path) -> None:
    (tmp_path / "page").mkdir()
    first, second = write_readme(tmp_path, "training"), write_readme(tmp_path / "page", "ablation")
    assert tables(first, results).returncode == 0
    found = tables(first, results, str(second), "--check")
    assert found.returncode == 1
    assert str(second) in found.stderr and f"{first} is" not in found.stderr
    assert tables(first, results, str(second)).returncode == 0
    assert tables(first, results, str(second), "--check").returncode == 0


def result_files(kind: str) -> list[Path]:
    found = sorted(RESULTS.glob(f"{kind}_*.json"))
    assert found, f"{RESULTS} has no {kind}_*.json"
    return found


def test_means_are_the_means_of_the_views() -> None:
    paths = [path for kind in ("training", "capture", "poses") for path in result_files(kind)]
    runs = [(path.name, json.loads(path.read_text())) for path in paths]
    for path in result_files("baseline_captures"):
        runs += [(path.name, look) for run in json.loads(path.read_text())["runs"] for look in run["looks"]]
    for file, run in runs:
        for name in ("psnr", "ssim"):
            assert run[name]["mean"] == pytest.approx(statistics.fmean(run[name]["per_view"]), rel=1e-9), file


def test_summaries_of_benchmarks_follow_from_their_rows() -> None:
    for path in result_files("benchmark"):
        result = json.loads(path.read_text())
        assert result["summaries"] == [line for case in result["cases"] for line in summaries(case)], path.name
        rungs = [line for case in result["cases"] for line in kernel_gains(case)]
        for told, rung in zip(result["ladder"], rungs, strict=True):  # its ideas are those of the commit measured
            assert told | {"plain": "", "fast": ""} == rung | {"plain": "", "fast": ""}, path.name
        for case in result["cases"]:
            for row in (row for row in case["rows"] if row["missing"] is None):
                for figures in row["directions"].values():
                    for mode in ("cold_ms", "warm_ms"):
                        median = statistics.median(figures[mode]["all"])
                        assert abs(figures[mode]["median"] - median) < 1e-5, path.name
