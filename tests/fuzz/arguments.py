"""Arguments that nobody would pass: a case of an operation with a few of its arguments made worse, by their types.

All is drawn from one random.Random, so that a call can be repeated alone.
"""

import math
import random
from collections.abc import Callable
from functools import cache

import torch
from case_tools import each_tensor, tensors_in
from cases import CASES
from torch import Tensor

FLOATS = (0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e-45, 1e-40, 1e-30, 0.5, 1e30, 3e38, 1e300, -1e300)
INTEGERS = (0, 1, -1, 2, 3, 4, 5, 7, 64, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -(2**31), -(2**63))
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.int8, torch.int16)
DTYPES += (torch.int32, torch.int64, torch.uint8, torch.bool)
LARGEST_COPY = 1 << 16  # numbers; a case that is larger is not used
SHORTEST = 1e-3  # below it a step makes walks of 2^20 points, which take minutes there too
ROOM = 1 << 20, 1 << 36  # rows: more than these take minutes to fill under compute-sanitizer, if a GPU has them


@cache
def _small_cases(name: str) -> tuple[tuple, ...]:
    """The arguments of all cases that are small, in both dtypes."""
    made = [make(dtype, "cpu") for make in CASES[name].values() for dtype in (torch.float32, torch.float64)]
    return tuple(x for x in made if all(t.numel() <= LARGEST_COPY for t in tensors_in(x)))


def draw(name: str, rng: random.Random) -> list[object]:
    """Arguments for one call: those of a case, of which none to four are made worse."""
    arguments = [each_tensor(Tensor.clone, x) for x in rng.choice(_small_cases(name))]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        place = rng.randrange(len(arguments))
        listed = arguments
        if isinstance(arguments[place], list) and arguments[place] and rng.random() < 0.8:  # one tensor of a list
            listed = arguments[place]
            place = rng.randrange(len(listed))
        listed[place] = _worse(listed[place], tensors_in(arguments), rng)
    return arguments


def on_gpu(arguments: list[object]) -> list[object]:
    """The same arguments on the GPU: gaps, rows that are one in memory and memory in common stay as they are.

    Numbers between those of ROOM become the smaller one, and those between 0 and SHORTEST the larger one.
    """
    memory: dict[int, torch.UntypedStorage] = {}

    def moved(x: object) -> object:
        if isinstance(x, list):
            return [moved(each) for each in x]
        if isinstance(x, int) and ROOM[0] < x < ROOM[1]:
            return ROOM[0]
        if isinstance(x, float) and 0 < x < SHORTEST:
            return SHORTEST
        if not isinstance(x, Tensor) or x.device.type != "cpu":
            return x
        if x.is_sparse or x.is_neg():
            return x  # another place is what was drawn
        storage = x.untyped_storage()
        if storage.data_ptr() not in memory:
            memory[storage.data_ptr()] = storage.cuda()
        there = torch.empty(0, dtype=x.dtype, device="cuda")
        return there.set_(memory[storage.data_ptr()], x.storage_offset(), x.shape, x.stride())

    return [moved(x) for x in arguments]


def _worse(x: object, others: list[Tensor], rng: random.Random) -> object:
    if isinstance(x, Tensor) and max(x.shape, default=0) > 2 * LARGEST_COPY:
        return x  # one of another_shape
    if isinstance(x, Tensor):
        change = rng.choice(OF_CONTENT if rng.random() < 0.6 else OF_FORM)
        try:
            return change(x, others, rng)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return x  # PyTorch makes no such tensor of this one
    if isinstance(x, bool):
        return not x
    if isinstance(x, int):
        return rng.choice(INTEGERS) if rng.random() < 0.8 else rng.randrange(-10, 100)
    if isinstance(x, float):
        return rng.choice(FLOATS) if rng.random() < 0.8 else rng.uniform(-2, 2)
    if isinstance(x, list):
        return rng.choice(([], x[:1], 40 * x))
    return x


Change = Callable[[Tensor, list[Tensor], random.Random], Tensor]


def _numbers(x: Tensor, rng: random.Random) -> tuple:
    if x.is_floating_point() or x.is_complex():
        most = torch.finfo(x.dtype).max
        return tuple(max(-most, min(most, v)) if math.isfinite(v) else v for v in FLOATS)
    if x.dtype == torch.bool:
        return (True, False)
    limits = torch.iinfo(x.dtype)
    return tuple(v for v in (*INTEGERS, x.numel(), rng.randrange(100)) if limits.min <= v <= limits.max)


def some_numbers(x: Tensor, others: list[Tensor], rng: random.Random) -> Tensor:
    flat = x.contiguous().clone().view(-1)
    for _ in range(rng.randint(1, 3)):
        if len(flat):
            flat[rng.randrange(len(flat))] = rng.choice(_numbers(x, rng))
    return flat.view(x.shape)


def all_numbers(x: Tensor, others: list[Tensor], rng: random.Random) -> Tensor:
    return torch.full_like(x, rng.choice(_numbers(x, rng)))


def another_order(x: Tensor, others: list[Tensor], rng: random.Random) -> Tensor:
    order = list(range(len(x)))
    rng.shuffle(order)
    return x[order]


def another_dtype(x: Tensor, others: list[Tensor], rng: random.Random) -> Tensor:
    return x.to(rng.choice(DTYPES))


def another_shape(x: Tensor, others: list[Tensor], rng: random.Random) -> Tensor:
    makers = (
        lambda: x[None],
        lambda: x[..., None],
        lambda: x[:0],
        lambda: x[1:],
        lambda: x[..., :1],
        lambda: x[..., :0],
        lambda: x.flatten(),
        lambda: x.flatten()[0],
        lambda: torch.cat([x, x]),
        lambda: x.new_empty([0] * x.dim()),
        lambda: x.new_empty([0, *[rng.choice((1, 3, 2**20, 2**31, 2**61)) for _ in x.shape[1:]]]),
        lambda: x.new_empty([*[rng.choice((1, 2**20, 2**40)) for _ in x.shape[1:]], 0]),
        lambda: x[:1].expand(rng.choice((2, 2**20, 2**45)), *x.shape[1:]),
    )
    return rng.choice(makers)()


def another_layout(x: Tensor, others: list[Tensor], rng: random.Random) -> Tensor:
    makers = (
        lambda: torch.stack([x, x], -1)[..., 0],
        lambda: x.transpose(0, -1).contiguous().transpose(0, -1),
        lambda: x[:1].expand_as(x),
        lambda: x.as_strided(x.shape, [1] * x.dim()),
        lambda: torch.cat([x, x]).as_strided(x.shape, [max(1, s - 1) for s in x.stride()]),
        lambda: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
    )
    return rng.choice(makers)()


def odd_address(x: Tensor, others: list[Tensor], rng: random.Random) -> Tensor:
    content = bytes(rng.randrange(8)) + bytes(x.contiguous().view(-1).view(torch.uint8).tolist()) + bytes(1)
    offset = len(content) - x.nbytes - 1
    return torch.frombuffer(bytearray(content), dtype=x.dtype, offset=offset, count=x.numel()).view(x.shape)


def common_memory(x: Tensor, others: list[Tensor], rng: random.Random) -> Tensor:
    """A view of another argument, or of a part of it."""
    base = rng.choice(others)
    memory = base.view(-1).view(torch.uint8)
    first = x.element_size() * rng.randrange(max(1, (len(memory) - x.nbytes) // x.element_size() + 1))
    return memory[first : first + x.nbytes].view(x.dtype).view(x.shape)


def another_place(x: Tensor, others: list[Tensor], rng: random.Random) -> Tensor:
    return rng.choice((lambda: x.to("meta"), lambda: x.to_sparse(), lambda: torch._neg_view(x)))()


OF_CONTENT: tuple[Change, ...] = (some_numbers, some_numbers, all_numbers, another_order)
OF_FORM: tuple[Change, ...] = (another_dtype, another_shape, another_layout, odd_address, common_memory, another_place)
