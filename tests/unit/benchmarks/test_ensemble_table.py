"""The table of ensembles beside single runs."""

from nerf.benchmarks.tables import ensemble_table

SCORES = {"scene": "lego", "image_size": [800, 800], "ssim": {"mean": 0.97}, "render_seconds_per_view": 0.0123}
WHO = {"device": "NVIDIA H200", "commit": "0123456789ab"}


def scored(psnr: float, **facts: object) -> dict:
    return SCORES | {"psnr": {"mean": psnr, "per_view": [psnr, psnr]}} | facts


def trained(psnr: float, steps: int, budget: str, seed: int) -> dict:
    command = f"python scripts/train.py dataset=lego train.{budget} seed={seed} hydra.run.dir=outputs/{seed}"
    return scored(psnr, steps=steps, command=command, **WHO)


def test_it_has_a_line_for_the_runs_of_all_seeds_and_for_several_together() -> None:
    members = [trained(31.25, 700, "max_seconds=30", 0), trained(31.5, 701, "max_seconds=30", 1)]
    by = WHO | {"commit": "ba9876543210", "command": "python scripts/evaluate.py run=outputs/0 ensemble=outputs/1"}
    runs = [scored(31.75, ensemble=members, scored_by=by), *members, trained(31.6, 900, "steps=900", 0)]
    _, _, *lines = ensemble_table(runs).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines] == [
        ["lego", "800x800", training, "2", psnr, ssim, "12.3", "NVIDIA H200", commit]
        for training, psnr, ssim, commit in (
            ("30 s", "31.25, 31.50", "0.9700, 0.9700", "0123456789ab"),
            ("900 steps", "31.60", "0.9700", "0123456789ab"),
            ("2 x 30 s", "31.75", "0.9700", "ba9876543210"),
        )
    ]


def test_ensembles_that_differ_in_their_seeds_alone_share_a_line() -> None:
    runs = []
    for first in (0, 2, 4):
        members = [trained(31.25, 700, "max_seconds=30", first + i) for i in range(2)]
        command = f"python scripts/evaluate.py run=outputs/{first} ensemble=outputs/{first + 1}"
        runs.append(scored(31.5 + first, ensemble=members, scored_by=WHO | {"command": command}))
    longer = [trained(31.25, 700, "max_seconds=60", seed) for seed in range(2)]
    runs.append(scored(32.25, ensemble=longer, scored_by=WHO | {"command": "python scripts/evaluate.py run=outputs/0"}))
    _, _, *lines = ensemble_table(runs).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")][2:5] for line in lines] == [
        ["2 x 30 s", "2", "31.50, 33.50, 35.50"],
        ["2 x 60 s", "2", "32.25"],
    ]


def test_of_many_seeds_the_range_is_told() -> None:
    runs = [trained(31 + seed / 8, 700, "max_seconds=30", seed) for seed in range(6)]
    assert " 31.00 to 31.62 (6 seeds) " in ensemble_table(runs).splitlines()[-1]


def test_runs_that_learn_their_poses_say_so() -> None:
    members = [trained(25.5, 700, "max_seconds=90 poses=refine", seed) for seed in range(2)]
    by = WHO | {"command": "python scripts/evaluate.py run=outputs/0 ensemble=outputs/1"}
    given = trained(25.25, 600, "max_seconds=90", 0)
    _, _, *lines = ensemble_table([given, *members, scored(25.75, ensemble=members, scored_by=by)]).splitlines()
    assert [line.split("|")[3].strip() for line in lines] == ["90 s", "90 s, refined", "2 x 90 s, refined"]
