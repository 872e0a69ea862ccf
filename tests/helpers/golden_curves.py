"""Losses of the first 200 steps of each field in each kind of scene, at tiny size.

    PYTHONPATH=.:tests/helpers python tests/helpers/golden_curves.py            writes tests/golden/curves.txt anew
    PYTHONPATH=.:tests/helpers python tests/helpers/golden_curves.py cuda       curves_cuda.txt: a GPU, three seeds

A change that moves them on purpose says so in its commit.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from tiny_runs import tiny_config, tiny_images

from nerf.config.recipes import resolve_config
from nerf.config.schema import FIELDS, Config, DatasetConfig
from nerf.ops.backend import select
from nerf.training.initial_state import init_state
from nerf.training.loop import train
from nerf.training.warmup import synthetic_scene

STEPS, EVERY = 200, 10
KINDS = {"bounded": "random", "forward_facing": "random", "unbounded": "learned"}  # with their background
RUNS = [(field, kind) for field in FIELDS if field != "auto" for kind in KINDS]
GOLDEN = Path(__file__).parents[1] / "golden"
FILES = {"cpu": GOLDEN / "curves.txt", "cuda": GOLDEN / "curves_cuda.txt"}


def config_of(name: str, kind: str, seed: int) -> Config:
    """200 steps in which all happens that happens in a long run."""
    config = tiny_config(name, steps=STEPS, rays_per_step=256, log_every=EVERY)
    dataset = DatasetConfig(scene="sphere", background=KINDS[kind], kind=kind)
    field = replace(config.field, initial_num_voxels=0)  # a tiny grid is coarser than the first one of photos
    return replace(config, dataset=dataset, field=field, seed=seed, deterministic=True)


def curve(field: str, kind: str, device: str = "cpu", seed: int = 0) -> list[float]:
    """The photometric loss, means of ten steps from step 11 on."""
    backend = select("native", device, deterministic=True)
    config = resolve_config(config_of(field, kind, seed), device, kind)
    images = synthetic_scene(kind) if kind == "forward_facing" else tiny_images()
    state = init_state(config, images, backend)
    return [m.losses["photometric"] for m in train(config, state) if m.step > EVERY]


def golden(device: str) -> dict[tuple[str, str], list[list[float]]]:
    """By field and kind, the numbers of each line's columns."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for line in FILES[device].read_text().splitlines():
        field, kind, *numbers = line.split()
        found.setdefault((field, kind), []).append([float(x) for x in numbers])
    return found


def main(device: str) -> None:
    lines = []
    for field, kind in RUNS:
        seeds = (0,) if device == "cpu" else range(3)
        curves = torch.tensor([curve(field, kind, device, seed) for seed in seeds], dtype=torch.float64)
        for step, losses in enumerate(curves.T.tolist(), start=2):
            numbers = losses if device == "cpu" else [min(losses), max(losses)]
            lines.append(" ".join([field, kind, str(EVERY * step), *(f"{x:.9g}" for x in numbers)]))
    FILES[device].write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["cpu"])
