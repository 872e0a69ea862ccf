"""A tiny run in the middle, and what a later process has of it."""

from pathlib import Path

from tiny_runs import tiny_images

from nerf.config.schema import Config
from nerf.ops.backend import select
from nerf.runs import checkpoint
from nerf.training.state import TrainState

# Stops after the first doubling (8) and pruning (10) and before the next ones (24, 15).
MIDDLE = 14


def stop_and_restore(folder: Path, config: Config, state: TrainState) -> tuple[Config, TrainState]:
    """What a later process has of a run: its checkpoint and its images."""
    checkpoint.save(folder, config, state, tiny_images().cameras)
    content = checkpoint.load_resume(folder)
    config = checkpoint.restore_config(content)
    return config, checkpoint.restore_run(content, config, tiny_images(), select("native", state.device.type))
