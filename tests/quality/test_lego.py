"""The official lego scene, small and short: real images train to something recognizable.

tests/integration/test_lego_commands.py trains it well.
"""

import torch
from fixtures import official_scene

from nerf.config.recipes import resolve_config
from nerf.config.schema import Config, DatasetConfig, OccupancyConfig, TrainConfig
from nerf.datasets.blender import load_blender
from nerf.evaluation.scores import evaluate
from nerf.fields.voxel_sh import VoxelShConfig
from nerf.ops.backend import select
from nerf.training.initial_state import init_state
from nerf.training.loop import train
from nerf.training.state import make_sampler


def test_official_lego_trains() -> None:
    """A few seconds at 100x100. Steps are counted, so that a busy machine comes to the same result, only later."""
    images, backend = load_blender(official_scene("lego"), "train", downscale=8), select("native", "cpu")
    config = Config(
        dataset=DatasetConfig(scene="lego"),
        field=VoxelShConfig(num_voxels=64**3, upsample_at=[0.2, 0.4], min_level_steps=20, initial_alpha=0.01),
        occupancy=OccupancyConfig(min_steps=40, update_interval=0.1),
        train=TrainConfig(steps=80, rays_per_step=2048),
    )
    config = resolve_config(config, backend.device.type)
    state = init_state(config, images, backend)
    lower, upper = state.field.box.aabb
    assert (lower > -1.5).all() and (upper < 1.5).all()
    for look in train(config, state):
        assert look.dropped_rays == 0
    scores = evaluate(state.field, make_sampler(config, state), images, torch.ones(3), every=25)
    assert min(scores.psnr) >= 20, scores.psnr
