"""What `nerf evaluate` and `render` answer where something is not there, is damaged, or has no effect."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from fixtures import write_sphere_scene
from script_runs import script_caller
from tiny_runs import run_to, tiny_config, tiny_images, tiny_state, write_tiny_scene

from nerf.runs import checkpoint


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """A function that runs a script, in a folder with the tiny scene and a short run of it."""
    call = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))
    save_run("run")
    return call


@pytest.fixture
def evaluate(call: Callable[..., int]) -> Callable[..., int]:
    return functools.partial(call, "evaluate")


def save_run(name: str) -> None:
    config, state = tiny_state(tiny_config(steps=3))
    config.dataset.root = str(Path("scene").absolute())
    run_to(config, state, 3)
    Path(name).mkdir()
    checkpoint.save(Path(name), config, state, tiny_images().cameras)
    settings = {"dataset": {"scene": "sphere", "format": "blender", "root": config.dataset.root}}
    Path(name, "config.yaml").write_text(yaml.safe_dump(settings))


def test_what_a_message_proposes_is_a_setting_of_the_command(
    evaluate: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate("run=run", "split=val", "hydra.run.dir=out") == 2
    message = capsys.readouterr().err
    assert "score another split (split=test)" in message and "evaluation." not in message
    assert evaluate("run=run", "exposure=fit", "hydra.run.dir=out") == 2
    message = capsys.readouterr().err
    assert "exposure=fit scores half of each view" in message and "take exposure=none" in message
    assert evaluate("run=run", "split=test", "exposure=none", "every=8", "hydra.run.dir=out") == 0


def test_test_views_that_are_not_there_cannot_be_rendered_and_other_paths_can(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("scene/transforms_test.json").rename("scene/transforms_val.json")
    assert call("render", "run=run", "path=test", "hydra.run.dir=out") == 2
    message = capsys.readouterr().err
    assert "path=test: " in message and "no such file" in message and "split=" not in message
    assert "path=interpolate" in message
    assert call("render", "run=run", "path=interpolate", "frames=2", "cameras=[0,1]", "hydra.run.dir=out") == 0


@pytest.mark.parametrize("content", [b'{"psnr"', b"[1]", b"\xff"])
def test_damaged_metrics_of_training_are_left_out_with_a_note(
    evaluate: Callable[..., int], capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    Path("run/metrics.json").write_bytes(content)
    assert evaluate("run=run", "every=8", "hydra.run.dir=run") == 0
    assert "note: run/metrics.json is damaged" in capsys.readouterr().err
    found = json.loads(Path("run/metrics.json").read_text())
    assert found["psnr"]["mean"] > 0 and "train_seconds" not in found


def test_training_views_that_cannot_be_refined_are_told(
    evaluate: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate("run=run", "split=train", "view_poses=refined", "every=8", "hydra.run.dir=out") == 0
    assert "note: view_poses=refined has no effect with split=train" in capsys.readouterr().err
    assert evaluate("run=run", "split=train", "every=8", "hydra.run.dir=out") == 0
    assert "view_poses" not in capsys.readouterr().err


def test_photos_of_another_scene_are_not_shown_beside_renders(
    evaluate: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    save_run("other")
    for name in ("run", "other"):
        assert evaluate(f"run={name}", "every=4", f"hydra.run.dir={name}") == 0
    write_sphere_scene(Path("elsewhere"), views=5, size=20)
    assert evaluate("runs=run,other", "hydra.run.dir=out") == 0
    assert "note:" not in capsys.readouterr().out and "type=range" in Path("out/compare.html").read_text()
    assert evaluate("runs=run,other", "root=elsewhere", "hydra.run.dir=out") == 0
    said = capsys.readouterr().out
    assert "note: the page shows renders only: the scene in elsewhere is not the one that the run was" in said
    assert "type=range" not in Path("out/compare.html").read_text()
