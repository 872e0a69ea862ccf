"""Runs whose features are float16, their gradients and moments bfloat16, as on a GPU with train.moments=bfloat16."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch
from resumed_runs import MIDDLE, stop_and_restore
from tiny_runs import STEPS, run_to, supersampled, tiny_config, tiny_images, tiny_state

from nerf.config.schema import Config
from nerf.fields import voxel_field
from nerf.ops import backend as backends
from nerf.ops.backend import select
from nerf.rendering.render import render_image
from nerf.runs import checkpoint
from nerf.training.loop import train
from nerf.training.state import TrainState, make_sampler

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "grad_dtype"), reason="this PyTorch wants gradients of the parameter's dtype"
)


@pytest.fixture(autouse=True)
def adds_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU from Hopper on. Tiny grids are sparse."""
    monkeypatch.setattr(backends, "adds_bfloat16", lambda device, deterministic: not deterministic)
    monkeypatch.setattr(voxel_field, "SPARSE_FROM", 1)
    monkeypatch.setattr(voxel_field, "SPARSE_BELOW", 2.0)


def config_of(field: str, sparse: bool = True, moments: str = "bfloat16") -> Config:
    config = supersampled(tiny_config(field, moments=moments), 0.5)
    loss = replace(config.loss, tv_color=1e-4, tv_until=1.0)
    return replace(config, field=replace(config.field, sparse=sparse), loss=loss)


def dtypes(state: TrainState) -> tuple[torch.dtype, ...]:
    density, features = state.field.grids
    name = state.field.appearance_name
    return (
        density.dtype,
        features.dtype,
        density.grad.dtype,
        features.grad.dtype,
        state.optimizer.moments[name][0].dtype,
    )


SHORT = torch.float32, torch.float16, torch.float32, torch.bfloat16, torch.bfloat16


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("field", ["voxel_sh", "voxel_mlp", "voxel_deferred"])
def test_they_stay_so_through_doublings_and_prunings_and_learn_as_much(field: str, sparse: bool) -> None:
    found = []
    for moments in ("bfloat16", "float32"):
        config, state = tiny_state(config_of(field, sparse, moments))
        seen, psnr = {dtypes(state)}, []
        for metrics in train(replace(config, train=replace(config.train, log_every=1)), state):
            seen.add(dtypes(state))
            psnr.append(metrics.psnr)
        assert seen == {SHORT if moments == "bfloat16" else 5 * (torch.float32,)}
        found.append((state.field.resolution, fmean(psnr[-10:])))
    assert found[0][0] == found[1][0] and found[0][1] == pytest.approx(found[1][1], abs=0.3)


def test_a_single_feature_is_no_exception() -> None:
    config = config_of("voxel_mlp")
    config, state = tiny_state(replace(config, field=replace(config.field, feature_channels=1)))
    run_to(config, state, MIDDLE)
    assert dtypes(state) == SHORT


def test_other_runs_have_float32() -> None:
    """Those without moments of 16 bits, in one order, with PyTorch's operations, and with features in host memory."""
    for config, backend in (
        (config_of("voxel_deferred", moments="float32"), select("native", "cpu")),
        (config_of("voxel_deferred"), select("native", "cpu", deterministic=True)),
        (config_of("voxel_deferred"), select("torch", "cpu")),
    ):
        field = tiny_state(config, backend)[1].field
        assert {grid.dtype for grid in field.grids} == {torch.float32}
        assert {grid.grad.dtype for grid in field.grids if grid.grad is not None} <= {torch.float32}
    config = config_of("voxel_deferred")
    state = tiny_state(replace(config, train=replace(config.train, features="host")))[1]
    assert state.field.host_rows is not None and state.field._feature_dtype is None


@pytest.mark.parametrize("sparse", [False, True])
def test_a_run_goes_on_to_the_same_numbers(sparse: bool, tmp_path: Path) -> None:
    config, never_stopped = tiny_state(config_of("voxel_deferred", sparse))
    run_to(config, never_stopped, STEPS)
    config, state = tiny_state(config_of("voxel_deferred", sparse))
    run_to(config, state, MIDDLE)
    config, state = stop_and_restore(tmp_path, config, state)
    assert dtypes(state) == SHORT
    run_to(config, state, STEPS)
    for kept in ("field", "optimizer"):
        ours, theirs = (getattr(x, kept).state_dict() for x in (state, never_stopped))
        for name, value in theirs.items():
            assert torch.equal(value, ours[name]), name


def test_a_model_file_shows_the_same_pictures(tmp_path: Path) -> None:
    """It stores values as float16 anyway; who opens it has them as float32."""
    config, state = tiny_state(config_of("voxel_deferred"))
    run_to(config, state, MIDDLE)
    checkpoint.save_model(tmp_path, config, state, tiny_images().cameras)
    content = checkpoint.load(tmp_path)
    field, _ = checkpoint.restore_field(content, checkpoint.restore_config(content), state.field.backend)
    assert field.appearance_grid.dtype == torch.float32
    vertices = state.occupancy.active_vertices()
    assert torch.equal(*(x.values_at(x.appearance_grid.detach(), vertices) for x in (state.field, field)))
    sampler, cameras = make_sampler(config, state), tiny_images().cameras
    for normals in (False, True):
        ours, theirs = (render_image(x, sampler, cameras, 1, torch.ones(3), normals) for x in (state.field, field))
        torch.testing.assert_close(ours.rgb, theirs.rgb, rtol=1e-3, atol=1e-3)  # density is rounded in the file
