"""mode=ranks of benchmark.py: measures steps on one or several ranks and writes ranks.json."""

import json
from collections.abc import Callable
from pathlib import Path

from nerf.benchmarks.ranks import measure_rank
from nerf.cli.benchmark_curve import compact
from nerf.cli.ranks import divided, prepare_rank
from nerf.cli.report import provenance
from nerf.config.schema import Config
from nerf.datasets.load import load_split
from nerf.distributed.world import World
from nerf.errors import TrainingStopped, UserError
from nerf.files import write_text
from nerf.ops.backend import device_name
from nerf.runs.run import start
from nerf.system import usable_cores


def run_ranks(config: Config, folder: Path, log: Callable[[str], None], world: World | None) -> None:
    """Trains to nine tenths of the config's run, on all ranks of world or alone, and measures steps."""
    if world is not None:
        prepare_rank(world, config)
    run = start(config, load_split(config.dataset, "train"))
    if world is not None:
        run = divided(run, world)
    log(f"training on {1 if world is None else world.size} ranks")
    try:
        own = measure_rank(run, world)
    except TrainingStopped as error:
        raise UserError(f"the run stopped: {error}. {error.remedy}.") from error
    ranks = [own] if world is None else world.all_gather_objects(own)
    if world is not None and not world.leads:
        return
    samples = [rank["samples_per_step"] for rank in ranks]
    result = {
        "scene": config.dataset.scene,
        "device": device_name(run.state.device),
        "field": run.config.field.name,
        "cores": usable_cores(),
        "sparse": run.config.field.sparse,
        "resolution": list(run.state.field.resolution),
        "rays_per_step": run.config.train.rays_per_step * run.state.rays_per_pixel,
        "ranks": ranks,
        "imbalance": max(samples) * len(samples) / max(sum(samples), 1),  # of the fullest part over the mean
        "clock": "process" if run.state.device.type == "cpu" else "wall",
        **provenance(),
    }
    path = folder / "ranks.json"
    write_text(path, compact(json.dumps(result, indent=1)) + "\n")
    for rank, row in enumerate(ranks):
        exchanged = ", ".join(f"{name} {count / 1e3:.1f} kB" for name, count in row["bytes_per_step"].items())
        print(
            f"rank {rank}: {1e3 * row['seconds_per_step']:.2f} ms, {row['samples_per_step']:.0f} samples, "
            f"{row['vertices']} vertices, {sum(row['scene_bytes'].values()) / 1e6:.1f} MB of the scene, "
            f"{row['peak_memory_bytes'] / 2**30:.2f} GiB in all; {exchanged or 'nothing sent'}"
        )
    print(f"fullest part {result['imbalance']:.2f} x the mean\n{path}")
