"""Each job of a sweep has a GPU of its own; with more jobs than GPUs, the others wait. No GPU is needed to see it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nerf.cli import gpu_lease
from nerf.cli.gpu_lease import VISIBLE, leased, visible_gpus


@pytest.fixture(autouse=True)
def unbound(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a new process, and the environment is brought back."""
    monkeypatch.setenv(VISIBLE, "0")
    gpu_lease._bound.clear()
    yield
    gpu_lease._bound.clear()


class Waited(Exception):
    """Raised in place of waiting."""


def no_wait() -> None:
    raise Waited


def test_jobs_get_different_gpus_and_see_one_each(tmp_path: Path) -> None:
    with leased(["3", "7"], print, tmp_path) as first:
        seen = gpu_lease.os.environ[VISIBLE]
        gpu_lease._bound.clear()  # another process
        with leased(["3", "7"], print, tmp_path, no_wait) as second:
            assert (first, second) == ("3", "7") == (seen, gpu_lease.os.environ[VISIBLE])
    gpu_lease._bound.clear()
    with leased(["3", "7"], print, tmp_path, no_wait) as third:
        assert third == "3"


def test_more_jobs_than_gpus_wait_and_say_so_once(tmp_path: Path) -> None:
    said, looks = [], []

    def wait() -> None:
        looks.append(len(said))
        if len(looks) == 3:
            raise Waited

    with leased(["GPU-a/b"], said.append, tmp_path):
        with pytest.raises(Waited), leased(["GPU-a/b"], said.append, tmp_path, wait):
            pass
        assert looks == [1, 1, 1] and "GPU GPU-a/b is taken by other jobs: this one waits" in said[0]
    with leased(["GPU-a/b"], said.append, tmp_path, no_wait) as gpu:
        assert gpu == "GPU-a/b"


def test_a_process_keeps_to_the_gpu_that_it_began_with(tmp_path: Path) -> None:
    with leased(["1"], print, tmp_path):
        pass
    with leased(["0", "1"], print, tmp_path, no_wait) as gpu:
        assert gpu == "1"


def test_a_job_that_fails_gives_its_gpu_back(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="broken"), leased(["0"], print, tmp_path):
        raise ValueError("broken")
    with leased(["0"], print, tmp_path, no_wait) as gpu:
        assert gpu == "0"


def test_gpus_are_named_as_the_variable_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_lease.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv(VISIBLE, "4, GPU-b")
    assert visible_gpus() == ["4", "GPU-b"]
    monkeypatch.delenv(VISIBLE)
    assert visible_gpus() == ["0", "1"]
    monkeypatch.setenv(VISIBLE, "")
    monkeypatch.setattr(gpu_lease.torch.cuda, "device_count", lambda: 0)
    assert visible_gpus() == []
