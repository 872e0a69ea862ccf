"""Estimates a run's GPU memory before training, and proposes settings that fit if it is too much.

The peak is at the finest grids: their values, Adam's two moments, gradients and averages, the images, and the samples
of a step and of an occupancy update. With train.features=host most of the first three is in host memory, and what a
step reads of it is on the GPU. Which part of the grids the scene fills, and the number of samples per ray, are
estimates from other runs.

Legend: V grid vertices, C channels, R rays, S samples per ray.
"""

import math
from dataclasses import asdict, dataclass, replace

import torch

from nerf.config.recipes import FEATURES_IN_HOST_MEMORY, flat
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.fields.registry import build_field
from nerf.fields.voxel_field import sparse_saves
from nerf.ops.backend import adds_bfloat16, select
from nerf.optim.host_rows import MOST_RAYS_AHEAD
from nerf.scene.box import Resolution, SceneBox
from nerf.system import host_memory
from nerf.training.pruning import RAYS_PER_CHUNK

GIB = 2**30
FLOAT = 4  # bytes
IN_HOST = 2  # bytes of a number in host memory
ACTIVE_FRACTION = 0.35  # active vertices of all vertices, at the finest grids
STORED_PER_ACTIVE = 1.4  # vertices of a sparse grid that have values: the active ones and their neighbors
BYTES_PER_VERTEX = 0.25  # of the table that finds a sparse grid's rows
BYTES_PER_CELL = 5  # of the occupancy, and of its copies while cells are pruned
LISTED = 8  # bytes of a vertex's number: listed where it is stored, and twice where it is active
# Measured on lego soon after the last doubling: samples per ray (half a voxel apart) divided by the mean edge of the
# grid in vertices, and the fraction of the samples that are visible.
SAMPLES_PER_EDGE, VISIBLE_FRACTION = 0.7, 0.2
LATE_FROM, LATE_FRACTION = 0.3, 0.06  # from this progress on, this fraction of the samples is visible
WINDOW_ROWS_PER_SAMPLE = 6.0  # that a step brings from host memory; of bricks without density, on a CPU
WINDOW_LISTS = 24  # bytes a row of a window: which row of the grid it is, and the list of the corners
WINDOW_ROOM = 1.16  # rows that a window has room for, of those that a step needs
BYTES_PER_SAMPLE = 128  # midpoints, intervals, density, weights and their gradients
SILHOUETTE_BYTES = 1  # per pixel, while the scene box is computed
LIBRARY_BYTES = 96 * 2**20  # cuBLAS workspace, captured graphs
SMALLEST_EDGE = 32  # voxels; no smaller grid is proposed
SMALLEST_FRACTION = 0.125  # of the recipe's voxels; below it quality suffers so much that the user has to decide


class TooLittleMemory(UserError):
    """A run does not fit into the GPU's memory.

    num_voxels: the largest that fits; None if it is far smaller. sparse: whether sparse grids, which the run does not
    have, would take less. in_host: whether it fits with features in host memory.
    """

    def __init__(self, message: str, num_voxels: int | None, sparse: bool = False, in_host: bool = False) -> None:
        super().__init__(message)
        self.num_voxels, self.sparse, self.in_host = num_voxels, sparse, in_host


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that training needs on its device, by purpose, and those in host memory."""

    values: int
    moments: int
    gradients: int
    images: int
    samples: int
    libraries: int = LIBRARY_BYTES
    window: int = 0  # of features that are in host memory
    averages: int = 0
    in_host: int = 0  # of features and their moments, not on the device

    @property
    def total(self) -> int:
        return sum(asdict(self).values()) - self.in_host

    def __str__(self) -> str:
        optional = ("window", "averages", "in_host")
        sizes = {name: size for name, size in asdict(self).items() if name not in optional or size}
        away = sizes.pop("in_host", 0)
        parts = " + ".join(f"{name} {size / GIB:.2f}" for name, size in sizes.items())
        return f"{parts} = {self.total / GIB:.2f} GiB" + (f", and {away / GIB:.2f} in host memory" if away else "")


def plan_memory(config: Config, finest: Resolution, images: PosedImages, most_voxels: int = 0) -> MemoryPlan:
    """The memory plan of a run. config: resolved. finest: vertices of the grids after the last doubling.

    most_voxels: that sparse grids of a thin scene may have. These store no more values than the plan allows for, but
    their tables and occupancy are larger.
    """
    with torch.random.fork_rng(devices=[]):  # building an MLP draws random weights
        unit = SceneBox(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
        field = build_field(config.field, unit, (2, 2, 2), 1.0, select("torch", "cpu"))
    groups = field.parameter_groups()
    per_vertex = FLOAT * sum(group.parameter.shape[-1] for group in groups if group.on_vertices)
    network_bytes = FLOAT * sum(group.parameter.numel() for group in groups if not group.on_vertices)  # and background
    vertices = math.prod(finest)
    stored, index_bytes = 1.0, 0
    begins_finest = not config.field.upsample_at  # and the first grid is dense, on the device, until it is pruned
    in_host = config.train.features == "host" and not begins_finest
    sparse = config.field.sparse and not (config.deterministic or begins_finest)  # runs that repeat have dense grids
    if sparse and (in_host or sparse_saves(int(STORED_PER_ACTIVE * ACTIVE_FRACTION * vertices), finest)):
        stored = STORED_PER_ACTIVE * ACTIVE_FRACTION
        index_bytes = int(vertices * (BYTES_PER_VERTEX + LISTED * (stored + 2 * ACTIVE_FRACTION)))
    larger_lattice_bytes = int(max(0, most_voxels - vertices) * (BYTES_PER_VERTEX + BYTES_PER_CELL))
    # Of a vertex, as float32 where nothing else is said: what is on the device, and features that are in host memory.
    device_bytes = FLOAT if in_host else per_vertex
    feature_bytes = per_vertex - device_bytes
    moment_bytes = device_bytes if config.train.moments == "float32" else FLOAT + (device_bytes - FLOAT) // 2
    short = config.train.features != "host" and _has_short_values(config)
    value_bytes = moment_bytes if short else device_bytes  # and of gradients
    values = int(stored * vertices) * value_bytes + network_bytes
    pixels = images.pixels.nbytes + SILHOUETTE_BYTES * len(images.pixels) if config.train.images != "host" else 0
    depths = images.depths.nbytes if images.depths is not None and config.loss.depth > 0 else 0
    window = 0
    if in_host:
        rows = min(stored * vertices, WINDOW_ROWS_PER_SAMPLE * config.train.rays_per_step * _visible(config, finest))
        ahead = config.train.rays_per_step * (config.sampler.rays_per_pixel or 1) <= MOST_RAYS_AHEAD
        windows = 2 if ahead else 1  # this step's, with a gradient, and the next one's
        row_bytes = (windows + 1) * feature_bytes + windows * WINDOW_LISTS
        window = int(WINDOW_ROOM * rows * row_bytes + (windows + 1) * vertices * BYTES_PER_VERTEX)
    has_averages = config.train.average_from < 1 and config.train.features != "host"
    averages = int(ACTIVE_FRACTION * vertices) * per_vertex + network_bytes if has_averages else 0
    return MemoryPlan(
        values=values + index_bytes + larger_lattice_bytes,
        moments=2 * (int(ACTIVE_FRACTION * vertices) * moment_bytes + network_bytes),
        gradients=values,
        images=pixels + depths,
        samples=_samples(config, per_vertex, finest, field.deferred_grid is not None, value_bytes < device_bytes),
        window=window,
        averages=averages,
        in_host=int((stored + 2 * ACTIVE_FRACTION) * vertices) * feature_bytes // FLOAT * IN_HOST,
    )


def _has_short_values(config: Config) -> bool:
    """Whether values and gradients have 16 bits where moments do, on the GPU that is there or else on most."""
    known = config.device != "cpu" and torch.cuda.is_available()
    return not config.deterministic and (not known or adds_bfloat16(torch.device("cuda"), False))


def _visible(config: Config, finest: Resolution) -> float:
    """Visible samples of a pixel, at the most."""
    per_ray, per_pixel = _per_ray(config, finest), config.sampler.rays_per_pixel or 1
    settled = LATE_FRACTION if config.train.antialias_start >= LATE_FROM else VISIBLE_FRACTION
    return max(VISIBLE_FRACTION * per_ray, per_pixel * settled * per_ray)


def _per_ray(config: Config, finest: Resolution) -> float:
    """Samples of a ray."""
    return SAMPLES_PER_EDGE * sum(finest) / 3 * 0.5 / config.sampler.step_size_voxels


def _samples(config: Config, per_vertex: int, finest: Resolution, deferred: bool, short: bool) -> int:
    """Bytes for the samples of a step, plus those of an occupancy update, which overlap with a captured step.

    deferred: the MLP shades pixels, not samples. short: features are interpolated as bfloat16.
    """
    values = (2 if deferred and short else 4) * per_vertex  # read, composited, and a gradient of each
    hidden = getattr(config.field, "hidden_width", 0) * getattr(config.field, "hidden_layers", 0)
    network = 4 * FLOAT * hidden  # before and after each activation, and gradients; half of it in bfloat16
    visible, of_a_pixel = VISIBLE_FRACTION * _per_ray(config, finest), _visible(config, finest)
    shaded = 1 if deferred else of_a_pixel  # inputs of the MLP per pixel
    bytes_of_a_pixel = of_a_pixel * (BYTES_PER_SAMPLE + values) + shaded * network
    return int(config.train.rays_per_step * bytes_of_a_pixel + RAYS_PER_CHUNK["cuda"] * visible * BYTES_PER_SAMPLE)


def check_memory(config: Config, finest: Resolution, images: PosedImages, free: int) -> None:
    """Raises TooLittleMemory, with settings that would fit, if the plan needs more than the free bytes."""
    plan, host = plan_memory(config, finest, images), host_memory()[0]
    if plan.total <= free and host is not None and plan.in_host > host:
        raise UserError(
            f"train.features=host needs about {plan.in_host / GIB:.2f} GiB of host memory, and {host / GIB:.2f} GiB "
            "are free; give fewer voxels with field.num_voxels, or close other programs."
        )
    if plan.total <= free:
        return
    remedies = _remedies(config, finest, images, free)
    advice = f"{' or '.join(remedies)} would fit" if remedies else "nothing smaller would fit; use device=cpu"
    edge = _edge_that_fits(config, finest, images, free)
    large_enough = edge is not None and edge**3 >= SMALLEST_FRACTION * math.prod(finest)
    raise TooLittleMemory(
        f"this GPU has {free / GIB:.2f} GiB free and training needs about {plan.total / GIB:.2f} ({plan}); {advice}, "
        "or close other programs that use it.",
        edge**3 if large_enough else None,
        plan_memory(_sparse(config), finest, images).total < plan.total,
        _fits_in_host(config, finest, images, free),
    )


def most_that_fits(config: Config, finest: Resolution, images: PosedImages, most_voxels: int, free: int) -> int:
    """As many of most_voxels as the plan has room for in the free bytes; 0 where no more than those of finest fit."""
    room = free - plan_memory(config, finest, images).total
    fitting = math.prod(finest) + int(room / (BYTES_PER_VERTEX + BYTES_PER_CELL))
    most = min(most_voxels, fitting)
    return most if most > math.prod(finest) else 0


def _sparse(config: Config) -> Config:
    return replace(config, field=replace(config.field, sparse=True))


def _fits(config: Config, finest: Resolution, images: PosedImages, free: int, edge: int) -> bool:
    """Whether the plan fits with grids scaled to a mean edge of this many voxels."""
    scale = min(1.0, edge / math.prod(finest) ** (1 / 3))
    smaller = tuple(math.ceil(n * scale) + 1 if scale < 1 else n for n in finest)
    return plan_memory(config, smaller, images).total <= free


def _fits_in_host(config: Config, finest: Resolution, images: PosedImages, free: int) -> bool:
    """Whether the plan would fit with features in host memory, and these there."""
    if config.train.features == "host" or config.deterministic:
        return False
    moved = replace(_sparse(config), train=replace(config.train, features="host"))
    plan, host = plan_memory(moved, finest, images), host_memory()[0]
    return plan.total <= free and (host is None or plan.in_host <= host)


def _for_host(config: Config) -> str:
    """The settings that put features into host memory: what recipes would set beside it may have been given."""
    values = flat(asdict(config))
    needed = {name: value for name, value in FEATURES_IN_HOST_MEMORY.items() if values[name] != value}
    if config.loss.tv_global == 0:
        needed.pop("loss.tv_until", None)
    words = [f"{name}={'true' if value is True else f'{value:g}'}" for name, value in needed.items()]
    return " ".join(["train.features=host", *words])


def _edge_that_fits(config: Config, finest: Resolution, images: PosedImages, free: int) -> int | None:
    edges = range(round(math.prod(finest) ** (1 / 3)), SMALLEST_EDGE - 1, -8)
    return next((edge for edge in edges if _fits(config, finest, images, free, edge)), None)


def _remedies(config: Config, finest: Resolution, images: PosedImages, free: int) -> list[str]:
    """Changes of settings, each of which makes the plan fit; the last may combine several."""

    def changed(rays: int, where: str) -> Config:
        return replace(config, train=replace(config.train, rays_per_step=rays, images=where))

    edge, rays, where = round(math.prod(finest) ** (1 / 3)), config.train.rays_per_step, config.train.images
    found = []
    if not config.field.sparse and _fits(_sparse(config), finest, images, free, edge):
        found.append("field.sparse=true")
    if where != "host" and _fits(changed(rays, "host"), finest, images, free, edge):
        found.append("train.images=host")
    if _fits_in_host(config, finest, images, free):
        found.append(_for_host(config))
    fewer = next(
        (r for r in (rays // 2, rays // 4, rays // 8) if r and _fits(changed(r, where), finest, images, free, edge)),
        None,
    )
    if fewer:
        found.append(f"train.rays_per_step={fewer}")
    for fewer, place in ((rays, where), (rays, "host"), (max(1, rays // 8), "host")):
        smaller = _edge_that_fits(changed(fewer, place), finest, images, free)
        if smaller:
            others = f" train.rays_per_step={fewer}" * (fewer != rays) + f" train.images={place}" * (place != where)
            found.append(f"field.num_voxels={smaller**3}{others}")
            break
    return found


def free_bytes(device: torch.device) -> int:
    """Bytes that this process can still use: free on the device, or reserved by PyTorch and unused."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
