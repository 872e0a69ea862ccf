"""Every setting: type, default, unit, legal range and meaning, stated once.

The files in configs/ say only what differs from here; what they compose is checked against these classes (build).
Fractions are of the training run, so that a schedule stretches with train.steps or train.max_seconds.
"""

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any

from nerf.config import renamed
from nerf.config.fields import FieldConfig, field_settings, settings_of
from nerf.config.settings import checked, setting, unknown_setting
from nerf.errors import UserError


@renamed.with_old_names("dataset")
@dataclass
class DatasetConfig:
    scene: str = setting(
        "bricks", "name of the scene: a folder in data/nerf_synthetic, in $NERF_DATA or in data", path=True
    )
    root: str | None = setting(None, "folder of the scene, or the folder that holds it", path=True)
    format: str = setting(
        "auto", "format of a capture: colmap, transforms, blender, nsvf, neus or llff; auto = detected from its files"
    )
    images: str | None = setting(
        None, "image folder of a capture that has several; none = the one with sides up to 1600 pixels", path=True
    )
    masks: str = setting(
        "auto",
        "what masks and alpha of a capture's photos mean: object = alpha, so all around the object is empty; leave_out "
        "= black or transparent pixels are excluded from training and scores; none = they are ignored; auto = object "
        "if they surround one object, else leave_out",
        choices=("auto", "object", "leave_out", "none"),
    )
    mask_folder: str | None = setting(
        None,
        "folder of the masks; none = the one that the format names, else masks or mask beside the images",
        path=True,
    )
    skip_missing: bool = setting(False, "go on without the images of a capture that are missing")
    test_every: int = setting(
        8,
        "every k-th image is a test view where the format has no split; 0 = none, scored on evaluation.split=train",
        low=0,
    )
    downscale: int = setting(1, "integer factor by which images are downscaled (area average)", low=1)
    kind: str = setting(
        "auto",
        "kind of scene: an object in a box, cameras that all face one way (LLFF), or a scene without end; "
        "auto = from the capture's format, cameras and points",
        choices=("auto", "bounded", "forward_facing", "unbounded"),
    )
    background: str = setting(
        "auto",
        "color behind the scene; random = a new one for each training ray, learned = one color, optimized "
        "with the scene. In bounded scenes a uniform color along the edges of opaque images takes precedence",
        choices=("auto", "white", "black", "random", "learned"),
    )
    aabb: list[float] | None = setting(
        None, "scene box, of an unbounded scene the inner box: x0,y0,z0,x1,y1,z1 in world units; none = from the data"
    )


@dataclass
class SamplerConfig:
    step_size_voxels: float = setting(0.5, "distance between the samples of a ray, in voxels", low=0.01, high=10)
    near: float = setting(
        0.0, "near distance from the camera, in world units; 0 = from the data (bounded scenes: none)", low=0
    )
    far: float | None = setting(
        None, "far distance from the camera, in world units; none = the end of the scene", low=0
    )
    min_transmittance: float = setting(1e-4, "samples whose transmittance is below this are skipped", low=0, high=1)
    min_weight: float = setting(1e-4, "samples whose weight in their pixel is below this are skipped", low=0, high=1)
    rays_per_pixel: int | None = setting(
        None, "rays averaged per pixel, in rendering and late in training", choices=(1, 2, 4)
    )

    def check_together(self) -> None:
        """Raises UserError where no ray has a length."""
        if self.far is not None and self.far <= self.near:
            raise UserError(
                f"sampler.far={self.far:g} is not beyond sampler.near={self.near:g}, so rays end before they begin; "
                "give a larger far or a smaller near."
            )


@renamed.with_old_names("occupancy")
@dataclass
class OccupancyConfig:
    alpha_threshold: float = setting(0.02, "cells whose voxels' alpha is below this are pruned", low=0, high=1)
    min_weight: float | None = setting(
        None,
        "cells where no sample of a training ray has this weight are pruned; semi-transparent volumes need less",
        low=0,
        high=1,
    )
    rays_per_surface_cell: int | None = setting(
        None,
        "training rays that an update draws to find these weights, as a multiple of N^(2/3) in a grid of N cells",
        low=1,
    )
    start: float = setting(0.03, "fraction of the run before the first pruning", low=0, high=1)
    min_steps: int = setting(100, "least number of steps before the first pruning: density needs some to rise", low=0)
    update_interval: float | None = setting(None, "fraction of the run between two occupancy updates", low=1e-4, high=1)


@renamed.with_old_names("loss")
@dataclass
class LossConfig:
    tv_density: float | None = setting(None, "weight per ray of the total variation of raw density", low=0)
    tv_color: float | None = setting(None, "weight per ray of the total variation of color or features", low=0)
    tv_until: float | None = setting(
        None, "fraction of the run during which tv_density and tv_color apply", low=0, high=1
    )
    tv_global: float | None = setting(
        None, "weight of the mean total variation over all vertices, after tv_until", low=0
    )
    pair_ssim: float | None = setting(
        None, "weight of the pairwise SSIM loss: contrast and structure of pairs of neighboring pixels", low=0
    )
    alpha: float | None = setting(
        None, "weight of the alpha loss: squared error of accumulated opacity against the image's alpha", low=0
    )
    opacity_entropy: float | None = setting(None, "weight of the entropy of each ray's accumulated opacity", low=0)
    grad_scaling_distance: float | None = setting(
        None,
        "gradient scaling against floaters: closer to the camera than this, in half sizes of the inner box, "
        "gradients are scaled down with the square of the distance; 0 = off",
        low=0,
    )
    distortion: float | None = setting(None, "weight of the distortion loss (mip-NeRF 360, eq. 15)", low=0)
    depth: float = setting(
        0.0, "weight of the depth loss: relative error of the expected depth where depth files have a value", low=0
    )
    multi_view: float | None = setting(
        None,
        "weight of multi-view consistency: 1 - the correlation of neighboring photos at the rendered depth",
        low=0,
    )


@renamed.with_old_names("train")
@dataclass
class TrainConfig:
    steps: int | None = setting(None, "training steps", low=1)
    max_seconds: float | None = setting(
        None, "training seconds; the schedule is fitted to them, or to train.steps if those end first", low=0.1
    )
    recipe: str = setting(
        "auto",
        "recipe that fills in settings that are not given: auto = this device's and budget's; cuda_15 = that of a GPU "
        "in 15 seconds, cpu_60 that of a CPU in 60, on any device",
    )
    rays_per_step: int | None = setting(None, "rays per batch", low=1, high=2**28)
    antialias_start: float = setting(
        0.5,
        "fraction of the run after which a training pixel has sampler.rays_per_pixel rays; before, it has one",
        low=0,
        high=1,
    )
    lr_decay: float | None = setting(
        None,
        "factor by which all learning rates fall over the run, exponentially; where parameters are averaged, no lower "
        "than train.average_lr",
        low=1e-6,
        high=1,
    )
    average_from: float | None = setting(
        None,
        "fraction of the run from which on parameters are averaged; at the end their means replace them; 1 = off",
        low=0,
        high=1,
    )
    average_lr: float | None = setting(
        None, "where parameters are averaged, learning rates fall to this fraction and no lower", low=1e-6, high=1
    )
    beta1: float = setting(0.9, "Adam's decay rate of the mean gradient", low=0, high=0.9999)
    beta2: float = setting(0.99, "Adam's decay rate of the mean squared gradient", low=0, high=0.99999)
    log_every: int = setting(100, "steps between logged losses; only these wait for the GPU", low=1)
    save_seconds: float = setting(
        120.0,
        "seconds between checkpoints, not counted as training time; longer where saving would take over 2% of "
        "the time; 0 = only at the end and on Ctrl-C",
        low=0,
    )
    save_every: int = setting(0, "steps between checkpoints, in place of train.save_seconds; 0 = by time", low=0)
    images: str = setting(
        "auto",
        "where the training images are stored; auto = on the GPU if they take less than a quarter of its free memory",
        choices=("auto", "device", "host"),
    )
    features: str = setting(
        "auto",
        "where features or colors of the grids and their moments are stored; host = in host memory, for grids larger "
        "than the GPU's; auto = on the GPU, or on the host if field.num_voxels is given and they do not fit",
        choices=("auto", "device", "host"),
    )
    moments: str | None = setting(
        None,
        "how Adam's moments of features or colors are stored; bfloat16 = half the memory, rounded stochastically; on "
        "Hopper and newer GPUs, unless deterministic, gradients are then bfloat16 and values float16 too; in host "
        "memory moments are always bfloat16",
        choices=("float32", "bfloat16"),
    )
    cuda_graph: bool = setting(True, "replay each step as one CUDA graph (native backend on a GPU)")

    def rate_factor(self, progress: float) -> float:
        """What the learning rates have fallen to, as a fraction of the initial ones, of resolved settings."""
        falling = self.lr_decay**progress
        return max(falling, self.average_lr) if self.average_from < 1 else falling


@renamed.with_old_names("poses")
@dataclass
class PosesConfig:
    mode: str = setting(
        "fixed", "fixed = poses as given, refine = optimized with the scene", choices=("fixed", "refine")
    )
    lr: float | None = setting(
        None, "learning rate of poses: radians, and fractions of the distance to the scene", low=0
    )
    lr_decay: float = setting(
        0.03, "factor by which the learning rates of poses fall over the run, exponentially", low=1e-6, high=1
    )
    beta1: float = setting(0.9, "Adam's decay rate of the poses' mean gradient", low=0, high=0.9999)
    beta2: float = setting(0.99, "Adam's decay rate of the poses' mean squared gradient", low=0, high=0.99999)
    start: float | None = setting(
        None, "fraction of the run before poses are optimized: the scene needs some to appear", low=0, high=0.99
    )
    warmup: float = setting(
        0.02, "warm-up of the poses' learning rates, as a fraction of the run after poses.start", low=0, high=1
    )
    warmup_steps: int = setting(200, "upper limit of poses.warmup, in steps", low=0)
    max_rotation: float = setting(60.0, "largest rotation of a pose, in degrees", low=1e-3, high=180)
    max_translation: float = setting(
        0.5, "largest translation of a pose, as a fraction of its distance to the scene", low=1e-6
    )
    mask_dilation_degrees: float = setting(
        4.0,
        "masks are dilated by this angle, in degrees, before space is carved with poses that may be wrong by it",
        low=0,
        high=90,
    )
    initial_num_voxels: int | None = setting(
        None, "voxels of the first grid: poses are optimized from coarse to fine", low=8
    )
    coarse_to_fine_end: float | None = setting(
        None,
        "fraction of the run at which the grid reaches its finest level; replaces field.upsample_at",
        low=0,
        high=1,
    )
    view_dependence_start: float | None = setting(
        None,
        "fraction of the run before color depends on the view direction, which could hide pose errors",
        low=0,
        high=0.9,
    )
    intrinsics: bool = setting(
        False, "optimize one correction of focal lengths and principal points, shared by all images"
    )
    lr_intrinsics: float = setting(
        3e-4, "learning rate of that correction: logarithms, and fractions of the focal length", low=0
    )
    from_run: str | None = setting(
        None,
        "folder of a run whose learned poses training starts with; refined further, they count as nearly "
        "correct, as those of photos do",
        path=True,
    )
    perturb_degrees: float = setting(
        0.0, "experiments: rotate each training camera by this angle, in degrees", low=0, high=180
    )
    perturb_translation: float = setting(
        0.0, "experiments: move each training camera by this fraction of its distance to the scene", low=0, high=100
    )
    perturb_sigma: float = setting(
        0.0, "experiments: add SE(3) noise of this standard deviation, as BARF does (Lin et al. 2021: 0.15)", low=0
    )

    @property
    def perturbed(self) -> bool:
        """Whether an experiment makes the poses wrong: more has to be learned of them than of given ones."""
        return any((self.perturb_degrees, self.perturb_translation, self.perturb_sigma))


@dataclass
class ExposureConfig:
    learn: bool = setting(False, "learn a gain and a bias per image and color channel")
    lr: float = setting(1e-3, "learning rate of gains, in logarithms, and of biases, in fractions of white", low=0)
    vignetting: bool = setting(False, "learn how far photos darken towards their corners, one curve per camera")
    lr_vignetting: float = setting(2e-2, "learning rate of these curves, in fractions of the brightness", low=0)


@dataclass
class EvaluationConfig:
    split: str = setting("test", "which views are scored", choices=("train", "val", "test"))
    every: int = setting(1, "score every k-th view", low=1)
    view_poses: str = setting(
        "aligned",
        "poses of held-out views: given = as in the data, aligned = moved as the training poses were, refined "
        "= optimized on each view's own image",
        choices=("given", "aligned", "refined"),
    )
    pose_steps: int = setting(200, "steps of that optimization, for all views together", low=1)
    exposure: str = setting(
        "none",
        "fit = gain and bias per color channel are fitted on the left half of each view, and the right half is scored",
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
    backend: str = setting("auto", "implementation of the operations", choices=("auto", "native", "torch"))
    device: str = setting("auto", "device to run on", choices=("auto", "cuda", "cpu"))
    seed: int = setting(0, "seed of all random numbers", low=0, high=2**63 - 1)
    deterministic: bool = setting(
        False,
        "the same bits in every run of one seed, on a GPU too: backward passes add in one order; needs train.steps",
    )


def build(cls: type, values: dict[str, Any]) -> Any:
    """A dataclass of settings from nested plain values, checked; old names of settings are read too.

    Raises UserError for an unknown name (with the nearest right one), a wrong type or a value out of range.
    """
    return _build(cls, renamed.nested(values), "")


def _build(cls: type, values: dict[str, Any], path: str) -> Any:
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
            result[name] = _build(hint, value, f"{path}{name}.")
        else:
            result[name] = checked(path + name, value, hint, known[name].metadata)
    made = cls(**result)
    if hasattr(made, "check_together"):  # what no single setting tells
        made.check_together()
    return made


def __getattr__(name: str) -> Any:
    """FIELDS: the settings' class of each field by name, which the fields' own files say."""
    if name == "FIELDS":
        return field_settings()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
