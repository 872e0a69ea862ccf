"""Random calls of the operations under compute-sanitizer's memcheck, a few here; ten thousand: docs/reliability.md."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[1] / "fuzz" / "ops.py"
# Those whose kernels read words or packs that tensors begin and end in, or follow lists of rows.
NAMES = "march_rays,march_visible,render_rays,sample_images,bring_rows,adam_rows,total_variation_grad"


def test_no_call_reads_or_writes_outside_of_its_tensors(cuda: str) -> None:
    tool = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if tool is None:
        pytest.skip("compute-sanitizer is not there: it comes with the CUDA toolkit")
    checked = [tool, "--target-processes=all", "--tool=memcheck", "--report-api-errors=no", "--error-exitcode=9"]
    calls = [sys.executable, str(FUZZ), "40", "--device", cuda, "--only", NAMES]
    found = subprocess.run([*checked, *calls], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
    assert found.stdout.count('"result"') == len(NAMES.split(",")) and "ERROR SUMMARY: 0 errors" in found.stdout
