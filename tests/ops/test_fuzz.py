"""A slice of what `make fuzz` does, without its sanitizers: 60 random calls of every operation."""

import sys
from pathlib import Path

import warm_python
from cases import CASES
from script_runs import TIMEOUT

FUZZ = Path(__file__).parents[1] / "fuzz" / "ops.py"


def test_random_calls_end_with_a_result_or_an_error_in_words():
    command = [sys.executable, FUZZ, "60", "--plain", "--seed", "1"]
    ended = warm_python.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {line.split()[0] for line in ended.stdout.splitlines()[:-1]} == set(CASES)
