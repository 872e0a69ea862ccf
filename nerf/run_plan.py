"""What a run will take, before it runs: memory by its parts, and time."""

import math
import re
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from nerf.config import Config
from nerf.datasets.posed_images import PosedImages
from nerf.fields.registry import build_field
from nerf.ops.backend import Backend, device_name
from nerf.scene_box import SceneBox
from nerf.training import finest_voxels, prepare, training_step

SMALL_GRID = 4096  # vertices of the grid whose bytes are counted in place of the finest one
SAMPLE_BYTES = 24  # of a marched sample: its ray, its interval, its density
WEIGHING_SHARE = 0.1  # of the marched samples that get a colour; after the first prunings it is less
WARM_STEPS, TIMED_STEPS = 2, 5


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that a run needs on its device, by what for, and how many are free there."""

    parts: dict[str, int]
    free: int
    device: str

    @property
    def total(self) -> int:
        return sum(self.parts.values())


def plan_memory(config: Config, images: PosedImages, box: SceneBox, backend: Backend) -> MemoryPlan:
    """The largest that the parts of a resolved config get; the samples are an estimate, the others are counted."""
    finest = box.resolution(finest_voxels(config, images, box))
    small = box.resolution(SMALL_GRID)
    field = build_field(config.field, box, small, box.voxel_size(finest), backend)
    grids = [group.parameter for group in field.parameter_groups() if group.on_vertices]
    per_vertex = sum(grid.numel() * grid.element_size() for grid in grids) / math.prod(small)
    grid_bytes = round(per_vertex * math.prod(finest))
    steps = box.size.norm().item() / (config.sampler.step_size_voxels * box.voxel_size(finest))
    samples = config.train.rays_per_step * steps / 2
    hidden = getattr(config.field, "hidden_width", 0) * getattr(config.field, "hidden_layers", 0)
    bytes_with_color = 2 * (per_vertex + 4 * hidden)  # forward, and its gradient
    parts = {
        f"grids, {' x '.join(map(str, finest))} vertices": grid_bytes,
        "Adam's moments": 2 * grid_bytes,
        "gradient": grid_bytes,
        "samples of a step (estimate)": round(samples * (SAMPLE_BYTES + WEIGHING_SHARE * bytes_with_color)),
    }
    if config.train.images == "device":
        parts["training images"] = images.pixels.nbytes
    return MemoryPlan(parts, _free_bytes(backend.device, images), device_name(backend.device))


def measure_step(config: Config, images: PosedImages, backend: Backend) -> float:
    """Seconds of a training step at the start of a resolved run, which is thrown away."""
    state = prepare(config, images, backend)
    monitor = torch.zeros(4, device=backend.device)
    for step in range(WARM_STEPS + TIMED_STEPS):
        if step == WARM_STEPS:
            _wait(backend)
            started = time.perf_counter()
        state.batches.advance(config.train.rays_per_step, config.dataset.background)
        training_step(config, state, monitor)
    _wait(backend)
    state.batches.rest()
    return (time.perf_counter() - started) / TIMED_STEPS


def _wait(backend: Backend) -> None:
    if backend.device.type == "cuda":
        torch.cuda.synchronize(backend.device)


def _free_bytes(device: torch.device, images: PosedImages) -> int:
    """Of the GPU; of the host, where the images are there already, with what they take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(available[1]) * 1024 + images.pixels.nbytes
