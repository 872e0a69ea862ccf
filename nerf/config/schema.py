"""Every setting: type, default, unit, legal range and meaning, stated once.

The files in configs/ say only what differs from here; what they compose is checked against these classes (build).
Shares are fractions of the training run, so that a schedule stretches with train.steps or train.max_seconds.
"""

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any

from nerf.config.fields import FieldConfig, field_settings, settings_of
from nerf.config.settings import checked, setting, unknown_setting
from nerf.errors import UserError


@dataclass
class DatasetConfig:
    scene: str = setting("bricks", "scene name: a folder in data/nerf_synthetic, in $NERF_DATA or in data", path=True)
    root: str | None = setting(None, "folder of the scene, or of the folder that holds it", path=True)
    format: str = setting(
        "auto", "of a capture: colmap, transforms, blender, nsvf, neus or llff; auto = what its folder holds"
    )
    images: str | None = setting(
        None, "folder of a capture's photos, where it has several; none = sides up to 1600", path=True
    )
    masks: str = setting(
        "auto",
        "what a capture's masks mean: object = they are alpha, all around it is empty; leave_out = black pixels do not "
        "count; none = nothing; auto = object if they surround one, else leave_out",
        choices=("auto", "object", "leave_out", "none"),
    )
    mask_folder: str | None = setting(
        None, "folder of the masks; none = what the format names, beside the photos, masks or mask", path=True
    )
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
        "colour behind the scene; random = another one for each ray in training",
        choices=("auto", "white", "black", "random", "learned"),
    )
    aabb: list[float] | None = setting(
        None, "scene box, or an unbounded scene's inner box: x0,y0,z0,x1,y1,z1 in world units; none = from the data"
    )


@dataclass
class SamplerConfig:
    step_size_voxels: float = setting(0.5, "distance between samples, in voxels", low=0.01, high=10)
    near: float = setting(
        0.0, "nothing is seen closer to the camera, world units; 0 = from the data, but for a box", low=0
    )
    far: float | None = setting(None, "nor farther away, world units; none = as far as the scene goes", low=0)
    min_transmittance: float = setting(1e-4, "samples behind less light than this are left out", low=0, high=1)
    min_weight: float = setting(1e-4, "samples that weigh less in their pixel are left out", low=0, high=1)
    rays_per_pixel: int | None = setting(
        None,
        "rays whose mean a pixel shows",
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
        "share of the run between two looks at the density",
        low=1e-4,
        high=1,
    )


@dataclass
class LossConfig:
    tv_density: float | None = setting(None, "weight per ray of the total variation of raw density", low=0)
    tv_color: float | None = setting(
        None,
        "weight per ray of the total variation of colour or features",
        low=0,
    )
    tv_until: float | None = setting(
        None,
        "share of the run during which total variation counts",
        low=0,
        high=1,
    )
    tv_everywhere: float | None = setting(None, "the same after tv_until, as a mean over all vertices", low=0)
    structure: float | None = setting(
        None,
        "weight of what SSIM says of pairs of near pixels",
        low=0,
    )
    opacity: float | None = setting(None, "weight of the squared error of opacity beside alpha", low=0)
    opacity_entropy: float | None = setting(None, "weight of the entropy of each ray's opacity", low=0)
    near_fade: float | None = setting(
        None,
        "gradients of samples nearer to their camera than this, in halves of the inner box, shrink with the square of "
        "the distance",
        low=0,
    )
    distortion: float | None = setting(
        None,
        "weight of the spread of the samples' weights along each ray",
        low=0,
    )


@dataclass
class TrainConfig:
    steps: int | None = setting(None, "training steps", low=1)
    max_seconds: float | None = setting(None, "training seconds; the schedule fits them, or steps if fewer", low=0.1)
    rays_per_step: int | None = setting(None, "rays in a batch", low=1)
    supersample_from: float = setting(
        0.5, "share of the run from which its pixels have sampler.rays_per_pixel rays, not 1", low=0, high=1
    )
    lr_decay: float | None = setting(
        None,
        "factor on all learning rates over the run, exponential",
        low=1e-6,
        high=1,
    )
    beta1: float = setting(0.9, "Adam's decay of the mean gradient", low=0, high=0.9999)
    beta2: float = setting(0.99, "Adam's decay of the mean squared gradient", low=0, high=0.99999)
    log_every: int = setting(100, "steps between two looks at the loss, the only ones that wait for the GPU", low=1)
    save_seconds: float = setting(
        120.0,
        "seconds between saves of a run that trains, off its clock; more where they would take over 2% of the time; "
        "0 = at the end and on Ctrl-C alone",
        low=0,
    )
    save_every: int = setting(0, "steps between saves, in place of train.save_seconds; 0 = by time", low=0)
    images: str = setting(
        "auto",
        "where the training images are kept; auto = on a GPU if they take less than a quarter of its free memory",
        choices=("auto", "device", "host"),
    )
    cuda_graph: bool = setting(True, "replay each step as one CUDA graph (native backend on a GPU)")


@dataclass
class PosesConfig:
    mode: str = setting("fixed", "take the poses as given, or learn them with the scene", choices=("fixed", "refine"))
    lr: float | None = setting(
        None,
        "learning rate of poses: radians, and shares of the distance to the scene",
        low=0,
    )
    lr_decay: float = setting(0.03, "factor on the poses' learning rates over the run, exponential", low=1e-6, high=1)
    beta1: float = setting(0.9, "Adam's decay of the poses' mean gradient", low=0, high=0.9999)
    beta2: float = setting(0.99, "Adam's decay of their mean squared gradient", low=0, high=0.99999)
    start: float | None = setting(
        None,
        "share of the run before poses move: the scene needs some to appear",
        low=0,
        high=0.99,
    )
    warmup: float = setting(0.02, "share of the rest over which their learning rates rise", low=0, high=1)
    warmup_steps: int = setting(
        200, "or steps of the run, where these are fewer: a scene learned from wrong poses holds them fast", low=0
    )
    max_rotation: float = setting(60.0, "no pose turns farther than this, degrees", low=1e-3, high=180)
    max_translation: float = setting(0.5, "nor moves farther than this share of its distance to the scene", low=1e-6)
    slack: float = setting(4.0, "silhouettes count as widened by this angle, degrees: how wrong poses may be", low=0)
    coarsest: int | None = setting(
        None,
        "voxels of the first grid: poses settle from coarse to fine",
        low=8,
    )
    finest_at: float | None = setting(
        None,
        "share of the run at which the last doubling comes, not as field.upsample_at says",
        low=0,
        high=1,
    )
    view_from: float | None = setting(
        None,
        "share of the run before colour sees the direction, which would hide errors",
        low=0,
        high=0.9,
    )
    intrinsics: bool = setting(False, "learn one correction of focal lengths and principal points for all images too")
    lr_intrinsics: float = setting(3e-4, "its learning rate: logarithms and shares of the focal length", low=0)
    from_run: str | None = setting(
        None,
        "folder of a run whose learned poses this one begins with; learned further, they are treated as nearly right, "
        "as those of photos are",
        path=True,
    )
    perturb_degrees: float = setting(0.0, "experiments: turn each training camera by this angle", low=0, high=180)
    perturb_translation: float = setting(0.0, "and move it by this share of its distance to the scene", low=0)
    perturb_sigma: float = setting(0.0, "and by SE(3) noise of this deviation, as Lin et al. 2021 (0.15 there)", low=0)


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
        hint = hints[name]
        if hint is FieldConfig:
            hint = settings_of(value.get("name", "auto"))
        if dataclasses.is_dataclass(hint):
            result[name] = build(hint, value, f"{path}{name}.")
        else:
            result[name] = checked(path + name, value, hint, known[name].metadata)
    return cls(**result)


def __getattr__(name: str) -> Any:
    """FIELDS: the settings' class of each field by name, which the fields' own files say."""
    if name == "FIELDS":
        return field_settings()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
