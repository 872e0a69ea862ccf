"""A run that saves after every step, again and again for test_kill.py: each line on standard input starts it once more.

    python tests/helpers/killed_run.py FOLDER

Each time a fork of this process, which has paid for the imports, resumes the run in FOLDER, or begins it, and writes
its process id when it starts and "saved" after its first checkpoint.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]
import nerf  # noqa: E402, F401 - before torch, as the scripts do

# isort: split
from tiny_runs import tiny_config, tiny_images, tiny_state  # noqa: E402

from nerf.config.schema import Config  # noqa: E402
from nerf.ops.backend import select  # noqa: E402
from nerf.runs import checkpoint  # noqa: E402
from nerf.training.loop import train  # noqa: E402
from nerf.training.state import TrainState  # noqa: E402

STEPS = 2000  # more than are ever done: the run does not end by itself


def config_of_run() -> Config:
    config = tiny_config(steps=STEPS, save_every=1, rays_per_step=64)
    occupancy = replace(config.occupancy, start=10 / STEPS, update_interval=9 / STEPS)
    return replace(config, field=replace(config.field, upsample_at=[6 / STEPS, 12 / STEPS]), occupancy=occupancy)


def open_or_begin(folder: Path) -> tuple[Config, TrainState]:
    if not (folder / checkpoint.RESUME_FILE).exists():
        return tiny_state(config_of_run())
    content = checkpoint.load_resume(folder)
    config = checkpoint.restore_config(content)
    return config, checkpoint.restore_run(content, config, tiny_images(), select("native", "cpu"))


def main(folder: Path) -> None:
    tiny_images(), select("native", "cpu")  # loaded once, for all forks
    for _ in sys.stdin:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        sys.stdout.write(f"{os.getpid()}\n")
        config, state = open_or_begin(folder)
        first = state.clock.step + 1
        for look in train(config, state):
            checkpoint.save(folder, config, state, tiny_images().cameras)
            if look.step == first:
                sys.stdout.write("saved\n")
                sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
