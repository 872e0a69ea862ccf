"""A run of very many small steps: memory, open files, threads and the time of a step stay what they were.

    python tests/fuzz/long_run.py 1000000

Each tenth of the run is compared with the second one: in the first, doublings and prunings still change the grid.
Status 1 if memory or the number of open files or threads grew, or if a step took longer.
"""

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from tiny_runs import tiny_config, tiny_state  # noqa: E402

from nerf.training.loop import train  # noqa: E402

PARTS = 10
MEMORY_GROWTH = 8 << 20  # bytes; what allocators keep moves by some
SLOWER = 1.5  # times the step, in processor time: other processes take the clock's


@dataclass(frozen=True)
class Facts:
    """What a part of the run left behind."""

    step: int
    memory: int  # bytes, resident
    files: int
    threads: int
    step_seconds: float  # of the processor

    @classmethod
    def now(cls, step: int, seconds: float) -> "Facts":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        files, tasks = (len(list(Path(f"/proc/self/{name}").iterdir())) for name in ("fd", "task"))
        return cls(step, 4096 * pages, files, tasks, seconds)

    def __str__(self) -> str:
        return (
            f"step {self.step}: {self.memory / 2**20:.1f} MiB, {self.files} files, {self.threads} threads, "
            f"{1e3 * self.step_seconds:.3f} ms of the processor a step"
        )


def grown(settled: Facts, last: Facts) -> list[str]:
    """What is no longer as it was."""
    found = []
    if last.memory > settled.memory + MEMORY_GROWTH:
        found.append(f"memory grew by {(last.memory - settled.memory) / 2**20:.1f} MiB")
    for name in ("files", "threads"):
        if getattr(last, name) > getattr(settled, name):
            found.append(f"{name} grew from {getattr(settled, name)} to {getattr(last, name)}")
    if last.step_seconds > SLOWER * settled.step_seconds:
        found.append(f"a step took {last.step_seconds / settled.step_seconds:.2f} times as long")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--field", default="voxel_deferred")
    given = parser.parse_args()
    every = max(1, given.steps // PARTS)
    config = tiny_config(given.field, steps=given.steps, rays_per_step=64, log_every=every)
    # Ten prunings in all: each takes as long as a hundred of these steps.
    config, state = tiny_state(replace(config, occupancy=replace(config.occupancy, update_interval=0.1)))
    parts, began, before = [], time.process_time(), 0
    for metrics in train(config, state):
        if metrics.step % every:
            continue
        now = time.process_time()
        parts.append(Facts.now(metrics.step, (now - began) / (metrics.step - before)))
        print(parts[-1], f"loss {metrics.losses['photometric']:.3g}", flush=True)
        began, before = now, metrics.step
    problems = grown(parts[1], parts[-1])
    print("\n".join(problems) or f"{given.steps} steps: nothing grew")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
