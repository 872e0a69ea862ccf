"""Every setting: type, default, unit, legal range and meaning, stated once.

The files in configs/ say only what differs from here; what they compose is checked against these classes (build).
Shares are fractions of the training run, so that a schedule stretches with train.steps or train.max_seconds.
"""

import dataclasses
import difflib
import types
import typing
from dataclasses import dataclass
from typing import Any

from nerf.errors import UserError


def setting(
    default: Any, doc: str, low: float | None = None, high: float | None = None, choices: tuple[str, ...] = ()
) -> Any:
    """A dataclass field with its meaning and its legal values."""
    return dataclasses.field(default=default, metadata={"doc": doc, "low": low, "high": high, "choices": choices})


FIELD_NAMES = ("auto", "voxel_deferred", "voxel_mlp", "voxel_sh")


@dataclass
class DatasetConfig:
    scene: str = setting("bricks", "scene name: a folder in data/nerf_synthetic, in $NERF_DATA or in data")
    root: str | None = setting(None, "folder of the scene, or of the folder that holds it")
    format: str = setting(
        "auto", "of a capture: colmap, transforms, blender, nsvf or llff; auto = what its folder holds"
    )
    images: str | None = setting(None, "folder of a capture's photos, where it has several; none = sides up to 1600")
    skip_missing: bool = setting(False, "go on without the photos of a capture that are missing")
    hold_out: int = setting(8, "every so-manieth photo is a test view if the format names none; 0 = none is", low=0)
    downscale: int = setting(1, "integer factor by which images shrink, area average", low=1)
    kind: str = setting(
        "auto",
        "where the scene is; auto = what the capture's format, cameras and points say",
        choices=("auto", "box", "forward", "unbounded"),
    )
    background: str = setting(
        "auto",
        "colour behind the scene; auto = white in a box, learned in an unbounded scene, else random in training",
        choices=("auto", "white", "black", "random", "learned"),
    )
    aabb: list[float] | None = setting(
        None, "scene box, or an unbounded scene's inner box: x0,y0,z0,x1,y1,z1 in world units; none = from the data"
    )


@dataclass
class FieldConfig:
    name: str = setting("auto", "which field; auto = voxel_deferred", choices=FIELD_NAMES)
    num_voxels: int | None = setting(
        None,
        "voxels of the finest grid; none = by kind and budget, in a box up to 304^3 on a GPU, 80^3 on a CPU; "
        "fewer where a GPU's memory is short",
        low=8,
    )
    min_voxel_pixels: float = setting(0.8, "voxels get no smaller than this many pixels", low=0.01)
    min_level_steps: int = setting(100, "steps between two doublings at least", low=0)
    upsample_at: list[float] = dataclasses.field(
        default_factory=lambda: [0.04, 0.08, 0.13, 0.18],
        metadata={"doc": "shares of the run at which the voxels double"},
    )
    initial_alpha: float = setting(0.003, "opacity of one voxel before training", low=1e-9, high=0.5)
    lr_density: float | None = setting(
        None, "learning rate of raw density; none = 0.2, on a GPU 0.3 for voxel_deferred in 2 seconds", low=0
    )


@dataclass
class VoxelMlpConfig(FieldConfig):
    name: str = setting("voxel_mlp", "which field", choices=FIELD_NAMES)
    feature_channels: int = setting(12, "features per vertex; a multiple of 4 is fastest", low=1, high=64)
    hidden_width: int = setting(128, "neurons per hidden layer of the colour MLP", low=1, high=1024)
    hidden_layers: int = setting(2, "hidden layers of the colour MLP", low=0, high=8)
    view_frequencies: int = setting(4, "frequencies of the view direction's sines and cosines", low=0, high=8)
    lr_features: float | None = setting(
        None, "learning rate of the features; none = 0.1, on a GPU 0.01 where all photos look one way", low=0
    )
    lr_mlp: float = setting(1e-3, "learning rate of the MLP", low=0)


@dataclass
class VoxelDeferredConfig(VoxelMlpConfig):
    name: str = setting("voxel_deferred", "which field", choices=FIELD_NAMES)
    feature_channels: int | None = setting(
        None,
        "features per vertex, a multiple of 4 is fastest; none = 16 on a GPU, 12 on a CPU, 4 if photos look one way",
        low=3,
        high=64,
    )
    hidden_width: int | None = setting(
        None, "neurons per hidden layer of the colour MLP; none = 256 on a GPU, 128 on a CPU", low=1, high=1024
    )
    hidden_layers: int | None = setting(
        None, "hidden layers of the colour MLP; none = 2, on a GPU 3 from 20 seconds on in a box", low=0, high=8
    )
    view_frequencies: int | None = setting(
        None,
        "frequencies of the view direction's sines and cosines; none = 4, 1 where all photos look one way",
        low=0,
        high=8,
    )
    diffuse: bool | None = setting(
        None, "the first three features are colour too, added to the MLP's; none = where photos are full to the edge"
    )
    feature_noise: float | None = setting(
        None, "deviation of the noise on each pixel's features in training; none = 0.1 on a GPU, 0 on a CPU", low=0
    )
    lr_features: float | None = setting(
        None,
        "learning rate of the features; none = 0.03, for photos all around 0.015, on a GPU 0.05 up to 5 seconds, 0.01 "
        "where all photos look one way",
        low=0,
    )
    lr_mlp: float | None = setting(None, "learning rate of the MLP; none = 0.0005 on a GPU, 0.001 on a CPU", low=0)


@dataclass
class VoxelShConfig(FieldConfig):
    name: str = setting("voxel_sh", "which field", choices=FIELD_NAMES)
    sh_degree: int = setting(2, "degree of the spherical harmonics of the colour", low=0, high=3)
    lr_color: float = setting(0.1, "learning rate of the colour coefficients", low=0)


@dataclass
class SamplerConfig:
    step_size_voxels: float = setting(0.5, "distance between samples, in voxels", low=0.01, high=10)
    near: float = setting(
        0.0, "nothing is seen closer to the camera, world units; 0 = from the data, but for a box", low=0
    )
    far: float = setting(1e4, "nor farther away, world units", low=0)
    min_transmittance: float = setting(1e-4, "samples behind less light than this are left out", low=0, high=1)
    min_weight: float = setting(1e-4, "samples that weigh less in their pixel are left out", low=0, high=1)
    rays_per_pixel: int | None = setting(
        None,
        "rays whose mean a pixel shows; none = 1, on a GPU 4 for voxel_deferred in a box from 15 seconds on",
        choices=(1, 2, 4),
    )


@dataclass
class OccupancyConfig:
    alpha_threshold: float = setting(0.02, "cells whose voxels are less opaque are given up", low=0, high=1)
    min_weight: float = setting(0.002, "cells where no training ray's sample weighs this are given up", low=0, high=1)
    start: float = setting(0.03, "share of the run before the first cells are given up", low=0, high=1)
    min_steps: int = setting(100, "steps before that at least: density needs some to rise", low=0)
    every: float | None = setting(
        None,
        "share of the run between two looks at the density; none = 0.06, on a GPU 0.1 for voxel_deferred up to 5 s",
        low=1e-4,
        high=1,
    )


@dataclass
class LossConfig:
    tv_density: float | None = setting(
        None, "weight per ray of the total variation of raw density; none = 0 in a box, else by kind", low=0
    )
    tv_color: float | None = setting(
        None,
        "weight per ray of the total variation of colour or features; none = in a box 1e-6 for voxel_sh and, on a GPU, "
        "for voxel_deferred from 20 seconds on, 3e-7 from 8, else 0; by kind for photos",
        low=0,
    )
    tv_until: float | None = setting(
        None,
        "share of the run during which total variation counts; none = 0.5, or all of it: where all photos look one "
        "way, in a box for voxel_sh and, on a GPU, for voxel_deferred from 8 seconds on",
        low=0,
        high=1,
    )
    tv_everywhere: float | None = setting(
        None, "the same after tv_until, as a mean over all vertices; none = 1e-4 for photos all around, else 0", low=0
    )
    structure: float | None = setting(
        None,
        "weight of what SSIM says of pairs of near pixels; none = for photos on a GPU 0.003, 0.004 all around, else 0",
        low=0,
    )
    opacity: float | None = setting(
        None, "weight of the squared error of opacity beside alpha; none = 4e-4 for photos all around, else 0", low=0
    )
    opacity_entropy: float | None = setting(
        None, "weight of the entropy of each ray's opacity; none = 0.001 for voxel_mlp in a box, else 0", low=0
    )
    near_fade: float | None = setting(
        None,
        "gradients of samples nearer to their camera than this, in halves of the inner box, shrink with the square of "
        "the distance; none = 2 in an unbounded scene, else 0",
        low=0,
    )
    distortion: float | None = setting(
        None,
        "weight of the spread of the samples' weights along each ray; none = 0.01 in an unbounded scene and for "
        "voxel_sh in a box, 0.003 for voxel_deferred elsewhere on a GPU from 8 seconds on, else 0",
        low=0,
    )


@dataclass
class TrainConfig:
    steps: int | None = setting(None, "training steps; none = 30000 on a GPU, 38 seconds on a CPU", low=1)
    max_seconds: float | None = setting(None, "wall clock of training alone; the schedule stretches to fit", low=0.1)
    rays_per_step: int | None = setting(
        None, "rays in a batch; none = 4096 on a CPU; on a GPU 8192 for voxel_mlp, else 16384 or 32768", low=1
    )
    supersample_from: float = setting(
        0.5, "share of the run from which its pixels have sampler.rays_per_pixel rays, not 1", low=0, high=1
    )
    lr_decay: float | None = setting(
        None,
        "factor on all learning rates over the run, exponential; none = 0.1, on a GPU 0.03 if all photos look one way, "
        "0.01 in an unbounded scene, 0.02 in a box from 20 seconds on, but for voxel_mlp and where poses are learned",
        low=1e-6,
        high=1,
    )
    beta1: float = setting(0.9, "Adam's decay of the mean gradient", low=0, high=0.9999)
    beta2: float = setting(0.99, "Adam's decay of the mean squared gradient", low=0, high=0.99999)
    log_every: int = setting(100, "steps between two looks at the loss, the only ones that wait for the GPU", low=1)
    save_every: int = setting(0, "steps between checkpoints; 0 = at the end and on Ctrl-C alone", low=0)
    images: str = setting(
        "auto",
        "where the training images are kept; auto = on a GPU if they take less than a quarter of its free memory",
        choices=("auto", "device", "host"),
    )
    cuda_graph: bool = setting(True, "replay each step as one CUDA graph (native backend on a GPU)")


@dataclass
class PosesConfig:
    mode: str = setting(
        "fixed", "take the poses as given, or learn them with the scene", choices=("fixed", "refine")
    )
    lr: float | None = setting(
        None,
        "learning rate of poses: radians, and shares of the distance to the scene; none = 0.003 in a box, else 0.0003, "
        "for poses that are nearly right",
        low=0,
    )
    lr_decay: float = setting(
        0.03, "factor on the poses' learning rates over the run, exponential", low=1e-6, high=1
    )
    beta1: float = setting(0.9, "Adam's decay of the poses' mean gradient", low=0, high=0.9999)
    beta2: float = setting(0.99, "Adam's decay of their mean squared gradient", low=0, high=0.99999)
    start: float | None = setting(
        None,
        "share of the run before poses move: the scene needs some to appear; none = 0 in a box, else 0.3",
        low=0,
        high=0.99,
    )
    warmup: float = setting(0.02, "share of the rest over which their learning rates rise", low=0, high=1)
    warmup_steps: int = setting(
        200, "or steps of the run, where these are fewer: a scene learned from wrong poses holds them fast", low=0
    )
    max_rotation: float = setting(60.0, "no pose turns farther than this, degrees", low=1e-3, high=180)
    max_translation: float = setting(
        0.5, "nor moves farther than this share of its distance to the scene", low=1e-6
    )
    slack: float = setting(
        4.0, "silhouettes count as widened by this angle, degrees: how wrong poses may be", low=0
    )
    coarsest: int | None = setting(
        None,
        "voxels of the first grid: poses settle from coarse to fine; none = 1000 in a box, else 2000000 on a GPU and "
        "100000 on a CPU",
        low=8,
    )
    finest_at: float | None = setting(
        None,
        "share of the run at which the last doubling comes, not as field.upsample_at says; none = 0.25, 0.18 of photos",
        low=0,
        high=1,
    )
    view_from: float | None = setting(
        None,
        "share of the run before colour sees the direction, which would hide errors; none = 0.25 in a box, else 0",
        low=0,
        high=0.9,
    )
    intrinsics: bool = setting(
        False, "learn one correction of focal lengths and principal points for all images too"
    )
    lr_intrinsics: float = setting(
        3e-4, "its learning rate: logarithms and shares of the focal length", low=0
    )
    from_run: str | None = setting(
        None,
        "folder of a run whose learned poses this one begins with; learned further, they are treated as nearly right, "
        "as those of photos are",
    )
    perturb_degrees: float = setting(
        0.0, "experiments: turn each training camera by this angle", low=0, high=180
    )
    perturb_translation: float = setting(0.0, "and move it by this share of its distance to the scene", low=0)
    perturb_sigma: float = setting(
        0.0, "and by SE(3) noise of this deviation, as Lin et al. 2021 (0.15 there)", low=0
    )


@dataclass
class ExposureConfig:
    learn: bool = setting(False, "learn a gain and a bias of each colour for each image")
    lr: float = setting(1e-3, "learning rate of both, in logarithms and in shares of white", low=0)


@dataclass
class EvaluationConfig:
    split: str = setting("test", "which views are scored", choices=("train", "val", "test"))
    every: int = setting(1, "score every k-th view", low=1)
    view_poses: str = setting(
        "aligned",
        "where held-out views are seen from: as given; moved as the training poses were; or refined by their own photo",
        choices=("given", "aligned", "refined"),
    )
    pose_steps: int = setting(200, "steps of that refinement, of all views together", low=1)
    exposure: str = setting(
        "none",
        "fit = a gain and a bias of each colour are fitted on the left half of each view, and its right half is scored",
        choices=("none", "fit"),
    )


@dataclass
class Config:
    """A training run, whole."""

    dataset: DatasetConfig = dataclasses.field(default_factory=DatasetConfig)
    field: FieldConfig = dataclasses.field(default_factory=FieldConfig)
    sampler: SamplerConfig = dataclasses.field(default_factory=SamplerConfig)
    occupancy: OccupancyConfig = dataclasses.field(default_factory=OccupancyConfig)
    loss: LossConfig = dataclasses.field(default_factory=LossConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    poses: PosesConfig = dataclasses.field(default_factory=PosesConfig)
    exposure: ExposureConfig = dataclasses.field(default_factory=ExposureConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    backend: str = setting("auto", "which code computes", choices=("auto", "native", "torch"))
    device: str = setting("auto", "where", choices=("auto", "cuda", "cpu"))
    seed: int = setting(0, "seed of every random number", low=0)


FIELDS: dict[str, type[FieldConfig]] = {
    "auto": FieldConfig,
    "voxel_deferred": VoxelDeferredConfig,
    "voxel_mlp": VoxelMlpConfig,
    "voxel_sh": VoxelShConfig,
}


def build(cls: type, values: dict[str, Any], path: str = "") -> Any:
    """A dataclass of settings from nested plain values, checked.

    Raises UserError for an unknown name (with the nearest right one), a wrong type or a value out of range.
    """
    known = {f.name: f for f in dataclasses.fields(cls)}
    hints = typing.get_type_hints(cls)
    result = {}
    for name, value in values.items():
        if name not in known:
            raise UserError(unknown_setting(path + name, [path + k for k in known]))
        hint = FIELDS.get(value.get("name"), hints[name]) if hints[name] is FieldConfig else hints[name]
        if dataclasses.is_dataclass(hint):
            result[name] = build(hint, value, f"{path}{name}.")
        else:
            result[name] = _checked(path + name, value, hint, known[name].metadata)
    return cls(**result)


def unknown_setting(name: str, known: list[str]) -> str:
    """The sentence that answers a mistyped setting."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"; did you mean '{near[0]}'?" if near else "; see --help for all of them."
    return f"there is no setting '{name}'{hint}"


def _checked(name: str, value: Any, hint: Any, rules: Any) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and types.NoneType in options:
        return None
    kind = next(option for option in options if option is not types.NoneType)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    base = typing.get_origin(kind) or kind
    if not isinstance(value, base) or (base is int and isinstance(value, bool)):
        raise UserError(f"{name}={value!r} is a {type(value).__name__}, expected {getattr(kind, '__name__', kind)}.")
    low, high, choices = rules.get("low"), rules.get("high"), rules.get("choices")
    if choices and value not in choices:
        near = difflib.get_close_matches(str(value), map(str, choices), n=1)
        hint_text = f" Did you mean '{near[0]}'?" if near else ""
        raise UserError(f"{name}={value} is unknown; choose one of {', '.join(map(str, choices))}.{hint_text}")
    if (low is not None and value < low) or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"{low} to {high}"
        raise UserError(f"{name}={value} is out of range, expected {limits}.")
    return value
