"""Named inputs of every operation, from the files of tests/ops: CASES[operation][case](dtype, device) are arguments."""

import sys
from importlib import import_module
from pathlib import Path

from case_tools import Case, Operation

FOLDER = Path(__file__).resolve().parents[1] / "ops"


def _all_operations() -> dict[str, Operation]:
    """OPERATIONS of every file that has some, by the names that pytest imports the files by."""
    found = {}
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    for path in sorted(FOLDER.glob("test_*.py")):
        if "\nOPERATIONS = {" in path.read_text():
            found |= import_module(path.stem).OPERATIONS
    return found


OPERATIONS: dict[str, Operation] = _all_operations()
CASES: dict[str, dict[str, Case]] = {name: known.cases for name, known in OPERATIONS.items()}
