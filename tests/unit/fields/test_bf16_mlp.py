"""The MLP in bfloat16 against the same layers in float32 on values that are rounded alike, and in float64."""

import pytest
import torch
from torch import Tensor, nn

from nerf.fields.bf16_mlp import RAYS_PER_SUM, Bf16Mlp, bf16_mlp_without_gradient, round_up

RAYS = 2 * RAYS_PER_SUM + 3


def network(layers: int, width: int = 32) -> nn.Sequential:
    torch.manual_seed(0)
    widths = [12, *[width] * layers]
    parts = [m for a, b in zip(widths, widths[1:], strict=False) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts, nn.Linear(widths[-1], 3))


def gradients(outputs: Tensor, inputs: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(1)
    weights = torch.randn(outputs.shape, dtype=torch.float64).to(outputs)
    return [outputs.detach(), *torch.autograd.grad((weights * outputs).sum(), [inputs, *parameters])]


def difference(found: Tensor, wanted: Tensor) -> float:
    return ((found.double() - wanted).norm() / wanted.norm()).item()


@pytest.mark.parametrize("layers", [0, 1, 3])
@pytest.mark.parametrize("rays", [RAYS, 100])
def test_it_is_the_layers_up_to_the_rounding_of_bfloat16(device: str, layers: int, rays: int) -> None:
    mlp = network(layers).to(device)
    inputs = torch.randn(rays, 12, device=device, requires_grad=True)
    exact, exact_inputs = network(layers).double(), inputs.detach().cpu().double().requires_grad_()
    found = gradients(Bf16Mlp.apply(inputs, *mlp.parameters()), inputs, list(mlp.parameters()))
    wanted = gradients(exact(exact_inputs), exact_inputs, list(exact.parameters()))
    assert len(found) == len(wanted) == 2 + 2 * (layers + 1)
    for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert ours.shape == theirs.shape and ours.dtype == torch.float32, number
        assert difference(ours.cpu(), theirs) < 0.15, number  # eight bits of each number, and ReLUs that flip


def test_rounding_is_all_that_differs(device: str) -> None:
    """Where bfloat16 holds every number on the way, nothing is lost at all."""
    mlp = network(2).to(device)
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape))
        mlp[0].weight[:, 2:] = mlp[2].weight[:, 2:] = 0  # small sums: integers up to 256 are exact
        mlp[4].weight[:, 4:] = 0
    inputs = torch.randint(-2, 3, (RAYS, 12), device=device).float().requires_grad_()
    parameters = list(mlp.parameters())
    ours = torch.autograd.grad(Bf16Mlp.apply(inputs, *parameters).sum(), [inputs, *parameters])
    theirs = torch.autograd.grad(mlp(inputs).sum(), [inputs, *parameters])
    assert all(map(torch.equal, ours, theirs))


def test_second_derivatives_raise() -> None:
    mlp, inputs = network(1), torch.randn(4, 12, requires_grad=True)
    outputs = Bf16Mlp.apply(inputs, *mlp.parameters())
    first = torch.autograd.grad(outputs.square().sum(), inputs, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_pictures_are_made_of_the_same_numbers(device: str, layers: int) -> None:
    mlp, inputs = network(layers).to(device), torch.randn(RAYS, 12, device=device)
    with torch.no_grad():
        found = bf16_mlp_without_gradient(inputs, *mlp.parameters())
    torch.testing.assert_close(found, Bf16Mlp.apply(inputs, *mlp.parameters()))


def test_inputs_that_pad_a_row_do_not_count(device: str) -> None:
    assert (round_up(12), round_up(16), round_up(1)) == (16, 16, 8)
    mlp, inputs = network(2).to(device), torch.randn(RAYS, 12, device=device, requires_grad=True)
    more = torch.cat([inputs.detach(), torch.randn(RAYS, 4, device=device)], dim=-1).requires_grad_()
    found = gradients(Bf16Mlp.apply(more, *mlp.parameters()), more, list(mlp.parameters()))
    wanted = gradients(Bf16Mlp.apply(inputs, *mlp.parameters()), inputs, list(mlp.parameters()))
    assert not found[1][:, 12:].any()
    found[1] = found[1][:, :12]
    assert all(difference(a, b.double()) < 1e-2 for a, b in zip(found, wanted, strict=True))
    with torch.no_grad():
        torch.testing.assert_close(
            bf16_mlp_without_gradient(more, *mlp.parameters()), bf16_mlp_without_gradient(inputs, *mlp.parameters())
        )
