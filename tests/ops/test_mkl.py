"""The mode in which MKL multiplies matrices: strict from `import nerf` on, whatever was imported first."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import warm_python
from script_runs import ROOT, TIMEOUT

MODE = "import os; from nerf.ops.mkl import multiplies_in_one_order as strict; print(os.environ['MKL_CBWR'], strict())"
PRODUCT = "torch.ones(9, 9) @ torch.ones(9, 9)"
pytestmark = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this PyTorch multiplies without MKL")


def run(program: str, start: Callable = warm_python.run, **settings: str) -> str:
    """What the program prints. Unless it is started otherwise, PyTorch is imported before it, and has made nothing."""
    free = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    command, env = [sys.executable, "-c", program], free | {"PYTHONPATH": str(ROOT), **settings}
    found = start(command, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_products_are_strict_unless_some_were_made_before() -> None:
    best = "AVX512" if torch.backends.cpu.get_cpu_capability() == "AVX512" else "AVX2"
    assert run(f"import nerf; {MODE}", subprocess.run) == f"{best},STRICT True"
    assert run(f"import torch, nerf; {PRODUCT}; {MODE}") == f"{best},STRICT True"
    assert run(f"import torch; {PRODUCT}; import nerf; {MODE}") == f"{best},STRICT False"


@pytest.mark.parametrize("mode", ["AVX2", "COMPATIBLE,STRICT"])
def test_what_the_user_has_set_stays(mode: str) -> None:
    assert run(f"import nerf; {MODE}", MKL_CBWR=mode) == f"{mode} False"
