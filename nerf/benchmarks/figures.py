"""What the benchmarks measure, as their JSON files hold it: one type per result. Times are in milliseconds where the
name ends in _ms, else in seconds; sizes are bytes.
"""

from collections.abc import Callable
from typing import NotRequired, TypedDict

Log = Callable[[str], None]  # shows which measurement is running
GIB = 2**30
# Stages of a training step in the ablation, as ablation.json names them; "look" is the density query.
STAGES = ("march", "look", "interpolate", "composite", "backward", "adam", "rest")


class Summary(TypedDict):
    """Repeated measurements."""

    median: float
    all: list[float]


class Average(TypedDict):
    """Of many steps."""

    mean: float
    median: float


class PerView(TypedDict):
    """A metric of rendered views."""

    mean: float
    per_view: list[float]


class Spread(TypedDict):
    """Of one figure over the seeds."""

    median: float
    low: float
    high: float


class AblationRow(TypedDict):
    """One row of the ablation: training steps with one set of operations. A row that is missing has its head alone."""

    label: str
    backend: str
    device: str
    rays_per_step: int
    missing: str | None  # why
    agrees: NotRequired[bool]
    loss: NotRequired[float | None]
    loss_difference: NotRequired[float | None]
    gradient_difference: NotRequired[float | None]
    samples_per_step: NotRequired[int]
    visible_samples_per_step: NotRequired[int]
    steps: NotRequired[int]
    stages_ms: NotRequired[dict[str, Average]]
    operations_ms: NotRequired[Average | None]
    step_ms: NotRequired[Average]
    peak_memory_bytes: NotRequired[int | None]
    idle_share: NotRequired[float | None]


class RowTimes(TypedDict):
    """What is timed of a row of the ablation."""

    steps: int
    stages_ms: dict[str, Average]
    operations_ms: Average | None
    step_ms: Average
    peak_memory_bytes: int | None
    idle_share: float | None


class Speedup(TypedDict):
    """Of the native row over the best PyTorch row."""

    ratio: float
    best_torch: str


class EqualTraining(TypedDict):
    """A training from scratch for a number of steps, scored."""

    backend: str
    operations: str
    device: str
    steps: int
    train_seconds: float
    psnr: PerView


class Direction(TypedDict):
    """One direction of an operation in one row of the benchmark."""

    cold_ms: Summary
    warm_ms: Summary
    agrees: bool | None
    error_max: float | None
    error_rms: float | None
    share_of_copy: float
    reductions_per_second: float | None
    times_floor: float
    less_zero_fill: NotRequired[bool]


class OpRow(TypedDict):
    """One implementation of an operation."""

    label: str
    kind: str
    missing: str | None  # why
    directions: NotRequired[dict[str, Direction]]


class Floor(TypedDict):
    """The roofline of one direction."""

    num_bytes: int
    reductions: int
    lookups: int
    floor_ms: float


class OpCase(TypedDict):
    """One problem of an operation, with all rows. zero_fill: by cold_ms and warm_ms."""

    op: str
    case: str
    zero_fill: dict[str, Summary] | None
    floors: dict[str, Floor]
    rows: list[OpRow]


class Against(TypedDict):
    """Our fast row beside the fastest correct PyTorch row, in milliseconds."""

    fast: float
    best_torch: float
    best_label: str
    ratio: float | None


class OpSummary(TypedDict):
    """A direction, or forward + backward, of a case."""

    op: str
    case: str
    direction: str
    cold_ms: Against
    warm_ms: Against
    floor_ms: float
    times_floor: float


class KernelGain(TypedDict):
    """The naive kernel beside the optimized one, with the idea of each."""

    op: str
    case: str
    direction: str
    plain_ms: float
    fast_ms: float
    gain: float
    plain: str
    fast: str


class OpsBenchmark(TypedDict):
    """All cases on one device. left_out: cases for which there was no time; ceilings: timing.Ceilings."""

    size: str
    flush_bytes: int
    ceilings: dict[str, Summary | None]
    cases: list[OpCase]
    left_out: list[str]
    summaries: list[OpSummary]
    ladder: list[KernelGain]


class Stage(TypedDict):
    """One stage of a profiled training step. work: step_profile.Work; floor_ms: its roofline."""

    stage: str
    launches: float
    ms: float
    work: dict[str, int] | None
    floor_ms: float | None


class StepProfile(TypedDict):
    """A profiled training step; the numbers from pixels to channels are those of step_profile.Batch."""

    field: str
    resolution: list[int]
    pixels: int
    rays: int
    samples: int
    vertices: int
    visited: int
    channels: int
    step_ms: float
    idle_share: float | None
    ceilings: dict[str, float]
    stages: list[Stage]


class BusyKernel(TypedDict):
    """A kernel of a step: percent of what each unit can do at most, by ncu."""

    kernel: str
    us: float
    issue: int  # instructions
    l1: int
    l2: int
    dram: int


class BusyStep(TypedDict):
    """All kernels of a step, and how long they would take if the busiest unit of each were busy all the time."""

    scene: str
    kernels_us: int
    at_the_busiest_unit_us: int
    kernels: list[BusyKernel]


class BusyUnits(TypedDict):
    """What the kernels of training steps keep busy."""

    steps: list[BusyStep]
    note: str


class Look(TypedDict):
    """A score while training."""

    seconds: float
    step: int
    psnr: float
    ssim: float
    views: int


class CurveRun(TypedDict):
    """One run of a curve."""

    seed: int
    field: str
    resolution: list[int]
    rays_per_step: int
    train_seconds: float
    steps: int
    psnr: PerView
    ssim: PerView
    lpips: NotRequired[PerView]
    render_seconds_per_view: float
    peak_memory_bytes: int | None
    model_bytes: int | None  # None: of runs of their own, whose files were not kept
    looks: list[Look]
    notes: list[str]


class WorstView(TypedDict):
    """The test view of the lowest PSNR. picture: the name of its file."""

    name: str
    psnr: float
    picture: str


class SceneRun(CurveRun):
    """One run of mode=scenes. images: the folder of the photos, None as the reader chose; one budget is None."""

    set: str
    scene: str
    images: str | None
    image_size: list[int]
    training_views: int
    budget_seconds: float | None
    budget_steps: int | None
    worst_view: WorstView
    device: NotRequired[str]
    commit: NotRequired[str]
    date: NotRequired[str]


class Budget(TypedDict):
    """The runs of one budget and the spread of their figures. psnr_every_4th: over the views of the baselines."""

    seconds: float
    field: str
    views: int
    psnr: Spread
    psnr_every_4th: NotRequired[Spread]
    ssim: Spread
    lpips: NotRequired[Spread]
    train_seconds: Spread
    steps: Spread
    render_seconds_per_view: Spread
    peak_memory_bytes: Spread | None
    model_bytes: Spread | None
    runs: list[CurveRun]


class Curve(TypedDict):
    """What tables and pictures read of a file of `nerf benchmark mode=curve`."""

    scene: str
    image_size: list[int]
    budgets: list[Budget]


class System(TypedDict):
    """Another system in the table of baselines. curve: pairs of seconds and dB; excluded_seconds: not training."""

    name: str
    commit: str
    recipe: str
    excluded_seconds: float
    excluded: str | None
    curve: list[list[float]]
    ms_per_frame: NotRequired[float | None]
    peak_memory_gib: NotRequired[float | None]
    memory: NotRequired[str]


class Published(TypedDict):
    """A figure that its authors published."""

    name: str
    psnr: float
    seconds: float | None
    device: str | None
    background: NotRequired[str]
    frames_per_second: NotRequired[float | None]


class Baselines(TypedDict):
    """Other systems on the same scene."""

    scene: str
    image_size: list[int]
    device: str
    views: int
    every: int
    source: str
    systems: list[System]
    published_source: str
    published: list[Published]
