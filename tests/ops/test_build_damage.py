"""What a build leaves that was killed, or that something damaged later, heals by itself at the next start.

The builder is the real one, over a tree of sources so small that they compile in a moment.
"""

import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from nerf.ops import library

pytestmark = pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler here")

STAMP = (
    'extern "C" __attribute__((visibility("default"), used)) const char stamp[] = "nerf-build-stamp:" NERF_BUILD_STAMP;'
)
KILLS = 2


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("NERF_CUDA", "0")
    sources = {"library.cpp": STAMP, "portable/define/cpu.h": "", "ops/nothing.cpp": "int nothing() { return 0; }"}
    sources |= {f"cpu/part{i}.cpp": f"int part{i}() {{ return {i}; }}" for i in range(4)}
    for name, text in sources.items():
        path = tmp_path / "cuda_ext" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    for script in library.BUILD_SCRIPT.parent.glob("*.py"):
        shutil.copy(script, tmp_path / "cuda_ext")
    spec = importlib.util.spec_from_file_location("small_builder", tmp_path / "cuda_ext" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_whole(builder: ModuleType) -> None:
    """The library is of these sources, and the system's loader takes it."""
    assert builder.read_stamp() == (builder.source_hash(), "") and not builder.is_stale()
    assert not library.is_cut_short(builder.LIBRARY)
    stamp = "import ctypes, sys; print(ctypes.c_char.in_dll(ctypes.CDLL(sys.argv[1]), 'stamp').value)"
    subprocess.run([sys.executable, "-c", stamp, builder.LIBRARY], check=True, capture_output=True)
    left = [path.name for path in builder.LIBRARY.parent.iterdir()]
    assert left == [builder.LIBRARY.name]


def test_a_build_is_announced_and_made_once(builder: ModuleType) -> None:
    command = [sys.executable, builder.__file__]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2))
    assert "Building the native library once: CPU only" in first.stderr
    assert not second.stderr and second.stdout == first.stdout == f"{builder.LIBRARY}\n"
    assert_whole(builder)
    with (builder.ROOT / "portable" / "define" / "cpu.h").open("a") as header:
        header.write("// changed\n")
    assert builder.is_stale()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 16
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [cut, flip, lambda path: path.write_bytes(b"")], ids=["cut", "flipped", "emptied"])
def test_a_damaged_library_is_built_again(builder, damage):
    builder.build(announce=False)
    damage(builder.LIBRARY)
    assert builder.read_stamp() is None and builder.is_stale()
    builder.build(announce=False)
    assert_whole(builder)


def damage_of(name: str, damage: Callable[[Path], object]) -> Callable[[Path], None]:
    def damaged(folder: Path) -> None:
        found = sorted(folder.glob(name))
        assert found
        damage(found[0])

    return damaged


DAMAGE = {
    "an object cut short": damage_of("cpu_part1.cpp.o", cut),
    "an object emptied": damage_of("cpu_part2.cpp.o", lambda path: path.write_bytes(b"")),
    "an object of zeros": damage_of("cpu_part2.cpp.o", lambda path: path.write_bytes(bytes(path.stat().st_size))),
    "a list of headers cut short": damage_of("cpu_part1.cpp.o.d", lambda path: path.write_text("/nowhere")),
    "the log of ninja cut short": damage_of(".ninja_log", cut),
    "the linked file cut short": damage_of("libnerf.so", cut),
}


@pytest.mark.parametrize("damaged, force", [*((name, False) for name in DAMAGE), ("an object cut short", True)])
def test_damaged_files_of_an_earlier_build_do_no_harm(builder, damaged, force):
    builder.build(announce=False)
    DAMAGE[damaged](builder.OBJECTS)
    builder.LIBRARY.unlink()
    builder.build(force=force, announce=False)
    assert_whole(builder)


def test_what_does_not_link_is_told(builder, monkeypatch):
    """Though objects of an earlier build are there, which might have been the reason."""
    builder.build(announce=False)
    builder.LIBRARY.unlink()
    monkeypatch.setenv("LDFLAGS", "-lno_such_library")
    with pytest.raises(builder.BuildError, match="FAILED(.|\n)*no_such_library"):
        builder.build(announce=False)
    assert not builder.LIBRARY.exists()


@pytest.mark.slow
@pytest.mark.parametrize("everyone", [False, True], ids=["the builder alone", "with its compilers"])
def test_a_build_killed_at_any_moment_does_no_harm(builder, everyone):
    """The next one waits for compilers that the killed one has started, and ends with a whole library."""
    random.seed(7)
    command = [sys.executable, builder.__file__]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    whole = time.monotonic() - began
    for _ in range(KILLS):
        shutil.rmtree(builder.OBJECTS)
        builder.LIBRARY.unlink()
        started = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(random.uniform(0.3, 1.0) * whole)
        if everyone:
            os.killpg(started.pid, signal.SIGKILL)
        else:
            started.kill()
        started.wait()
        builder.build(announce=False)
        assert_whole(builder)


def test_an_installed_library_that_ends_early_is_told(builder, monkeypatch):
    """Without sources beside the package nothing can be built, and to load it would kill the process."""
    whole = builder.build(announce=False)
    assert not library.is_cut_short(whole)
    monkeypatch.setattr(library, "build_module", lambda: None)
    monkeypatch.setattr(library, "LIBRARY", whole)
    for size in (whole.stat().st_size // 2, 100, 0):
        whole.write_bytes(whole.read_bytes()[:size])
        with pytest.raises(library.NativeUnavailable, match=rf"has {size} bytes and ends before .*reinstall"):
            library.load_library.__wrapped__()


def test_where_nothing_can_be_written_a_library_is_taken_as_it_is(builder: ModuleType, tmp_path: Path) -> None:
    built = builder.build()
    in_the_way = tmp_path / "a file"
    in_the_way.write_text("")
    assert builder.build(folder=in_the_way / "native") == built
    with pytest.raises(builder.BuildError, match=r"has to be built, and .*a file/native cannot be written \(Not a dir"):
        builder.build(folder=in_the_way / "native", force=True)


def test_paths_may_have_blanks(builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = tmp_path / "a venv" / "$torch"
    torch.parent.mkdir()
    torch.symlink_to(builder._find_torch())
    monkeypatch.setattr(builder, "_find_torch", lambda: torch)
    compiler = tmp_path / "a venv" / "g++"
    compiler.symlink_to(shutil.which(os.environ.get("CXX", "g++")))
    monkeypatch.setenv("CXX", str(compiler))
    header = "#include <torch/csrc/stable/tensor.h>\nint nothing() { return 0; }\n"
    (tmp_path / "cuda_ext" / "ops" / "nothing.cpp").write_text(header)
    builder.build()
    assert_whole(builder)
