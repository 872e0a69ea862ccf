"""Muon against PyTorch's, and which matrices of a field it is for."""

import pytest
import torch

from nerf.fields.voxel_mlp import VoxelMlp, VoxelMlpConfig
from nerf.ops.backend import select
from nerf.optim.adam import MaskedAdam
from nerf.optim.muon import muon_step, orthogonalized
from nerf.scene.box import SceneBox

SHAPES = [(16, 16), (48, 20), (20, 48)]
RATE = 0.02


def of_singular_values(rows: int, columns: int, values: torch.Tensor) -> torch.Tensor:
    u, _, v = torch.linalg.svd(torch.randn(rows, columns), full_matrices=False)
    return u @ torch.diag(values) @ v


def field_of(lr_muon: float) -> VoxelMlp:
    config = VoxelMlpConfig(
        feature_channels=4, hidden_width=8, lr_density=0.2, lr_features=0.05, lr_mlp=0.003, lr_muon=lr_muon
    )
    box = SceneBox(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    return VoxelMlp(config, box, (4, 4, 4), 0.25, select("native", "cpu"))


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_become_about_equal_and_directions_stay(shape: tuple[int, int], device: str) -> None:
    values = torch.logspace(0, -2, min(shape))  # .01 of the largest, .005 of their norm
    matrix = of_singular_values(*shape, values).to(device)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    found = u.t() @ orthogonalized(matrix) @ v.t()
    assert orthogonalized(matrix).dtype == torch.float32
    diagonal = found.diagonal()
    assert diagonal.min() > 0.65 and diagonal.max() < 1.25
    assert (found - torch.diag(diagonal)).abs().max() < (0.02 if device == "cuda" else 1e-4)


def test_a_matrix_of_zeros_stays_zeros(device: str) -> None:
    assert torch.equal(orthogonalized(torch.zeros(8, 4, device=device)), torch.zeros(8, 4, device=device))


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_muon(shape: tuple[int, int], device: str) -> None:
    """PyTorch makes its products in bfloat16 on every device, so that it differs by a hundredth."""
    ours = torch.randn(shape, device=device)
    theirs = torch.nn.Parameter(ours.clone())
    before, exp_avg = ours.clone(), torch.zeros_like(ours)
    muon = torch.optim.Muon([theirs], lr=RATE, weight_decay=0.0, momentum=0.9)
    for step in range(1, 5):
        grad = torch.randn(shape, device=device)
        theirs.grad = grad.clone()
        muon.step()
        number = torch.full((1,), float(step), device=device)
        muon_step(ours, exp_avg, grad, torch.full((1,), RATE, device=device), number, 0.9)
    moved = ours - before
    assert (ours - theirs).norm() < 0.03 * moved.norm()
    assert 0.5 * RATE < torch.linalg.matrix_norm(moved, 2) < 5 * RATE * max(1, shape[0] / shape[1]) ** 0.5


def test_a_step_that_does_not_count_leaves_all_as_it_is(device: str) -> None:
    matrix, exp_avg = torch.randn(6, 4, device=device), torch.randn(6, 4, device=device)
    kept = matrix.clone(), exp_avg.clone()
    grad = torch.full((6, 4), torch.nan, device=device)
    muon_step(matrix, exp_avg, grad, torch.ones(1, device=device), torch.zeros(1, device=device), 0.9)
    assert torch.equal(matrix, kept[0]) and torch.equal(exp_avg, kept[1])


def test_hidden_matrices_take_its_steps_and_all_else_takes_those_of_adam() -> None:
    field = field_of(lr_muon=RATE)
    groups = {group.name: group for group in field.parameter_groups()}
    assert [name for name, group in groups.items() if group.muon] == ["mlp.0.weight", "mlp.2.weight"]
    assert {group.lr for group in groups.values() if group.muon} == {(RATE,)}
    assert groups["mlp.4.weight"].lr == groups["mlp.0.bias"].lr == (0.003,)
    optimizer = MaskedAdam(field, 0.9, 0.99, field.backend)
    before = {name: parameter.detach().clone() for name, parameter in field.named_parameters()}
    for parameter in field.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    change = {name: before[name] - parameter.detach() for name, parameter in field.named_parameters()}
    rate = min(RATE, VoxelMlp.muon_lr_rise)  # of the first step, as it warms up
    hidden = torch.linalg.svdvals(change["mlp.2.weight"]) / rate
    assert hidden.min() > 0.1 and hidden.max() < 1.25
    torch.testing.assert_close(change["mlp.4.weight"].abs(), torch.full_like(change["mlp.4.weight"], 0.003))
    assert all(parameter.grad is None for name, parameter in field.named_parameters() if name.startswith("mlp"))


def test_without_a_rate_all_take_steps_of_adam() -> None:
    assert not any(group.muon for group in field_of(lr_muon=0.0).parameter_groups())
