"""Installs a wheel under several Pythons and PyTorches, each in a new environment, and runs its commands there.

    python cuda_ext/wheel_matrix.py WHEEL                             every pair of the Pythons and PyTorches below
    python cuda_ext/wheel_matrix.py WHEEL --pairs 3.11:2.10.0 3.12:newest
    python cuda_ext/wheel_matrix.py WHEEL --out docs/results/wheel_matrix.json

Each environment is outside of any checkout and has no compiler on its PATH. There `nerf` trains the bundled scene for
60 steps, renders, evaluates and asks the doctor; the scores of all environments are compared. Then the sources beside
this file are compiled against each environment's PyTorch, whose headers may lack what newer ones have; this alone
takes a compiler. A pair that cannot be installed is told with its reason. PyTorch is what pip offers, often a CUDA
build of gigabytes; an environment is removed once it has run. The exit status is 1 where a command or the compiler
failed, scores differ, or no pair could be installed.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TORCHES = ("2.10.0", "newest")  # the oldest that the library loads into, and what pip takes by itself
PAIRS = tuple((version, torch) for version in PYTHONS for torch in TORCHES)
SPREAD = 0.2  # dB between environments: two runs on one machine differ by that much
OURS = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")  # what pip in a new environment must not inherit
COMMANDS = (
    ("train", "train.steps=60", "dataset.downscale=4", "hydra.run.dir=run"),
    ("render", "run", "frames=2", "width=32", "height=32", "hydra.run.dir=frames"),
    ("evaluate", "run", "every=10", "hydra.run.dir=scores"),
    ("doctor",),
)
LOADED = (
    "import sys, torch; torch.ops.load_library(sys.argv[1]); grid, ones = torch.ones(2, 2, 2, 3), torch.ones(4, 3); "
    "assert torch.equal(torch.ops.nerf.interpolate_trilinear(grid, ones), ones)"
)
FACTS = "import json, platform, torch; print(json.dumps([platform.python_version(), torch.__version__]))"


class Failed(RuntimeError):
    """A step that did not work; the message is its last words."""


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """What a command prints. Raises Failed."""
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        lines = [line for line in (found.stderr or found.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "error: " in line.lower()]
        raise Failed((errors or lines or [f"exit status {found.returncode}"])[-1][:300])
    return found.stdout


def find_python(version: str) -> str | None:
    """A Python of that version: on the PATH, of pyenv, or of uv; None if there is none."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    candidates = [shutil.which(f"python{version}"), *map(str, of_pyenv)]
    if shutil.which("uv"):
        asked = subprocess.run(["uv", "python", "find", version], capture_output=True, text=True, check=False)
        candidates.append(asked.stdout.strip())
    for path in filter(None, candidates):
        told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)  # pyenv has shims
        if told.stdout.startswith(f"Python {version}."):
            return path
    return None


def install(python: str, torch: str, wheel: Path, folder: Path) -> Path:
    """A new environment with PyTorch and the wheel; its programs' folder. Raises Failed."""
    outside = _outside()
    run([python, "-m", "venv", str(folder / "env")], folder, outside)
    programs = folder / "env" / "bin"
    pip = [str(programs / "pip"), "--disable-pip-version-check", "install", "-q"]
    wanted = "torch" if torch == "newest" else f"torch=={torch}"
    run([*pip, wanted, str(wheel)], folder, outside)
    return programs


def _outside() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OURS and not name.startswith("NERF_")}


def try_wheel(programs: Path, folder: Path) -> dict:
    """The figures of one environment. Raises Failed."""
    environment = {"PATH": str(programs), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    compilers = [name for name in ("c++", "g++", "clang++", "nvcc") if shutil.which(name, path=str(programs))]
    if compilers:
        raise Failed(f"{', '.join(compilers)} came with the environment, which is to have no compiler")
    began = time.perf_counter()
    for name, *arguments in COMMANDS:
        run([str(programs / "nerf"), name, *arguments], folder, environment)
    trained, scored = (json.loads((folder / name / "metrics.json").read_text()) for name in ("run", "scores"))
    if not list(folder.glob("frames/**/*.png")):
        raise Failed("nerf render left no picture")
    return {
        "backend": trained["backend"],
        "device": trained["device"],
        "psnr": trained["psnr"]["mean"],
        "evaluated_psnr": scored["psnr"]["mean"],
        "seconds": time.perf_counter() - began,
    }


def try_sources(programs: Path, folder: Path) -> dict:
    """Compiles the CPU code against an environment's PyTorch, which then runs an operation; how long. Raises Failed.

    No .cu file includes a header of PyTorch's. Nothing is optimized: headers are what may fail.
    """
    python, tree = str(programs / "python"), folder / "tree" / "cuda_ext"
    shutil.copytree(Path(__file__).resolve().parent, tree, ignore=shutil.ignore_patterns("__pycache__"))
    began = time.perf_counter()
    environment = _outside() | {"NERF_CUDA": "0", "CXXFLAGS": "-O0"}
    library = run([python, str(tree / "build.py")], folder, environment).strip()
    seconds = time.perf_counter() - began
    run([python, "-c", LOADED, library], folder, environment)
    return {"compile_seconds": seconds}


def one_pair(version: str, torch: str, wheel: Path) -> dict:
    """A row of the result: the figures of one environment, or why there are none."""
    row: dict = {"python": version, "torch": torch, "result": "ok"}
    python = find_python(version)
    if python is None:
        return row | {"result": f"not installed: no Python {version} on this machine"}
    with tempfile.TemporaryDirectory(prefix="nerf-wheel-") as name:
        folder = Path(name)
        try:
            programs = install(python, torch, wheel, folder)
        except Failed as error:
            return row | {"result": f"not installed: {error}"}
        try:
            exact = json.loads(run([str(programs / "python"), "-c", FACTS], folder, {"PATH": str(programs)}))
            row |= dict(zip(("python", "torch"), exact))
            return row | try_wheel(programs, folder) | try_sources(programs, folder)
        except Failed as error:
            return row | {"result": f"FAILED: {error}"}


def table(rows: list[dict]) -> str:
    """The rows, aligned."""
    head = ("Python", "PyTorch", "backend", "device", "PSNR", "evaluated", "seconds", "compiled", "result")
    cells = [head]
    for row in rows:
        figures = [f"{row[key]:.{digits}f}" if key in row else "-" for key, digits in FORMATS]
        names = [row["python"], row["torch"], row.get("backend", "-"), row.get("device", "-")]
        cells.append((*names, *figures, row["result"]))
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)


FORMATS = (("psnr", 2), ("evaluated_psnr", 2), ("seconds", 0), ("compile_seconds", 0))


def problem(rows: list[dict]) -> str | None:
    """What is wrong with the result as a whole, None if nothing is."""
    failed = [f"Python {row['python']} with PyTorch {row['torch']}" for row in rows if row["result"].startswith("FAIL")]
    if failed:
        return f"failed: {'; '.join(failed)}"
    scores = [row["psnr"] for row in rows if "psnr" in row]
    if not scores:
        return "no pair could be installed; nothing was tried"
    if max(scores) - min(scores) > SPREAD:
        return f"scores differ by {max(scores) - min(scores):.2f} dB, expected at most {SPREAD}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--pairs", nargs="+", type=_pair, default=PAIRS, metavar="PYTHON:TORCH", help="default: all")
    parser.add_argument("--out", type=Path, help="a JSON file for the result")
    given = parser.parse_args()
    if not given.wheel.is_file():
        sys.exit(f"error: {given.wheel} is not there; make one with: make wheel")
    facts, rows = _facts(given.wheel), []
    for version, torch in given.pairs:
        print(f"Python {version}, PyTorch {torch} ...", file=sys.stderr, flush=True)
        rows.append(one_pair(version, torch, given.wheel.resolve()))
        if given.out:  # after each, as they take minutes
            given.out.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n")
    print(table(rows))
    wrong = problem(rows)
    if wrong:
        sys.exit(f"error: {wrong}.")


def _pair(text: str) -> tuple[str, str]:
    version, _, torch = text.partition(":")
    if not (version and torch):
        raise argparse.ArgumentTypeError(f"{text} is no pair, expected PYTHON:TORCH as 3.11:2.10.0 or 3.12:newest")
    return version, torch


def _facts(wheel: Path) -> dict:
    here = Path(__file__).resolve().parent
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    return {
        "wheel": wheel.name,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "commit": commit.stdout.strip() or "unknown",
        "command": f"python cuda_ext/wheel_matrix.py {' '.join(Path(word).name for word in sys.argv[1:])}",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


if __name__ == "__main__":
    main()
