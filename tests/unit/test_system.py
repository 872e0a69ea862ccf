"""What systems do each in their own way; Windows' and macOS' ways with stand-ins for what they have."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from nerf import system
from nerf.system import host_memory, lock_file, maps_gpu_memory, peak_memory, usable_cores

ROOT = Path(__file__).resolve().parents[2]
LOCK_WAITING, LOCK_AT_ONCE = 1, 2


class Windows:
    """Windows' locks: of a byte of a file, for an open file; they hold until it is closed."""

    LK_LOCK, LK_NBLCK = LOCK_WAITING, LOCK_AT_ONCE

    def __init__(self) -> None:
        self.locked: dict[tuple[int, int], int] = {}  # inode and place in it: the open file
        self.refused = 0

    def keeps_from_being_read(self, length: int) -> bool:
        """Whether a file's content of that length has a locked byte, as which it cannot be read by others."""
        return any(place < length for _, place in self.locked)

    def locking(self, file: int, mode: int, count: int) -> None:
        key = os.fstat(file).st_ino, os.lseek(file, 0, os.SEEK_CUR)
        if self.locked.get(key, file) != file:
            self.refused += 1
            if mode == LOCK_WAITING and self.refused == 2:
                del self.locked[key]  # its holder ends while somebody waits for the second time
            raise OSError(36 if mode == LOCK_WAITING else 13, "locked")
        self.locked[key] = file


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Windows:
    stand_in = Windows()
    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.setattr(system, "msvcrt", stand_in, raising=False)
    return stand_in


@pytest.fixture
def twice_open(tmp_path: Path) -> Iterator[tuple]:
    """A file with some content that is open twice, at its end."""
    path = tmp_path / "lock"
    path.write_text("process 12")
    with path.open("r+b") as first, path.open("r+b") as second:
        first.seek(0, os.SEEK_END)
        yield first, second


@pytest.mark.parametrize("name", ["linux", "windows"])
def test_a_lock_is_held_by_one(name: str, twice_open: tuple, request: pytest.FixtureRequest) -> None:
    if name == "windows":
        request.getfixturevalue("windows")
    first, second = twice_open
    lock_file(first)
    with pytest.raises(BlockingIOError):
        lock_file(second.fileno(), wait=False)
    assert first.tell() == 10 and second.read() == b"process 12"  # whose lock it is can be read


def test_windows_waits_longer_than_its_own_ten_seconds(windows: Windows, twice_open: tuple) -> None:
    first, second = twice_open
    lock_file(first)
    lock_file(second)
    assert windows.refused == 2 and not windows.keeps_from_being_read(10_000)


def test_cores_and_memory_are_those_of_this_machine() -> None:
    free, total = host_memory()
    assert 0 < free < total and peak_memory() < total
    assert peak_memory() > 2**20
    assert 1 <= usable_cores() <= os.cpu_count()


def test_what_a_system_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, total = host_memory()
    monkeypatch.setattr(system, "MEMORY", tmp_path / "absent")
    assert host_memory() == (None, pytest.approx(total, rel=0.1))  # macOS
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == os.cpu_count()
    usage = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=2048))
    monkeypatch.setattr(system, "resource", usage)
    assert peak_memory() == 2048 * 1024
    monkeypatch.setattr(sys, "platform", "darwin")
    assert peak_memory() == 2048
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr(system, "resource", None)
    assert host_memory() == (None, None) and peak_memory() == 0  # Windows


def test_the_commands_are_found_without_what_windows_lacks() -> None:
    """Signals, locks and resource use are what nerf/cli/main.py meets before anything heavy."""
    program = """
import signal, sys, types
for name in ("SIGHUP", "SIGUSR1", "SIGXCPU", "SIGPIPE"):
    delattr(signal, name)
sys.modules |= {"fcntl": None, "resource": None, "termios": None, "msvcrt": types.ModuleType("msvcrt")}
sys.argv = ["nerf", "--help"]
import nerf.files, nerf.cli.completion
from nerf.cli.main import main
from nerf.cli.signals import STOPPING
main()
print(*STOPPING)
"""
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "train" in found.stdout and found.stdout.splitlines()[-1] == "2 15"


def test_memory_of_a_gpu_is_mapped_where_linux_owns_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernel, jetson = tmp_path / "osrelease", tmp_path / "nv_tegra_release"
    monkeypatch.setattr(system, "KERNEL", kernel)
    monkeypatch.setattr(system, "JETSON", jetson)
    assert not maps_gpu_memory()  # no Linux that says what it is
    for name, own in (("6.8.0-45-generic", True), ("5.15.153.1-microsoft-standard-WSL2", False)):
        kernel.write_text(f"{name}\n")
        assert maps_gpu_memory() is own
    kernel.write_text("5.15.148-tegra\n")
    jetson.touch()
    assert not maps_gpu_memory()
    jetson.unlink()
    monkeypatch.setattr(sys, "platform", "win32")
    assert not maps_gpu_memory()
