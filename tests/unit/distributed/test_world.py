"""What ranks tell each other, and what is said where they do not fit together."""

import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, cast

import pytest
import torch
import torch.distributed as dist
from ranks import free_port, on_ranks
from tiny_runs import tiny_config, tiny_images, tiny_state

from nerf.cli import ranks
from nerf.cli.signals import STOPPING
from nerf.distributed import world as worlds
from nerf.distributed.agreement import check_agreed
from nerf.distributed.parts import divide
from nerf.distributed.watch import Watch
from nerf.distributed.world import RankLost, World, asked_for, check_gpus, join
from nerf.errors import UserError
from nerf.runs.run import TrainingRun


def words(work: Callable[[], object]) -> str:
    """The message of the UserError that work raises."""
    try:
        work()
    except UserError as error:
        return str(error)
    return ""


def collectives(world: World) -> dict[str, object]:
    found: dict[str, object] = {
        "largest": world.all_reduce_max(world.rank, 0.5),
        "of rank 0": world.broadcast_number(world.rank),
    }
    found["objects"] = world.all_gather_objects(f"rank {world.rank}")
    found["gathered"] = world.all_gather(torch.full((2,), float(world.rank)), "test").tolist()
    found["bytes"] = world.bytes["test"]
    here = {"seed": 1, "field.num_voxels": 1000 + world.rank // 2}
    found["settings"] = words(lambda: check_agreed(world, here))
    read: list[int] = []
    found["images"] = world.once_a_host(lambda: read.append(world.rank) or f"of rank {world.rank}")
    found["read"] = len(read)
    worlds.socket.gethostname = lambda: f"node{world.rank // 2}"  # ranks 0 and 1 on one, rank 2 on another

    def load() -> str:
        if world.rank == 2:
            raise UserError("there is no folder /data/lego")
        return "images"

    found["unseen"] = words(lambda: world.once_a_host(load))
    return found


def test_ranks_tell_each_other() -> None:
    host = socket.gethostname()
    for rank, found in enumerate(on_ranks(3, collectives)):
        assert found["largest"] == [2.0, 0.5] and found["of rank 0"] == 0
        assert found["objects"] == ["rank 0", "rank 1", "rank 2"]
        assert found["gathered"] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]] and found["bytes"] == 8
        assert f"rank 2 of 3 on {host} has field.num_voxels=1001, and rank 0 has" in str(found["settings"])
        assert found["images"] == "of rank 0" and found["read"] == (rank == 0)
        assert found["unseen"] == "rank 2 of 3 on node1 cannot see what the others see: there is no folder /data/lego"


def threads() -> int:
    """The threads of this process, those of libraries too."""
    return len(list(Path("/proc/self/task").iterdir()))


def threads_of_groups(world: World) -> list[int]:
    """How many threads this process has with no group of its own, with two, and after it left them."""
    counts = [threads()]
    world.hosts = dist.new_group(backend="gloo")
    world.once_a_host(lambda: None)  # the other group
    counts.append(threads())
    world.leave()
    return [*counts, threads()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_no_thread_of_a_group_outlives_its_leaving() -> None:
    # A thread of gloo that lets go of a tensor while the interpreter ends aborts the process, about one time in ten
    # where it is held up for 0.15 s.
    for before, joined, left in on_ranks(2, threads_of_groups):
        assert joined > before == left


def test_a_gpu_of_another_rank_is_refused() -> None:
    world = World(0, 2)
    check_gpus(world, [("a", None, "GPU-1"), ("b", None, "GPU-1")])  # on another machine it is another one
    with pytest.raises(UserError, match=r"rank 1 of 2 on a was given the GPU that rank 0 holds \(GPU-1\)"):
        check_gpus(world, [("a", None, "GPU-1"), ("a", None, "GPU-1")])
    with pytest.raises(UserError, match="rank 1 of 2 on a has no GPU: there are 1 GPUs here"):
        check_gpus(world, [("a", None, "GPU-1"), ("a", "there are 1 GPUs here", None)])


def test_a_broken_collective_is_told_in_the_words_of_the_lost_rank() -> None:
    for reason, expected in (
        ("rank 1 of 2 on a ended: no cell is left", "^rank 1 of 2 on a ended"),
        (None, "of the 2"),
    ):
        world = World(0, 2, watch=cast(Watch, SimpleNamespace(reason=lambda reason=reason: reason)))
        with pytest.raises(RankLost, match=expected), world.naming_lost_rank():
            raise RuntimeError("Connection closed by peer")


def test_ranks_whose_gpus_chose_other_settings_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    facts: dict[str, object] = {}
    monkeypatch.setattr(ranks, "check_agreed", lambda world, found: facts.update(found))
    config, state = tiny_state(replace(tiny_config(), train=replace(tiny_config().train, images="host")))
    state.divide = lambda world: setattr(state, "parts", SimpleNamespace(division=divide(torch.ones(4, 4, 4) > 0, 2)))
    ranks.divided(TrainingRun(config, tiny_images(), state), World(0, 2))
    assert facts["train.images"] == "host" and "field.num_voxels" in facts and "dataset.root" not in facts


def sums(world: World) -> tuple[list[float], list[float]]:
    """Sums in which the order is all, a few numbers at a time."""
    worlds.AT_A_TIME = 2
    own = [[1.0, 2.0**30, -(2.0**30)], [2.0**30, 1.0, 2.0**30], [-(2.0**30), -(2.0**30), 1.0]][world.rank]
    rows = torch.tensor([own, own])
    return world.sum_in_order_(rows, "test")[1].tolist(), rows[0].tolist()


def test_sums_are_made_from_rank_0_on() -> None:
    for found in on_ranks(3, sums):
        assert found == ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0])


def test_a_port_in_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        port = other.getsockname()[1]
        for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(UserError, match=f"port {port} on 127.0.0.1 is in use by another program"):
            join()


def test_half_a_meeting_place_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UserError, match="asks for several processes, but 'RANK' is not set as torchrun sets it"):
        join()


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("WORLD_SIZE", "two", "WORLD_SIZE=two .*is not made of whole numbers"),
        ("RANK", "x", "RANK=x .*is not made of whole numbers"),
        ("MASTER_PORT", "abc", "MASTER_PORT=abc is not made of whole numbers"),
        ("RANK", "5", "RANK=5 is not between 0 and 1"),
        ("MASTER_PORT", "0", "MASTER_PORT=0 is not between 1 and 65535"),
        ("MASTER_PORT", "70000", "MASTER_PORT=70000 is not between 1 and 65535"),
    ],
)
def test_a_meeting_place_that_is_none_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, found: str
) -> None:
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for key, text in (place | {name: value}).items():
        monkeypatch.setenv(key, text)
    assert asked_for()
    with pytest.raises(UserError, match=f"{found}.*torchrun --nproc-per-node"):
        join()


class AtOnce:
    """A timer whose time is over as it begins."""

    made: ClassVar[list["AtOnce"]] = []

    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        self.seconds, self.start, self.cancelled, self.daemon = seconds, function, False, False
        self.made.append(self)

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def rank_1(monkeypatch: pytest.MonkeyPatch) -> list[AtOnce]:
    """The environment of rank 1 of 3, whose timers end at once; returns these."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(AtOnce, "made", [])
    monkeypatch.setattr(worlds.threading, "Timer", AtOnce)
    return AtOnce.made


def test_a_rank_that_waits_says_for_what(
    monkeypatch: pytest.MonkeyPatch, rank_1: list[AtOnce], capsys: pytest.CaptureFixture[str]
) -> None:
    def nobody(*arguments: object, **settings: object) -> None:
        assert not rank_1[0].cancelled
        raise RuntimeError("timed out")

    monkeypatch.setattr(dist, "init_process_group", nobody)
    with pytest.raises(UserError, match=r"rank 1 did not meet the others at 10\.0\.0\.1:29500 \(timed out\)"):
        join()
    out, said = capsys.readouterr()
    assert said.startswith("note: rank 1 of 3 waits for the others: all 3 are to meet at 10.0.0.1, port 29500, where")
    assert said.count("\n") == 1 and out == ""
    (timer,) = rank_1
    assert timer.cancelled and timer.daemon and timer.seconds <= 5


def test_a_rank_that_waits_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch waits in C++, from where no handler of Python's is called."""
    found: list[object] = []

    def waits() -> World:
        found.extend(signal.getsignal(number) for number in STOPPING)
        raise UserError("nobody came")

    monkeypatch.setattr(ranks, "join", waits)
    before = [signal.getsignal(number) for number in STOPPING]
    with pytest.raises(UserError, match="nobody came"), ranks.joined():
        pass
    ignored = [number == signal.SIG_IGN for number in before]
    assert found == [signal.SIG_IGN if is_ignored else signal.SIG_DFL for is_ignored in ignored]
    assert [signal.getsignal(number) for number in STOPPING] == before


@pytest.mark.parametrize("host", ["nowhere.invalid", "", "x" * 80, "[::1]"])
def test_an_unknown_host_is_told_at_once(monkeypatch: pytest.MonkeyPatch, rank_1: list[AtOnce], host: str) -> None:
    def resolve(name: str, *arguments: object, **settings: object) -> None:
        assert name == host
        name.encode("idna")  # as the true one does
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("MASTER_ADDR", host)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(dist, "init_process_group", lambda *arguments, **settings: pytest.fail("it waits"))
    with pytest.raises(UserError) as found:
        join()
    assert str(found.value).startswith(f"MASTER_ADDR={host} is not known here (")
    assert "--master-addr=ADDRESS" in str(found.value) and rank_1[0].cancelled


def test_one_process_is_none_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("", "1", "0"):
        monkeypatch.setenv("WORLD_SIZE", size)
        assert not asked_for()
