"""The seam: what select() chooses and says, that both backends look alike, and how the library is built."""

import importlib
import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
import torch
from cases import CASES
from proofs import DIFFERENTIABLE, outcome
from script_runs import TIMEOUT
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nerf.errors import UserError
from nerf.ops import backend, library, native, reference

FUNCTIONS = [name for name in CASES if not name.endswith("_backward")]


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


# The choice.


@pytest.mark.parametrize("name, ops", [("native", native), ("torch", reference)])
def test_select_gives_what_was_asked_for(name, ops):
    chosen = backend.select(name, "cpu")
    assert (chosen.name, chosen.device, chosen.ops) == (name, torch.device("cpu"), ops)
    assert "as asked" in chosen.reason
    assert str(chosen).startswith(f"backend {name} on CPU, ") and chosen.reason in str(chosen)


def test_auto_takes_native_and_says_why_there_is_no_gpu(no_gpu):
    chosen = backend.select()
    assert (chosen.name, chosen.device) == ("native", torch.device("cpu"))
    assert "no GPU" in chosen.reason


def test_auto_takes_the_gpu(cuda):
    chosen = backend.select()
    assert (chosen.name, chosen.device, chosen.reason) == ("native", torch.device(cuda), "a GPU is there")


@pytest.mark.parametrize(
    "version, remedy",
    [(None, "install a CUDA build of PyTorch"), ("13.0", "CUDA 13.0, which needs driver 580 or newer")],
)
def test_a_gpu_that_is_not_there_is_refused_with_the_remedy(version, remedy, no_gpu, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", version)
    with pytest.raises(UserError, match=f"device=cuda cannot run here: .*{remedy}.* or use device=cpu"):
        backend.select(device="cuda")


def test_unknown_names_are_refused_with_the_choices():
    with pytest.raises(UserError, match="backend=jax is unknown; choose one of auto, native, torch"):
        backend.select(backend="jax")
    with pytest.raises(UserError, match="device=tpu is unknown; choose one of auto, cuda, cpu"):
        backend.select(device="tpu")


@pytest.mark.parametrize("name, strict, expected", [("native", True, []), ("native", False, [1]), ("torch", True, [1])])
def test_deterministic_on_a_cpu_is_one_thread_where_more_round_otherwise(name, strict, expected, monkeypatch):
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(backend, "multiplies_in_one_order", lambda: strict)
    assert not backend.select(name, "cpu").deterministic and threads == []
    assert backend.select(name, "cpu", deterministic=True).deterministic and threads == expected


@pytest.mark.skipif(not hasattr(Tensor, "grad_dtype"), reason="this PyTorch wants gradients of the parameter's dtype")
def test_gradients_are_bfloat16_from_hopper_on_where_no_order_is_asked(monkeypatch):
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert not backend.adds_bfloat16(cpu, False)
    for capability, fast in {(8, 9): False, (9, 0): True, (12, 0): True}.items():
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, known=capability: known)
        assert backend.adds_bfloat16(gpu, False) == fast and not backend.adds_bfloat16(gpu, True)


def test_deterministic_on_a_gpu_gives_cublas_memory_of_its_own(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that what stands there comes back
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    there = backend.Backend("native", torch.device("cuda"), "a GPU is there", native)
    monkeypatch.setattr(backend, "_select", lambda name, device: there)
    assert backend.select().deterministic is False and "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    assert backend.select(deterministic=True).deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_deterministic_on_a_gpu_needs_the_native_operations(monkeypatch):
    there = backend.Backend("torch", torch.device("cuda"), "native is missing: no compiler", reference)
    monkeypatch.setattr(backend, "_select", lambda name, device: there)
    assert backend.select() == there
    with pytest.raises(UserError, match=r"deterministic=true .*native is missing: no compiler.*use backend=native"):
        backend.select(deterministic=True)


def without_native(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """As where the library cannot be had."""

    def import_module(name: str) -> ModuleType:
        if name == "nerf.ops.native":
            raise library.NativeUnavailable(reason)
        return importlib.import_module(name)

    monkeypatch.setattr(backend, "importlib", type("importlib", (), {"import_module": import_module}))


def test_a_missing_library_is_refused_by_name_and_told_by_auto(monkeypatch):
    without_native(monkeypatch, "no C++ compiler")
    with pytest.raises(UserError, match="backend=native cannot run here: no C.. compiler. backend=torch"):
        backend.select("native", "cpu")
    chosen = backend.select("auto", "cpu")
    assert (chosen.name, chosen.ops) == ("torch", reference)
    assert chosen.reason == "native is missing: no C++ compiler"


def test_a_library_without_cuda_code_is_refused_by_name_and_told_by_auto(monkeypatch):
    monkeypatch.setattr(backend, "_choose_device", lambda device: (torch.device("cuda"), "as asked"))
    monkeypatch.setattr(backend, "has_cuda_code", lambda: False)
    monkeypatch.delenv("NERF_CUDA", raising=False)
    with pytest.raises(UserError, match="built without CUDA code.* pip install .*nvcc"):
        backend.select("native", "cuda")
    for value, said in (("0", "NERF_CUDA=0 switches it off; unset NERF_CUDA"), ("1", "no nvcc was found")):
        monkeypatch.setenv("NERF_CUDA", value)
        assert f"without CUDA code, because {said}" in backend.select("auto", "cuda").reason


# The two backends.


def public_functions(module: ModuleType) -> dict[str, inspect.Signature]:
    return {name: inspect.signature(function) for name, function in inspect.getmembers(module, inspect.isfunction)}


def test_both_backends_have_the_same_functions():
    ours, theirs = public_functions(native), public_functions(reference)
    del theirs["total_variation"]  # the value; training needs its gradient only
    assert ours == theirs and sorted(ours) == sorted(FUNCTIONS)


class OperationCounter(TorchDispatchMode):
    """Counts calls of our operations, those of the backward pass too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        namespace, name = function._schema.name.split("::")
        self.calls[name] += namespace == "nerf"
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_native_calls_the_operation_and_torch_calls_none(name, device):
    arguments = CASES[name]["typical"](torch.float32, device)
    expected = {name: 1} | ({f"{name}_backward": 1} if name in DIFFERENTIABLE else {})
    for ops, calls in ((native, expected), (reference, {})):
        with OperationCounter() as counter:
            outcome(name, ops, arguments)
        assert dict(+counter.calls) == calls, ops.__name__


def walk(grid: Tensor, rays: tuple, ops: ModuleType = native) -> Tensor:
    """March, interpolate, composite: a loss over the rays, all shapes fixed by the capacity."""
    origins, directions, *_ = rays
    offsets, indices, starts, ends, _ = ops.march_rays(*rays)
    t_mid = 0.5 * (starts + ends)
    features = ops.interpolate_trilinear(grid, origins[indices] + t_mid[:, None] * directions[indices])
    density = features[:, 0].relu()
    rgb, opacity, depth, _ = ops.composite_rays(density, features, starts, ends, offsets, 1e-3)
    return rgb.square().sum() + (opacity * depth).sum()


def test_a_step_with_capacity_compiles_into_one_graph(device):
    rays = CASES["march_rays"]["capacity_fits"](torch.float32, device)
    grid = torch.rand(10, 7, 6, 4, device=device, requires_grad=True)
    compiled = torch.compile(walk, fullgraph=True, backend="aot_eager")
    losses = [compiled(grid, rays), walk(grid, rays), walk(grid, rays, reference)]
    gradients = [torch.autograd.grad(loss, grid)[0] for loss in losses]
    for values in (losses, gradients):
        torch.testing.assert_close(values[0], values[1])
        torch.testing.assert_close(values[0], values[2], rtol=1e-4, atol=1e-5)
    assert gradients[0].any()


# The build.


@pytest.fixture
def copied_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """cuda_ext/build.py of a copy of the sources that was never built, without CUDA."""
    monkeypatch.setenv("NERF_CUDA", "0")
    monkeypatch.setenv("CXXFLAGS", "-O0")  # what it computes is tested elsewhere
    shutil.copytree(library.BUILD_SCRIPT.parent, tmp_path / "cuda_ext")
    spec = importlib.util.spec_from_file_location("copied_builder", tmp_path / "cuda_ext" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_library_was_made_of_these_sources():
    builder = library.build_module()
    stamp = builder.read_stamp(library.LIBRARY)
    assert stamp.sources == builder.source_hash() and not builder.is_stale()
    assert library.has_cuda_code() == bool(stamp.cuda)


def test_a_library_is_of_the_same_sources_wherever_they_are(copied_builder):
    assert copied_builder.is_stale() and copied_builder.read_stamp() is None
    assert copied_builder.source_hash() == library.build_module().source_hash()
    with (copied_builder.ROOT / "math" / "march.h").open("a") as header:
        header.write("// changed\n")
    assert copied_builder.source_hash() != library.build_module().source_hash()


def test_a_missing_compiler_is_named_with_the_remedy(copied_builder, monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    missing = r"'/nonexistent/c\+\+' is not on the PATH. Install one"
    with pytest.raises(copied_builder.BuildError, match=missing):
        copied_builder.build(announce=False)
    assert not copied_builder.LIBRARY.exists()


def test_a_failing_compiler_is_quoted(copied_builder, tmp_path, monkeypatch):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho error: this compiler is broken\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(copied_builder.BuildError, match=r"did not compile(.|\n)*this compiler is broken"):
        copied_builder.build(announce=False)
    assert not copied_builder.LIBRARY.exists()


def test_a_library_that_does_not_compile_is_one_line_to_auto_and_its_errors_where_it_is_asked_for(monkeypatch):
    without_native(monkeypatch, "not compiled: a.cpp:7: error: x (the log is build.log)\n  b.cpp:9: error: y")
    chosen = backend.select("auto", "cpu")
    assert chosen.name == "torch" and "a.cpp:7: error" in chosen.reason and "\n" not in chosen.reason
    with pytest.raises(UserError, match="backend=native cannot run here: .*a.cpp:7: error(.|\n)*b.cpp:9: error"):
        backend.select("native", "cpu")


def test_nvcc_is_taken_from_cuda_home_first(tmp_path, monkeypatch):
    builder = library.build_module()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("NERF_CUDA", "1")
    assert builder.find_nvcc() == nvcc
    monkeypatch.setenv("NERF_CUDA", "0")
    assert builder.find_nvcc() is None


def test_a_lock_whose_holder_was_killed_stops_nobody(copied_builder, monkeypatch):
    """A builder dies with the lock in its hand: the lock file stays, the lock does not.

    The next one gets as far as looking for a compiler, which comes after the lock.
    """
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    lock = copied_builder.ROOT.parent / "build" / "native" / "lock"
    lock.parent.mkdir(parents=True)
    program = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('held', flush=True); time.sleep(600)"
    )
    build = [sys.executable, copied_builder.__file__]
    with subprocess.Popen([sys.executable, "-c", program, lock], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(build, capture_output=True, timeout=2)  # while its holder lives, a builder waits
        holder.kill()
    assert lock.exists()
    found = subprocess.run(build, capture_output=True, timeout=TIMEOUT, text=True)
    assert found.returncode == 1 and "error: no C++ compiler" in found.stderr


@pytest.mark.slow
def test_without_a_compiler_auto_says_why_and_native_is_refused(tmp_path):
    """A checkout that was never built, and a PATH without any compiler on it."""
    root = library.BUILD_SCRIPT.parents[1]
    for name in ("nerf", "cuda_ext"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("libnerf.so", "__pycache__"))
    (tmp_path / "bin").mkdir()
    program = "import sys; from nerf.ops.backend import select; print(select(sys.argv[1], 'cpu'))"
    env = {name: value for name, value in os.environ.items() if name not in ("CXX", "PYTHONPATH")}
    found = {
        choice: subprocess.run(
            [sys.executable, "-c", program, choice],
            cwd=tmp_path,
            env=env | {"PATH": str(tmp_path / "bin")},
            capture_output=True,
            text=True,
        )
        for choice in ("auto", "native")
    }
    reason = "no C++ compiler: 'g++' is not on the PATH. Install one (Debian, Ubuntu: apt install g++"
    told = found["auto"].stdout
    assert told.startswith("backend torch on CPU") and f"native is missing: {reason}" in told
    last = found["native"].stderr.splitlines()[-1]
    assert f"UserError: backend=native cannot run here: {reason}" in last and "backend=torch needs no compiler" in last
