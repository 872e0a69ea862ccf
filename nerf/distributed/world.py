"""The processes of one run ("ranks") and what they say to each other, with errors in words.

torchrun starts them and names them by RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. Two groups connect
them: gloo for what hosts decide, and for tensors gloo again on CPUs or NCCL on GPUs. World.bytes counts what this rank
gives to collectives, by purpose, so that the size of a step's messages is measured and not guessed.
"""

import contextlib
import datetime
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nerf.distributed.watch import Watch
from nerf.errors import UserError

T = TypeVar("T")
PATIENCE = datetime.timedelta(days=7)  # a paused run waits in a collective; whether others live is Watch's to say
AT_A_TIME = 1 << 24  # numbers of each rank that sum_in_order_ holds, to bound memory
JOINING = datetime.timedelta(minutes=5)
NOTICE = 3.0  # seconds of waiting for the others, after which a rank says so
PORTS = range(1, 1 << 16)


class RankLost(UserError):
    """Another rank ended, so this one cannot go on."""


@dataclass
class World:
    """This process among the others of its run."""

    rank: int
    size: int
    local_rank: int = 0
    hosts: "dist.ProcessGroup | None" = None  # gloo
    gpus: "dist.ProcessGroup | None" = None  # NCCL
    watch: Watch | None = None
    bytes: Counter = field(default_factory=Counter)
    others: "list[dist.ProcessGroup]" = field(default_factory=list)  # groups of some ranks, gloo

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which alone writes files and prints."""
        return self.rank == 0

    # Tensors.

    def all_reduce_sum_(self, x: Tensor, purpose: str) -> Tensor:
        """Replaces x by its sum over all ranks: the same bits on each."""
        return self._all_reduce_(x, dist.ReduceOp.SUM, purpose)

    def sum_in_order_(self, x: Tensor, purpose: str) -> Tensor:
        """Replaces x, contiguous, by its sum over all ranks, added from rank 0 on: the same bits in every run.

        Which order all_reduce_sum_ has on GPUs is NCCL's to choose. Each rank is given the numbers of all others.
        """
        for some in x.view(-1).split(AT_A_TIME):
            first, *others = self.all_gather(some, purpose)
            for other in others:
                first += other
            some.copy_(first)
        return x

    def all_reduce_max_(self, x: Tensor, purpose: str) -> Tensor:
        """Replaces x by its maximum over all ranks."""
        return self._all_reduce_(x, dist.ReduceOp.MAX, purpose)

    def _all_reduce_(self, x: Tensor, how: dist.ReduceOp.RedOpType, purpose: str) -> Tensor:
        self.bytes[purpose] += x.nbytes
        with self.naming_lost_rank():
            dist.all_reduce(x, how, self._group(x))
        return x

    def all_gather(self, x: Tensor, purpose: str) -> Tensor:
        """x [...] of every rank, [N,...]. Not differentiable; see combine.exchange."""
        self.bytes[purpose] += x.nbytes
        x = x.contiguous()
        found = x.new_empty(self.size, *x.shape)
        with self.naming_lost_rank():
            dist.all_gather(list(found.unbind()), x, self._group(x))
        return found

    def broadcast_(self, x: Tensor, root: int, purpose: str) -> Tensor:
        """Replaces x by that of the rank root."""
        if self.rank == root:
            self.bytes[purpose] += x.nbytes
        with self.naming_lost_rank():
            dist.broadcast(x, root, self._group(x))
        return x

    def _group(self, x: Tensor) -> "dist.ProcessGroup | None":
        return self.gpus if x.is_cuda else self.hosts

    # What hosts decide.

    def all_reduce_max(self, *numbers: float) -> list[float]:
        """The largest of each number over all ranks."""
        return self.all_reduce_max_(torch.tensor(numbers, dtype=torch.float64), "decisions").tolist()

    def broadcast_number(self, number: float) -> float:
        """The number of rank 0."""
        return self.broadcast_(torch.tensor([number], dtype=torch.float64), 0, "decisions").item()

    def all_gather_objects(self, thing: T) -> list[T]:
        """What each rank has to say, by rank."""
        found: list[Any] = [None] * self.size
        with self.naming_lost_rank():
            dist.all_gather_object(found, thing, self.hosts)
        return found

    def once_a_host(self, make: Callable[[], T]) -> T:
        """What make gives, called by one rank of each host and handed to the others there.

        Raises UserError on all ranks, naming the host, where it raised one.
        """
        hosts = self.all_gather_objects(socket.gethostname())
        first = hosts.index(hosts[self.rank])
        made, problem = None, None
        if first == self.rank:
            try:
                made = make()
            except (UserError, OSError) as error:
                problem = f"{error}"
        problems = self.all_gather_objects(problem)
        for rank, words in enumerate(problems):
            if words is not None:
                same = all(words == other for i, other in enumerate(problems) if hosts.index(hosts[i]) == i)
                where = "" if same else f"{self.named(rank, hosts[rank])} cannot see what the others see: "
                raise UserError(f"{where}{words}")
        for root in sorted({hosts.index(host) for host in hosts}):
            group = dist.new_group([rank for rank, host in enumerate(hosts) if host == hosts[root]], PATIENCE, "gloo")
            if first == root:
                self.others.append(group)
                box = [made]
                with self.naming_lost_rank():
                    dist.broadcast_object_list(box, root, group)
                made = box[0]
        return made

    def leave(self) -> None:
        """Ends the groups of gloo, whose threads hold tensors for a moment after a collective.

        A thread that lets go of the last reference to a tensor takes the interpreter's lock, and where the interpreter
        is ending by then, the process aborts. So those threads end before it does.
        """
        groups = [group for group in (self.hosts, *self.others) if group is not None]
        self.hosts, self.others = None, []
        while groups:
            dist.destroy_process_group(groups.pop())

    def named(self, rank: int, host: str) -> str:
        """A rank in words."""
        return f"rank {rank} of {self.size} on {host}"

    @contextlib.contextmanager
    def naming_lost_rank(self) -> Iterator[None]:
        """Turns the failure of a collective into RankLost with the reason that the lost rank gave."""
        try:
            yield
        except RuntimeError as error:
            first = (str(error).splitlines() or [""])[0]
            reason = self.watch.reason() if self.watch is not None else None
            raise RankLost(reason or f"another rank of the {self.size} does not answer any more ({first}).") from error


def asked_for() -> bool:
    """Whether this process was started as one of several; join() answers what is no number."""
    size = os.environ.get("WORLD_SIZE") or "1"
    return not size.isdecimal() or int(size) > 1


def join() -> World:
    """This process' world, as its environment says. Raises UserError in words where the others cannot be met."""
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local, host, port = (
            int(os.environ.get("LOCAL_RANK", rank)),
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
        )
    except KeyError as error:
        raise UserError(_not_as_torchrun(f"{error} is not set")) from error
    except ValueError as error:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")
        given = " ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
        raise UserError(_not_as_torchrun(f"{given} is not made of whole numbers")) from error
    if not 0 <= rank < size:  # the others would wait minutes for the one that is missing
        raise UserError(_not_as_torchrun(f"RANK={rank} is not between 0 and {size - 1},"))
    if port not in PORTS:
        raise UserError(_not_as_torchrun(f"MASTER_PORT={port} is not between {PORTS[0]} and {PORTS[-1]},"))
    with _said_if_long(
        f"rank {rank} of {size} waits for the others: all {size} are to meet at {host}, port {port}, where rank 0 "
        f"listens (MASTER_ADDR, MASTER_PORT). It gives up after {JOINING.seconds // 60} minutes or more."
    ):
        _refuse_unknown(host)
        try:
            dist.init_process_group("gloo", timeout=JOINING)
        except (RuntimeError, ValueError) as error:  # DistNetworkError and DistStoreError are of the first kind
            raise UserError(_joining(error, rank, host, port)) from error
        world = World(rank, size, local, dist.new_group(timeout=PATIENCE, backend="gloo"))
        world.watch = Watch(rank, size, host, port, world.all_gather_objects(socket.gethostname()))
    return world


@contextlib.contextmanager
def _said_if_long(words: str) -> Iterator[None]:
    """Prints a note on stderr if what is done here takes longer than NOTICE: nothing else speaks meanwhile."""
    timer = threading.Timer(NOTICE, lambda: print(f"note: {words}", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _refuse_unknown(host: str) -> None:
    """Raises UserError for a name that no machine has; PyTorch would ask for it again for minutes."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter of names that no machine can have
        why = getattr(error, "strerror", None) or error
        raise UserError(
            f"MASTER_ADDR={host} is not known here ({why}); expected the name or address of the machine of rank 0, "
            "where the ranks meet. Give it to torchrun as --master-addr=ADDRESS, or give --standalone on one machine."
        ) from error


def _not_as_torchrun(found: str) -> str:
    return (
        f"WORLD_SIZE={os.environ['WORLD_SIZE']} asks for several processes, but {found} as torchrun sets it; start "
        "with torchrun --nproc-per-node=N scripts/train.py ..., or unset WORLD_SIZE."
    )


def _joining(error: Exception, rank: int, host: str, port: int) -> str:
    first = str(error).splitlines()[0]
    if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
        return (
            f"port {port} on {host} is in use by another program, and the ranks of this run were to meet there; give "
            "torchrun another one with --master-port=PORT, or --standalone on one machine."
        )
    return (
        f"rank {rank} did not meet the others at {host}:{port} ({first}). Check that as many processes were started as "
        "WORLD_SIZE says, and that this machine reaches that address."
    )


def use_gpus(world: World) -> None:
    """Gives each rank the GPU of its local rank, and connects them by NCCL. Raises UserError where two share one."""
    count = torch.cuda.device_count()
    held = world.local_rank
    problem = None
    if held >= count:
        problem = f"there are {count} GPUs here, too few for local rank {held}"
    else:
        torch.cuda.set_device(held)
    host = socket.gethostname()
    gpu = None if problem else str(torch.cuda.get_device_properties(held).uuid)
    check_gpus(world, world.all_gather_objects((host, problem, gpu)))
    world.gpus = dist.new_group(backend="nccl", timeout=PATIENCE)
    # The first call connects the GPUs, which takes a second.
    world.all_reduce_sum_(torch.zeros(1, device="cuda"), "warm-up")


def check_gpus(world: World, held: list[tuple[str, str | None, str | None]]) -> None:
    """Raises UserError where a rank has no GPU of its own. held: host, problem and GPU of each rank."""
    owners: dict[tuple[str, str | None], int] = {}
    for rank, (host, problem, gpu) in enumerate(held):
        name = world.named(rank, host)
        if problem is not None:
            raise UserError(f"{name} has no GPU: {problem}; lower --nproc-per-node, or train with device=cpu.")
        if (host, gpu) in owners:
            raise UserError(
                f"{name} was given the GPU that rank {owners[host, gpu]} holds ({gpu}); each needs one of its own: "
                "lower --nproc-per-node, or set CUDA_VISIBLE_DEVICES to as many GPUs as ranks."
            )
        owners[host, gpu] = rank
