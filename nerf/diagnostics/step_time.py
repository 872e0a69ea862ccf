"""Estimates for a dry run: free memory, and the time of a training step."""

import sys
import time

import torch

from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.ops.backend import Backend, synchronize
from nerf.scene.description import SceneDescription
from nerf.system import host_memory
from nerf.training import memory as memory_plan
from nerf.training.initial_state import init_state
from nerf.training.step import TrainStep

WARM_STEPS, TIMED_STEPS = 2, 5


def measure_step(config: Config, images: PosedImages, backend: Backend, described: SceneDescription) -> float:
    """Seconds of a step at the start of training, measured on a temporary state. Raises UserError like init_state."""
    state = init_state(config, images, backend, described)
    run_step = TrainStep(config, state)
    for step in range(WARM_STEPS + TIMED_STEPS):
        if step == WARM_STEPS:
            synchronize(backend.device)
            started = time.perf_counter()
        run_step.advance()
        run_step()
    synchronize(backend.device)
    state.batches.stop_prefetch()
    return (time.perf_counter() - started) / TIMED_STEPS


def free_bytes(device: torch.device, images: PosedImages) -> int:
    """Free bytes of the GPU; on a CPU, of the host including the memory of the images, which are loaded already."""
    if device.type == "cuda":
        return memory_plan.free_bytes(device)
    free, total = host_memory()
    return (free or total or sys.maxsize) + images.pixels.nbytes
