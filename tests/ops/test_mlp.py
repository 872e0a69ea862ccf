"""mlp: its definition, its roundings, and as near to float64 as PyTorch in bfloat16 is."""

import pytest
import torch
from case_tools import Operation, as_case, cotangent, numbers, with_gaps
from proofs import BOTH, assert_as_accurate, assert_rejected
from torch import Tensor

from nerf.fields.bf16_mlp import Bf16Mlp
from nerf.ops import native, reference

NAME = "mlp"


def sizes(inputs: int, width: int, layers: int, outputs: int) -> list[int]:
    """Numbers of each weight and bias."""
    widths = [inputs, *[width] * layers, outputs]
    return [count for a, b in zip(widths, widths[1:], strict=False) for count in (a * b, b)]


def _network(
    rows: int = 9,
    inputs: int = 5,
    width: int = 8,
    layers: int = 2,
    outputs: int = 3,
    rounded: bool = False,
    some: bool = False,
) -> tuple:
    """some: every third row is not needed."""
    scale = 1.5 / width**0.5
    params = numbers(sum(sizes(inputs, width, layers, outputs)), low=-scale, high=scale, seed=41)
    needed = (torch.arange(rows) % 3).to(params.dtype) if some else None
    return numbers(rows, inputs, low=-1, seed=40), params, width, layers, outputs, rounded, True, needed


def hidden_values(inputs: Tensor, params: Tensor, width: int, layers: int, rounded: bool) -> Tensor:
    """[L,N,W] as the operation keeps them."""
    found = [inputs.new_empty(0, len(inputs), width)]
    for count in range(1, layers + 1):  # the first layers are a network of their own, before ReLU
        some = params[: sum(sizes(inputs.shape[1], width, count - 1, width))]
        found.append(reference.mlp(inputs, some, width, count - 1, width, rounded).relu()[None])
    return torch.cat(found).to(torch.bfloat16 if rounded else inputs.dtype)


def backward(
    inputs: Tensor, params: Tensor, width: int, layers: int, outputs: int, rounded: bool, keep: bool, needed: None
) -> tuple:
    kept = hidden_values(inputs, params, width, layers, rounded)
    return cotangent(inputs.new_empty(len(inputs), outputs)), inputs, params, kept, width, layers, outputs, rounded


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_network),
            "empty": as_case(_network, rows=0),
            "one_row": as_case(_network, rows=1),
            "one_layer": as_case(_network, layers=1, outputs=1),
            "four_layers": as_case(_network, layers=4, width=7),
            "rounded": as_case(_network, rounded=True),
            "some_rows": as_case(_network, some=True),
            "fused": as_case(_network, rows=150, inputs=20, width=64, rounded=True),
            "non_contiguous": with_gaps(as_case(_network)),
        },
        own_rule=True,
        gradcheck=("typical", "one_layer", "some_rows"),
        opcheck=("typical", "empty", "non_contiguous", "rounded", "some_rows"),
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
CASES = {name: known.cases for name, known in OPERATIONS.items()}

# What has a kernel of its own: I, W, L, O, N. Rows around whole tiles, more tiles than a GPU has processors.
FUSED = (
    (44, 256, 2, 3, 129),
    (44, 256, 3, 3, 20000),
    (43, 256, 1, 8, 64),
    (39, 128, 2, 3, 1000),
    (100, 128, 4, 3, 33),
    (20, 128, 6, 2, 300),
    (20, 64, 3, 1, 17000),
    (64, 64, 1, 3, 1),
)


@pytest.mark.parametrize("case", [case for case in CASES[NAME] if case not in ("rounded", "fused")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_rounding_it_is_as_accurate_as_the_reference(case, dtype, device):
    assert_as_accurate(NAME, CASES[NAME][case](dtype, device))


@BOTH
def test_a_network_by_hand(ops, device):
    """Two hidden values, of which ReLU lets one through: out = 3 * (1 + 2 * 2 + 0.5) - 1."""
    params = torch.tensor([1.0, 2, -1, -1, 0.5, 0, 3, 4, -1], device=device, requires_grad=True)
    inputs = torch.tensor([[1.0, 2.0]], device=device, requires_grad=True)
    out = ops.mlp(inputs, params, 2, 1, 1, True)
    assert out.tolist() == [[15.5]]
    out.sum().backward()
    assert inputs.grad.tolist() == [[3.0, 6.0]]
    assert params.grad.tolist() == [3, 6, 0, 0, 3, 0, 5.5, 0, 1]


def outcome(network, inputs: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """Outputs and gradients of the inputs and of every weight and bias."""
    leaves = [x.detach().requires_grad_() for x in (inputs, *parameters)]
    out = network(*leaves)
    return [out.detach(), *torch.autograd.grad((out * cotangent(out)).sum(), leaves)]


def layer_tensors(inputs: int, width: int, layers: int, outputs: int, flat: Tensor) -> list[Tensor]:
    parts = flat.split(sizes(inputs, width, layers, outputs))
    return [
        x.view(len(bias), -1) if i == 0 else x
        for w, bias in zip(parts[::2], parts[1::2], strict=True)
        for i, x in enumerate((w, bias))
    ]


def exact(inputs: Tensor, *parameters: Tensor) -> Tensor:
    for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
        inputs = torch.nn.functional.linear(inputs, weight, bias).relu()
    return torch.nn.functional.linear(inputs, *parameters[-2:])


@pytest.mark.parametrize("shape", FUSED, ids=str)
def test_rounded_it_is_as_near_to_float64_as_pytorch_in_bfloat16(shape, device):
    count, width, layers, outputs, rows = shape
    rows = rows if device == "cuda" else min(rows, 70)  # the loops of the CPU take a second for a thousand wide rows
    inputs, flat, *_ = as_case(_network, rows=rows, inputs=count, width=width, layers=layers, outputs=outputs)(
        torch.float32, device
    )
    parameters = layer_tensors(count, width, layers, outputs, flat)

    def ours(x: Tensor, *layer: Tensor) -> Tensor:
        return native.mlp(x, torch.cat([p.flatten() for p in layer]), width, layers, outputs, True)

    def theirs(x: Tensor, *layer: Tensor) -> Tensor:
        return Bf16Mlp.apply(torch.nn.functional.pad(x, (0, -count % 8)), *layer)

    wanted = outcome(exact, inputs.double(), [p.double() for p in parameters])
    errors = torch.tensor(
        [[(x - z).norm() / z.norm() for x, z in zip(outcome(network, inputs, parameters), wanted, strict=True)]
         for network in (ours, theirs)]
    )  # fmt: skip
    # Together twice at most; one alone four times, as a hidden value near zero that rounding sends to the other side of
    # ReLU is a large part of some gradient where rows are few.
    assert errors[0].norm() <= 2 * errors[1].norm() + 1e-5, errors
    assert (errors[0] <= 4 * errors[1] + 1e-5).all(), errors


@BOTH
def test_rows_that_are_not_needed_are_zero_and_have_no_gradient(ops, device):
    """Each of the others as without. Kept hidden values or not."""
    inputs, params, *sizes, keep, needed = as_case(_network, rows=300, some=True)(torch.float32, device)
    inputs.requires_grad_()
    whole = ops.mlp(inputs, params, *sizes, keep)
    found = ops.mlp(inputs, params, *sizes, keep, needed)
    assert (found[needed == 0] == 0).all() and torch.equal(found[needed > 0], whole[needed > 0])
    found.sum().backward()
    assert (inputs.grad[needed == 0] == 0).all() and (inputs.grad[needed > 0] != 0).any()
    with torch.no_grad():
        assert torch.equal(ops.mlp(inputs, params, *sizes, keep, needed), found)


@pytest.mark.parametrize("shape", FUSED, ids=str)
def test_fused_kernels_leave_out_tiles_of_which_no_row_is_needed(shape, cuda):
    """None, some, rows here and there, all; more rows than have a tile."""
    count, width, layers, outputs, rows = shape
    case = as_case(_network, rows=rows, inputs=count, width=width, layers=layers, outputs=outputs, rounded=True)
    inputs, params, *sizes, _, _ = case(torch.float32, cuda)
    whole, place = native.mlp(inputs, params, *sizes, keep=False), torch.arange(rows, device=cuda)
    for needed in (place < 0, place % 1000 < 70, place % 129 == 3, place >= 0):
        found = native.mlp(inputs, params, *sizes, keep=False, needed=needed.float())
        assert torch.equal(found, whole.masked_fill(~needed[:, None], 0.0))


@pytest.mark.parametrize("shape", FUSED, ids=str)
def test_fused_kernels_do_what_the_plain_ones_do(shape, cuda):
    count, width, layers, outputs, rows = shape
    arguments = as_case(
        _network, rows=min(rows, 1000), inputs=count, width=width, layers=layers, outputs=outputs, rounded=True
    )(torch.float32, cuda)
    out, kept = torch.ops.nerf.mlp(*arguments)
    plain_out, plain_kept = torch.ops.nerf_plain.mlp(*arguments)
    torch.testing.assert_close(out, plain_out, atol=0.02, rtol=0.02)
    torch.testing.assert_close(kept, plain_kept, atol=0.02, rtol=0.02)
    gradients = (cotangent(out), *arguments[:2], plain_kept, *arguments[2:6])
    for ours, plain in zip(
        torch.ops.nerf.mlp_backward(*gradients), torch.ops.nerf_plain.mlp_backward(*gradients), strict=True
    ):
        assert (ours - plain).norm() <= 0.01 * plain.norm()


@pytest.mark.parametrize("shape", FUSED, ids=str)
def test_the_same_bits_again_and_again_on_a_gpu(shape, cuda):
    count, width, layers, outputs, rows = shape
    inputs, params, *rest = as_case(
        _network, rows=rows, inputs=count, width=width, layers=layers, outputs=outputs, rounded=True
    )(torch.float32, cuda)

    def once() -> list[Tensor]:
        return outcome(lambda x, p: native.mlp(x, p, *rest), inputs, [params])

    first = once()
    assert all(torch.equal(a, b) for _ in range(5) for a, b in zip(first, once(), strict=True))


@pytest.mark.parametrize("rows", [3, 200])
def test_a_nan_spoils_its_own_row_of_a_fused_network(rows, device):
    inputs, params, *rest = as_case(_network, rows=rows, inputs=20, width=64, rounded=True)(torch.float32, device)
    clean = native.mlp(inputs, params, *rest)
    inputs[1, 3] = torch.nan
    found = native.mlp(inputs, params, *rest)
    assert found[1].isnan().all()
    others = torch.arange(rows, device=device) != 1
    assert torch.equal(found[others], clean[others])


def test_what_is_not_kept_is_made_again(device):
    *arguments, _, _ = CASES[NAME]["typical"](torch.float64, device)
    found = [
        outcome(lambda x, p, k=keep: native.mlp(x, p, *arguments[2:], k), *arguments[:1], [arguments[1]])
        for keep in (True, False)
    ]
    assert all(map(torch.equal, *found))
    with torch.no_grad():
        assert torch.ops.nerf.mlp(*arguments, False)[1].shape == (2, 0, 8)


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "params", arguments[1][1:], r"expected \[147\]")
    for key in ("width", "layers", "outputs"):
        assert_rejected(NAME, arguments, key, 0, "expected 1 to")
        assert_rejected(NAME, arguments, key, 2**40, "expected 1 to")
    arguments = CASES[f"{NAME}_backward"]["typical"](torch.float32, "cpu")
    assert_rejected(f"{NAME}_backward", arguments, "kept", arguments[3][:, 1:], r"expected \[2,9,8\]")
    assert_rejected(f"{NAME}_backward", arguments, "kept", arguments[3].bfloat16(), "expected float32")
