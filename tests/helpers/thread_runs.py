"""Training on a CPU with several numbers of threads: what a run ends with, and which PyTorch operations differ.

python tests/helpers/thread_runs.py SETTING ... / SETTING ...    # for each run, which a / parts from the others, a line
for each number of threads, equal if all is well
python tests/helpers/thread_runs.py --operations STEPS SETTING ... / SETTING ...   # for each run a line: the operations
that give several results
"""

import functools
import hashlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from hulls import carved_once
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from nerf.cli.composition import compose
from nerf.cli.train import TrainScriptConfig
from nerf.config.recipes import resolve_config
from nerf.config.schema import Config
from nerf.datasets.load import load_split
from nerf.datasets.posed_images import PosedImages
from nerf.ops.backend import select
from nerf.training.initial_state import init_state
from nerf.training.loop import StopWhen, train
from nerf.training.state import TrainState

THREADS = (1, 2, 3)  # of runs; more than cores is no matter
OF_OPERATIONS = (5, 2, 1)  # the last result is the one that training goes on with
CHANCE = ("empty", "rand", "uniform", "normal", "bernoulli")  # operations whose numbers are any, by their names


def begin(settings: list[str]) -> tuple[Config, TrainState]:
    """A state before the first step, of experiment=smoke with these settings on top."""
    config, images = read(tuple(settings))
    backend = select("native", "cpu", config.deterministic)
    config = resolve_config(config, backend.device.type)
    return config, init_state(config, images, backend)


@functools.cache
def read(settings: tuple[str, ...]) -> tuple[Config, PosedImages]:
    """What is the same for all numbers of threads."""
    config = compose("train", TrainScriptConfig, ["experiment=smoke", *settings])
    return config, images_of(*(setting for setting in settings if setting.startswith("dataset.")))


@functools.cache
def images_of(*settings: str) -> PosedImages:
    """Of several runs: it takes longer than most of their steps."""
    return load_split(compose("train", TrainScriptConfig, ["experiment=smoke", *settings]).dataset, "train")


def advance(config: Config, state: TrainState, steps: int) -> None:
    list(train(config, state, [StopWhen(lambda: state.clock.step >= steps)]))


def numbers_of(state: TrainState) -> Iterator[tuple[str, Tensor]]:
    """Parameters, moments and occupancy."""
    for name, part in {"field": state.field, **state.auxiliary_modules()}.items():
        yield from ((f"{name}.{key}", value) for key, value in part.state_dict().items())
        optimizer = state.optimizer if name == "field" else part.optimizer
        yield from ((f"{name}.{key}", value) for key, value in optimizer.state_dict().items())
    yield "occupied", state.occupancy.occupied


def outcome(settings: list[str]) -> str:
    """Doublings, prunings, and a hash of all numbers at the end."""
    config, state = begin(settings)
    advance(config, state, config.train.steps)
    digest = hashlib.sha256()
    for name, value in numbers_of(state):
        digest.update(name.encode() + value.detach().contiguous().numpy().tobytes())
    return f"{state.num_upsamplings} {state.num_occupancy_updates} {digest.hexdigest()}"


class Compare(TorchDispatchMode):
    """Calls every operation once for each number of threads; the names of those whose results differ."""

    def __init__(self) -> None:
        super().__init__()
        self.differing: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch's compiler is not in use: to import it takes longer than all steps."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, given = str(func), [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if not given or func.is_view or any(word in name for word in CHANCE):
            return func(*args, **kwargs)
        found = []
        for threads in OF_OPERATIONS:
            torch.set_num_threads(threads)
            copies: dict[int, Tensor] = {}
            if func._schema.is_mutable and threads != OF_OPERATIONS[-1]:
                copies = {id(x): x.clone() for x in given}
            a, k = tree_map_only(Tensor, lambda x: copies.get(id(x), x), (args, kwargs))  # noqa: B023 - called here
            result = func(*a, **k)
            written = [copies.get(id(x), x) for x in given] if func._schema.is_mutable else []
            results = [x for x in tree_leaves(result) if isinstance(x, Tensor)] + written
            found.append([x.detach().clone(memory_format=torch.contiguous_format).numpy().tobytes() for x in results])
        if found.count(found[0]) < len(found):
            self.differing.add(name)
        return result


def operations(steps: int, settings: list[str]) -> set[str]:
    """The operations of so many steps that do not give one result for all numbers of threads."""
    config, state = begin(settings)
    with Compare() as compared:
        advance(config, state, steps)
    return compared.differing


if __name__ == "__main__":
    of_operations = sys.argv[1] == "--operations"
    arguments = sys.argv[3 if of_operations else 1 :]
    with carved_once():
        for settings in (run.split() for run in " ".join(arguments).split(" / ")):
            if of_operations:
                torch.set_num_threads(1)
                print(*sorted(operations(int(sys.argv[2]), settings)))
                continue
            for threads in THREADS:
                torch.set_num_threads(threads)
                found = outcome(settings)
                print(torch.get_num_threads(), found)
