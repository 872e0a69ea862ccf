"""What the two files of a run hold: every entry with its dtype and shape. Nothing is made of a file that has others.

What the settings decide, the tensors of the field and of those that are trained beside it, is looked up in a field
built without memory (PyTorch's device "meta"). So nothing larger is ever allocated than what the bits of occupancy and
the settings of the file itself ask for.

Sizes: I images, X Y Z grid vertices, CX CY CZ cells, B bytes of a bit for each cell, V vertices of occupied cells.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import torch

from nerf.calibration.vignetting import shared_cameras
from nerf.cameras.cameras import SUBPIXELS
from nerf.cameras.distortion import Lenses
from nerf.cameras.limits import FARTHEST, FOCALS, LARGEST_SIDE, is_box
from nerf.config import renamed
from nerf.config.schema import Config
from nerf.fields.field import Field
from nerf.fields.registry import build_field
from nerf.ops import reference
from nerf.ops.backend import Backend
from nerf.optim.averages import COUNT as AVERAGED
from nerf.optim.averages import MEAN
from nerf.runs.entries import Array, Entry, Exactly, Listed, Maybe, Number, Older, Plain, Record, Sizes
from nerf.runs.packed_cameras import restore_cameras
from nerf.runs.packed_grids import occupied_cells
from nerf.scene.box import SceneBox
from nerf.scene.occupancy import cells_to_vertices, with_neighbors
from nerf.scene.registry import restore_space
from nerf.training.state import COUNTERS, make_clock
from nerf.training.voxel_budget import MOST_VERTICES as MOST_LISTED

MOST_VERTICES = 2**36
F32, F16, I64, U8 = torch.float32, torch.float16, torch.int64, torch.uint8
COUNT, POSITIVE = Number(0, 2**62, whole=True), Number(1e-30, 1e30)
SECONDS = Number(0, 1e12)
LENSES = Record({"models": Listed(Plain(str), "I"), "coefficients": Listed(Listed(Number(-1e30, 1e30), "*"), "I")})
CAMERAS = Record(
    {
        "c2w": Array(F32, "I 3 4", -FARTHEST, FARTHEST),
        "intrinsics": Array(F32, "I 4", -FOCALS[1], FOCALS[1]),
        "sizes": Array(I64, "I 2", 1, LARGEST_SIDE),
        "lenses": Maybe(LENSES),
    }
)
SPACES = {
    "bounded": Record(
        {"kind": Plain(str), "near": Number(0, FARTHEST), "axes": Maybe(Array(F32, "3 3", -1.001, 1.001))}
    ),
    "forward_facing": Record(
        {
            "kind": Plain(str),
            "c2w": Array(F32, "3 4", -FARTHEST, FARTHEST),
            "near_plane": POSITIVE,
            "thickness": POSITIVE,
            "near": Number(0, FARTHEST),
        }
    ),
    "unbounded": Record(
        {
            "kind": Plain(str),
            "center": Array(F32, "3", -FARTHEST, FARTHEST),
            "half": Array(F32, "3", 1e-10, FARTHEST),
            "contraction": POSITIVE,
            "near": Number(0, FARTHEST),
        }
    ),
}
COMMON: dict[str, Entry] = {
    "format": Plain(str),
    "version": COUNT,
    "config": Plain(dict),
    "aabb": Array(F32, "2 3", -FARTHEST, FARTHEST),
    "space": Plain(dict),
    "resolution": Listed(Number(2, 1 << 20, whole=True), "3"),
    "finest_voxel": POSITIVE,
    "cameras": CAMERAS,
    "given_cameras": Older(CAMERAS),
    "view_weight": Maybe(Array(F32, "1", 0, 1)),
    "annealed": Older(Number(0, 1)),
    "vignetting": Maybe(Array(F32, "I 3")),
    "step": COUNT,
    "elapsed": SECONDS,
}
CLOCK: dict[str, Entry] = {
    "step": COUNT,
    "elapsed": SECONDS,
    "first_step": Older(COUNT),
    "first_second": Older(SECONDS),
    "first_progress": Older(Number(0, 1)),
    "seconds_per_step": Older(SECONDS),
}
RESUME: dict[str, Entry] = {
    "start_cameras": Older(CAMERAS),
    "occupied": Array(torch.bool, "CX CY CZ"),
    "generator": Array(U8, "*"),
    "noise": Array(U8, "*"),
    "pool": Array(I64, "K 2", 0, 2**62),
    "clock": Older(Record(CLOCK)),
    "images": Older(Number(0, 2**32 - 1, whole=True)),
    **{name: Older(COUNT) for name in COUNTERS},
    "capacity": Older(Number(0, 2**28, whole=True)),
    "most_voxels": Older(Number(0, MOST_LISTED, whole=True)),
}


def check_model(content: dict[str, Any], config: Config) -> int:
    """Raises ValueError, or what building from wrong settings raises, unless the content is that of a model file.

    Returns how many bytes the field takes when its grids are whole.
    """
    field, sizes = _field_of(content, config)
    bits = Array(U8, "B")
    bits.check(content.get("occupied_bits"), sizes, "occupied_bits")
    vertices = int(cells_to_vertices(occupied_cells(content["occupied_bits"], field.resolution)).sum())
    parameters = dict(field.named_parameters())
    channels = {name: p.shape[-1] for name, p in parameters.items() if any(p is grid for grid in field.grids)}
    networks = {name: _array(p.shape) for name, p in parameters.items() if name not in channels}
    if content["version"] == 4:  # not compressed
        grids = {name: Array(F16, f"{vertices} {count}") for name, count in channels.items()}
    else:
        grids = {name: _deflated(vertices, count) for name, count in channels.items()}
    own = {"occupied_bits": bits, "grids": Record(grids), "networks": Record(networks)}
    Record(COMMON | own).check(content, sizes, "it")
    _check_cameras(content)
    return sum(parameter.nbytes for parameter in parameters.values())


def check_resume(content: dict[str, Any], config: Config) -> None:
    """As check_model, of a resume file."""
    field, sizes = _field_of(content, config)
    RESUME["occupied"].check(content.get("occupied"), sizes, "occupied")
    active = cells_to_vertices(content["occupied"])
    vertices, stored = int(active.sum()), int(with_neighbors(active).sum())
    saved, own = content.get("field"), {id(grid) for grid in field.grids}
    parameters = {name: _array(p.shape) for name, p in field.named_parameters()}
    for name, p in field.named_parameters():
        grid = saved.get(name) if id(p) in own and isinstance(saved, dict) else None
        if isinstance(grid, torch.Tensor) and grid.dim() == 2:  # sparse
            parameters[name] = Array(F32, f"{stored} {p.shape[-1]}")
    moments = {
        group.name: f"{vertices} {group.parameter.shape[-1]}" if group.on_vertices else _words(group.parameter.shape)
        for group in field.parameter_groups()
    }
    own = {
        "field": Record(parameters),
        "optimizer": _optimizer(moments),
        "learners": Older(Record(_learners(config))),
    }
    Record(COMMON | RESUME | own).check(content, sizes, "it")
    _check_cameras(content)
    _check_vignetting(content)
    _check_averages(content["optimizer"], moments)
    for learner in content.get("learners", {}).values():
        _check_averages(learner["optimizer"], learner["values"])
    _check_progress(content, config)


def _field_of(content: dict[str, Any], config: Config) -> tuple[Field, Sizes]:
    """The field that the settings and the box of a file ask for, without memory, and the sizes that follow."""
    sizes: Sizes = {}
    for name in ("version", "aabb", "space", "resolution", "finest_voxel"):
        COMMON[name].check(content.get(name), sizes, name)
    for setting in dataclasses.fields(config.field):
        if getattr(config.field, setting.name) is None and setting.type != (bool | None):  # switches may be off
            raise ValueError(f"field.{setting.name} is none, expected the number that the run had")
    kind = renamed.value_of("dataset.kind", content["space"].get("kind"))
    if kind not in SPACES:
        raise ValueError(f"space is of the kind {str(kind)[:40]}, expected one of {', '.join(SPACES)}")
    SPACES[kind].check(content["space"], sizes, "space")
    if not is_box(*content["aabb"].tolist()):
        raise ValueError(f"aabb is {content['aabb'].tolist()}, expected a box")
    x, y, z = resolution = tuple(content["resolution"])
    cells = (x - 1) * (y - 1) * (z - 1)
    box = SceneBox(content["aabb"], restore_space(content["space"], torch.device("cpu")))
    finest = math.prod(box.resolution(box.num_voxels(content["finest_voxel"])))
    if not math.prod(resolution) <= MOST_VERTICES or not finest <= MOST_VERTICES:
        raise ValueError(f"finest_voxel is {content['finest_voxel']:g}, which makes {finest:g} vertices")
    nowhere = Backend("torch", torch.device("meta"), "to know the shapes", reference)
    with torch.random.fork_rng(devices=[]):  # building an MLP draws random weights
        field = build_field(config.field, box, resolution, content["finest_voxel"], nowhere)
    if config.dataset.background == "learned":
        field.learn_background()
    return field, {"CX": x - 1, "CY": y - 1, "CZ": z - 1, "B": -(-cells // 8)}


def _words(shape: torch.Size) -> str:
    return " ".join(map(str, shape))


def _array(shape: torch.Size) -> Array:
    return Array(F32, _words(shape))


def _deflated(rows: int, channels: int) -> Record:
    return Record({"shape": Exactly([rows, channels]), "planes": Listed(Array(U8, "*"), str(2 * channels))})


def _optimizer(shapes: dict[str, str]) -> Record:
    """What MaskedAdam keeps of parameters, given with the shapes of their moments."""
    moments = {
        f"{name}.{kind}": Array(F32, shape) for name, shape in shapes.items() for kind in ("exp_avg", "exp_avg_sq")
    }
    means = {f"{name}.{MEAN}": Older(Array(F32, shape)) for name, shape in shapes.items()}
    counts = {"step_number": Array(F32, "1", 0, 1e30), AVERAGED: Older(Array(I64, "1", 1, 1 << 40))}
    return Record(counts | moments | means)


def _learners(config: Config) -> dict[str, Entry]:
    """What is trained beside the field: learned poses, exposures and vignetting."""
    found: dict[str, dict[str, str]] = {}
    if config.poses.mode != "fixed":
        found["poses"] = {"increments": "I 6"} | ({"lens": "1 4"} if config.poses.intrinsics else {})
    if config.exposure.learn:
        found["exposure"] = {"values": "I 6"}
    if config.exposure.vignetting:
        found["vignetting"] = {"values": "G 3"}
    return {
        name: Record(
            {
                "values": Record({parameter: Array(F32, shape) for parameter, shape in shapes.items()}),
                "optimizer": _optimizer(shapes),
            }
        )
        for name, shapes in found.items()
    }


def _check_cameras(content: dict[str, Any]) -> None:
    for name in ("cameras", "given_cameras", "start_cameras"):
        saved = content.get(name)
        if saved is None:
            continue
        if not len(saved["c2w"]) or not (saved["intrinsics"][:, :2] > 0).all():
            raise ValueError(f"{name} has {len(saved['c2w'])} cameras, expected some, with focal lengths above 0")
        if saved["lenses"] is not None:  # raises for unknown models and more coefficients than they have
            Lenses.of(saved["lenses"]["models"], saved["lenses"]["coefficients"])


def _check_vignetting(content: dict[str, Any]) -> None:
    learned = content.get("learners", {}).get("vignetting")
    if learned is None:
        return
    found = len(learned["values"]["values"])
    expected = int(shared_cameras(restore_cameras(content, "start_cameras")).max()) + 1
    if found != expected:
        raise ValueError(f"vignetting is of {found} cameras, expected {expected}")


def _check_averages(saved: dict[str, Any], names: Iterable[str]) -> None:
    """Where some parameters have means, all have."""
    there = [f"{name}.{MEAN}" in saved for name in names]
    if any(there) != (AVERAGED in saved) or any(there) != all(there):
        raise ValueError(f"its averages are of {sum(there)} parameters, expected {len(there)} or none")


def _check_progress(content: dict[str, Any], config: Config) -> None:
    """Checks what the rest of the run depends on: clock, schedule, the pixels drawn from, random generators."""
    clock = make_clock(config)
    clock.load_state_dict(content.get("clock") or {name: content[name] for name in ("step", "elapsed")})
    if not 0 <= clock.progress <= 1:  # raises ZeroDivisionError for a budget of nothing
        raise ValueError(f"its progress is {clock.progress:g} of the run")
    levels = len(config.field.upsample_at)
    if content.get("num_upsamplings", 0) > levels or content.get("rays_per_pixel", 1) not in SUBPIXELS:
        raise ValueError(f"it has {content.get('num_upsamplings')} doublings of {levels}, or a strange number of rays")
    ends = content["pool"].flatten()
    pixels = int((content.get("given_cameras") or content["cameras"])["sizes"].prod(1).sum())
    if not len(ends) or ends[-1] > pixels or not (content["pool"][:, 0] < content["pool"][:, 1]).all():
        raise ValueError(f"its pool of pixels is none of {pixels} pixels")
    if not (ends[2::2] >= ends[1:-1:2]).all():
        raise ValueError("its pool of pixels is not in rising order")
    for name in ("generator", "noise"):
        if len(content[name]) == len(torch.Generator().get_state()):  # on a GPU it is smaller
            torch.Generator().set_state(content[name])
