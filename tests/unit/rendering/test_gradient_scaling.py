"""Weaker gradients near the cameras."""

import pytest
import torch
from tiny_runs import tiny_config, tiny_state

from nerf.config.schema import LossConfig
from nerf.errors import UserError
from nerf.ops.composite import scale_gradients
from nerf.rendering.gradient_scaling import full_gradient_distance
from nerf.rendering.render import render_samples, visible_samples
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace
from nerf.scene.ndc import NdcSpace
from nerf.training.state import make_sampler


def test_values_stay_and_gradients_are_scaled_by_the_square_of_the_share_of_the_way(device: str) -> None:
    t_mid = torch.tensor([0.0, 1.0, 2.0, 8.0], device=device)
    given = [torch.randn(shape, device=device, requires_grad=True) for shape in ((4,), (4, 3))]
    found = scale_gradients(*given, t_mid, 2.0)
    scales = torch.tensor([0.0, 0.25, 1.0, 1.0], device=device)
    for x, result, scale in zip(given, found, (scales, scales[:, None]), strict=True):
        assert torch.equal(result, x)
        result.square().sum().backward()
        assert torch.equal(x.grad, 2 * x.detach() * scale)


def test_the_distance_is_in_halves_of_the_inner_box() -> None:
    aabb = torch.tensor([[-4.0, -4.0, -4.0], [4.0, 4.0, 4.0]])
    unbounded = SceneBox(aabb, ContractedSpace(torch.zeros(3), torch.tensor([2.5, 2.0, 3.0]), 0.6))
    assert full_gradient_distance(LossConfig(grad_scaling_distance=1.5), unbounded) == 3.0
    assert full_gradient_distance(LossConfig(grad_scaling_distance=1.5), SceneBox(aabb)) == 6.0
    assert full_gradient_distance(LossConfig(grad_scaling_distance=0.0), unbounded) == 0.0


def test_a_forward_facing_scene_has_no_such_distance() -> None:
    box = SceneBox(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), NdcSpace(torch.eye(4)[:3], 1.0, 0.5))
    assert full_gradient_distance(LossConfig(grad_scaling_distance=0.0), box) == 0.0
    with pytest.raises(UserError, match="grad_scaling_distance=1 has no meaning in a forward-facing scene.*expected 0"):
        full_gradient_distance(LossConfig(grad_scaling_distance=1.0), box)


@pytest.mark.parametrize("field", ["voxel_deferred", "voxel_mlp", "voxel_sh"])
def test_rendering_fades_the_gradients_of_every_grid_and_nothing_else(field: str) -> None:
    config, state = tiny_state(tiny_config(field))
    state.field.noise_generator = None
    batch, white = state.batches.draw(256), torch.ones(3)
    found = {}
    for full_gradient_from in (0.0, 1e-6, 1e6):
        state.field.full_gradient_from = full_gradient_from
        sampler = make_sampler(config, state)
        samples = visible_samples(state.field, sampler, batch.rays, batch.jitter)
        rendering = render_samples(state.field, sampler, samples, white)
        state.optimizer.set_active(state.optimizer.active_vertices)
        rendering.rgb.square().mean().backward()
        density, color = state.field.density_grid, state.field.appearance_grid
        found[full_gradient_from] = rendering.rgb.detach(), density.grad.clone(), color.grad.clone()
    for everywhere, nowhere in zip(found[0.0], found[1e-6]):
        assert torch.equal(everywhere, nowhere)  # all samples are farther than that
    assert torch.equal(found[0.0][0], found[1e6][0])
    nearest, farthest = samples.t_starts.min() / 1e6, samples.t_ends.max() / 1e6
    for full, faint in zip(found[0.0][1:], found[1e6][1:]):
        ratio = faint.norm() / full.norm()
        assert full.any() and nearest**2 < ratio < farthest**2
