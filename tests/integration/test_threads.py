"""Training on a CPU gives the same bits for one thread and for two: with deterministic=true, or in small batches.

PyTorch's loops cut tensors of more than 32768 numbers at other places for each number of threads
(cuda_ext/README.md, "Promises"); the batches of experiment=smoke are smaller, so what is compared there is all ours.
"""

import os
import subprocess
import sys
from pathlib import Path

from script_runs import TIMEOUT

ROOT = Path(__file__).resolve().parents[2]
HELPERS = ROOT / "tests" / "helpers"
RUNS = {
    "field=voxel_sh loss.distortion=0.01": 8,
    "field=voxel_mlp poses=refine": 2,
    **{
        f"{settings} train.rays_per_step=6000 field.num_voxels=60000 deterministic=true": 3
        for settings in (
            "field=voxel_sh loss.distortion=0.01",
            "field=voxel_mlp poses=refine",
            "field=voxel_deferred exposure.learn=true",
        )
    },
}
# Steps from a seed, then a hash of all parameters. Arguments: threads, steps, settings.
PROGRAM = """
import hashlib, sys
from pathlib import Path

import torch
from hulls import carved_once

from nerf.cli.hydra_app import compose
from nerf.cli.train import TrainScriptConfig
from nerf.config.recipes import resolve_config
from nerf.datasets.blender import load_blender
from nerf.ops.backend import select
from nerf.training.initial_state import init_state
from nerf.training.loop import StopWhen, train

threads, *runs = sys.argv[1:]
for run in runs:
    steps, *settings = run.split()
    torch.set_num_threads(int(threads))
    config = compose("train", TrainScriptConfig, ["experiment=smoke", *settings])
    backend = select("native", "cpu", config.deterministic)
    config = resolve_config(config, backend.device.type)
    images = load_blender(Path("data/bricks"), "train", config.dataset.downscale)
    with carved_once():  # by one thread or by two
        state = init_state(config, images, backend)
    list(train(config, state, [StopWhen(lambda: state.clock.step >= int(steps))]))
    digest = hashlib.sha256()
    for name, parameter in state.field.state_dict().items():
        digest.update(name.encode() + parameter.detach().contiguous().numpy().tobytes())
    print(run, torch.get_num_threads() == (1 if config.deterministic else int(threads)), digest.hexdigest())
"""


def test_one_thread_and_two_train_the_same_bits():
    runs = [f"{steps} {settings}" for settings, steps in RUNS.items()]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{HELPERS}", "CUDA_VISIBLE_DEVICES": ""}
    found = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, threads, *runs],
            cwd=ROOT,
            env=environment | {"OMP_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT,
        ).stdout
        for threads in ("1", "2")
    ]
    assert found[0] == found[1] and found[0].count(" True ") == len(RUNS)
