"""Masked Adam against PyTorch's Adam, and what it leaves alone."""

import pytest
import torch

from nerf.fields.voxel_mlp import VoxelMlp, VoxelMlpConfig
from nerf.ops.backend import Backend, select
from nerf.optim.adam import EPSILON, MaskedAdam
from nerf.scene.box import SceneBox

BETAS = (0.9, 0.99)
RATES = {"density_grid": 0.2, "feature_grid": 0.05}
MLP_RATE = 0.003


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return select(request.param, "cpu")


def make_field(backend: Backend) -> VoxelMlp:
    torch.manual_seed(0)
    config = VoxelMlpConfig(feature_channels=4, hidden_width=8, lr_density=0.2, lr_features=0.05, lr_mlp=MLP_RATE)
    box = SceneBox(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    return VoxelMlp(config, box, (4, 4, 4), 0.25, backend)


def give_gradients(field: VoxelMlp, seed: int, share: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in field.parameters():
        touched = torch.rand(parameter.shape, generator=generator) < share
        parameter.grad = torch.randn(parameter.shape, generator=generator) * touched


def test_with_every_gradient_it_is_adam(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VoxelMlp, "mlp_lr_rise", MLP_RATE / 4)
    field, other = make_field(backend), make_field(backend)
    masked = MaskedAdam(field, *BETAS, backend)
    groups = [{"params": [p], "lr_after": RATES.get(name, MLP_RATE)} for name, p in other.named_parameters()]
    adam = torch.optim.Adam(groups, betas=BETAS, eps=EPSILON)
    for step in range(6):
        for group in adam.param_groups:  # after a warm-up of 4 steps
            group["lr"] = group["lr_after"] * (min(1, (step + 1) / 4) if group["lr_after"] == MLP_RATE else 1)
        give_gradients(field, step)
        give_gradients(other, step)
        masked.step()
        adam.step()
    assert {g.name for g in masked.groups} == dict(field.named_parameters()).keys()
    for (name, ours), theirs in zip(field.named_parameters(), other.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=name)
    assert masked.step_number.item() == 6


def test_what_has_no_gradient_stays_with_its_moments(backend: Backend) -> None:
    field = make_field(backend)
    optimizer = MaskedAdam(field, *BETAS, backend)
    give_gradients(field, seed=0)
    optimizer.step()
    before = {name: p.detach().clone() for name, p in field.named_parameters()}
    moments = {name: value.clone() for name, value in optimizer.state_dict().items()}
    give_gradients(field, seed=1, share=0.3)
    touched = {name: p.grad != 0 for name, p in field.named_parameters()}
    optimizer.step()
    for name, parameter in field.named_parameters():
        assert torch.equal(parameter != before[name], touched[name]), name
        for kind in ("exp_avg", "exp_avg_sq"):
            moved = optimizer.state_dict()[f"{name}.{kind}"] != moments[f"{name}.{kind}"]
            assert torch.equal(moved, touched[name]), (name, kind)


def test_gradients_are_dropped_or_zero_after_a_step(backend: Backend) -> None:
    """A grid's gradient that the backend adds to stays where it is, for a recorded step too."""
    field = make_field(backend)
    optimizer = MaskedAdam(field, *BETAS, backend)
    give_gradients(field, seed=0)
    before = field.density_grid.grad
    optimizer.step()
    for name, parameter in field.named_parameters():
        kept = name in RATES and backend.name == "native"
        assert parameter.grad is None or (kept and not parameter.grad.any()), name
    assert field.density_grid.grad is (before if backend.name == "native" else None)


def test_a_step_visits_the_given_vertices_alone(backend: Backend) -> None:
    """A gradient elsewhere, the trace of a rounding, is not seen; visiting anew forgets it."""
    field = make_field(backend)
    rows = torch.tensor([3, 17, 40])
    optimizer = MaskedAdam(field, *BETAS, backend, rows)
    before = field.feature_grid.detach().clone()
    give_gradients(field, seed=0)
    optimizer.step()
    changed = (field.feature_grid != before).view(64, 4)
    assert changed[rows].all() and changed.sum() == 12
    if backend.name == "native":
        assert field.feature_grid.grad.any()
    optimizer.set_active(torch.arange(64))
    assert field.feature_grid.grad is None or not field.feature_grid.grad.any()


def test_moments_stay_with_their_vertices(backend: Backend) -> None:
    """Visiting other vertices keeps what is known of those that stay; the others begin anew. None visits all."""
    field = make_field(backend)
    optimizer = MaskedAdam(field, *BETAS, backend)
    give_gradients(field, seed=0)
    optimizer.step()
    whole = [moment.clone().view(64, 4) for moment in optimizer.moments["feature_grid"]]
    some, others = torch.tensor([3, 17, 40]), torch.tensor([0, 17, 40, 63])
    optimizer.set_active(some)
    for moment, before in zip(optimizer.moments["feature_grid"], whole, strict=True):
        assert torch.equal(moment, before[some])
    optimizer.set_active(others)
    expected = [torch.zeros(64, 4).index_copy(0, some[1:], before[some[1:]]) for before in whole]
    for moment, values in zip(optimizer.moments["feature_grid"], expected, strict=True):
        assert torch.equal(moment, values[others])
    optimizer.set_active(None)
    for moment, values in zip(optimizer.moments["feature_grid"], expected, strict=True):
        assert torch.equal(moment.view(64, 4), values) and moment.shape == field.feature_grid.shape


def test_the_decay_scales_every_rate(backend: Backend) -> None:
    moved = []
    for decay in (1.0, 0.25):
        field = make_field(backend)
        before = {name: p.detach().clone() for name, p in field.named_parameters()}
        optimizer = MaskedAdam(field, *BETAS, backend)
        optimizer.decay.fill_(decay)
        give_gradients(field, seed=0)
        optimizer.step()
        moved.append({name: p.detach() - before[name] for name, p in field.named_parameters()})
    for name, whole in moved[0].items():
        # Adam's first step has the length of the rate, whatever the gradient.
        torch.testing.assert_close(whole.abs(), torch.full_like(whole, RATES.get(name, MLP_RATE)), rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(moved[1][name], 0.25 * whole, rtol=1e-3, atol=1e-6)


def test_state_there_and_back(backend: Backend) -> None:
    field, other = make_field(backend), make_field(backend)
    one, two = MaskedAdam(field, *BETAS, backend), MaskedAdam(other, *BETAS, backend)
    for step in range(3):
        give_gradients(field, step)
        one.step()
    other.load_state_dict(field.state_dict())
    two.load_state_dict(one.state_dict())
    for optimizer, owner in ((one, field), (two, other)):
        give_gradients(owner, seed=9)
        optimizer.step()
    for name, parameter in field.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name
    assert two.step_number.item() == 4


def test_moments_of_features_may_have_16_bits_and_files_have_32(backend: Backend) -> None:
    """Density and networks keep float32. What is saved goes on exactly, with other vertices too."""
    field, other = make_field(backend), make_field(backend)
    rows = torch.tensor([3, 17, 40])
    one, two = (MaskedAdam(x, *BETAS, backend, rows, torch.bfloat16) for x in (field, other))
    give_gradients(field, seed=0)
    one.step()
    dtypes = {name: {x.dtype for x in pair} for name, pair in one.moments.items()}
    assert dtypes.pop("feature_grid") == {torch.bfloat16} and set().union(*dtypes.values()) == {torch.float32}
    saved = one.state_dict()
    assert {x.dtype for x in saved.values()} == {torch.float32} and saved["feature_grid.exp_avg"].any()
    two.load_state_dict(saved)
    for optimizer in (one, two):
        optimizer.set_active(torch.tensor([0, 17, 40, 63]))
    for name, pair in one.moments.items():
        assert all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(pair, two.moments[name], strict=True)), name


def test_moments_of_16_bits_become_float32_and_stay_so(backend: Backend) -> None:
    """As several ranks need them, of a run that one process has begun."""
    field = make_field(backend)
    optimizer = MaskedAdam(field, *BETAS, backend, torch.tensor([3, 17, 40]), torch.bfloat16)
    give_gradients(field, seed=0)
    optimizer.step()
    before = optimizer.state_dict()
    optimizer.widen_moments()
    assert {x.dtype for pair in optimizer.moments.values() for x in pair} == {torch.float32}
    optimizer.set_active(torch.tensor([3, 17, 40, 63]))
    assert {x.dtype for pair in optimizer.moments.values() for x in pair} == {torch.float32}
    kept, saved = (state["feature_grid.exp_avg"] for state in (optimizer.state_dict(), before))
    assert torch.equal(kept[:3], saved) and saved.any()


def _step_without_network(field: VoxelMlp, optimizer: MaskedAdam) -> None:
    for parameter in field.mlp.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


@pytest.mark.skipif(
    not hasattr(torch.Tensor, "grad_dtype"), reason="this PyTorch wants gradients of the parameter's dtype"
)
def test_gradients_of_features_are_bfloat16_until_moments_are_widened() -> None:
    backend = select("native", "cpu")
    field = make_field(backend)
    field.store_features_as(torch.float16)
    optimizer = MaskedAdam(field, *BETAS, backend, None, torch.bfloat16)
    assert field.density_grid.grad.dtype == torch.float32 and field.feature_grid.grad.dtype == torch.bfloat16
    address, points = field.feature_grid.grad.data_ptr(), torch.rand(50, 3)
    out = field.interpolate(field.feature_grid, points)
    out.sum().backward()
    assert field.feature_grid.grad.data_ptr() == address, "added to in place"
    torch.testing.assert_close(
        field.feature_grid.grad.float().sum((0, 1, 2)), torch.full((4,), 50.0), rtol=0.02, atol=0
    )
    before = field.feature_grid.detach().clone()
    _step_without_network(field, optimizer)
    assert not torch.equal(field.feature_grid, before) and not field.feature_grid.grad.any()
    field.store_features_as(torch.float32)
    optimizer.widen_moments()
    assert {p.grad.dtype for p in (field.density_grid, field.feature_grid)} == {torch.float32}
    field.interpolate(field.feature_grid, points).sum().backward()
    _step_without_network(field, optimizer)
    assert {m.dtype for pair in optimizer.moments.values() for m in pair} == {torch.float32}


def test_steps_are_counted_beyond_what_float32_can(backend: Backend) -> None:
    """A run of hours. At 2^24 adding one would change nothing, and rounding and turns would repeat."""
    optimizer = MaskedAdam(make_field(backend), *BETAS, backend)
    for begin in (5.0, float(2**23), float(3 * 2**22 - 1)):
        optimizer.step_number.fill_(begin)
        optimizer.count_on()
        assert optimizer.step_number.item() == begin
    optimizer.step_number.fill_(3 * 2**22 + 21)
    optimizer.count_on()
    assert optimizer.step_number.item() == 2**23 + 21
    optimizer.step_number += 1
    assert optimizer.step_number.item() == 2**23 + 22
