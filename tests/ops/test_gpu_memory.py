"""How PyTorch keeps a GPU's memory from `import nerf` on."""

import os
import subprocess
import sys

import pytest
from script_runs import ROOT, TIMEOUT

from nerf.ops.gpu_memory import SETTINGS
from nerf.system import maps_gpu_memory

SHOWN = f"import os, nerf; print([os.environ.get(name) for name in {SETTINGS}])"
# Eight blocks are freed, and one as large as all of them is asked for.
RESERVED = """
import nerf, torch
blocks = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
del blocks
one = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
print(torch.cuda.memory_reserved() >> 20)
"""
pytestmark = pytest.mark.skipif(not maps_gpu_memory(), reason="this system maps no GPU's memory piece by piece")


def run(program: str, **settings: str) -> str:
    free = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command, env = [sys.executable, "-c", program], free | {"PYTHONPATH": str(ROOT), **settings}
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_segments_expand_unless_the_user_has_set_something() -> None:
    assert run(SHOWN) == "['expandable_segments:True', None]"
    assert run(SHOWN, PYTORCH_ALLOC_CONF="") == "['', None]"
    assert run(SHOWN, WORLD_SIZE="2") == "[None, None]"
    assert run(SHOWN, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64") == "[None, 'max_split_size_mb:64']"


def test_freed_memory_is_joined_again(cuda: str) -> None:
    assert int(run(RESERVED)) < 600
    assert int(run(RESERVED, PYTORCH_ALLOC_CONF="expandable_segments:False")) >= 1024
