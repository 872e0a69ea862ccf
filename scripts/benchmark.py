"""Measure every operation on its own: error, time from cold and warm caches, floor, and PyTorch beside it.

    python scripts/benchmark.py                                      on the GPU if there is one, else on the CPU
    python scripts/benchmark.py benchmark.ops=[interpolate_trilinear,composite_rays]
    python scripts/benchmark.py benchmark.variants=mine.py           functions named like operations become rows

The run folder gets benchmark.json. The exit status is 1 if a row does not compute what float64 does; such rows are
marked WRONG and count for nothing. Meanings, shapes and names of the operations: nerf/ops/reference.py.
"""

import dataclasses
import datetime
import json
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from _hydra import run  # before torch
from _report import commit
from _tables import benchmark_rows_table, benchmark_table

from nerf.benchmark import BenchmarkConfig, benchmark, wrong_rows
from nerf.config import setting
from nerf.ops.backend import device_name, select

STARTED = time.perf_counter()


@dataclass
class BenchmarkScriptConfig:
    benchmark: BenchmarkConfig = dataclasses.field(default_factory=BenchmarkConfig)
    device: str = setting("auto", "where", choices=("auto", "cuda", "cpu"))


def main(config: BenchmarkScriptConfig, folder: Path, overrides: list[str]) -> None:
    device = select("native", config.device).device
    result = benchmark(config.benchmark, device, _say) | {
        "device": device_name(device),
        "seconds": time.perf_counter() - STARTED,
        "settings": asdict(config.benchmark),
        "torch": torch.__version__,
        "commit": commit(),
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "benchmark.json"
    path.write_text(_compact(json.dumps(result, indent=1)) + "\n")
    print(f"\n{benchmark_rows_table(result)}\n\n{benchmark_table(result)}\n\n{path}")
    wrong = wrong_rows(result)
    if wrong:
        print(f"error: these differ from float64: {'; '.join(wrong)}.", file=sys.stderr)
        sys.exit(1)


def _compact(text: str) -> str:
    """JSON with every list of numbers on one line."""
    return re.sub(r"\[[^][{}\"]*\]", lambda match: " ".join(match[0].split()), text)


def _say(what: str) -> None:
    print(f"{time.perf_counter() - STARTED:4.0f} s  {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run("benchmark", BenchmarkScriptConfig, main, __doc__)
