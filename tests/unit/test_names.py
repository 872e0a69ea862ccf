"""Each file of tests has a name of its own: pytest collects no second module of a name that it has seen."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_no_two_files_of_tests_share_a_name() -> None:
    names = Counter(path.name for path in TESTS.rglob("*.py") if path.name != "__init__.py")
    assert len(names) > 200
    assert [name for name, times in names.items() if times > 1] == []
