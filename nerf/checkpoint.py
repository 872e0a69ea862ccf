"""Checkpoints: one file that renders and resumes, written atomically, read without executing code.

Content: tensors and plain containers alone. The write goes to a temporary name, is flushed to disk and renamed, so a
run that is killed at any moment leaves the last whole checkpoint.
"""

import os
import pickle
import struct
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nerf import config as configuration
from nerf.cameras import Cameras
from nerf.config import Config
from nerf.datasets.posed_images import PosedImages
from nerf.datasets.ray_batches import RayBatches
from nerf.errors import UserError
from nerf.fields.field import Field
from nerf.fields.registry import build_field
from nerf.occupancy import OccupancyGrid
from nerf.ops.backend import Backend
from nerf.optimizers import MaskedAdam
from nerf.scene_box import SceneBox
from nerf.schedule import RunClock
from nerf.training import TrainState

FILE_NAME = "checkpoint.pt"
FORMAT = "nerf-voxel-checkpoint"
VERSION = 1
# What reading a file that somebody else wrote, or half a file, can raise.
UNREADABLE = (
    OSError, EOFError, RuntimeError, ValueError, TypeError, AttributeError, AssertionError, LookupError,
    pickle.UnpicklingError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def save(folder: Path, config: Config, state: TrainState, cameras: Cameras) -> Path:
    """Writes the run's checkpoint; cameras are the training cameras, from which camera paths are made.

    Raises UserError where the disk is full or the folder cannot be written; the checkpoint before stays.
    """
    content = {
        "format": FORMAT,
        "version": VERSION,
        "config": asdict(config),
        "aabb": state.field.box.aabb,
        "resolution": list(state.field.resolution),
        "finest_voxel": state.finest_voxel,
        "field": state.field.state_dict(),
        "occupied": state.occupancy.occupied,
        "cameras": {"c2w": cameras.c2w, "intrinsics": cameras.intrinsics, "size": [cameras.width, cameras.height]},
        "optimizer": state.optimizer.state_dict(),
        "generator": state.batches.generator.get_state(),
        "pool": state.batches.pool,
        "step": state.clock.step,
        "elapsed": state.clock.elapsed,
        "num_upsamplings": state.num_upsamplings,
        "num_refreshes": state.num_refreshes,
        "capacity": state.capacity,
        "visible_capacity": state.visible_capacity,
    }
    path, partial = folder / FILE_NAME, folder / f".{FILE_NAME}.{os.getpid()}"
    try:
        for left_over in folder.glob(f".{FILE_NAME}.*"):
            left_over.unlink()
        with partial.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except (OSError, RuntimeError) as error:
        partial.unlink(missing_ok=True)
        kept = f"the checkpoint before is kept, {path}" if path.exists() else "there is no earlier one"
        raise UserError(f"the checkpoint cannot be written to {folder}: {error}; {kept}. Free some space, or set "
                        "hydra.run.dir to another disk.") from error
    return path


def load(run: Path) -> dict[str, Any]:
    """Reads and checks the checkpoint of a run folder, tensors in host memory.

    Raises UserError where it is missing, damaged, of another program or of another version.
    """
    path = run / FILE_NAME if run.is_dir() else run
    if not path.is_file():
        raise UserError(f"{path} does not exist; expected the folder of a training run with a {FILE_NAME} in it.")
    remedy = "Train again, or name another run."
    try:
        with zipfile.ZipFile(path) as archive:  # torch.load does not look at the checksums
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"wrong checksum of {damaged}")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UserError(f"{path} is damaged or no checkpoint of this program ({reason}). {remedy}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path} is no checkpoint of this program: its format mark is missing. {remedy}")
    if content.get("version") != VERSION:
        raise UserError(
            f"{path} has version {content.get('version')}, this program reads version {VERSION}; use the program that "
            f"wrote it. {remedy}"
        )
    return content


def restore_config(content: dict[str, Any]) -> Config:
    """The config of the run that wrote the checkpoint."""
    return configuration.build(Config, content["config"])


def restore_field(content: dict[str, Any], config: Config, backend: Backend) -> tuple[Field, OccupancyGrid]:
    """Field and occupancy on the backend's device: all that rendering needs."""
    box = SceneBox(content["aabb"].to(backend.device))
    field = build_field(config.field, box, tuple(content["resolution"]), content["finest_voxel"], backend)
    field.load_state_dict(content["field"])
    return field, OccupancyGrid(content["occupied"].to(backend.device))


def restore_cameras(content: dict[str, Any]) -> Cameras:
    """The training cameras."""
    return Cameras(content["cameras"]["c2w"], content["cameras"]["intrinsics"], *content["cameras"]["size"])


def restore_run(content: dict[str, Any], config: Config, images: PosedImages, backend: Backend) -> TrainState:
    """The training state, so that the run goes on as if it had never stopped.

    Raises UserError where the images are not those that the run was trained on.
    """
    trained, cameras = restore_cameras(content), images.cameras
    same_size = (trained.width, trained.height, len(trained)) == (cameras.width, cameras.height, len(cameras))
    if not (same_size and torch.equal(trained.c2w, cameras.c2w)):
        raise UserError(
            f"the run was trained on {len(trained)} views {trained.width}x{trained.height}; found {len(cameras)} views "
            f"{cameras.width}x{cameras.height} or other poses. Set dataset.root to the folder of its scene."
        )
    field, occupancy = restore_field(content, config, backend)
    optimizer = MaskedAdam(field, config.train.beta1, config.train.beta2, backend, occupancy.vertex_rows())
    optimizer.load_state_dict(content["optimizer"])
    batches = RayBatches(images, backend, config.seed)
    batches.generator.set_state(content["generator"])
    batches.pool = content["pool"].to(backend.device)
    clock = RunClock(config.train.steps, config.train.max_seconds)
    clock.restore(content["step"], content["elapsed"])
    counters = {name: content[name] for name in ("num_upsamplings", "num_refreshes", "capacity", "visible_capacity")}
    return TrainState(field, occupancy, optimizer, batches, clock, content["finest_voxel"], **counters)
