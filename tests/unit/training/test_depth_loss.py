"""The depth loss: where it is, how robust it is, and that a run learns depth from it."""

from dataclasses import replace

import pytest
import torch
from tiny_runs import tiny_config, tiny_images

from nerf.config.recipes import resolve_config
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.runs.run import start
from nerf.training import warmup
from nerf.training.losses import DEPTH_DELTA, depth_error


def test_it_counts_known_pixels_alone_and_large_errors_linearly() -> None:
    known = torch.tensor([2.0, 0.0, 4.0])
    depth, opacity = torch.tensor([1.0, 9.0, 4.0]), torch.tensor([0.5, 1.0, 1.0])  # expected 2, 9, 4
    assert depth_error(depth, opacity, known) == 0
    small, large = DEPTH_DELTA / 2, 1.0
    for error, loss in ((small, 0.5 * small**2 / DEPTH_DELTA), (large, large - 0.5 * DEPTH_DELTA)):
        found = depth_error(known * (1 + error), torch.ones(3), known)
        torch.testing.assert_close(found, torch.tensor(loss))
    assert depth_error(depth, opacity, torch.zeros(3)) == 0


def test_its_gradient_is_finite_on_empty_rays_and_moves_depth_towards_the_file() -> None:
    depth = torch.tensor([0.0, 1.5], requires_grad=True)
    opacity = torch.tensor([0.0, 1.0], requires_grad=True)
    depth_error(depth, opacity, torch.tensor([2.0, 2.0])).backward()
    assert torch.isfinite(depth.grad).all() and torch.isfinite(opacity.grad).all() and depth.grad[1] < 0


def test_a_run_with_the_loss_and_without_depth_files_is_refused() -> None:
    config = tiny_config()
    config = replace(config, loss=replace(config.loss, depth=0.1))
    bare = replace(tiny_images(), depths=None)
    with pytest.raises(UserError, match=r"loss.depth=0.1.*no depth files.*depth_file_path"):
        start(config, bare, select("native", "cpu"))


def test_the_warm_up_of_a_run_with_the_loss_has_depths() -> None:
    config = resolve_config(tiny_config(), "cpu")
    config = replace(config, loss=replace(config.loss, depth=0.1))
    assert warmup.train_briefly(config, select("native", "cpu")) == warmup.STEPS


@pytest.mark.parametrize("storage", ["device", "host"])
def test_a_run_learns_depth_from_the_files(storage: str) -> None:
    """The sphere's own depths, times 1.1: the rendered depth follows them."""
    images = tiny_images()
    images = replace(images, depths=images.depths * 1.1)
    errors = {}
    for weight in (0.0, 1.0):
        config = tiny_config(images=storage)
        config = replace(config, loss=replace(config.loss, depth=weight))
        run = start(config, images, select("native", "cpu"))
        terms = [entry.losses for entry in run.train()]
        assert ("depth" in terms[-1]) == (weight > 0)
        rendered = run.open().render(images.cameras, 0)
        hit = (images.depth(0) > 0) & (rendered.opacity > 0.5)
        expected = rendered.depth / rendered.opacity.clamp(min=0.01)
        errors[weight] = ((expected - images.depth(0)).abs() / images.depth(0).clamp(min=1e-6))[hit].median().item()
    assert errors[1.0] < 0.7 * errors[0.0], errors
