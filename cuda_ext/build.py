"""Builds the native library: one shared object with the CPU and the CUDA code, for every PyTorch >= 2.10 and Python.

    python cuda_ext/build.py             build if the sources have changed
    python cuda_ext/build.py --force     build anew, from no object files
    python cuda_ext/build.py --nvcc      only tell which nvcc would be used

Used by setup.py and by nerf/ops/library.py, so there is one way to build. One ninja file calls g++ and nvcc directly:
PyTorch's own build helpers refuse a .cu file where PyTorch came without CUDA. Other compilers: toolchain.py.

NERF_CUDA=0 leaves the CUDA code out. NERF_CUDA_ARCHS lists the GPU generations, else they are those of this machine's
GPUs, and "75 80 90 120" where there is none. The last one is included as PTX too, for GPUs to come, and 90 is compiled
as sm_90a, for Hopper's own products. CXX and CUDA_HOME choose the compilers, CXXFLAGS and LDFLAGS are added.

Whoever is killed while it builds, or loses power, leaves nothing that the next start would take for finished: objects
and the library appear under their names when they are whole, and the library ends with a hash of itself.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    import msvcrt

ROOT = Path(__file__).resolve().parent
WALKS = ("camera_rays", "march", "march_visible", "render_rays")  # files that make rays or walk along them
PORTABLE_WALKS = "portable_walks"  # those of the portable ones, in one file
# Files of cuda/ that are compiled alone, the longest first: joined, all cores would wait for them. Of the others nvcc
# takes longer over the headers, once for each GPU generation and for the host, than over the rest.
ALONE = ("render_rays", "mlp", "adam", "composite")
GENERATIONS = "75 80 90 120"  # of GPUs: what a library has that is built where there is none
LIBRARY = ROOT.parent / "nerf" / "ops" / "libnerf.so"
OBJECTS = ROOT.parent / "build" / "native"
STAMP = re.compile(rb"nerf-build-stamp:(\w+) cuda=([\w ]*)\0")
SEAL = b"\nnerf-library-sha256:"  # and the hash of all before it, behind the ELF file's end, where no loader looks


class BuildError(RuntimeError):
    """The library cannot be built; the message says what is missing and how to get it."""


class Stamp(NamedTuple):
    """What a built library says of itself."""

    sources: str  # hash of the sources
    cuda: str  # GPU generations, empty for a library without CUDA code


def source_hash() -> str:
    """Hash of everything that decides the library's content, file by file in a fixed order."""
    digest = hashlib.sha256(platform.machine().encode())
    files = [p for p in ROOT.rglob("*") if p.suffix in (".cpp", ".cu", ".cuh", ".h")]
    files += [Path(__file__), ROOT / "toolchain.py"]
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def read_stamp(library: Path = LIBRARY) -> Stamp | None:
    """The stamp of a built library, None if the file is absent, no library of ours, or not as it was written."""
    content, seal, digest = (library.read_bytes() if library.is_file() else b"").rpartition(SEAL)
    match = STAMP.search(content) if seal and digest == _digest(content) else None
    return Stamp(match[1].decode(), match[2].decode()) if match else None


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def find_nvcc() -> Path | None:
    """nvcc from CUDA_HOME, the PATH, /usr/local/cuda or the nvidia-cuda-nvcc wheel, in this order."""
    if os.environ.get("NERF_CUDA") == "0":
        return None
    nvidia = importlib.util.find_spec("nvidia")  # the namespace that all of NVIDIA's wheels share
    wheels = (nvidia and nvidia.submodule_search_locations) or ()
    on_path = shutil.which("nvcc")
    candidates = [
        *([Path(os.environ["CUDA_HOME"]) / "bin/nvcc"] if os.environ.get("CUDA_HOME") else []),
        *([Path(on_path)] if on_path else []),
        Path("/usr/local/cuda/bin/nvcc"),
        *(path for folder in wheels for path in sorted(Path(folder).glob("*/bin/nvcc"))),
    ]
    return next((path for path in candidates if path.is_file()), None)


def generations(nvcc: Path, library: Path = LIBRARY) -> str:
    """The GPU generations to compile for: as given, else this machine's, else GENERATIONS.

    Their code takes longest to compile. Those that the library has stay: machines with other GPUs may share the folder.
    Where nvcc has no code for a GPU that is here, it is GENERATIONS too.
    """
    given = os.environ.get("NERF_CUDA_ARCHS", "").split()
    if not all(number.isdecimal() for number in given):
        raise BuildError(f"NERF_CUDA_ARCHS={' '.join(given)}, expected numbers with blanks between them, as in '90 75'")
    if given:
        return " ".join(given)
    here = set(_lines("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"))
    known = {name.removeprefix("sm_") for name in _lines(str(nvcc), "--list-gpu-code")}
    wanted = {capability.replace(".", "") for capability in here}
    if not wanted or not wanted <= known:
        wanted = set(GENERATIONS.split())
    stamp = read_stamp(library)
    return " ".join(sorted(wanted | (set(stamp.cuda.split()) & known if stamp else set()), key=int))


def _lines(*command: str) -> list[str]:
    """What a program prints, line by line; nothing where it is not there or fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return result.stdout.split() if result.returncode == 0 else []


def is_stale(library: Path = LIBRARY) -> bool:
    """Whether the library must be built: none that is whole, other sources, or nvcc has appeared since."""
    stamp = read_stamp(library)
    return stamp is None or stamp.sources != source_hash() or (not stamp.cuda and find_nvcc() is not None)


def _toolchains() -> ModuleType:
    """toolchain.py, which stands beside this file; this one is loaded by its path."""
    spec = importlib.util.spec_from_file_location("nerf_toolchain", ROOT / "toolchain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _find_compiler() -> str:
    ours = _toolchains().toolchain()
    name = os.environ.get("CXX", ours.default)
    compiler = shutil.which(name)
    if compiler is None:
        remedy = f"{ours.remedy}, or use backend=torch, which needs none"
        raise BuildError(f"no C++ compiler: '{name}' is not on the PATH. {remedy}")
    return compiler


def _find_torch() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError(
            "PyTorch is not installed in this environment, and the library is built against its headers. "
            "Install torch >= 2.10, then build with: pip install --no-build-isolation -e ."
        )
    return Path(spec.origin).parent


def _find_ninja() -> list[str]:
    if importlib.util.find_spec("ninja"):
        return [sys.executable, "-m", "ninja"]
    if shutil.which("ninja"):
        return ["ninja"]
    raise BuildError("ninja is not installed; get it with: pip install ninja")


def _joined(path: Path, parts: list[Path]) -> Path:
    """A file that includes others: compilers take longer over the headers than over what stands below them."""
    text = "".join(f'#include "{part}"\n' for part in parts)
    if not path.is_file() or path.read_text() != text:  # or ninja would compile it each time
        path.write_text(text)
    return path


def _sources(folder: Path, with_cuda: bool) -> list[Path]:
    """What is compiled, some of it joined in the folder; what takes longest comes first, and is started first."""
    sources = [_joined(folder / "ops.cpp", sorted(ROOT.glob("ops/*.cpp"))), *portable_sources(folder, ".cpp")]
    sources += [*sorted(ROOT.glob("cpu/*.cpp")), ROOT / "library.cpp"]
    if not with_cuda:
        return sources
    fast = sorted(ROOT.glob("cuda/*.cu"))
    alone = [path for name in ALONE for path in fast if path.stem == name]
    others = [path for path in fast if path.stem not in (*ALONE, *WALKS)]
    return [*portable_sources(folder, ".cu"), _joined(folder / "cuda.cu", others), *alone, *sources]


def portable_sources(folder: Path, suffix: str) -> list[Path]:
    """Files in the folder that make code of portable/*.h: for the CPU (.cpp), or for CUDA (.cu).

    A device calls the portable body of an operation for which it has no file of its own. CUDA has the other bodies too,
    and its short walks stand behind the portable ones.
    """
    sources, define, device = [], ROOT / "portable" / "define", {".cpp": "cpu", ".cu": "cuda"}[suffix]
    for name in ("portable", PORTABLE_WALKS):
        bodies = [path for path in sorted(ROOT.glob("portable/*.h")) if (path.stem in WALKS) == (name != "portable")]
        fast = [path for path in bodies if (ROOT / device / f"{path.stem}{suffix}").is_file()]
        alone = [path for path in bodies if path not in fast]
        parts = [define / f"{device}.h", *alone]
        if device == "cuda":
            parts = [define / "cuda_plain.h", *fast, *parts]
        if device == "cuda" and name == PORTABLE_WALKS:
            parts += [path for path in sorted(ROOT.glob("cuda/*.cu")) if path.stem in set(WALKS) - set(ALONE)]
        sources.append(_joined(folder / f"{name}{suffix}", parts))
    return sources


def _ninja_file(folder: Path, output: Path, stamp: Stamp, nvcc: Path | None) -> str:
    tools = _toolchains()
    ours, escaped, quoted = tools.toolchain(), tools.escaped, tools.quoted
    torch = quoted(_find_torch())
    compile_options = ours.compile.format(machine=tools.machine_options(), torch=torch)
    link = (f"$nvcc -cudart static {ours.nvcc_link}" if nvcc else ours.link).format(torch=torch)
    archs = stamp.cuda.split()
    # sm_90a has products that only Hopper has, and runs on all of Hopper. PTX is for other GPUs, and must do without.
    own = [f"{a}a" if a == "90" else a for a in archs]
    gencode = [f"-gencode arch=compute_{a},code=sm_{a}" for a in own]
    gencode += [f"-gencode arch=compute_{a},code=compute_{a}" for a in archs[-1:]]
    define = "-DNERF_WITH_CUDA" if nvcc else ""
    lines = [
        f"cxx = {quoted(_find_compiler())}",
        f"nvcc = {quoted(nvcc) if nvcc else ''}",
        f"cxxflags = {compile_options} "
        f"-DTORCH_TARGET_VERSION=0x020a000000000000 {define} {os.environ.get('CXXFLAGS', '')}",
        f"nvccflags = -std=c++17 -O3 --extended-lambda {ours.nvcc_host} {' '.join(gencode)}",
        # nvcc links its own runtime statically: the library must not care which CUDA PyTorch brought. In a toolkit it
        # finds the runtime by itself, in lib64; the wheel has it in lib.
        f"ldflags = {os.environ.get('LDFLAGS', '')}",
        f"cudart = {f'-L{quoted(nvcc.parents[1])}/lib' if nvcc else ''}",
        f"rule cxx\n  command = $cxx $cxxflags $flags {ours.objects}\n  {ours.dependencies}",
        f"rule nvcc\n  command = $nvcc $nvccflags $flags {ours.nvcc_objects}\n  depfile = $out.d",
        f"rule link\n  command = {link} $ldflags",
    ]
    objects = []
    for source in _sources(folder, nvcc is not None):
        objects.append(escaped(folder / f"{source.parent.name}_{source.name}.o"))
        lines.append(f"build {objects[-1]}: {'nvcc' if source.suffix == '.cu' else 'cxx'} {escaped(source)}")
        if source.stem in (*WALKS, PORTABLE_WALKS):  # every backend makes the same samples to the last bit
            lines.append(f"  flags = {'--fmad=false' if source.suffix == '.cu' else ours.same_samples}")
        if source.name == "library.cpp":
            lines.append(f'  flags = "-DNERF_BUILD_STAMP=\\"{stamp.sources} cuda={stamp.cuda}\\""')
    lines.append(f"build {escaped(output)}: link {' '.join(objects)}")
    return "\n".join(lines) + f"\ndefault {escaped(output)}\n"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """One builder at a time; yields the lock. The system drops it when its last holder dies, so it cannot be stale."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("w")
    except OSError as error:
        raise BuildError(
            f"the native library has to be built, and {path.parent} cannot be written ({error.strerror}); let its "
            "owner run python cuda_ext/build.py, or use a checkout of your own"
        ) from error
    with opened as file:
        try:
            _lock(file.fileno(), wait=False)
        except BlockingIOError:
            print("Another process builds the native library; waiting for it ...", file=sys.stderr, flush=True)
            _lock(file.fileno(), wait=True)
        yield file.fileno()


def _lock(file: int, wait: bool) -> None:
    """Raises BlockingIOError where another process has the lock and this one does not wait."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    while True:
        try:
            msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            return
        except OSError as error:  # LK_LOCK gives up after ten seconds
            if not wait:
                raise BlockingIOError(error.errno, "another process builds") from error


def _clear(folder: Path) -> None:
    """Removes what earlier builds left, but for the lock."""
    for path in folder.iterdir():
        if path.name != "lock":
            path.unlink()


def _run_ninja(folder: Path, output: Path, lock: int) -> None:
    """Makes the output anew from objects, of which those of earlier builds are taken where they are up to date.

    What is damaged among these shows at the latest when they are linked; then all are made anew. Compilers inherit the
    lock: should this process be killed, the next one waits until those that it started have ended.
    """
    command, reused = [*_find_ninja(), "-C", str(folder)], any(folder.glob("*.o"))
    inherited = (lock,) if fcntl is not None else ()  # Windows has no such thing
    output.unlink(missing_ok=True)
    result = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=inherited)
    if result.returncode == 0:
        return
    failed = [line.rstrip() for line in result.stdout.splitlines() if line.startswith("FAILED:")]
    if not reused or any(line.endswith(".o") for line in failed):
        why = result.stdout[max(result.stdout.find("FAILED:"), 0) :]  # what succeeded comes first, with its commands
        raise BuildError(f"the native library did not compile ({' '.join(command)}):\n{why[:4000]}")
    for path in (*folder.glob("*.o"), *folder.glob("*.d"), *folder.glob(".ninja*")):
        path.unlink()
    _run_ninja(folder, output, lock)


def _seal(unfinished: Path, library: Path) -> None:
    """Puts a library in its place, whole or not at all, with its hash behind it."""
    library.parent.mkdir(parents=True, exist_ok=True)
    for left in library.parent.glob(f"{library.stem}.[0-9]*"):  # by a builder that was killed
        left.unlink()
    content, partial = unfinished.read_bytes(), library.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content + SEAL + _digest(content))
    os.replace(partial, library)


def build(force: bool = False, announce: bool = True, folder: Path = OBJECTS, library: Path | None = None) -> Path:
    """Builds the library from objects in the folder unless it is up to date; returns its path.

    Raises BuildError with the compiler's message or the missing tool and its remedy.
    """
    library = library or LIBRARY
    if not force and not is_stale(library):  # also where nothing can be written, not even a lock
        return library
    with _locked(folder / "lock") as lock:
        if not force and not is_stale(library):
            return library
        if force:
            _clear(folder)
        nvcc = find_nvcc()
        stamp = Stamp(source_hash(), generations(nvcc, library) if nvcc else "")
        if announce:
            what = f"CPU and CUDA (sm {stamp.cuda}, {nvcc})" if nvcc else "CPU only, no nvcc found"
            print(f"Building the native library once: {what} ...", file=sys.stderr, flush=True)
        unfinished = folder / "libnerf.so"
        (folder / "build.ninja").write_text(_ninja_file(folder, unfinished, stamp, nvcc))
        _run_ninja(folder, unfinished, lock)
        _seal(unfinished, library)
    return library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--force", action="store_true", help="build even if the library is up to date")
    parser.add_argument("--nvcc", action="store_true", help="only tell which nvcc would be used; fails without one")
    arguments = parser.parse_args()
    try:
        print((find_nvcc() or sys.exit("no nvcc found")) if arguments.nvcc else build(force=arguments.force))
    except BuildError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
