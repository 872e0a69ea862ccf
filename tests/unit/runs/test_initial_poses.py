"""A run that begins with the poses that another run learned: where they lie, what cannot be taken over, going on."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from script_runs import script_caller
from state_facts import differing, facts
from tiny_runs import (
    STEPS,
    poses_config,
    run_to,
    some_similarity,
    tiny_config,
    tiny_images,
    tiny_state,
    write_tiny_scene,
)

import nerf
from nerf.calibration.pose_alignment import perturbed
from nerf.cameras.cameras import Cameras
from nerf.config.recipes import resolve_config
from nerf.config.schema import Config, PosesConfig
from nerf.datasets.posed_images import PosedImages
from nerf.diagnostics import dry_run_page
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.runs import checkpoint
from nerf.runs.initial_poses import cameras_to_begin_with, to_dataset_frame
from nerf.training.initial_state import init_state

GIVEN = tiny_images().cameras


def save_run(folder: Path, off: float = 0.02, **poses: object) -> Cameras:
    """A saved run before its first step, its cameras moved by increments of that size; returns these cameras."""
    folder.mkdir(exist_ok=True)
    config, state = tiny_state(replace(tiny_config(), poses=poses_config(initial_num_voxels=500, **poses)))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        state.poses.increments.copy_(off * torch.randn(len(GIVEN), 6, generator=generator))
        if state.poses.lens is not None:
            state.poses.lens.copy_(torch.tensor([[0.1, 0.1, 0.0, 0.0]]))
    checkpoint.save(folder, config, state, GIVEN)
    return state.cameras


def begin_with(folder: Path, given: Cameras = GIVEN, **poses: object) -> Cameras | None:
    return cameras_to_begin_with(PosesConfig(from_run=str(folder), **poses), given)


def test_without_a_run_poses_begin_as_given() -> None:
    assert cameras_to_begin_with(PosesConfig(), GIVEN) is None


def test_poses_come_back_to_where_the_given_ones_lie() -> None:
    """Whatever the learned scene's place and size, and with one camera that was lost."""
    off = perturbed(GIVEN, PosesConfig(perturb_degrees=0.1), seed=5)
    back = to_dataset_frame(some_similarity().applied(off), GIVEN, GIVEN)
    torch.testing.assert_close(back.c2w, off.c2w, rtol=0, atol=5e-3)
    exact = to_dataset_frame(some_similarity().applied(GIVEN), GIVEN, GIVEN)
    torch.testing.assert_close(exact.c2w, GIVEN.c2w, rtol=0, atol=1e-5)
    assert (back.c2w - GIVEN.c2w).abs().max() > 5e-4, "and still turned"


def test_a_saved_run_hands_its_poses_over(tmp_path: Path) -> None:
    learned = save_run(tmp_path)
    found = begin_with(tmp_path)
    torch.testing.assert_close(found.c2w, to_dataset_frame(learned, GIVEN, GIVEN).c2w)
    assert torch.equal(found.intrinsics, GIVEN.intrinsics) and found.image_sizes.equal(GIVEN.image_sizes)
    backend = select("native", "cpu")
    state = init_state(resolve_config(tiny_config(), backend.device.type), tiny_images(), backend, None, found)
    assert torch.equal(state.cameras.c2w, found.c2w)


def test_intrinsics_that_were_learned_come_along_at_any_size(tmp_path: Path) -> None:
    learned = save_run(tmp_path, intrinsics=True)
    half = replace(GIVEN, intrinsics=GIVEN.intrinsics / 2, width=GIVEN.width // 2, height=GIVEN.height // 2)
    found = begin_with(tmp_path, half)
    torch.testing.assert_close(found.intrinsics, learned.intrinsics / 2)
    assert not torch.allclose(found.intrinsics, half.intrinsics, rtol=0.05)
    assert (found.width, found.height) == (half.width, half.height)


@pytest.mark.parametrize("mistake", ["no run", "as given", "fewer images", "other poses", "errors besides"])
def test_what_cannot_be_taken_over_is_said(tmp_path: Path, mistake: str) -> None:
    if mistake != "no run":
        save_run(tmp_path, off=0.0 if mistake == "as given" else 0.02)
    given = {"fewer images": GIVEN[:-1], "other poses": some_similarity().applied(GIVEN)}.get(mistake, GIVEN)
    besides = {"perturb_degrees": 1.0} if mistake == "errors besides" else {}
    said = {
        "no run": "expected the folder of a training run",
        "as given": "learned no poses.*poses=refine",
        "fewer images": f"poses of {len(GIVEN)} images, which are not the {len(GIVEN) - 1}",
        "other poses": "same dataset, with the same test_every",
        "errors besides": "drop one of the two",
    }
    with pytest.raises(UserError, match=said[mistake]):
        begin_with(tmp_path, given, **besides)


@pytest.mark.parametrize("mode", ["fixed", "refine"])
def test_such_a_run_goes_on_when_the_other_one_is_gone(tmp_path: Path, mode: str) -> None:
    other = tmp_path / "other"
    save_run(other)
    config, backend = tiny_config(), select("native", "cpu")
    settings = {"mode": mode, "from_run": str(other), "initial_num_voxels": 500}
    config = resolve_config(replace(config, poses=replace(config.poses, **settings)), backend.device.type)
    start = cameras_to_begin_with(config.poses, GIVEN)
    never_stopped, state = (init_state(config, tiny_images(), backend, None, start) for _ in range(2))
    run_to(config, never_stopped, STEPS)
    run_to(config, state, STEPS // 2)
    checkpoint.save(tmp_path, config, state, GIVEN)
    shutil.rmtree(other)
    content = checkpoint.load_resume(tmp_path)
    resumed = checkpoint.restore_run(content, config, tiny_images(), backend)
    assert torch.equal(resumed.batches.cameras.c2w, start.c2w)
    run_to(config, resumed, STEPS)
    assert differing(facts(never_stopped), facts(resumed)) == []
    assert torch.equal(never_stopped.cameras.c2w, resumed.cameras.c2w)


@pytest.mark.slow
def test_the_walk_from_one_run_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Train with poses=refine, train with what it found, score the training views."""
    write_tiny_scene(tmp_path / "scene")
    call = script_caller(monkeypatch, tmp_path)
    scene = [f"dataset.root={tmp_path / 'scene'}", "dataset=blender", "dataset.scene=scene", "device=cpu"]
    short = [*scene, "train.steps=30", "train.rays_per_step=128", "field.num_voxels=1000"]
    found, used = tmp_path / "found", tmp_path / "used"
    assert call("train", *short, "poses=refine", "poses.perturb_degrees=2", f"hydra.run.dir={found}") == 0
    assert call("train", *short, f"poses.from_run={found}", f"hydra.run.dir={used}") == 0
    metrics = [json.loads((folder / "metrics.json").read_text()) for folder in (found, used)]
    assert metrics[1]["psnr"]["mean"] > 5 and "pose_error" not in metrics[1]
    # From the poses of the data set, which are right here: as far as the first run left them.
    change, error = metrics[1]["pose_change"], metrics[0]["pose_error"]
    assert change["rotation_degrees"] == pytest.approx(error["rotation_degrees"], rel=1e-3)
    first, second = (nerf.load(folder, device="cpu") for folder in (found, used))
    expected = to_dataset_frame(first.cameras, first.given_cameras, first.given_cameras)
    torch.testing.assert_close(second.cameras.c2w, expected.c2w, rtol=0, atol=1e-6)
    assert torch.equal(second.given_cameras.c2w, first.given_cameras.c2w)
    assert torch.equal(second.views("train").cameras.c2w, second.cameras.c2w)
    capsys.readouterr()
    assert call("train", *short, f"poses.from_run={used}/none", f"hydra.run.dir={tmp_path / 'bad'}") == 2
    assert "none" in capsys.readouterr().err


def test_a_dry_run_looks_at_these_poses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_scene(tmp_path)
    save_run(tmp_path / "other")
    seen = []

    def look(config: Config, images: PosedImages, *rest: object) -> None:
        seen.append(images.cameras)
        raise KeyboardInterrupt

    monkeypatch.setattr(dry_run_page, "inspect", look)
    config = nerf.settings({"dataset.root": str(tmp_path), "poses.from_run": str(tmp_path / "other"), "device": "cpu"})
    with pytest.raises(KeyboardInterrupt):
        dry_run_page.write_dry_run(config, tmp_path)
    assert torch.equal(seen[0].c2w, begin_with(tmp_path / "other").c2w)
