"""Runs on several ranks from the command line: files, another number of ranks, and failures in words."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm_python
from fixtures import write_sphere_scene
from ranks import free_port

from nerf.runs import checkpoint

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (
    "dataset=blender",
    "experiment=smoke",
    "dataset.downscale=1",
    "device=cpu",
    "log=none",
    "train.rays_per_step=64",
    "field.num_voxels=1000",
    "train.log_every=5",
    "evaluation.every=4",
)
# After the doubling one process has sparse grids.
SPARSE = (
    "field.sparse=true",
    "field.num_voxels=80000",
    "field.min_voxel_pixels=0.05",
    "field.upsample_at=[0.3]",
    "field.min_level_steps=2",
    "occupancy.start=0.5",
)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ranks") / "sphere"
    write_sphere_scene(folder, views=4, size=16)
    return f"dataset.root={folder}"


def launch(count: int, *arguments: str, of_rank: dict[int, list[str]] | None = None) -> list[subprocess.Popen]:
    """The ranks of a run, as torchrun would start them. of_rank: more arguments of some ranks."""
    meeting = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = []
    for rank in range(count):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "RANK": str(rank), "LOCAL_RANK": str(rank)} | meeting
        command = [sys.executable, str(ROOT / "scripts/train.py"), *arguments, *(of_rank or {}).get(rank, [])]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        ranks.append(warm_python.Popen(command, env=environment, **pipes))
    return ranks


def ended(ranks: list[subprocess.Popen], seconds: float = 120) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of each rank, without the notes of those that waited for the others to begin."""
    try:
        texts = [rank.communicate(timeout=seconds) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    told = [(out, re.sub(r"note: rank \d+ of \d+ waits for the others: .*\n", "", errors)) for out, errors in texts]
    return [(rank.returncode, *text) for rank, text in zip(ranks, told, strict=True)]


def test_a_run_goes_on_with_another_number_of_ranks(scene: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    asked = ("train.steps=20", "train.moments=bfloat16", f"hydra.run.dir={folder}")
    first = ended(launch(2, *SETTINGS, *SPARSE, scene, *asked))
    assert [status for status, *_ in first] == [0, 0], first
    assert "PSNR" in first[0][1] and first[1][1:] == ("", "")  # rank 0 alone prints
    assert "train.moments=float32: bfloat16 needs one process" in first[0][2]
    assert checkpoint.load(folder)["step"] == checkpoint.load_resume(folder)["step"] == 20
    content = checkpoint.load_resume(folder)
    assert content["config"]["train"]["moments"] == "float32"
    assert content["field"]["density_grid"].dim() == 2
    assert len(content["optimizer"]["density_grid.exp_avg"]) == _active(content)
    for count, steps in ((1, 24), (3, 28)):
        again = ended(launch(count, f"resume={folder}", f"train.steps={steps}", "log=none", "evaluation.every=4"))
        assert [status for status, *_ in again] == [0] * count, again
        assert json.loads((folder / "metrics.json").read_text())["steps"] == steps
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]  # other ranks made no folder


def _active(content: dict) -> int:
    from nerf.scene.occupancy import OccupancyGrid

    return len(OccupancyGrid(content["occupied"]).active_vertices())


def test_a_killed_rank_ends_the_others_with_words(scene: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ranks = launch(2, *SETTINGS, scene, "train.steps=100000", "train.save_every=5", f"hydra.run.dir={folder}")
    deadline = time.monotonic() + 120
    while not (folder / "model.pt").exists() and time.monotonic() < deadline and ranks[0].poll() is None:
        time.sleep(0.1)
    ranks[1].send_signal(signal.SIGKILL)
    (status, _, errors), _ = ended(ranks)
    assert status == 2 and "rank 1 of 2" in errors and "it was killed" in errors, errors[-3000:]
    assert checkpoint.load_resume(folder)["step"] >= 5


def test_other_settings_are_told(scene: str, tmp_path: Path) -> None:
    folder = f"hydra.run.dir={tmp_path / 'run'}"
    both = ended(launch(2, *SETTINGS, scene, "train.steps=20", folder, of_rank={1: ["seed=4"]}))
    assert [status for status, *_ in both] == [2, 2]
    assert "rank 1 of 2" in both[0][2] and "has seed=4, and rank 0 has seed=0" in both[0][2]
    assert both[1][2] == ""


def test_an_error_of_one_rank_is_shown_by_rank_0(scene: str, tmp_path: Path) -> None:
    folder = f"hydra.run.dir={tmp_path / 'run'}"
    both = ended(launch(2, *SETTINGS, scene, "train.steps=20", folder, of_rank={1: ["trian.steps=4"]}))
    assert both[0][0] == 2 and "rank 1 of 2" in both[0][2] and "trian.steps" in both[0][2], both
