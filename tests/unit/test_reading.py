"""Files that a user hands in: what is no file is answered at once, and names that none can have are answers, too."""

import os
from pathlib import Path

import pytest

from nerf.errors import UserError
from nerf.reading import is_file, is_path, is_there, opened, read_bytes, read_json, shown


@pytest.mark.parametrize(("name", "found"), [("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "directory")])
def test_what_is_no_file_is_not_opened(tmp_path: Path, name: str, found: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=found):
        opened(tmp_path / name)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    assert not is_path(name) and not is_there(tmp_path / name) and not is_file(tmp_path / name)
    with pytest.raises(OSError):
        read_bytes(tmp_path / name)


@pytest.mark.parametrize("value", [None, 1.0, [], "", "/".join(["a" * 200] * 30)])
def test_values_that_name_no_file(value: object) -> None:
    assert not is_path(value)


def test_names_that_files_have(tmp_path: Path) -> None:
    (tmp_path / "ünï 1.png").write_bytes(b"12")
    assert is_path("../a/ünï 1.png") and is_file(tmp_path / "ünï 1.png") and not is_file(tmp_path)
    assert read_bytes(tmp_path / "ünï 1.png") == b"12"


def test_json_with_the_mark_of_an_editor_and_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(path) == {"a": 1.0}
    path.write_bytes('{"a": "ü"}'.encode("latin-1"))
    with pytest.raises(UserError, match=f"{path}: cannot be read .*UTF-8"):
        read_json(path)


def test_what_was_found_is_short_however_deep_it_is() -> None:
    value: object = 1.0
    for _ in range(100_000):
        value = [value]
    assert len(shown(value)) < 61 and len(shown("x" * 1000)) < 61
    assert shown(None) == "missing"
