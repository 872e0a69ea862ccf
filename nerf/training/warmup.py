"""A short training that nobody sees, so that the first second of a run is spent on training.

A process that uses a GPU for the first time makes its context, loads cuBLAS and every kernel at first use: a second or
two that say nothing of training. A few steps of the same field on a small synthetic scene load what a run will use.
Like building the library it is not part of the training time, and wherever times are shown this is said.
"""

import gc
import math
import time
from dataclasses import replace

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras, focal_from_fov
from nerf.cameras.poses import look_at
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.errors import TrainingStopped
from nerf.ops.backend import Backend
from nerf.training.initial_state import prepare
from nerf.training.loop import train

VIEWS, SIZE, FOV, DISTANCE = 8, 48, 0.8, 4.0  # pixels, radians, world units; the scene is the unit sphere
AROUND, IN_FRONT = math.tau, 0.5  # radians that the cameras stand apart; in front for a forward-facing scene
STEPS = 12  # a doubling, a pruning and two recorded steps are among them
VOXELS = 48**3
MAX_RAYS = 16384  # of a batch; larger ones load the same kernels


def warm_up(config: Config, backend: Backend) -> float:
    """Seconds that it took; 0 on a CPU, where nothing is done.

    config: resolved, of the run to come. Random states and the settings stay as they were; the peaks of PyTorch's
    memory statistics start anew afterwards, with everything given back.
    """
    if backend.device.type != "cuda":
        return 0.0
    started = time.perf_counter()
    train_briefly(config, backend)
    gc.collect()
    torch.cuda.synchronize(backend.device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(backend.device)
    return time.perf_counter() - started


def train_briefly(config: Config, backend: Backend) -> int:
    """Trains the config's field on the synthetic scene; returns the steps done."""
    on_gpu = backend.device.type == "cuda"
    with torch.random.fork_rng([backend.device] if on_gpu else []):
        short = shortened(config)
        state = prepare(short, synthetic_scene(short.dataset.kind), backend)
        try:
            for _ in train(short, state):
                pass
        except TrainingStopped:  # the run itself will say so, on images that matter
            pass
        state.batches.stop_prefetch()
    return state.clock.step


def shortened(config: Config) -> Config:
    """The config with a run of STEPS steps on a small grid; what decides which kernels run stays."""
    return replace(
        config,
        dataset=replace(config.dataset, aabb=None),
        field=replace(config.field, num_voxels=VOXELS, min_voxel_pixels=0.01, upsample_at=[0.3], min_level_steps=1),
        occupancy=replace(config.occupancy, start=0.1, min_steps=1, every=0.3),
        poses=replace(config.poses, perturb_degrees=0.0, perturb_translation=0.0, perturb_sigma=0.0),
        train=replace(
            config.train,
            steps=STEPS,
            max_seconds=None,
            rays_per_step=min(config.train.rays_per_step, MAX_RAYS),
            log_every=STEPS,
            save_every=0,
        ),
    )


def synthetic_scene(kind: str) -> PosedImages:
    """Views of the unit sphere, coloured by its normal, on a transparent background, for a kind of scene."""
    focal, up, target = focal_from_fov(SIZE, FOV), torch.tensor([0.0, 0.0, 1.0]), torch.zeros(3)
    apart = IN_FRONT if kind == "forward" else AROUND
    azimuths = [apart * view / VIEWS for view in range(VIEWS)]
    places = [DISTANCE * torch.tensor([math.cos(a), math.sin(a), 0.5]) for a in azimuths]
    c2w = torch.stack([look_at(place, target, up) for place in places])
    cameras = Cameras(c2w, torch.tensor([[focal, focal, SIZE / 2, SIZE / 2]]).expand(VIEWS, 4), SIZE, SIZE)
    images = torch.stack([_sphere(cameras, view) for view in range(VIEWS)])
    return PosedImages(images.view(-1, 4), cameras, [f"r_{view}" for view in range(VIEWS)])


def _sphere(cameras: Cameras, view: int) -> Tensor:
    """RGBA [SIZE,SIZE,4] uint8."""
    rays = cameras.image_rays(view)
    along = -(rays.origins * rays.directions).sum(-1)
    half_chord_squared = 1 - rays.origins.square().sum(-1) + along.square()
    normal = rays.origins + (along - half_chord_squared.clamp(min=0).sqrt())[:, None] * rays.directions
    rgba = torch.cat([0.5 + 0.5 * normal, torch.ones(len(normal), 1)], dim=-1) * (half_chord_squared > 0)[:, None]
    return (255 * rgba.clamp(0, 1)).round().to(torch.uint8).view(SIZE, SIZE, 4)
