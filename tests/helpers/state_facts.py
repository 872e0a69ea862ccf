"""Everything that a training state reaches, by reflection: what must be equal for two runs to go on alike.

Nothing is listed by hand, so a new attribute is compared from the day it exists. What may differ is named in FREE.
"""

from types import FunctionType, MethodType, ModuleType

import torch
from torch import nn

# Ends of paths that may differ between a run that was stopped and one that never was, each with its reason.
FREE = (
    ".clock._elapsed",  # readings of this process's clock
    ".clock._started",
    ".clock._reading",
    ".clock.seconds_per_step",
    ".clock._steps_since_reading",
    ".batches._feed",  # gathers batches ahead, from where the generator stands; they are the same batches
    ".batches._prefetches",
    ".batches._device_valid_pixels",  # a copy of the pool, made when it is needed
    ".occupancy._packed",  # the cells as bits, made when they are needed
    ".tv_active",  # set from the progress before each step
    ".optimizer.decay",
)
# What torch.nn.Module keeps beside parameters, buffers, modules and our own attributes.
TORCH_OWN = frozenset(vars(nn.Module())) - {"_parameters", "_buffers", "_modules"}
SKIPPED = (FunctionType, MethodType, ModuleType, type)


def facts(state: object) -> dict[str, object]:
    """By its path, each tensor, number, string and random state that the state reaches; tensors are copies."""
    found: dict[str, object] = {}
    _walk("", state, found, set())
    return {path: value for path, value in found.items() if not path.endswith(FREE)}


def differing(one: dict[str, object], other: dict[str, object]) -> list[str]:
    """The paths under which two lists of facts differ in a bit, or that only one of them has."""
    paths = sorted(one.keys() | other.keys())
    return [path for path in paths if path not in one or path not in other or not _same(one[path], other[path])]


def _same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        equal = one.shape == other.shape and one.dtype == other.dtype
        return equal and torch.equal(one.nan_to_num(7.5), other.nan_to_num(7.5))
    return type(one) is type(other) and one == other


def _walk(path: str, value: object, found: dict[str, object], above: set[int]) -> None:
    if path.endswith(FREE) or isinstance(value, SKIPPED) or id(value) in above:
        return
    above = above | {id(value)}
    if isinstance(value, torch.Tensor):
        found[path] = value.detach().clone()
    elif isinstance(value, torch.Generator):
        found[path] = value.get_state()
    elif isinstance(value, (list, tuple)):
        found[f"{path}#"] = len(value)
        for index, item in enumerate(value):
            _walk(f"{path}[{index}]", item, found, above)
    elif isinstance(value, dict):
        for key, item in value.items():
            _walk(f"{path}.{key}", item, found, above)
    elif hasattr(value, "__dict__"):
        found[f"{path}:"] = type(value).__qualname__
        for name, item in vars(value).items():
            if not (isinstance(value, nn.Module) and name in TORCH_OWN):
                _walk(f"{path}.{name}", item, found, above)
    elif hasattr(value, "__slots__") and not isinstance(value, (int, float, str, bytes)):
        for name in value.__slots__:
            _walk(f"{path}.{name}", getattr(value, name, None), found, above)
    else:
        found[path] = value
