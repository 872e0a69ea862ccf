"""Random calls of every operation: each ends with a result, or with a ValueError or RuntimeError in words.

    python tests/fuzz/ops.py 10000                       under the address and the undefined-behavior sanitizer
    python tests/fuzz/ops.py 100 --plain                 with the library that is there
    python tests/fuzz/ops.py 1 --only adam_step --first 77          one call again
    compute-sanitizer --target-processes all --tool memcheck python tests/fuzz/ops.py 300 --device cuda

On a GPU the same numbers are called with, but for room that takes minutes to fill, the library is the one that is
there, and a call that made the GPU fail ends the process; racecheck and initcheck are other tools of
compute-sanitizer. PyTorch asks for each tensor's memory alone there: in its pool nobody would see where a tensor ends.
With --short-walks rays end after 4096 points, not a million, each of which takes the tool a hundred times as long.
A process of its own makes the calls; it is started again behind a call that ended it. Status 1 if there was one, or
an error that says nothing. The library with sanitizers is built into build/fuzz.
"""

import argparse
import faulthandler
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "fuzz"
CXXFLAGS = (
    "-O1 -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow -fno-sanitize=vptr "
    "-fno-sanitize-recover=all"
)
CALL_SECONDS = 60  # a call that takes longer never ends
MEMORY = 6 << 30  # bytes
MOST_ENDS = 20  # of the process; more tell nothing new
SHORT_WALKS = "-DNERF_MAX_STEPS_OF_RAY=4096"
BROKEN = "CUDA error"  # of a kernel; no later call of the process has a result
# What C++ and PyTorch's C interface say where an operation says nothing.
WORDLESS = r"std::|bad_alloc|length_error|vector|API call failed|\.(h|cpp|cc):\d+|^\W*\w*\W*$"


def says_nothing(message: str) -> bool:
    """Whether an error is none in words. PyTorch's own about memory is one, though it names a file of its sources."""
    first = message.partition("\n")[0]  # of a sparse tensor the dispatcher tells all that it knows
    return bool(re.search(WORDLESS, first)) and "can't allocate memory" not in first


def sanitized_library() -> tuple[Path, dict[str, str]]:
    """The library with sanitizers, built where it is not up to date, and the environment that it needs."""
    os.environ |= {"NERF_CUDA": "0", "CXXFLAGS": CXXFLAGS, "LDFLAGS": "-fsanitize=address,undefined"}
    sys.path.insert(0, str(ROOT / "cuda_ext"))
    import build

    library = build.build(folder=BUILD / "objects", library=BUILD / "libnerf.so")
    compiler = os.environ.get("CXX", "g++")
    runtimes = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    options = f"detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb={MEMORY >> 21}:handle_segv=1"
    return library, {
        "LD_PRELOAD": ":".join(runtimes),
        "ASAN_OPTIONS": options,
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def library_of_short_walks() -> Path:
    """The library with short walks, built into build/fuzz where it is not up to date."""
    os.environ["NVCC_APPEND_FLAGS"] = f"{os.environ.get('NVCC_APPEND_FLAGS', '')} {SHORT_WALKS}".strip()
    sys.path.insert(0, str(ROOT / "cuda_ext"))
    import build

    return build.build(folder=BUILD / "short_walks", library=BUILD / "short_walks.so")


def make_calls(
    library: Path, names: list[str], first: int, calls: int, seed: int, log: Path, limit: bool, device: str
) -> None:
    """The process that makes the calls; what it is at stands in the log's first line, the counts behind it."""
    faulthandler.enable()
    if limit and device == "cpu":  # CUDA reserves addresses without end
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers"), str(ROOT / "tests" / "ops"), str(Path(__file__).parent)]
    from nerf.ops import library as finder

    finder.LIBRARY, finder.build_module = library, lambda: None
    import torch

    from nerf.ops import native  # noqa: F401  registers the operations

    torch.set_num_threads(2)
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(min(1.0, MEMORY / torch.cuda.get_device_properties(0).total_memory))
    import arguments
    from cases import CASES

    names = names or list(CASES)
    print("NAMES", *names, flush=True)
    with log.open("r+b", buffering=0) as place:
        for name in names:
            operation, ends = getattr(torch.ops.nerf, name).default, Counter()
            for number in range(first, calls):
                os.pwrite(place.fileno(), f"{name:40}{number:12}".encode(), 0)
                drawn = arguments.draw(name, random.Random(f"{seed}/{name}/{number}"))
                if device == "cuda":
                    drawn = arguments.on_gpu(drawn)
                signal.alarm(CALL_SECONDS)
                try:
                    operation(*drawn)
                    if device == "cuda":
                        torch.cuda.synchronize()
                    ends["result"] += 1
                except (ValueError, RuntimeError) as error:
                    ends["ValueError" if isinstance(error, ValueError) else "RuntimeError"] += 1
                    if BROKEN in str(error):
                        sys.exit(f"{type(error).__name__}: {error}")
                    if says_nothing(str(error)):
                        print(f"WORDLESS {name} {number}: {type(error).__name__}: {str(error)[:300]!r}", flush=True)
                signal.alarm(0)
            print(f"DONE {name} {json.dumps(ends)}", flush=True)
            first = 0
    print("END", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calls", type=int, nargs="?", default=10_000, help="of each operation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="these operations, with commas between")
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--plain", action="store_true", help="without sanitizers")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: with the library that is there")
    parser.add_argument("--short-walks", action="store_true", help="cuda: with a library whose rays end early")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.only.split(",") if given.only else []
    if given.worker:
        library, log = map(Path, given.worker)
        last = given.first + given.calls
        return make_calls(library, names, given.first, last, given.seed, log, given.plain, given.device)
    plain = given.plain or given.device == "cuda"
    library, environment = (ROOT / "nerf/ops/libnerf.so", {}) if plain else sanitized_library()
    if given.device == "cuda":
        library = library_of_short_walks() if given.short_walks else library
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    BUILD.mkdir(parents=True, exist_ok=True)
    log, problems, began = BUILD / f"calls.{os.getpid()}", 0, time.monotonic()
    first, last = given.first, given.first + given.calls
    while problems < MOST_ENDS:
        log.write_bytes(b" " * 52)
        command = [sys.executable, __file__, "--worker", str(library), str(log), f"--seed={given.seed}"]
        command += [
            f"--only={','.join(names)}",
            f"--first={first}",
            str(last - first),
            f"--device={given.device}",
            *(["--plain"] if given.plain else []),
        ]
        process = subprocess.run(
            command,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for line in process.stdout.splitlines():
            problems += line.startswith("WORDLESS")
            if line.startswith("NAMES"):
                names = line.split()[1:]
            elif line.startswith("DONE"):
                names.remove(line.split()[1])
                first = given.first
            if not line.startswith(("NAMES", "END")):
                print(line.removeprefix("DONE "), flush=True)
        if "END" in process.stdout.split("\n"):
            break
        problems += 1
        at = log.read_bytes().decode().split()
        print(
            f"ENDED with status {process.returncode} in {' '.join(at) or 'no call'}\n{process.stderr[-6000:]}",
            flush=True,
        )
        if not at:
            break  # it did not get as far as a call
        names, first = names[names.index(at[0]) :], int(at[1]) + 1
    log.unlink()
    print(f"{problems} problems, {time.monotonic() - began:.0f} s")
    sys.exit(problems > 0)


if __name__ == "__main__":
    main()
