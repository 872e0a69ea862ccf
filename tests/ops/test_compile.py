"""Every operation inside torch.compile(fullgraph=True) and inside a CUDA graph gives what it gives outside."""

import shutil
from collections.abc import Callable, Iterator

import pytest
import torch
from case_tools import tensors_in
from cases import CASES
from proofs import argument_names, outcome
from torch import Tensor

from nerf.ops import native

# The operations with a function in native.py; those of the derivatives are called by these.
FUNCTIONS = [name for name in CASES if not name.endswith("_backward")]


@pytest.fixture(autouse=True)
def fresh_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without a capacity march_rays decides the size of its outputs, which the compiler captures when told to.

    How long its guards take is not measured: for that it empties the processor's caches after each compilation, which
    is a sixth of the time of this file.
    """
    monkeypatch.setattr(torch._dynamo.guards, "profile_guard_manager", lambda *_: 0.0)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield
    torch._dynamo.reset()


class Compiled:
    """native's functions, compiled as whole graphs: a graph break is an error."""

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def __getattr__(self, name: str) -> Callable[..., object]:
        return torch.compile(getattr(native, name), fullgraph=True, backend=self.backend)


def assert_same(case: str, found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for key, x in expected.items():  # atomic additions on a GPU come in any order
        place = f"{case}, {key}: "
        torch.testing.assert_close(found[key], x, msg=lambda text, place=place: place + text)


def kinds(x: object) -> object:
    """What a graph is compiled for: types of arguments, truth, of tensors dtype, rank and whether they are empty."""
    if isinstance(x, Tensor):
        return x.dtype, x.dim(), x.numel() == 0
    if isinstance(x, bool):
        return x
    return tuple(map(kinds, x)) if isinstance(x, tuple | list) else type(x)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_whole_it_gives_the_same(name, device):
    """Of cases that differ in sizes and numbers alone, the first."""
    seen = set()
    for case, make in CASES[name].items():
        arguments = make(torch.float32, device)
        if kinds(arguments) in seen:
            continue
        seen.add(kinds(arguments))
        torch._dynamo.reset()
        assert_same(case, outcome(name, Compiled("aot_eager"), arguments), outcome(name, native, arguments))


# Arguments with a row for each result.
BY_ROWS = {
    "carve_points": ("points",),
    "contract_basis": ("values", "ray_indices"),
    "draw_pixels": ("random",),
    "interpolate_cells": ("feats", "points"),
    "interpolate_trilinear": ("coords",),
    "mlp": ("inputs",),
    "pixel_colors": ("logits", "opacity", "background", "values"),
    "pair_ssim": ("rgb", "target"),
    "world_depth": ("depth", "opacity", "origins", "directions"),
    "compare_beside": ("depth", "opacity", "origins", "directions", "pixels"),
    "sample_images": ("pixel_indices",),
    "shift_pixels": ("pixel_indices", "shifts"),
    "shading_inputs": ("values", "opacity", "directions", "noise"),
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_compiled_once_it_takes_any_number_of_rows(name, device):
    arguments = dict(zip(argument_names(name), CASES[name]["typical"](torch.float32, device), strict=False))
    compiled = torch.compile(lambda **named: getattr(native, name)(**named), fullgraph=True, backend="aot_eager")
    for count in (7, 9, 12):  # fewer than there are
        named = arguments | {key: arguments[key][:count].clone() for key in BY_ROWS[name]}
        for key in BY_ROWS[name]:
            torch._dynamo.mark_dynamic(named[key], 0)  # raises where the number of rows would be a constant
        found, expected = compiled(**named), getattr(native, name)(**named)
        torch.testing.assert_close(found, expected)


@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler of torch.compile needs g++ on a CPU")
def test_compiled_to_machine_code_between_other_operations():
    """Two operations with PyTorch's own before, between and behind them, forward and backward, through inductor."""
    density, values, *intervals, limit = CASES["composite_rays"]["typical"](torch.float32, "cpu")

    def loss(density: Tensor) -> Tensor:
        *_, weights = native.composite_rays(density.square(), values.sin(), *intervals, limit)
        return native.distortion_loss(weights * 2, *intervals).exp().sum()

    found = [density.clone().requires_grad_() for _ in range(2)]
    torch.compile(loss, fullgraph=True)(found[0]).backward()
    loss(found[1]).backward()
    torch.testing.assert_close(found[0].grad, found[1].grad)
    assert found[1].grad.any()


# Of operations that read their results' sizes back: the cases with room for a fixed number of them.
WITH_ROOM = {
    "march_rays": ("capacity", "many_rays"),
    "march_visible": ("capacity", "many_rays"),
    "bring_rows": ("with_room", "without_room"),
}


def capturable(name: str) -> list[str]:
    """Cases that read nothing back."""
    return [case for case in CASES[name] if case.startswith(WITH_ROOM.get(name, ""))]


def test_operations_that_read_back_have_cases_that_do_not() -> None:
    for name in WITH_ROOM:
        assert 1 < len(capturable(name)) < len(CASES[name])
    assert capturable("adam_step") == list(CASES["adam_step"])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_cuda_graph_replays_it(name, cuda):
    """Captured with one case's numbers, replayed with others in the same memory: nothing is baked in."""
    for case in capturable(name):
        arguments = CASES[name][case](torch.float32, cuda)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            outcome(name, native, arguments)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = outcome(name, native, arguments)
        for x in tensors_in(arguments):
            if x.is_floating_point():
                x.mul_(0.75)
        graph.replay()
        assert_same(case, captured, outcome(name, native, arguments))
