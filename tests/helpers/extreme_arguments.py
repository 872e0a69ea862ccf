"""What the functions are called with that extreme_calls.py finds: a new one may need a line here.

SHAPES for a tensor, PLAIN for what else does not follow from the annotation.
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from nerf.cameras.poses import look_at
from nerf.config.schema import DatasetConfig, LossConfig
from nerf.fields.field import Field
from nerf.ops import reference
from nerf.ops.backend import select
from nerf.rendering.render import Composited, Rendering
from nerf.training import losses

HUGE = torch.finfo(torch.float32).max
VALUES = (0.0, -0.0, 1e-45, 1e-30, 1e30, HUGE, -HUGE, math.inf, -math.inf, math.nan)
COUNTS = (0, 1, -1)
ROWS, WIDTH, HEIGHT = 4, 4, 3

# What a tensor holds, by "function.parameter" or "Class.parameter", or by the parameter's name alone: a shape of n
# rows, or a word of NUMBERS.
SHAPES = {
    **dict.fromkeys(("origins", "points", "coords", "in_camera", "centers", "vectors"), "n,3"),
    **dict.fromkeys(("photometric.rgb", "photometric.target", "pair_ssim.rgb", "pair_ssim.target"), "n,3"),
    **dict.fromkeys(("directions_through.points", "Lenses.undistort.points", "Cameras.moved.shifts"), "n,2"),
    **dict.fromkeys(("position", "target", "up", "lower", "size", "scale", "center", "half", "middle"), "3"),
    **dict.fromkeys(("near", "far", "leave", "limit", "distances", "distance", "contracted", "depth", "known"), "n"),
    **dict.fromkeys(("opacity", "length", "forward", "focals", "x", "t", "weights", "values", "reach", "rim"), "n"),
    **dict.fromkeys(("of_rays", "distortion"), "n"),
    **dict.fromkeys(("u", "times", "traveled", "targets"), "n"),
    **dict.fromkeys(("thickness", "unit"), ""),
    **dict.fromkeys(("NdcSpace.c2w", "KeyFrame.c2w", "matrix_entry.pose"), "3,4"),
    **dict.fromkeys(("start", "end", "quaternions"), "n,4"),
    **dict.fromkeys(("t_starts", "t_ends"), "n"),
    **dict.fromkeys(("image", "pixel_indices", "ray_indices", "pixels"), "rows"),
    **dict.fromkeys(("interpolate_poses.c2w", "distances.c2w", "even_speed.c2w", "estimate_target.c2w"), "poses"),
    **dict.fromkeys(("cells", "vertices", "occupied"), "mask"),
    **dict.fromkeys(("column", "row"), "columns"),
    "c2w": "poses",
    "fraction": "n,1",
    "whole_pixels.radii": "n",
    "aabb": "box",
    "intrinsics": "intrinsics",
    "sizes": "sizes",
    "coefficients": "n,6",
    "Lenses.numbers": "models",
    "increments": "n,6",
    "in_axes.axes": "3,3",
    **dict.fromkeys(("rotations", "angle_between.one", "angle_between.other"), "rotations"),
    "directions": "directions",
    "ray_offsets": "offsets",
    "alpha": "n",
    "Silhouettes.alpha": "pixels",
    "overflow": "1",
    "Composited.values": "n,3",
    "LossInputs.rgb": "n,3",
    "LossInputs.target": "n,3",
    "Rendering.rgb": "n,3",
    "project_along.t": "n,2",
    "ViewsBeside.images": "photos",
    "ViewsBeside.beside": "neighbors",
    "ViewsBeside.first_pixels": "first_pixels",
    "ViewsBeside.sizes": "sizes",
}


def plain(shape: str, n: int) -> Tensor:
    size = [n if side == "n" else int(side) for side in filter(None, shape.split(","))]
    return (0.25 + 0.125 * torch.arange(math.prod(size), dtype=torch.float32)).view(size)


def _poses(n: int) -> Tensor:
    eyes = torch.tensor([[4.0, 0.0, 1.0], [0.0, 4.0, 1.5], [-4.0, 0.5, 1.0], [0.5, -4.0, 0.5]])
    poses = [look_at(eye, torch.zeros(3), torch.tensor([0.0, 0.0, 1.0])) for eye in eyes]
    return torch.stack([poses[i % len(poses)] for i in range(max(n, 1))])[:n]


NUMBERS: dict[str, Callable[[int], Tensor]] = {
    "poses": _poses,
    "3,4": lambda n: _poses(1)[0],
    "rotations": lambda n: _poses(n)[:, :, :3],
    "intrinsics": lambda n: torch.tensor([[5.0, 5.0, WIDTH / 2, HEIGHT / 2]]).repeat(n, 1),
    "sizes": lambda n: torch.tensor([[WIDTH, HEIGHT]]).repeat(n, 1),
    "box": lambda n: torch.tensor([[-1.0, -1.5, -1.0], [1.0, 1.0, 1.0]]),
    "rows": lambda n: torch.arange(n),
    "columns": lambda n: torch.ones(1, n, dtype=torch.int64),
    "offsets": lambda n: torch.arange(n + 1),
    "models": lambda n: torch.zeros(n, dtype=torch.int64),
    "mask": lambda n: torch.ones(2, 3, 2, dtype=torch.bool),
    "pixels": lambda n: torch.full((n * WIDTH * HEIGHT,), 255, dtype=torch.uint8),
    "photos": lambda n: torch.arange(3 * n * WIDTH * HEIGHT, dtype=torch.uint8).view(-1, 3),
    "neighbors": lambda n: torch.zeros(n, 4, dtype=torch.int64),
    "first_pixels": lambda n: WIDTH * HEIGHT * torch.arange(n + 1),
    "directions": lambda n: torch.nn.functional.normalize(plain("n,3", n), dim=-1),
}
WEIGHTS = {
    field.name: 1.0 for field in dataclasses.fields(LossConfig) if field.name in losses.OF_GEOMETRY | losses.OF_COLORS
}
# What other parameters take, by the same names or the name of a class.
PLAIN: dict[str, Any] = {
    **{"width": WIDTH, "height": HEIGHT, "views": 4, "count": 2, "side": 3, "resolution": (3, 4, 5), "fps": 2.0},
    **{"fov": 0.8, "seconds": 3.0, "index": 0, "image": 0, "first": 0, "last": 2, "end": 4, "kind": "bounded", "to": 1},
    **{"kinds": ("perspective",), "models": ("perspective",) * 3, "radii": (1,) * ROWS, "has_alpha": True, "extra": {}},
    **{"images": range(1), "Silhouettes.in_doubt.views": range(1), "valid_pixels": None, "where": "file", "key": "fov"},
    **{"given_box.name": "dataset.aabb"},
    **{
        "holder": {"fov": 0.5},
        "entry": {},
        "meaning": "an angle",
        "state": {"kind": "bounded"},
        "Path": Path("file.json"),
    },
    "device": torch.device("cpu"),
    "DatasetConfig": DatasetConfig(),
    "LossConfig": LossConfig(**WEIGHTS),
    "Backend": select("torch", "cpu"),
    "ops": reference,
    "field": SimpleNamespace(box_diagonal=3**0.5, backend=select("torch", "cpu")),
    "found": lambda n: {name: plain("", n).requires_grad_() for name in ("photometric", *WEIGHTS)},
}
ASKED = (
    "KeyFramePath.keys",
    *(f"{inputs}.{name}" for inputs in ("GeometryInputs", "LossInputs") for name in ("beside", "depth", "rays")),
    "Composited.depth",
    "Composited.distortion",
)  # optional, and given all the same
NAMES = {
    "Composited": Composited,
    "Rendering": Rendering,
    "Field": Field,
}  # of annotations that are imported for checkers of types alone
