"""The rows of the operation benchmark: our naive and optimized code, PyTorch, other libraries, users' variants."""

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from nerf.benchmarks.ops_cases import OPS
from nerf.benchmarks.problems import Problem
from nerf.benchmarks.torch_variants import EAGER, GATHER_ONCE, compiled, composite_packed
from nerf.errors import UserError
from nerf.fields.bf16_mlp import Bf16Mlp, round_up
from nerf.ops import reference

Arguments = dict[str, object]
Outputs = tuple[Tensor, ...]

# Operations of many small kernels, which torch.compile can fuse.
COMPILED = (
    "camera_rays",
    "carve_points",
    "contract_basis",
    "activate_density",
    "pair_ssim",
    "world_depth",
    "pixel_colors",
    "pixel_directions",
    "shading_inputs",
    "shift_pixels",
    "sample_images",
    "adam_step",
    "interpolate_cells",
)


@dataclass(frozen=True)
class Row:
    """One implementation of an operation."""

    label: str
    kind: str  # plain (naive), fast (optimized), ordered (deterministic), torch, peer (another library) or variant
    forward: Callable[..., object]  # takes the arguments of the function in reference.py
    backward: Callable[[Problem, Outputs, Outputs], Outputs] | None = None  # None: autograd
    accumulate: Callable[[Tensor, Problem, Outputs], object] | None = None  # None: backward minus zero-fill
    adapt: Callable[[Arguments], Arguments] | None = None  # untimed conversion of the arguments
    comparable: bool = True  # False: its results are similar but not equal, so they are not checked
    compiles: bool = False  # its first call fails if a compiler is missing


def rows_of(op: str, device: torch.device, with_compile: bool, variants: ModuleType | None) -> list[Row]:
    """All rows of an operation on the device."""
    rows = [_own("fast", "nerf", op)]
    if device.type == "cuda":  # on a CPU both are the same code
        rows.insert(0, _own("plain", "nerf_plain", op))
        if op == "interpolate_trilinear":
            rows.append(in_order())
    rows += _eager(op)
    if with_compile:
        rows += _compiled(op, device)
    rows += _nerfacc(op, device)
    function = getattr(variants, op, None)
    if function is not None:
        rows.append(Row(f"variant: {Path(variants.__file__).stem}", "variant", function))
    return rows


def load_variants(path: str) -> ModuleType:
    """Loads a Python file with functions named like operations, with their arguments and differentiable by autograd.

    Raises UserError if there is no such file or no such function in it.
    """
    if not Path(path).is_file():
        raise UserError(f"benchmark.variants={path} is no file, expected Python with functions named like operations.")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"benchmark.variants={path} is no Python file, expected a name that ends with .py.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not any(inspect.isroutine(getattr(module, op, None)) for op in OPS):
        raise UserError(f"benchmark.variants={path} has no function named like an operation: {', '.join(OPS)}.")
    return module


def _own(kind: str, namespace: str, op: str) -> Row:
    ops = getattr(torch.ops, namespace)
    if op == "mlp":
        network = _OwnMlp(ops)
        return Row(f"ours, {kind}", kind, network.forward, network.backward)
    backward = OWN_BACKWARD.get(op)
    accumulate = OWN_ACCUMULATE.get(op)
    return Row(
        f"ours, {kind}",
        kind,
        getattr(ops, op),
        backward and partial(backward, ops),
        accumulate and partial(accumulate, ops),
    )


def _trilinear_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    grid, coords = problem.arguments.values()
    return ops.interpolate_trilinear_backward(*grads, grid, coords, True, False)[:1]


def _trilinear_accumulate(ops: ModuleType, grad: Tensor, problem: Problem, grads: Outputs) -> None:
    ops.interpolate_trilinear_grad(grad, *grads, problem.arguments["coords"])


def in_order() -> Row:
    """interpolate_trilinear as deterministic=true has it: the same bits every time."""
    ops = torch.ops.nerf

    def accumulate(grad: Tensor, problem: Problem, grads: Outputs) -> None:
        ops.interpolate_trilinear_grad(grad, *grads, problem.arguments["coords"], True)

    def backward(problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
        grad = torch.zeros_like(problem.arguments["grid"])
        accumulate(grad, problem, grads)
        return (grad,)

    return Row("ours, in order", "ordered", ops.interpolate_trilinear, backward, accumulate)


def _composite_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    *tensors, min_transmittance = problem.arguments.values()
    return ops.composite_rays_backward(*grads, *tensors, outputs[3], min_transmittance)


def _basis_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    values, basis, ray_indices = problem.arguments.values()
    return (ops.contract_basis_backward(*grads, basis, ray_indices, values.shape[1]),)


def _cells_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    with_points = "points" in problem.leaves
    found = ops.interpolate_cells_backward(*grads, *problem.arguments.values(), True, with_points)
    return found if with_points else found[:1]


def _distortion_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    return (ops.distortion_loss_backward(*grads, *problem.arguments.values()),)


def _shading_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    named = problem.arguments
    return ops.shading_inputs_backward(*grads, named["values"], named["opacity"], named["min_opacity"])


def _density_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    return (ops.activate_density_backward(*grads, *problem.arguments.values()),)


def _colors_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    return ops.pixel_colors_backward(*grads, *problem.arguments.values())


def _ssim_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    return ops.pair_ssim_backward(*grads, *problem.arguments.values())


def _depth_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    return ops.world_depth_backward(*grads, *problem.arguments.values())


def _beside_backward(ops: ModuleType, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
    return ops.compare_beside_backward(*grads, *problem.arguments.values())


class _OwnMlp:
    """mlp, whose forward pass hands hidden values to its backward pass."""

    def __init__(self, ops: ModuleType) -> None:
        self.ops, self.kept = ops, torch.empty(0)

    def forward(self, *arguments: object) -> Tensor:
        out, self.kept = self.ops.mlp(*arguments)
        return out

    def backward(self, problem: Problem, outputs: Outputs, grads: Outputs) -> Outputs:
        inputs, params, *sizes, _ = problem.arguments.values()
        return self.ops.mlp_backward(*grads, inputs, params, self.kept, *sizes)


def _addmm_mlp(
    inputs: Tensor, params: Tensor, width: int, layers: int, outputs: int, rounded: bool, keep: bool
) -> Tensor:
    """mlp as PyTorch's products of bfloat16 matrices, each with bias and ReLU, and their backward pass by hand."""
    widths = [inputs.shape[1], *[width] * layers, outputs]
    sizes = [size for a, b in zip(widths, widths[1:], strict=False) for size in (a * b, b)]
    parts = [x.view(-1, widths[i // 2]) if i % 2 == 0 else x for i, x in enumerate(params.split(sizes))]
    return Bf16Mlp.apply(torch.nn.functional.pad(inputs, (0, round_up(widths[0]) - widths[0])), *parts)


OWN_BACKWARD = {
    "interpolate_trilinear": _trilinear_backward,
    "composite_rays": _composite_backward,
    "contract_basis": _basis_backward,
    "distortion_loss": _distortion_backward,
    "interpolate_cells": _cells_backward,
    "activate_density": _density_backward,
    "pixel_colors": _colors_backward,
    "pair_ssim": _ssim_backward,
    "world_depth": _depth_backward,
    "compare_beside": _beside_backward,
    "shading_inputs": _shading_backward,
}
OWN_ACCUMULATE = {"interpolate_trilinear": _trilinear_accumulate}


def _channels_first(arguments: Arguments) -> Arguments:
    """The arguments with the grid stored as [C,X,Y,Z]; its shape stays [X,Y,Z,C]."""
    grid = arguments["grid"].permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0)
    return arguments | {"grid": grid}


def _eager(op: str) -> list[Row]:
    if op == "interpolate_trilinear":
        return [
            Row(
                f"torch: {variant.label}",
                "torch",
                variant.ops.interpolate_trilinear,
                adapt=_channels_first if variant.channels_first else None,
            )
            for variant in EAGER
        ]
    rows = [Row("torch: index_add_" if op == "index_add" else "torch: eager", "torch", getattr(reference, op))]
    if op == "composite_rays":
        rows.append(Row("torch: packed, one cumsum", "torch", composite_packed))
    if op == "mlp":  # rounded at other places
        rows.append(Row("torch: addmm in bfloat16", "torch", _addmm_mlp, comparable=False))
    return rows


def _compiled(op: str, device: torch.device) -> list[Row]:
    if op in ("interpolate_trilinear", "composite_rays"):
        variant = compiled(GATHER_ONCE, device)
        label = variant.label if op == "interpolate_trilinear" else "compile of packed, one cumsum"
        return [Row(f"torch: {label}", "torch", getattr(variant.ops, op), compiles=True)]
    if op not in COMPILED:
        return []
    torch.compiler.reset()
    function = torch.compile(getattr(reference, op), dynamic=False)
    return [Row("torch: compile of eager", "torch", function, compiles=True)]


def _nerfacc(op: str, device: torch.device) -> list[Row]:
    """nerfacc 0.5 (Li et al. 2023) if it is installed; it runs on CUDA only."""
    if device.type != "cuda" or importlib.util.find_spec("nerfacc") is None:
        return []
    nerfacc = importlib.import_module("nerfacc")

    def with_ray_indices(arguments: Arguments) -> Arguments:
        counts = arguments["ray_offsets"].diff()
        return arguments | {"ray_indices": torch.repeat_interleave(torch.arange(len(counts), device=device), counts)}

    def composite(density, values, t_starts, t_ends, ray_offsets, min_transmittance, ray_indices):
        rays = len(ray_offsets) - 1
        weights = nerfacc.render_weight_from_density(t_starts, t_ends, density, ray_indices=ray_indices, n_rays=rays)[0]

        def per_ray(x: Tensor | None) -> Tensor:
            return nerfacc.accumulate_along_rays(weights, x, ray_indices, rays)

        t_mid = 0.5 * (t_starts + t_ends)
        return per_ray(values), per_ray(None)[:, 0], per_ray(t_mid[:, None])[:, 0], weights

    def march(origins, directions, jitter, occupied, near, far, step_size, capacity, aabb):
        return nerfacc.traverse_grids(
            origins, directions, occupied[None], aabb, near_planes=near, far_planes=far, step_size=step_size
        )[1].vals

    def with_aabb(arguments: Arguments) -> Arguments:
        box = [0, 0, 0, *arguments["occupied"].shape]
        return arguments | {"aabb": torch.tensor([box], device=device, dtype=torch.float32)}

    rows = {
        "composite_rays": Row("nerfacc", "peer", composite, adapt=with_ray_indices, compiles=True),
        "march_rays": Row("nerfacc, its own lattice", "peer", march, adapt=with_aabb, comparable=False, compiles=True),
    }
    return [rows[op]] if op in rows else []
