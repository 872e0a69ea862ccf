"""Folders in no format, or with half of one: what is said to be there, and what to do about it."""

from pathlib import Path

import pytest
from capture_files import ring, write_colmap, write_llff, write_photos

from nerf.datasets.readers import read_capture
from nerf.errors import UserError

VIEWS = ring()
HALF = "sparse/0 has cameras.bin and points3D.bin, but no images.bin"


def half_a_model(folder: Path, *lost: str) -> None:
    """A model without some of its files."""
    target = write_colmap(folder, VIEWS, points=VIEWS.poses[0][:3, :3])
    for name in lost or ("images.bin",):
        (target / name).unlink()


def complaint(folder: Path, format: str = "auto") -> str:
    """The message with which read_capture refuses the folder."""
    with pytest.raises(UserError) as caught:
        read_capture(folder, format)
    return str(caught.value)


def test_half_a_model_beside_another_format_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    write_llff(tmp_path, VIEWS)
    assert "sparse" not in read_capture(tmp_path).format
    half_a_model(tmp_path)
    said = read_capture(tmp_path).format
    assert said.startswith("LLFF, since") and f"{HALF}, so it is not used" in said


def test_half_a_model_is_named_where_no_format_is_recognized(tmp_path: Path) -> None:
    half_a_model(tmp_path)
    assert f"{HALF}. Export the model again." in complaint(tmp_path)
    assert f"{HALF}; export" in complaint(tmp_path, "colmap")
    write_photos(tmp_path / "images", VIEWS.names)
    message = complaint(tmp_path)
    assert f"4 photos but no usable poses: {HALF}. Export the model again, or make them with" in message


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (("cameras.bin",), "has images.bin and points3D.bin, but no cameras.bin"),
        (("cameras.bin", "images.bin"), "has points3D.bin, but no cameras.bin and no images.bin"),
    ],
)
def test_whatever_a_model_lacks_is_named(tmp_path: Path, lost: tuple[str, ...], said: str) -> None:
    half_a_model(tmp_path, *lost)
    assert said in complaint(tmp_path)


def test_files_of_both_kinds_make_no_model(tmp_path: Path) -> None:
    half_a_model(tmp_path)
    (tmp_path / "sparse" / "0" / "images.txt").write_text("")
    assert "has cameras.bin and points3D.bin and images.txt, but no images.bin" in complaint(tmp_path)


def test_photos_are_counted_by_folder_and_one_of_them_is_to_be_prepared(tmp_path: Path) -> None:
    """All photos below a folder were counted together, and were to be prepared together: copies and originals."""
    write_photos(tmp_path / "images" / "left", VIEWS.names[:3])
    write_photos(tmp_path / "input", VIEWS.names)
    message = complaint(tmp_path)
    assert "7 photos in 2 folders (input 4, images/left 3) but no poses" in message
    assert f"prepare.py {tmp_path / 'input'} OUT or another one of the folders in its place" in message


def test_a_few_of_many_folders_are_named(tmp_path: Path) -> None:
    for number in range(8):
        write_photos(tmp_path / f"{number}", VIEWS.names[:1])
    assert "8 photos in 8 folders (0 1, 1 1, 2 1, 3 1, 4 1, 5 1, ...) but no poses" in complaint(tmp_path)
