"""Forged and damaged checkpoints: refused in a sentence before anything is made of them, or whole.

FORGED holds what once ended otherwise; hypothesis looks for more, here a little and in tests/fuzz/readers.py at length.
"""

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_runs import RUNS, answer_to, bytes_of, content_of, files_of_run, hostile_run
from hypothesis import HealthCheck, given, settings

from nerf.errors import UserError
from nerf.runs import checkpoint
from nerf.runs.packed_grids import deflated

FEW = 50  # files for each run


def put(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Puts a value, or what a function makes of the value there, under a path of keys."""

    def change(content: dict[str, Any]) -> None:
        *above, last = path.split(".")
        for key in above:
            content = content[int(key) if key.isdigit() else key]
        content[last] = value(content.get(last)) if callable(value) else value

    return change


def first_grid(value: object) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        name = next(iter(content["grids"]))
        content["grids"][name] = value(content["grids"][name]) if callable(value) else value

    return change


# Run, file, what is changed, and what the sentence says.
FORGED: dict[str, tuple[str, str, Callable[[dict[str, Any]], None], str]] = {
    "no box": ("voxel_sh", "model.pt", put("aabb", None), "aabb is missing, expected a tensor"),
    "flat box": ("voxel_sh", "model.pt", put("aabb", torch.zeros(2, 3)), "expected a box"),
    "box without end": (
        "voxel_sh", "model.pt", put("aabb", torch.tensor([[-1e30] * 3, [1e30] * 3])),
        "aabb holds -1e+30",
    ),
    "space of nothing": ("voxel_sh", "model.pt", put("space", {}), "space is of the kind None"),
    "space with another near": ("voxel_sh", "model.pt", put("space.near", "x"), "space.near is 'x'"),
    "space to come": ("voxel_sh", "model.pt", put("space.warp", 1.0), "'warp', which is unknown"),
    "resolution of words": ("voxel_sh", "model.pt", put("resolution", ["8", 8, 8]), "resolution[0] is '8'"),
    "resolution without end": ("voxel_sh", "model.pt", put("resolution", [2**20] * 3), "vertices"),
    "voxel of nothing": ("voxel_sh", "resume.pt", put("finest_voxel", 1e-29), "finest_voxel is 1e-29"),
    "entry to come": ("voxel_sh", "model.pt", put("gamma", lambda _: 1.0), "'gamma', which is unknown"),
    "setting to come": ("voxel_sh", "model.pt", put("config.train.gamma", lambda _: 1.0), "gamma"),
    "setting of another type": ("voxel_sh", "model.pt", put("config.seed", []), "seed=[]"),
    "list of other things": ("voxel_sh", "resume.pt", put("config.field.upsample_at", [None]), "upsample_at[0]=None"),
    "field that is none": ("voxel_sh", "model.pt", put("config.field.name", "auto"), "no setting 'field.sh_degree'"),
    "noise of nothing": (
        "voxel_deferred", "model.pt", put("config.field.feature_noise", None),
        "field.feature_noise is none",
    ),
    "voxels without end": ("voxel_sh", "resume.pt", put("most_voxels", 2**31), "most_voxels is 2147483648"),
    "group that is none": ("voxel_sh", "model.pt", put("config.train", 3), "damaged or no checkpoint"),
    "grid of another field": ("voxel_sh", "model.pt", first_grid(deflated(torch.zeros(9, 1).half())), ".shape is"),
    "grid that inflates": (
        "voxel_sh", "model.pt", first_grid(deflated(torch.zeros(20_000_000, 1).half())), ".shape is"
    ),
    "planes of numbers": (
        "voxel_sh", "model.pt", first_grid(lambda grid: grid | {"planes": [1, 2]}),
        ".planes[0] is 1",
    ),
    "cameras of nobody": ("voxel_sh", "model.pt", put("cameras.c2w", torch.zeros(0, 3, 4)), "cameras"),
    "cameras beyond float32": ("voxel_sh", "model.pt", put("cameras.c2w", lambda c: c * 1e30), "cameras.c2w holds"),
    "lens of nobody": (
        "learning", "model.pt", put("cameras.lenses.models", lambda m: ["x"] * len(m)),
        "models: found 'x'",
    ),
    "values that repeat": (
        "voxel_sh", "resume.pt", put("field.density_grid", lambda t: torch.ones(1).expand(t.shape)),
        "fewer values",
    ),
    "values that are none": ("voxel_sh", "resume.pt", put("field.density_grid", lambda t: t * torch.nan), "holds nan"),
    "moments of others": ("voxel_sh", "resume.pt", put("optimizer", {}), "optimizer.step_number is missing"),
    "generator of nothing": (
        "voxel_sh", "resume.pt", put("generator", lambda t: t * 0 + 255),
        "damaged or no checkpoint",
    ),
    "pool of other images": ("voxel_sh", "resume.pt", put("pool", lambda t: t + 10**6), "pool of pixels"),
    "clock that stands": ("voxel_sh", "resume.pt", put("clock.first_step", 40), "damaged or no checkpoint"),
    "samples without end": ("voxel_sh", "resume.pt", put("capacity", 2**32), "capacity is 4294967296"),
    "doublings without end": ("voxel_sh", "resume.pt", put("num_upsamplings", 99), "99 doublings of 2"),
    "poses of nobody": ("learning", "resume.pt", put("learners.poses.values.increments", torch.zeros(1, 6)), "[1, 6]"),
    "learner to come": ("voxel_sh", "resume.pt", put("learners.lights", lambda _: {}), "'lights', which is unknown"),
}  # fmt: skip


def forged(run: str, file: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    content = content_of(files_of_run(run)[file])
    change(content)
    return bytes_of(content)


@pytest.mark.parametrize("case", FORGED)
def test_what_once_ended_otherwise(tmp_path: Path, case: str) -> None:
    run, file, change, expected = FORGED[case]
    found = answer_to(run, tmp_path, file, forged(run, file, change))
    assert found is not None and expected in found, found
    assert str(tmp_path / file) in found and "Train again, or name another run." in found


@pytest.mark.parametrize("run", RUNS)
def test_any_forgery_is_answered(tmp_path: Path, run: str) -> None:
    @settings(max_examples=FEW, deadline=None, database=None, derandomize=True, suppress_health_check=HealthCheck)
    @given(hostile_run(run))
    def read(changed: tuple[str, bytes]) -> None:
        answer_to(run, tmp_path, *changed)

    read()


@pytest.mark.parametrize("run", RUNS)
def test_what_was_written_is_described(tmp_path: Path, run: str) -> None:
    """So a new entry cannot be written before it is described, and read by no one."""
    for file, data in files_of_run(run).items():
        assert answer_to(run, tmp_path, file, data) is None


def test_what_is_compressed_is_not_read(tmp_path: Path) -> None:
    """torch.save compresses nothing; a compressed entry may have a thousand times the size of the file."""
    source = zipfile.ZipFile(io.BytesIO(files_of_run("voxel_sh")["model.pt"]))
    with zipfile.ZipFile(tmp_path / "model.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in source.infolist():
            archive.writestr(entry.filename, source.read(entry))
    with pytest.raises(UserError, match="model.pt is damaged .*compressed, or larger inside"):
        checkpoint.load(tmp_path / "model.pt")


def test_a_model_larger_than_the_memory_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.pt").write_bytes(files_of_run("voxel_sh")["model.pt"])
    monkeypatch.setattr(checkpoint, "host_memory", lambda: (10_000, None))
    with pytest.raises(UserError, match="model.pt takes 0.0 GiB of memory .* this machine has 0.0 GiB free"):
        checkpoint.load(tmp_path / "model.pt")


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "pipe"])
def test_runs_that_are_none(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    for load in (checkpoint.load, checkpoint.load_resume):
        with pytest.raises(UserError, match="does not exist"):
            load(tmp_path / name)
