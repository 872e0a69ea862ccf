"""The two files of a run: model.pt for rendering and resume.pt for continuing. Each is complete on its own.

The model is small: it stores only the vertices of occupied cells, in half precision (packed_grids.py). Its images
differ from those of the run by less than one 8-bit level; while parameters are averaged it has their means. The resume
state holds everything, including the optimizer's moments.

Both files hold only tensors and plain containers, and reading them executes no code. A file is written under a
temporary name, flushed to disk and renamed. So a run that is killed leaves the last complete file; if it is killed
between the two files, the resume state is one save ahead of the model.

While a run trains, the resume state before the last one is kept as resume.previous.pt. A damaged file is replaced by
the next best, with a note: resume.pt by resume.previous.pt, model.pt by the resume state.
"""

import contextlib
import errno
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerf.calibration.pose_alignment import perturbed
from nerf.cameras.cameras import Cameras
from nerf.config import schema as configuration
from nerf.config.commands import program
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.fields.field import Field
from nerf.fields.registry import restored_field
from nerf.files import DISK_FULL, METRICS, clear_left_overs, partial_file
from nerf.ops.backend import Backend
from nerf.reading import is_file, is_there
from nerf.runs.archive import (
    FORMATS,
    MODEL_FILE,
    PREVIOUS_FILE,
    REMEDY,
    RESUME_FILE,
    UNREADABLE,
    VERSION,
    damaged,
    first_line,
    is_intact,
    missing,
    read_archive,
)
from nerf.runs.contents import check_model, check_resume
from nerf.runs.packed_cameras import packed_cameras
from nerf.runs.packed_cameras import restore_cameras as restore_cameras
from nerf.runs.packed_grids import PackedGrids, deflated, inflated, pack, unpack
from nerf.scene.box import SceneBox
from nerf.scene.occupancy import OccupancyGrid
from nerf.scene.registry import restore_space, space_state
from nerf.system import host_memory
from nerf.training.state import TrainState, assemble, make_batches, make_clock

# Errors that go once another file is deleted. A file that is larger than one may be (EFBIG) stays so: the state before
# would be given up for nothing.
NO_ROOM = DISK_FULL - {errno.EFBIG}


class NotSaved(UserError):
    """A file of a run could not be written."""

    model: Path | None = None  # the model file, if that could be written


def is_whole(folder: Path) -> bool:
    """Whether the folder contains both files of a run."""
    return all((folder / name).is_file() for name in FORMATS)


def save(folder: Path, config: Config, state: TrainState, cameras: Cameras) -> None:
    """Writes the run's two files, the resume state first, because the model could be derived from it.

    cameras: the given training cameras; the learned or perturbed cameras of the state are saved as well. Raises
    NotSaved if the disk is full or the folder cannot be written; the previous file is kept.
    """
    clear_left_overs(folder, depth=0)
    resume = state.state_dict() | {
        "field": {name: _widened(value) for name, value in state.field.state_dict().items()},
        "occupied": state.occupancy.occupied,
        "start_cameras": packed_cameras(state.batches.cameras),
        "images": state.batches.checksum(),
    }
    try:
        _write(folder / RESUME_FILE, _common(config, state, cameras) | resume)
    except NotSaved as error:  # the model is much smaller and may still fit on the disk
        path = save_model(folder, config, state, cameras)
        failure = NotSaved(f"{error} The model is saved, {path}.")
        failure.model = path
        raise failure from error
    save_model(folder, config, state, cameras)


def _widened(values: Tensor) -> Tensor:
    """A parameter as files have it: float32, wherever a run keeps it."""
    return values.cpu().float() if values.dtype == torch.float16 else values


def save_model(folder: Path, config: Config, state: TrainState, cameras: Cameras) -> Path:
    """Writes the model file only, and returns its path. Raises NotSaved like save."""
    with state.averaged():
        packed = pack(state.field, state.occupancy)
        parameters = state.field.named_parameters()
        networks = {name: value.detach() for name, value in parameters if name not in packed.values}
        grids = {name: deflated(values) for name, values in packed.values.items()}
        model = {"occupied_bits": packed.occupied, "grids": grids, "networks": networks}
        _write(folder / MODEL_FILE, _common(config, state, cameras) | model)
    _forget_scores_of_others(folder, state.clock.step)
    return folder / MODEL_FILE


def _forget_scores_of_others(folder: Path, step: int) -> None:
    """Removes metrics.json where it tells of the model of another step, as in a finished run that goes on."""
    path = folder / METRICS
    with contextlib.suppress(OSError, ValueError, AttributeError):  # not there, or no scores of ours
        if json.loads(path.read_text()).get("steps") != step:
            path.unlink()


def _common(config: Config, state: TrainState, cameras: Cameras) -> dict[str, Any]:
    return {
        "version": VERSION,
        "config": asdict(config),
        "aabb": state.field.box.aabb,
        "space": space_state(state.field.box.space),
        "resolution": list(state.field.resolution),
        "finest_voxel": state.finest_voxel,
        "cameras": packed_cameras(state.cameras),
        "given_cameras": packed_cameras(cameras),
        "vignetting": None if state.vignetting is None else state.vignetting.coefficients(),
        "view_weight": None if state.field.view_weight is None else state.field.view_weight.clone(),
        "annealed": state.field.annealed,
        "step": state.clock.step,
        "elapsed": state.clock.elapsed,
    }


def drop_previous(folder: Path) -> None:
    """Removes the resume state before the last one, once the last one has been read back without an error."""
    previous = folder / PREVIOUS_FILE
    if previous.exists() and is_intact(folder / RESUME_FILE):
        with contextlib.suppress(OSError):  # a file too many does no harm
            previous.unlink()


def _write(path: Path, content: dict[str, Any]) -> None:
    previous = path.parent / PREVIOUS_FILE if path.name == RESUME_FILE else None
    try:
        try:
            _save(path, content, previous)
        except (OSError, RuntimeError) as error:
            full = getattr(_disk_error(error), "errno", None) in NO_ROOM
            if not full or previous is None or not previous.exists():
                raise
            previous.unlink()  # its room is needed: one new state is worth more than two old ones
            _save(path, content, previous)
    except (OSError, RuntimeError) as error:
        kept = "the previous one is kept" if path.exists() else "there is no previous one"
        raise NotSaved(
            f"{path} cannot be written: {first_line(_disk_error(error))}; {kept}. {_remedy(path.parent)}"
        ) from error


def _save(path: Path, content: dict[str, Any], previous: Path | None) -> None:
    with partial_file(path, previous) as file:
        torch.save({"format": FORMATS[path.name]} | content, file)


def _remedy(folder: Path) -> str:
    if not folder.exists():
        return f"{folder} was deleted or moved; create it again, or set hydra.run.dir to another folder."
    return "Free some space, or set hydra.run.dir to another disk."


def load(run: Path) -> dict[str, Any]:
    """The content of a run's model file, checked, tensors in host memory. run: the folder or the file.

    In a folder whose model file is missing or damaged it is the content of the resume state, with a note on stderr.
    Raises UserError if that is none either, or the file is not of this program or of a version that cannot be read.
    """
    try:
        return _load_model(_file(run, MODEL_FILE))
    except UserError as error:
        return _instead(error, run, MODEL_FILE, (RESUME_FILE, PREVIOUS_FILE))


def _load_model(path: Path) -> dict[str, Any]:
    content = read_archive(path, FORMATS[MODEL_FILE])
    try:
        needed, (free, _) = check_model(content, restore_config(content)), host_memory()
    except UNREADABLE as error:
        raise damaged(path, error) from error
    if free is not None and 2 * needed > free:  # the grids, and the field that takes them over
        grid = "x".join(map(str, content["resolution"]))
        raise UserError(
            f"{path} takes {2 * needed / 2**30:.1f} GiB of memory with its grids of {grid} vertices, and this machine "
            f"has {free / 2**30:.1f} GiB free. Close other programs, or open it on a larger machine."
        )
    try:
        stored = content.pop("grids")
        values = stored if content["version"] == 4 else {name: inflated(grid) for name, grid in stored.items()}
        packed = PackedGrids(content.pop("occupied_bits"), values)
        grids, content["occupied"] = unpack(packed, tuple(content["resolution"]))
        content["field"] = content.pop("networks") | grids
    except UNREADABLE as error:
        raise damaged(path, error) from error
    return content


def load_resume(run: Path) -> dict[str, Any]:
    """The content of a run's resume file, checked, tensors in host memory. Arguments and errors: see load.

    In a folder whose resume file is missing or damaged it is that of the save before, with a note on stderr.
    """
    try:
        return _read_resume(_file(run, RESUME_FILE))
    except UserError as error:
        return _instead(error, run, RESUME_FILE, (PREVIOUS_FILE,))


def _read_resume(path: Path) -> dict[str, Any]:
    content = read_archive(path, FORMATS[RESUME_FILE])
    try:
        check_resume(content, restore_config(content))
    except UNREADABLE as error:
        raise damaged(path, error) from error
    return content


def _instead(error: UserError, run: Path, name: str, others: Sequence[str]) -> dict[str, Any]:
    """The content of the first resume state among others that can be read, after a note; else raises the error."""
    for path in (run / other for other in others):
        if not is_file(path):
            continue
        try:
            content = _read_resume(path)
        except UserError:
            continue
        found = str(error).removesuffix(f". {REMEDY}") if is_file(run / name) else f"{run / name} does not exist"
        print(f"note: {found}; {path} is used instead, of step {content['step']}.", file=sys.stderr)
        return content
    if name == RESUME_FILE and is_file(run / RESUME_FILE) and is_intact(run / MODEL_FILE):
        raise UserError(
            f"{str(error).removesuffix(REMEDY)}The run cannot be resumed, but {run / MODEL_FILE} is whole: it can be "
            f"rendered, scored and exported, as with: {program('scripts/render.py', f'run={run}')}"
        ) from error
    raise error


def _file(run: Path, name: str) -> Path:
    """The file of that name in the folder run, or run itself if it is a file. Raises UserError if there is none."""
    path = run / name if is_there(run) and run.is_dir() else run
    if not is_file(path):
        raise UserError(missing(path, name))
    return path


def _disk_error(error: BaseException) -> BaseException:
    """The OSError behind an error: PyTorch's writer replaces it by a RuntimeError about a wrong position."""
    while not isinstance(error, OSError) and error.__context__ is not None:
        error = error.__context__
    return error


def restore_config(content: dict[str, Any]) -> Config:
    """The config of the run that wrote the checkpoint."""
    saved = content["config"]
    if "masks" not in saved["dataset"]:  # older runs: masks were only for leaving pixels out
        saved = {**saved, "dataset": {**saved["dataset"], "masks": "leave_out"}}
    if "moments" not in saved["train"]:  # older runs
        saved = {**saved, "train": {**saved["train"], "moments": "float32"}}
    if saved["train"].get("average_from") is None:  # older runs
        saved = {**saved, "train": {**saved["train"], "average_from": 1.0, "average_lr": 0.5}}
    if saved["loss"].get("multi_view") is None:  # older runs
        saved = {**saved, "loss": {**saved["loss"], "multi_view": 0.0}}
    field = {"initial_num_voxels": 0, **saved["field"]}  # which older runs had not, nor sines, nor Muon
    if field.get("name") in ("voxel_deferred", "voxel_mlp") and field.get("lr_muon") is None:
        field["lr_muon"] = 0.0
    if field.get("name") == "voxel_deferred":
        for name, value in (("feature_sines", False), ("view_annealing", 0.0)):
            field[name] = value if field.get(name) is None else field[name]
    saved = {**saved, "field": field}
    return configuration.build(Config, saved)


def restore_field(
    content: dict[str, Any], config: Config, backend: Backend, sparse: bool = True
) -> tuple[Field, OccupancyGrid]:
    """Field and occupancy grid on the backend's device, from the content of a model or resume file.

    sparse: False makes the field's grids dense, whatever their size.
    """
    box = SceneBox(content["aabb"].to(backend.device), restore_space(content["space"], backend.device))
    lattice = box, tuple(content["resolution"]), content["finest_voxel"]
    occupancy = OccupancyGrid(content["occupied"].to(backend.device))
    vertices = occupancy.stored_vertices()
    in_host = config.train.features == "host"
    field = restored_field(config.field, *lattice, backend, content["field"], vertices, sparse, in_host)
    if content.get("view_weight") is not None:
        field.view_weight = content["view_weight"].to(backend.device)
    field.anneal(content.get("annealed", 1.0))
    return field, occupancy


def restore_run(content: dict[str, Any], config: Config, images: PosedImages, backend: Backend) -> TrainState:
    """The training state from the content of a resume file. The run continues as if it had not been stopped.

    config: resolved. images: the training images. Raises UserError if their sizes, poses or pixels differ from those of
    the run.
    """
    trained, cameras = restore_cameras(content, "given_cameras"), images.cameras
    if not (torch.equal(trained.image_sizes, cameras.image_sizes) and torch.equal(trained.c2w, cameras.c2w)):
        raise UserError(
            f"the run was trained on {len(trained)} views {trained.width}x{trained.height}; found {len(cameras)} views "
            f"{cameras.width}x{cameras.height} or other poses. Set dataset.root to the folder of its scene."
        )
    if "start_cameras" in content:
        start = restore_cameras(content, "start_cameras")
        cameras = replace(cameras, c2w=start.c2w, intrinsics=start.intrinsics)
    else:  # older files: initial poses are the given ones, perturbed
        cameras = perturbed(cameras, config.poses, config.seed)
    field, occupancy = restore_field(content, config, backend)
    batches = make_batches(config, replace(images, cameras=cameras), backend)
    seen = batches.checksum()
    if content.get("images", seen) != seen:  # older files do not say
        raise UserError(
            "the images or their masks are not those that the run was trained on, though sizes and poses are; it would "
            "go on with others. Bring them back, or train anew; poses.from_run takes the poses that were learned."
        )
    state = assemble(config, field, occupancy, batches, make_clock(config), content["finest_voxel"])
    for name, generator in (("generator", state.batches.generator), ("noise", state.field.noise_generator)):
        if len(content[name]) != len(generator.get_state()):
            other = "cuda" if backend.device.type == "cpu" else "cpu"
            raise UserError(
                f"the run was trained on another device: its random numbers do not go on on {backend.device.type}. "
                f"Resume it on the device that it was trained on, with device={other}."
            )
    # Older files have no "clock", only step and seconds.
    state.load_state_dict({"clock": {name: content[name] for name in ("step", "elapsed")}} | content)
    for optimizer in state.optimizers() if config.train.average_from == 1 else ():
        optimizer.averages.clear()  # of a run that goes on with features in host memory
    return state
