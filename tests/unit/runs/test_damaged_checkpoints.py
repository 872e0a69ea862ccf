"""Checkpoints that are missing, cut short, changed or something else: refused with the file's name, none executed."""

import os
import pickle
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from state_facts import differing
from test_checkpoint import LOADERS, complaint_of_folder, save_run

from nerf.errors import UserError
from nerf.runs import checkpoint
from nerf.runs.packed_grids import deflated, inflated


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of both files of a run."""
    folder = tmp_path_factory.mktemp("saved")
    save_run(folder)
    return {name: (folder / name).read_bytes() for name in LOADERS}


def complaint(path: Path) -> str:
    """The message with which a file is refused by the loader for its name; it always names the file."""
    with pytest.raises(UserError) as caught:
        LOADERS[path.name](path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", LOADERS)
def test_missing(tmp_path: Path, name: str) -> None:
    expected = f"does not exist; expected the folder of a training run with a {name} in it"
    assert expected in complaint(tmp_path / name)
    assert expected in complaint_of_folder(tmp_path, name)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_truncated(tmp_path: Path, saved: dict[str, bytes], name: str, kept: float) -> None:
    path = tmp_path / name
    path.write_bytes(saved[name][: int(kept * len(saved[name]))])
    message = complaint(path)
    assert "damaged or no checkpoint of this program" in message and "Train again" in message


@pytest.mark.parametrize("name", LOADERS)
def test_flipped_bits_change_nothing_unnoticed(tmp_path: Path, saved: dict[str, bytes], name: str) -> None:
    """Every flip is refused, or lies where it does not matter, between the records of the archive."""
    path, dice, refused = tmp_path / name, random.Random(0), 0
    path.write_bytes(saved[name])
    expected = LOADERS[name](path)["field"]
    for _ in range(60):
        damaged = bytearray(saved[name])
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        try:
            found = LOADERS[name](path)["field"]
        except UserError:
            refused += 1
        else:
            assert differing(expected, found) == []
    assert refused > 40


def test_a_model_whose_parts_do_not_fit_is_refused(tmp_path: Path) -> None:
    save_run(tmp_path)
    path = tmp_path / "model.pt"
    for part, change in (
        ("occupied_bits", lambda bits: bits[:-1]),
        ("occupied_bits", lambda bits: bits ^ 255),
        ("resolution", lambda resolution: [n + 1 for n in resolution]),
        ("resolution", lambda _: [10**7] * 3),
        ("grids", lambda grids: {name: deflated(inflated(grid)[1:]) for name, grid in grids.items()}),
        ("grids", lambda grids: {name: grid | {"planes": grid["planes"][:1]} for name, grid in grids.items()}),
        ("networks", lambda _: None),
    ):
        content = torch.load(path, weights_only=True)
        content[part] = change(content[part])
        (tmp_path / part).mkdir(exist_ok=True)
        torch.save(content, tmp_path / part / "model.pt")
        assert "damaged or no checkpoint" in complaint(tmp_path / part / "model.pt"), part


def _foreign_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes/read.me", "not a checkpoint")


def _picture(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))


@pytest.mark.parametrize(
    ("write", "found"),
    [
        (_foreign_zip, "damaged or no checkpoint of this program"),
        (_picture, "damaged or no checkpoint of this program"),
        (lambda path: torch.save([torch.zeros(3)], path), "format mark is missing"),
        (lambda path: torch.save({"state_dict": {}}, path), "format mark is missing"),
        (lambda path: torch.save({"format": "nerf-voxel-checkpoint", "version": 1}, path),
         "version 1, .* versions 4 to 6"),
        (lambda path: torch.save({"format": checkpoint.FORMATS[path.name], "version": 99}, path),
         "version 99, .* reads versions 4 to 6; use the program that wrote it"),
    ],
    ids=["zip", "picture", "list", "other program", "version before", "version to come"],
)  # fmt: skip
@pytest.mark.parametrize("name", LOADERS)
def test_foreign(tmp_path: Path, write: Callable[[Path], object], found: str, name: str) -> None:
    path = tmp_path / name
    write(path)
    message = complaint(path)
    assert re.search(found, message) and "Train again" in message


@pytest.mark.parametrize("name", LOADERS)
def test_a_run_of_the_version_with_one_file_is_answered(tmp_path: Path, name: str) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"never read")
    complaint = complaint_of_folder(tmp_path, name)
    assert "checkpoint.pt was written by version 1, this program reads versions 4 to 6" in complaint


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("as_archive", [True, False])
def test_code_in_a_checkpoint_is_not_executed(tmp_path: Path, as_archive: bool, name: str) -> None:
    trap = tmp_path / "sprung"
    content = {"format": checkpoint.FORMATS[name], "version": checkpoint.VERSION, "config": Trap(trap)}
    path = tmp_path / name
    if as_archive:
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    assert "damaged or no checkpoint" in complaint(path)
    assert not trap.exists()
    if as_archive:
        torch.load(path, weights_only=False)
    else:
        pickle.loads(path.read_bytes())
    assert trap.exists()  # the trap works
