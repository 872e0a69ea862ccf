"""cuda_ext/wheel_matrix.py: pairs that work, fail or cannot be installed. Run by `make wheel-matrix`."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "cuda_ext" / "wheel_matrix.py"
SPEC = importlib.util.spec_from_file_location("wheel_matrix", PROGRAM)
matrix = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(matrix)

GOOD = {
    "python": "3.11.7", "torch": "2.13.0+cpu", "result": "ok", "backend": "native", "device": "CPU, 1 threads",
    "psnr": 16.14, "evaluated_psnr": 16.21, "seconds": 42.0, "compile_seconds": 9.0,
}  # fmt: skip
ABSENT = {"python": "3.10", "torch": "newest", "result": "not installed: no Python 3.10 on this machine"}
BROKEN = {"python": "3.12.1", "torch": "2.10.0", "result": "FAILED: error: broken"}


def test_a_result_is_judged_as_a_whole() -> None:
    assert matrix.problem([GOOD, ABSENT]) is None
    assert "Python 3.12.1 with PyTorch 2.10.0" in matrix.problem([GOOD, BROKEN])
    assert "nothing was tried" in matrix.problem([ABSENT])
    assert "scores differ by 0.30 dB" in matrix.problem([GOOD, GOOD | {"psnr": 16.44}])


def test_the_table_has_a_line_for_each_pair() -> None:
    head, good, absent = matrix.table([GOOD, ABSENT]).splitlines()
    assert good.split() == [
        "3.11.7", "2.13.0+cpu", "native", "CPU,", "1", "threads", "16.14", "16.21", "42", "9", "ok"
    ]  # fmt: skip
    assert absent.endswith(ABSENT["result"]) and head.index("result") == absent.index("not installed")


def test_a_python_that_is_not_here_is_told_and_kept(tmp_path: Path) -> None:
    wheel, out = tmp_path / "a.whl", tmp_path / "result.json"
    wheel.touch()
    command = [sys.executable, str(PROGRAM), str(wheel), "--pairs", "3.99:newest", "--out", str(out)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1 and "no Python 3.99 on this machine" in found.stdout
    result = json.loads(out.read_text())
    assert result["rows"][0]["python"] == "3.99" and result["wheel"] == "a.whl"
    assert result.keys() >= {"machine", "commit", "command", "date"}


def test_an_environment_that_cannot_be_made_is_told_in_pips_words(tmp_path: Path) -> None:
    with pytest.raises(matrix.Failed, match="exit status 3"):
        matrix.run([sys.executable, "-c", "raise SystemExit(3)"], tmp_path, {})
    program = "import sys; sys.exit('ERROR: no such release\\n[notice] a new release of pip')"
    with pytest.raises(matrix.Failed, match="^ERROR: no such release$"):
        matrix.run([sys.executable, "-c", program], tmp_path, {})
    program = "import sys; sys.exit('error: the library did not compile:\\na.cpp:3:1: error: no such name\\n  3 | x')"
    with pytest.raises(matrix.Failed, match="^a.cpp:3:1: error: no such name$"):
        matrix.run([sys.executable, "-c", program], tmp_path, {})


@pytest.mark.parametrize("arguments", [["absent.whl"], [str(PROGRAM), "--pairs", "3.11"]])
def test_a_mistake_is_answered(arguments: list[str]) -> None:
    found = subprocess.run([sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, check=False)
    assert found.returncode in (1, 2) and "error: " in found.stderr and "Traceback" not in found.stderr
