"""Notes on a finished run."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fixtures import write_sphere_scene
from tiny_runs import tiny_config

from nerf.config.recipes import resolve_config
from nerf.datasets.blender import load_blender
from nerf.evaluation.scores import evaluate
from nerf.ops.backend import select
from nerf.runs.notes import JUDGED_STEPS, MANY_PASSES, WIDE_VOXEL, run_notes
from nerf.training.initial_state import init_state
from nerf.training.state import make_sampler
from nerf.training.voxel_budget import pixel_size


@pytest.mark.parametrize("mode", ["fixed", "refine"])
def test_wide_voxels_are_told_after_many_passes(tmp_path: Path, mode: str) -> None:
    write_sphere_scene(tmp_path, views=8, size=48)
    images, views = (load_blender(tmp_path, split) for split in ("train", "test"))
    config = resolve_config(tiny_config(), "cpu")
    config = replace(config, poses=replace(config.poses, mode=mode))
    state = init_state(config, images, select("native", "cpu"))
    scores = evaluate(state.field, make_sampler(config, state), views, torch.ones(3))
    width = state.field.voxel_size / pixel_size(state.batches.cameras, state.field.box)
    enough = MANY_PASSES * len(state.batches.valid_pixels) / config.train.rays_per_step

    def notes(steps: float) -> list[str]:
        state.clock.step, state.num_upsamplings = int(steps), len(config.field.upsample_at)
        return [note for note in run_notes(config, state, [], scores) if "pixels wide" in note]

    assert enough > JUDGED_STEPS and width > WIDE_VOXEL
    assert notes(enough - 1) == []
    if mode == "refine":  # its grid follows the poses
        assert notes(enough + 1) == []
        return
    (note,) = notes(enough + 1)
    voxels = 8 * torch.tensor([n - 1 for n in state.field.resolution]).prod()
    assert f"{width:.1f} pixels wide" in note and note.endswith(f"field={config.field.name} field.num_voxels={voxels}")
    state.field.voxel_size *= WIDE_VOXEL / width * 0.99
    assert notes(enough + 1) == []
