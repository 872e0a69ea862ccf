"""Warm-up: a short training on a synthetic scene before the run, so that the run's clock measures training only.

The first use of a GPU in a process creates its context and loads cuBLAS and every kernel, which takes a second or two.
A few steps of the same field on a small scene load everything that the run will use. Like building the library, the
warm-up is not part of the training time; every table of times says so.
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
from nerf.training.initial_state import init_state
from nerf.training.loop import train

VIEWS, SIZE, FOV, DISTANCE = 8, 48, 0.8, 4.0  # pixels, radians, world units; the scene is the unit sphere
AROUND, IN_FRONT = math.tau, 0.5  # radians that the cameras span; IN_FRONT: of a forward-facing scene
STEPS = 12  # enough for a doubling, an occupancy update and two captures
VOXELS = 48**3
MAX_RAYS = 16384  # per batch; larger batches use the same kernels


def warm_up(config: Config, backend: Backend) -> float:
    """Warms up the GPU for a run; returns the seconds it took. On a CPU it does nothing and returns 0.

    config: resolved settings of the run. Random states are restored, memory is released and the peaks of PyTorch's
    memory statistics are reset.
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
    """Trains the config's field on the synthetic scene; returns the number of steps."""
    on_gpu = backend.device.type == "cuda"
    with torch.random.fork_rng([backend.device] if on_gpu else []):
        short = shortened(config)
        state = init_state(short, synthetic_scene(short.dataset.kind), backend)
        try:
            for _ in train(short, state):
                pass
        except TrainingStopped:  # not an error here: the run itself will raise it if it concerns its images
            pass
        state.batches.stop_prefetch()
    return state.clock.step


def shortened(config: Config) -> Config:
    """The config of a run of STEPS steps on a small grid that uses the same kernels."""
    return replace(
        config,
        dataset=replace(config.dataset, aabb=None),
        field=replace(
            config.field,
            num_voxels=VOXELS,
            min_voxel_pixels=0.01,
            initial_num_voxels=0,
            upsample_at=[0.3],
            min_level_steps=1,
        ),
        occupancy=replace(config.occupancy, start=0.1, min_steps=1, update_interval=0.3),
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
    """Images of the unit sphere for a kind of scene: colored by its normal, on a transparent background."""
    focal, up, target = focal_from_fov(SIZE, FOV), torch.tensor([0.0, 0.0, 1.0]), torch.zeros(3)
    apart = IN_FRONT if kind == "forward_facing" else AROUND
    azimuths = [apart * view / VIEWS for view in range(VIEWS)]
    places = [DISTANCE * torch.tensor([math.cos(a), math.sin(a), 0.5]) for a in azimuths]
    c2w = torch.stack([look_at(place, target, up) for place in places])
    cameras = Cameras(c2w, torch.tensor([[focal, focal, SIZE / 2, SIZE / 2]]).expand(VIEWS, 4), SIZE, SIZE)
    images = torch.stack([_sphere(cameras, view) for view in range(VIEWS)])
    depths = DISTANCE * (images[..., 3].reshape(-1) > 0).float()  # for the depth loss, whose kernels it is for
    return PosedImages(images.view(-1, 4), cameras, [f"r_{view}" for view in range(VIEWS)], depths)


def _sphere(cameras: Cameras, view: int) -> Tensor:
    """The image of one camera, RGBA [SIZE,SIZE,4] uint8."""
    rays = cameras.image_rays(view)
    along = -(rays.origins * rays.directions).sum(-1)
    half_chord_squared = 1 - rays.origins.square().sum(-1) + along.square()
    normal = rays.origins + (along - half_chord_squared.clamp(min=0).sqrt())[:, None] * rays.directions
    rgba = torch.cat([0.5 + 0.5 * normal, torch.ones(len(normal), 1)], dim=-1) * (half_chord_squared > 0)[:, None]
    return (255 * rgba.clamp(0, 1)).round().to(torch.uint8).view(SIZE, SIZE, 4)
