"""How OpenMP's threads wait: asleep, whether nerf or torch is imported first, unless the user has said otherwise."""

import os
import subprocess
import sys

import pytest
from script_runs import ROOT, TIMEOUT

# Prints the processor time between parallel loops, in which nothing is to be done.
IDLE = """
import time
import torch
x = torch.ones(1 << 18)
for _ in range(3):
    x.add_(1)
began = time.process_time()
for _ in range(100):
    x.add_(1)
    time.sleep(0.004)
print(time.process_time() - began)
"""


def run(program: str, **settings: str) -> str:
    free = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    command, env = [sys.executable, "-c", program], free | {"PYTHONPATH": str(ROOT), **settings}
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


POLICY = "import os; print(os.environ.get('OMP_WAIT_POLICY'))"


def test_the_package_decides_before_torch_is_there() -> None:
    decided = f"import nerf, sys; assert 'torch' not in sys.modules; {POLICY}"
    assert run(f"{decided}; import nerf.cli.train; {POLICY}").split() == ["PASSIVE", "PASSIVE"]


def test_what_the_user_has_set_stays() -> None:
    assert run(f"import nerf; {POLICY}", OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"
    assert run(f"import nerf; {POLICY}", GOMP_SPINCOUNT="1000") == "None"
    assert run(f"import torch, nerf; {POLICY}", GOMP_SPINCOUNT="1000") == "None"
    started = "import torch, nerf, threading; print(threading.active_count())"
    assert run(started, OMP_WAIT_POLICY="ACTIVE") == run(started, OMP_NUM_THREADS="1") == "1"


def test_threads_sleep_between_loops_where_torch_was_imported_first() -> None:
    """Spinning takes the processor, so its time tells, however busy the machine is."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core has no thread to wait with")
    spinning, asleep = (float(run(f"import torch\n{first}\n{IDLE}")) for first in ("", "import nerf"))
    assert asleep < spinning / 3
    assert float(run(f"import nerf\n{IDLE}")) < spinning / 3
