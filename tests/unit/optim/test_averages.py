"""Means of parameters over steps: what is averaged, where it is put, and what of it is saved."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from nerf.optim import averages
from nerf.optim.averages import Averages


@dataclass
class Group:
    name: str
    parameter: nn.Parameter
    on_vertices: bool


def some_groups(dtype: torch.dtype = torch.float32) -> list[Group]:
    grid = nn.Parameter(torch.zeros(5, 2, 3, dtype=dtype), requires_grad=False)
    return [Group("grid", grid, True), Group("network", nn.Parameter(torch.zeros(7), requires_grad=False), False)]


def stepped(groups: list[Group], mean: Averages, rows: Tensor | None, times: int) -> dict[str, Tensor]:
    """Random values, averaged that many times; all of them, [T,...] by name."""
    torch.manual_seed(0)
    seen: dict[str, list[Tensor]] = {group.name: [] for group in groups}
    for _ in range(times):
        for group in groups:
            group.parameter.copy_(torch.randn(group.parameter.shape))
            seen[group.name].append(group.parameter.detach().clone())
        mean.add(groups, rows)
    return {name: torch.stack(values) for name, values in seen.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rows", [None, [0, 3, 4, 9]])
def test_active_rows_become_the_mean_and_others_stay(
    dtype: torch.dtype, rows: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(averages, "ROWS_AT_A_TIME", 3)
    groups, mean = some_groups(dtype), Averages()
    active = None if rows is None else torch.tensor(rows)
    seen = stepped(groups, mean, active, 4)
    memory = [group.parameter.data_ptr() for group in groups]
    mean.put_in_place(groups, active)

    expected = seen["grid"][-1].clone().view(-1, 3)
    chosen = slice(None) if active is None else active
    expected[chosen] = seen["grid"].view(4, -1, 3)[:, chosen].float().mean(0).to(dtype)
    torch.testing.assert_close(groups[0].parameter.data.view(-1, 3), expected, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(groups[1].parameter.data, seen["network"].mean(0))
    assert [group.parameter.data_ptr() for group in groups] == memory  # a captured step knows its address
    assert mean.count == 0 and not mean.values


def test_without_a_mean_nothing_changes() -> None:
    groups, mean = some_groups(), Averages()
    seen = stepped(groups, Averages(), None, 1)
    mean.put_in_place(groups, None)
    with mean.in_place(groups, None):
        assert torch.equal(groups[0].parameter, seen["grid"][0])
    assert torch.equal(groups[0].parameter, seen["grid"][0])
    assert mean.state_dict() == {}


def test_means_in_place_for_a_while_leave_all_as_it_was() -> None:
    groups, mean = some_groups(), Averages()
    rows = torch.tensor([1, 2])
    seen = stepped(groups, mean, rows, 3)
    before = mean.state_dict()
    with pytest.raises(KeyError), mean.in_place(groups, rows):
        torch.testing.assert_close(groups[1].parameter.data, seen["network"].mean(0))
        raise KeyError
    for group in groups:
        assert torch.equal(group.parameter, seen[group.name][-1])
    after = mean.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_a_saved_mean_goes_on_as_if_never_saved() -> None:
    groups, mean = some_groups(), Averages()
    stepped(groups, mean, None, 3)
    restored = Averages()
    restored.load_state_dict(mean.state_dict(), ["grid", "network"], torch.device("cpu"))
    for each in (mean, restored):
        each.add(groups, None)
    assert restored.count == mean.count == 4
    assert all(torch.equal(restored.values[name], mean.values[name]) for name in ("grid", "network"))
    restored.load_state_dict({}, ["grid", "network"], torch.device("cpu"))  # of an older file
    assert restored.count == 0 and not restored.values
