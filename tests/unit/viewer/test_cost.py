"""benchmark.py mode=viewer: what a page costs a training run."""

import json
from pathlib import Path

import pytest
from script_runs import script_caller
from tiny_runs import write_tiny_scene

from nerf.errors import UserError
from nerf.viewer.cost import KINDS, PARTS, SKIPPED, Part, cost_of

TINY = ("mode=viewer", "device=cpu", "dataset=bricks", "dataset.root=scene", "train.rays_per_step=64", "train.steps=64")
TINY += ("field.num_voxels=1000", "field.min_level_steps=1", "hydra.run.dir=out")


def test_a_cost_is_that_of_a_step_over_the_part_before() -> None:
    """Whatever a run does on its way: here its steps become slower and slower."""
    parts = [Part("nobody", 99.0, 1) for _ in range(SKIPPED)]
    for turn in range(3):
        slow = 2.0**turn
        seconds = {"nobody": slow, "still": 1.04 * slow, "moving": 1.5 * slow}
        parts += [Part(kind, 10 * seconds[kind], 20, 0 if kind == "nobody" else 5) for kind in KINDS]
    found = cost_of(parts)
    assert found["still"]["cost"] == pytest.approx(0.04) and found["moving"]["cost"] == pytest.approx(0.5)
    assert found["step_ms"] == pytest.approx(500 * 7 / 3)
    assert found["moving"]["pictures_per_second"] == pytest.approx(15 / (15 * 7))


def test_a_run_that_is_too_short_says_so() -> None:
    with pytest.raises(UserError, match=r"too short.*train\.steps"):
        cost_of([Part("nobody", 1.0, 1)] * (PARTS - 1))
    with pytest.raises(UserError, match="too short"):
        cost_of([Part("nobody", 1.0, 0)] * PARTS)


def test_the_command_measures_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))
    assert call("benchmark", *TINY) == 0
    found = json.loads(Path("out/viewer.json").read_text())
    assert found["steps"] == 64 and all(len(found[kind]["all"]) == 3 for kind in ("still", "moving"))
    assert found["moving"]["pictures_per_second"] >= 0 and found["step_ms"] > 0
