"""Where pages save: names that are names, and one writer per file."""

from pathlib import Path

import pytest

from nerf.errors import UserError
from nerf.viewer.path_folder import PathFolder


@pytest.mark.parametrize("name", ["", "   ", "../model", "a/b", "a\\b", ".hidden", "..", "x" * 101, "a\0b", "a:b"])
def test_a_page_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="choose another"):
        PathFolder(tmp_path).file(name, ".json")
    assert list(tmp_path.iterdir()) == []


def test_names_become_files_beside_the_run_and_are_listed(tmp_path: Path) -> None:
    folder = PathFolder(tmp_path)
    assert folder.saved() == []
    for name in ("flight 2", "Rundflug.é", "a-b_c"):
        file = folder.file(f" {name} ", ".json")
        assert file == tmp_path / "paths" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.touch()
    (tmp_path / "paths" / ".half.json").touch()
    assert folder.saved() == ["Rundflug.é", "a-b_c", "flight 2"]


def test_two_pages_do_not_write_one_file_at_once(tmp_path: Path) -> None:
    folder, file = PathFolder(tmp_path), tmp_path / "paths" / "a.mp4"
    with (
        folder.writing(file),
        folder.writing(file.with_name("b.mp4")),
        pytest.raises(UserError, match=r"a.mp4 .*another name"),
        folder.writing(file),
    ):
        pass
    with folder.writing(file):
        pass
