"""Benchmark of single operations: error against float64, time with cold and warm caches, time over the roofline.

A row is an implementation of an operation (ops_rows.py), a case its inputs (ops_cases.py). A case has up to three
directions: forward; backward, from the gradients of the outputs to those of the leaves, including zero-fill of the
buffer; accumulate, which adds to an existing gradient. If a row cannot accumulate, the time is that of backward minus
the zero-fill.
"""

import gc
import math
import time
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from nerf.benchmarks.figures import Direction, KernelGain, Log, OpCase, OpRow, OpsBenchmark, OpSummary, Summary
from nerf.benchmarks.kernel_notes import KERNEL_NOTES
from nerf.benchmarks.ops_cases import OPS, all_cases
from nerf.benchmarks.ops_rows import Outputs, Row, load_variants, rows_of
from nerf.benchmarks.problems import SIZES, Case, Problem, random_numbers
from nerf.benchmarks.timing import Call, Ceilings, Stopwatch, measure_ceilings, summary
from nerf.benchmarks.torch_variants import COMPILE_ERRORS
from nerf.config.settings import setting
from nerf.errors import UserError
from nerf.ops import reference


@dataclass
class BenchmarkConfig:
    ops: list[str] | None = setting(None, "which operations, as [name,name]; none = all")
    size: str = setting(
        "auto",
        "of the cases; auto = full on a GPU, small on a CPU; tiny only shows that it runs",
        choices=("auto", *SIZES),
    )
    repeats: int | None = setting(None, "timed runs of a row; none = 30 on a GPU, 10 on a CPU", low=1)
    seconds: float | None = setting(
        None, "a row ends after this time, with three runs at least; none = 0.15 on a GPU, 2 on a CPU", low=0
    )
    max_seconds: float | None = setting(
        None, "rows that have not begun by then are left out; none = 210 on a GPU, 1800 on a CPU", low=0
    )
    compile: bool = setting(True, "rows with torch.compile too; they take longest to start")
    variants: str | None = setting(None, "a Python file; its functions named like operations become rows", path=True)


def benchmark(settings: BenchmarkConfig, device: torch.device, log: Log) -> OpsBenchmark:
    """Measures all cases on the device.

    Raises UserError for an unknown operation or a file of variants that cannot be used.
    """
    unknown = set(settings.ops or ()) - set(OPS)
    if unknown:
        raise UserError(f"benchmark.ops: there is no operation {min(unknown)}; choose from {', '.join(OPS)}.")
    on_gpu = device.type == "cuda"
    variants = load_variants(settings.variants) if settings.variants else None
    name = settings.size if settings.size != "auto" else ("full" if on_gpu else "small")
    size = SIZES[name]
    seconds = (0.15 if on_gpu else 2.0) if settings.seconds is None else settings.seconds
    limit = (210.0 if on_gpu else 1800.0) if settings.max_seconds is None else settings.max_seconds
    watch = Stopwatch(device, settings.repeats or (30 if on_gpu else 10), seconds)
    deadline = time.perf_counter() + limit
    log("peak rates of the device")
    ceilings = measure_ceilings(watch, size.ceiling_bytes)
    rows, cases, left_out = {}, [], []
    for case in all_cases(size):
        if not hasattr(torch.ops.nerf, case.op) or (settings.ops and case.op not in settings.ops):
            continue
        if time.perf_counter() > deadline:
            left_out.append(f"{case.op}: {case.name}")
            continue
        if case.op not in rows:
            rows[case.op] = rows_of(case.op, device, settings.compile, variants)
        log(f"{case.op}: {case.name}")
        cases.append(measure_case(case, rows[case.op], watch, ceilings, deadline))
        gc.collect()
        if on_gpu:
            torch.cuda.empty_cache()
    return {
        "size": name,
        "flush_bytes": watch.flush_bytes,
        "ceilings": asdict(ceilings),
        "cases": cases,
        "left_out": left_out,
        "summaries": [line for case in cases for line in summaries(case)],
        "ladder": [line for case in cases for line in kernel_gains(case)],
    }


def measure_case(case: Case, rows: list[Row], watch: Stopwatch, ceilings: Ceilings, deadline: float) -> OpCase:
    """Measures one case with all rows. deadline: of time.perf_counter; later rows are left out."""
    problem = case.make(watch.device)
    expected = Expected(case.op, problem)
    zero_fill = None
    if "accumulate" in problem.rooflines:
        buffer = torch.empty_like(problem.arguments[problem.leaves[0]])
        zero_fill = _both(watch, Call(lambda _: buffer.zero_()))
        del buffer
    figures = []
    for row in rows:
        head = {"label": row.label, "kind": row.kind}
        if time.perf_counter() > deadline:
            figures.append(head | {"missing": "no time was left (benchmark.max_seconds)"})
            continue
        try:
            directions = measure_row(row, problem, expected, watch, ceilings, zero_fill)
        except torch.OutOfMemoryError:
            figures.append(head | {"missing": "the GPU has too little memory"})
        except COMPILE_ERRORS as error:
            if not row.compiles:
                raise
            reason = f"it cannot be compiled here: {type(error).__name__}: {error}".splitlines()[0][:300]
            figures.append(head | {"missing": reason})
        else:
            figures.append(head | {"missing": None, "directions": directions})
    floors = {
        direction: asdict(roofline) | {"floor_ms": ceilings.roofline_ms(roofline.num_bytes, roofline.lookups)}
        for direction, roofline in problem.rooflines.items()
    }
    return {"op": case.op, "case": case.name, "zero_fill": zero_fill, "floors": floors, "rows": figures}


class Expected:
    """The reference outputs and gradients of a problem in float64, and the output gradients for all rows."""

    def __init__(self, op: str, problem: Problem) -> None:
        row, wide = Row("expected", "torch", getattr(reference, op)), problem.as_float64()
        self.outputs = results(row, wide)
        device = self.outputs[0].device
        self.grads: Outputs = ()
        self.gradients: Outputs = ()
        if problem.leaves:
            self.grads = tuple(random_numbers(device, *x.shape, low=-1) for x in self.outputs)
            self.gradients = gradients(row, wide, tuple(g.double() for g in self.grads))
        for found in (self.outputs, self.gradients):
            if found and not any(bool(x.any()) for x in found):
                raise ValueError(f"the case of {op} has zeros alone for a result: a wrong row would not be told.")


def results(row: Row, problem: Problem) -> Outputs:
    """The outputs of a row, or copies of the arguments that it writes in place."""
    arguments = _adapted(row, problem)
    arguments |= {name: arguments[name].clone() for name in problem.written}
    with torch.no_grad():
        outputs = row.forward(*arguments.values())
    return tuple(arguments[name] for name in problem.written) or _as_tuple(outputs)


def gradients(row: Row, problem: Problem, grads: Outputs) -> Outputs:
    """The gradients of the leaves, from the gradients of the outputs."""
    call = _backward_call(row, problem, grads)
    return call.run(call.prepare())


def error(found: Outputs, expected: Outputs) -> tuple[float, float] | None:
    """Maximum error over maximum value, and RMS error over RMS value, for the worst output.

    None if a shape differs or a value is not finite.
    """
    worst = (0.0, 0.0)
    if len(found) != len(expected):
        return None
    for x, y in zip(found, expected, strict=True):
        if x.shape != y.shape or not bool(x.isfinite().all()):
            return None
        if not y.numel():
            continue
        y = y.double()
        difference = x.double() - y
        pair = (
            float(difference.abs().max()) / (float(y.abs().max()) or 1.0),
            float(difference.norm()) / (float(y.norm()) or 1.0),
        )
        worst = max(worst[0], pair[0]), max(worst[1], pair[1])
    return worst


def measure_row(
    row: Row,
    problem: Problem,
    expected: Expected,
    watch: Stopwatch,
    ceilings: Ceilings,
    zero_fill: dict[str, Summary] | None,
) -> dict[str, Direction]:
    """Errors and times of one row, by direction."""
    mistake = error(results(row, problem), expected.outputs)
    times = _both(watch, _forward_call(row, problem))
    found = {"forward": _direction(row, mistake, times, problem, "forward", ceilings)}
    if "backward" in problem.rooflines:
        call = _backward_call(row, problem, expected.grads)
        mistake = error(call.run(call.prepare()), expected.gradients)
        times = _both(watch, call)
        found["backward"] = _direction(row, mistake, times, problem, "backward", ceilings)
    if zero_fill is not None:
        if row.accumulate is not None:
            grad = torch.zeros_like(problem.arguments[problem.leaves[0]])
            row.accumulate(grad, problem, expected.grads)
            mistake = error((grad,), expected.gradients)
            times = _both(watch, Call(lambda _: row.accumulate(grad, problem, expected.grads)))
        else:
            times = {
                mode: summary([max(0.0, ms - zero_fill[mode]["median"]) for ms in taken["all"]])
                for mode, taken in times.items()
            }
        figures = _direction(row, mistake, times, problem, "accumulate", ceilings)
        found["accumulate"] = figures | {"less_zero_fill": row.accumulate is None}
    return found


def _forward_call(row: Row, problem: Problem) -> Call:
    """The forward pass of one row. Arguments written in place are copies; they change with each run unless cleared."""
    arguments = _adapted(row, problem)
    arguments |= {name: arguments[name].clone() for name in problem.written}

    def prepare() -> None:
        for name in problem.cleared:
            arguments[name].copy_(problem.arguments[name])

    def run(_: object) -> object:
        with torch.no_grad():
            return row.forward(*arguments.values())

    return Call(run, prepare)


def _backward_call(row: Row, problem: Problem, grads: Outputs) -> Call:
    """The backward pass of one row; the forward pass is its untimed preparation."""
    arguments = _adapted(row, problem)
    if row.backward is not None:
        with torch.no_grad():
            outputs = _as_tuple(row.forward(*arguments.values()))
        return Call(lambda _: row.backward(problem, outputs, grads))
    leaves = {name: arguments[name].detach().requires_grad_() for name in problem.leaves}
    arguments |= leaves

    def prepare() -> Outputs:
        outputs = _as_tuple(row.forward(*arguments.values()))
        if not all(x.requires_grad for x in outputs):
            raise UserError(f"{row.label} has no derivative; write it with operations that autograd can differentiate.")
        return outputs

    return Call(lambda outputs: torch.autograd.grad(outputs, list(leaves.values()), grads), prepare)


def _adapted(row: Row, problem: Problem) -> dict[str, object]:
    return row.adapt(problem.arguments) if row.adapt else dict(problem.arguments)


def _as_tuple(outputs: object) -> Outputs:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def _both(watch: Stopwatch, call: Call) -> dict[str, Summary]:
    return {mode: summary(watch.times(call, mode == "cold_ms")) for mode in ("cold_ms", "warm_ms")}


def _direction(
    row: Row,
    mistake: tuple[float, float] | None,
    times: dict[str, Summary],
    problem: Problem,
    direction: str,
    ceilings: Ceilings,
) -> Direction:
    roofline, (of_rms, of_max) = problem.rooflines[direction], problem.tolerance
    agrees = mistake is not None and mistake[0] <= of_max and mistake[1] <= of_rms
    seconds = times["cold_ms"]["median"] / 1e3
    per_second = roofline.num_bytes / seconds if seconds else math.inf
    return times | {
        "agrees": agrees if row.comparable else None,
        "error_max": mistake and mistake[0],
        "error_rms": mistake and mistake[1],
        "share_of_copy": per_second / ceilings.copy_bytes["median"],
        "reductions_per_second": roofline.reductions / seconds if seconds and roofline.reductions else None,
        "times_floor": 1e3 * seconds / ceilings.roofline_ms(roofline.num_bytes, roofline.lookups),
    }


def summaries(case: OpCase) -> list[OpSummary]:
    """Our fast row against the fastest correct PyTorch row, for each direction, by cold and by warm median.

    Also forward + backward if both exist; there the fastest row is the one with the smallest sum.
    """
    rows = [row for row in case["rows"] if row["missing"] is None]
    directions = [(d,) for d in case["floors"]]
    if "backward" in case["floors"]:
        directions.append(("forward", "backward"))
    lines = []
    for parts in directions:
        right = [row for row in rows if all(row["directions"][part]["agrees"] for part in parts)]
        fast = next((row for row in right if row["kind"] == "fast"), None)
        rivals = [row for row in right if row["kind"] == "torch"]
        if fast is None or not rivals:
            continue
        line = {"op": case["op"], "case": case["case"], "direction": " + ".join(parts)}
        for mode in ("cold_ms", "warm_ms"):

            def milliseconds(row: OpRow, parts: tuple[str, ...] = parts, mode: str = mode) -> float:
                return sum(row["directions"][part][mode]["median"] for part in parts)

            best = min(rivals, key=milliseconds)
            ours = milliseconds(fast)
            ratio = milliseconds(best) / ours if ours else None
            line[mode] = {
                "fast": ours,
                "best_torch": milliseconds(best),
                "best_label": best["label"],
                "ratio": ratio,
            }
        roofline = sum(case["floors"][part]["floor_ms"] for part in parts)
        lines.append(line | {"floor_ms": roofline, "times_floor": line["cold_ms"]["fast"] / roofline})
    return lines


def kernel_gains(case: OpCase) -> list[KernelGain]:
    """The naive kernel against the optimized one, with the idea of each, for each direction, by cold median."""
    rows = {row["kind"]: row for row in case["rows"] if row["kind"] in ("plain", "fast") and row["missing"] is None}
    if len(rows) < 2:
        return []
    ideas, lines = KERNEL_NOTES[case["op"]], []
    for direction in case["floors"]:
        plain, fast = (rows[kind]["directions"][direction]["cold_ms"]["median"] for kind in ("plain", "fast"))
        lines.append(
            {
                "op": case["op"],
                "case": case["case"],
                "direction": direction,
                "plain_ms": plain,
                "fast_ms": fast,
            }
            | {"gain": plain / fast, "plain": ideas.plain, "fast": ideas.fast}
        )
    return lines


def wrong_rows(result: OpsBenchmark) -> list[str]:
    """The names of the rows whose results differ from float64."""
    return [
        f"{row['label']} ({case['op']}: {case['case']}, {direction})"
        for case in result["cases"]
        for row in case["rows"]
        if row["missing"] is None
        for direction, figures in row["directions"].items()
        if figures["agrees"] is False
    ]
