"""Checkpoints: what is written is read again, nothing else is, and nothing that is read is executed."""

import errno
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_runs import differing, facts, run_to, tiny_config, tiny_images, tiny_state

from nerf import checkpoint
from nerf.config import Config
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.rendering import render_image
from nerf.training import TrainState, make_sampler

FIELDS = ("voxel_sh", "voxel_mlp")


def save_run(folder: Path, field: str = "voxel_sh", steps: int = 12) -> tuple[Config, TrainState]:
    """Trains a tiny run for some steps and saves it."""
    config, state = tiny_state(tiny_config(field))
    run_to(config, state, steps)
    assert checkpoint.save(folder, config, state, tiny_images().cameras) == folder / "checkpoint.pt"
    return config, state


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a checkpoint."""
    folder = tmp_path_factory.mktemp("saved")
    save_run(folder)
    return (folder / "checkpoint.pt").read_bytes()


def complaint(path: Path) -> str:
    """The message with which a checkpoint is refused; it always names the file."""
    with pytest.raises(UserError) as caught:
        checkpoint.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# There and back


@pytest.mark.parametrize("field", FIELDS)
def test_state_config_and_cameras_return_unchanged(tmp_path: Path, field: str) -> None:
    config, state = save_run(tmp_path, field)
    content = checkpoint.load(tmp_path)
    assert checkpoint.restore_config(content) == config
    again = checkpoint.restore_run(content, config, tiny_images(), select("native", "cpu"))
    assert differing(facts(state), facts(again)) == []
    assert again.clock.elapsed == state.clock.elapsed > 0
    cameras = checkpoint.restore_cameras(content)
    assert torch.equal(cameras.c2w, tiny_images().cameras.c2w)
    assert torch.equal(cameras.intrinsics, tiny_images().cameras.intrinsics)
    assert (cameras.width, cameras.height) == (20, 20)


@pytest.mark.parametrize("field", FIELDS)
def test_a_checkpoint_is_all_that_rendering_needs(tmp_path: Path, field: str) -> None:
    config, state = save_run(tmp_path, field)
    cameras, white = tiny_images().cameras, torch.ones(3)
    expected = render_image(state.field, make_sampler(config, state), cameras, 0, white)
    content = checkpoint.load(tmp_path / "checkpoint.pt")  # the file's own name will do
    state.field, state.occupancy = checkpoint.restore_field(content, config, select("native", "cpu"))
    found = render_image(state.field, make_sampler(config, state), cameras, 0, white)
    assert torch.equal(found.rgb, expected.rgb) and torch.equal(found.depth, expected.depth)


def test_a_run_is_not_resumed_on_other_images(tmp_path: Path) -> None:
    config, _ = save_run(tmp_path)
    content = checkpoint.load(tmp_path)
    for wrong in (tiny_images("test"), tiny_images().downscaled(2)):
        with pytest.raises(UserError, match="trained on 8 views 20x20; .*dataset.root"):
            checkpoint.restore_run(content, config, wrong, select("native", "cpu"))


# Writing


def test_left_overs_of_a_killed_writer_go_with_the_next_checkpoint(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.pt.123").write_bytes(b"half")
    save_run(tmp_path, steps=1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, state = save_run(tmp_path)
    before = (tmp_path / "checkpoint.pt").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    run_to(config, state, 14)
    with pytest.raises(UserError, match="No space left.*checkpoint before is kept, .*checkpoint.pt"):
        checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    config, state = tiny_state(tiny_config())
    with pytest.raises(UserError, match="gone: .*there is no earlier one.*hydra.run.dir"):
        checkpoint.save(tmp_path / "gone", config, state, tiny_images().cameras)


# Reading what is no checkpoint


def test_missing(tmp_path: Path) -> None:
    assert "does not exist; expected the folder of a training run" in complaint(tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match="checkpoint.pt does not exist"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_truncated(tmp_path: Path, saved: bytes, kept: float) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(saved[: int(kept * len(saved))])
    message = complaint(path)
    assert "damaged or no checkpoint of this program" in message and "Train again" in message


def test_flipped_bits_change_nothing_unnoticed(tmp_path: Path, saved: bytes) -> None:
    """Every flip is refused, or lies where it does not matter, between the records of the archive."""
    path, dice, refused = tmp_path / "checkpoint.pt", random.Random(0), 0
    path.write_bytes(saved)
    expected = checkpoint.load(path)["field"]
    for _ in range(60):
        damaged = bytearray(saved)
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        try:
            found = checkpoint.load(path)["field"]
        except UserError:
            refused += 1
        else:
            assert differing(expected, found) == []
    assert refused > 50


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
        (lambda path: torch.save({"format": "nerf-voxel-checkpoint", "version": 99}, path), "version 99, .* reads version 1"),
    ],
    ids=["zip", "picture", "list", "other program", "other version"],
)  # fmt: skip
def test_foreign(tmp_path: Path, write: Callable[[Path], object], found: str) -> None:
    path = tmp_path / "checkpoint.pt"
    write(path)
    with pytest.raises(UserError, match=found):
        checkpoint.load(path)
    assert "Train again" in complaint(path)


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("as_archive", [True, False])
def test_code_in_a_checkpoint_is_not_executed(tmp_path: Path, as_archive: bool) -> None:
    trap = tmp_path / "sprung"
    content = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "config": Trap(trap)}
    path = tmp_path / "checkpoint.pt"
    if as_archive:
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    assert "damaged or no checkpoint" in complaint(path)
    assert not trap.exists()
    if not as_archive:
        pickle.loads(path.read_bytes())
        assert trap.exists()  # the trap works
