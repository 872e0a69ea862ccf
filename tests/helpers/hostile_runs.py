"""Files of small runs, damaged or with forged content, and what has to hold of the answer."""

import copy
import functools
import io
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from mutations import EVIL_JSON, damaged, forged, limited, places
from tiny_runs import STEPS, run_to, tiny_config, tiny_images

from nerf.cameras.distortion import Lenses
from nerf.config.recipes import resolve_config
from nerf.config.schema import Config, DatasetConfig, ExposureConfig, PosesConfig
from nerf.datasets.posed_images import PosedImages
from nerf.errors import TrainingStopped, UserError
from nerf.ops.backend import select
from nerf.runs import checkpoint
from nerf.runs.open_run import restored
from nerf.training.initial_state import init_state

BACKEND = select("native", "cpu")
FILES = ("model.pt", "resume.pt")
PIXELS = 64  # that are rendered of what could be read
RAYS = 128  # of a step, where a file does not say


def _learning() -> Config:
    poses = PosesConfig(mode="refine", start=0.0, initial_num_voxels=500, coarse_to_fine_end=0.6, intrinsics=True)
    return replace(tiny_config(), poses=poses, exposure=ExposureConfig(learn=True, vignetting=True))


RUNS: dict[str, Callable[[], Config]] = {
    "voxel_sh": tiny_config,
    "voxel_deferred": lambda: tiny_config("voxel_deferred"),
    "learning": _learning,
    "unbounded": lambda: replace(
        tiny_config("voxel_mlp"),
        dataset=DatasetConfig(kind="unbounded", aabb=[-1.0, -1.0, -1.0, 1.0, 1.0, 1.0], background="learned"),
    ),
}


@functools.cache
def images_of(name: str) -> PosedImages:
    """The training images; those of one run have lenses."""
    images = tiny_images()
    if name != "learning":
        return images
    lenses = Lenses.of(["perspective"] * len(images), [[0.01, 0.001]] * len(images))
    return replace(images, cameras=replace(images.cameras, lenses=lenses))


@functools.cache
def files_of_run(name: str) -> dict[str, bytes]:
    """The bytes of both files of a run that was stopped in the middle."""
    images = images_of(name)
    config = resolve_config(RUNS[name](), "cpu", RUNS[name]().dataset.kind.replace("auto", "bounded"))
    state = init_state(config, images, BACKEND)
    run_to(config, state, STEPS // 3)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(Path(folder), config, state, images.cameras)
        return {file: (Path(folder) / file).read_bytes() for file in FILES}


def content_of(data: bytes) -> dict[str, Any]:
    return torch.load(io.BytesIO(data), weights_only=True)


def bytes_of(content: object) -> bytes:
    data = io.BytesIO()
    torch.save(content, data)
    return data.getvalue()


def with_last(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """A tensor whose last value is another one, as far as its dtype has it."""
    changed = tensor.clone()
    if changed.numel():
        changed.view(-1)[-1] = value if tensor.is_floating_point() else 100
    return changed


TENSORS: tuple[Callable[[torch.Tensor], object], ...] = (
    lambda t: t[..., :-1] if t.dim() else t,
    lambda t: t[:0] if t.dim() else t,
    lambda t: torch.cat([t, t]) if t.dim() else t,
    lambda t: t.reshape(-1),
    lambda t: t[None],
    lambda t: t.double(),
    lambda t: t.to(torch.uint8),
    lambda t: t.to(torch.complex64),
    lambda t: with_last(t, math.nan),
    lambda t: with_last(t, math.inf),
    lambda t: with_last(t, -1e38),
    lambda t: with_last(t, 0.0),
    lambda t: -t.float(),
    lambda t: t.flatten()[:1].expand(t.shape) if t.numel() else t,
    lambda t: t.flatten()[:1].expand(10**15) if t.numel() else t,
    lambda t: t.to_sparse() if t.is_floating_point() else t,
    lambda t: torch.nn.Parameter(t) if t.is_floating_point() else t,
    lambda t: t.tolist(),
)
EVIL = (*EVIL_JSON, 2**70, torch.zeros(0), torch.zeros(1), torch.zeros(3, 4), torch.zeros(2, dtype=torch.int64))


@st.composite
def hostile_run(draw: st.DrawFn, name: str) -> tuple[str, bytes]:
    """A file of a run, damaged or, more often, forged: its name and its bytes."""
    file = draw(st.sampled_from(FILES))
    data = files_of_run(name)[file]
    if draw(st.integers(0, 5)) == 0:
        return file, damaged(draw, data)
    content = content_of(data)
    if draw(st.booleans()):
        tensors = [place for place in places(content) if isinstance(place[0][place[1]], torch.Tensor)]
        holder, key = draw(st.sampled_from(tensors))
        holder[key] = copy.deepcopy(draw(st.sampled_from(TENSORS))(holder[key]))
    else:
        content = forged(draw, content, EVIL)
    return file, bytes_of(content)


def answer_of_run(folder: Path, name: str, file: str) -> str | None:
    """How a forged file is answered: with a sentence, which is returned, or with a run that renders or goes on."""
    load = checkpoint.load if file == "model.pt" else checkpoint.load_resume
    try:
        with limited((folder / file).stat().st_size):
            content = load(folder / file)
            config = checkpoint.restore_config(content)
            loaded = restored(folder, content, config, BACKEND)
            rays = loaded.cameras.pixel_range_rays(0, 0, PIXELS)
            assert rays.origins.isfinite().all() and rays.directions.isfinite().all()
            rendering = loaded.render(loaded.cameras[0].within(8))
            assert rendering.rgb.isfinite().all()
            if file == "resume.pt":
                if config.train.rays_per_step is None:  # left out: the recipe's batch takes more memory than reading
                    config = replace(config, train=replace(config.train, rays_per_step=RAYS))
                config = resolve_config(config, "cpu", loaded.field.box.space.kind)
                state = checkpoint.restore_run(content, config, images_of(name), BACKEND)
                run_to(config, state, state.clock.step + 1)
    except TrainingStopped as error:  # numbers that are finite and still beyond all training
        return str(error)
    except UserError as error:
        assert str(folder) in str(error) or "trained on" in str(error), error
        return str(error)
    return None


def answer_to(name: str, folder: Path, file: str, data: bytes) -> str | None:
    """The answer to a run one of whose files has other bytes."""
    (folder / file).write_bytes(data)
    return answer_of_run(folder, name, file)
