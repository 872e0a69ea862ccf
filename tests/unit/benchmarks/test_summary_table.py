"""The tables of README.md: which runs of a capture one shows, and what stands at the top."""

import json
from pathlib import Path

import pytest

from nerf.benchmarks.summary_table import headline_table, summary_table

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results" / "data"


def run(seconds: float, date: str, *more: str) -> dict:
    told = f"python scripts/train.py dataset=capture dataset.root=cup train.max_seconds={seconds} {' '.join(more)}"
    scores = {name: {"mean": seconds, "per_view": [seconds]} for name in ("psnr", "ssim")}
    of_all = {"scene": "cup", "image_size": [4, 3], "seed": 0, "device": "NVIDIA H200", "commit": "0123456789"}
    cost = {"train_seconds": seconds, "peak_memory_bytes": 2**30, "render_seconds_per_view": 0.01}
    return {**of_all, **scores, **cost, "command": told, "date": date}


def results(*names: str) -> list[dict]:
    return [json.loads((RESULTS / name).read_text()) for name in names]


@pytest.mark.parametrize("backwards", [False, True])
def test_of_the_runs_with_the_fewest_settings_it_has_the_newest_and_then_the_longest(backwards: bool) -> None:
    others = results("curve_h200.json", "baselines_h200.json")
    runs = [run(15, "2026-11-02"), run(60, "2026-11-02"), run(90, "2026-11-01"), run(99, "2026-11-03", "a.b=1")]
    last = summary_table([*others, *(reversed(runs) if backwards else runs)]).splitlines()[-1]
    assert [cell.strip() for cell in last.split("|")][1:5] == ["cup", "4x3", "60", "60.00"]


def test_other_systems_stand_beside_it_with_pictures_of_its_size() -> None:
    (system,) = results("baseline_captures_gsplat_h200.json")
    looks = {size: {"seconds": 50, "psnr": {"mean": score}} for size, score in (((4, 3), 25.5), ((8, 6), 29.5))}
    one = system["runs"][0] | {"scene": "cup"}
    seen = [{**one, "image_size": list(size), "looks": [look]} for size, look in looks.items()]
    files = [*results("curve_h200.json", "baselines_h200.json"), {**system, "runs": seen}, run(60, "2026-11-02")]
    assert [cell.strip() for cell in summary_table(files).splitlines()[-1].split("|")][6:9] == ["-", "-", "25.50"]


def test_the_headline_has_two_budgets_a_frame_of_the_longer_one_and_the_bundled_scene() -> None:
    names = ("curve_h200.json", "curve_h200_long.json", "baselines_h200.json", "training_bricks_cpu.json")
    files = results(*names)
    minute = next(budget for budget in files[0]["budgets"] if budget["seconds"] == 60)
    minute["psnr_every_4th"]["median"], minute["render_seconds_per_view"]["median"] = 41.23, 0.0123
    lines = [[cell.strip() for cell in line.split("|")][1:4] for line in headline_table(files).splitlines()[2:]]
    assert lines[1][1] == "**41.2 dB**" and lines[2][1] == "**12.3 ms**" and lines[1][2] == "NVIDIA H200"
    assert [line[0].split(",")[0] for line in lines] == ["lego", "lego", "one 800x800 frame", "bundled scene"]
