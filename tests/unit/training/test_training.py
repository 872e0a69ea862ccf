"""A training step: its first losses against golden ones, the operations it calls, and what stops a run.

    PYTHONPATH=. python tests/unit/training/test_training.py

writes the golden losses anew. A change that moves them on purpose says so in its commit.
"""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from script_runs import script_caller
from tiny_runs import STEPS, run_to, supersampled, tiny_config, tiny_images, tiny_state
from torch.utils._python_dispatch import TorchDispatchMode

from nerf.cli.composition import compose
from nerf.cli.train import TrainScriptConfig
from nerf.config.recipes import resolve_config
from nerf.config.schema import Config, LossConfig, TrainConfig
from nerf.datasets.blender import load_blender
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.rendering.render import Composited, composite_samples, visible_samples
from nerf.runs import checkpoint
from nerf.training import losses
from nerf.training import step as train_step
from nerf.training.initial_state import init_state
from nerf.training.loop import NonFiniteLoss, StopWhen, train
from nerf.training.state import TrainState, make_sampler
from nerf.training.step import TrainStep

FIELDS = ("voxel_sh", "voxel_mlp", "voxel_deferred")
BACKENDS = ("native", "torch")
GOLDEN_STEPS = 10
BRICKS = Path(__file__).parents[3] / "data" / "bricks"


# Golden losses


def golden_file(field: str) -> Path:
    return Path(__file__).parents[2] / "golden" / f"losses_smoke_{field.removeprefix('voxel_')}.txt"


def first_losses(field: str, backend_name: str) -> list[float]:
    """Squared error of the first steps of experiment=smoke on the bundled scene."""
    config = compose("train", TrainScriptConfig, ["experiment=smoke", f"field={field}", "train.log_every=1"])
    backend = select(backend_name, "cpu")
    config = resolve_config(config, backend.device.type)
    state = init_state(config, load_blender(BRICKS, "train", config.dataset.downscale), backend)
    first = StopWhen(lambda: state.clock.step >= GOLDEN_STEPS)
    return [10 ** (-look.psnr / 10) for look in train(config, state, [first])]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_first_losses_are_the_golden_ones(field: str, backend: str) -> None:
    lines = golden_file(field).read_text().splitlines()
    golden = [float(line.split()[1]) for line in lines]
    assert len(golden) == GOLDEN_STEPS and golden[-1] < golden[0]
    assert first_losses(field, backend) == pytest.approx(golden, rel=1e-4)


# Which operations run


class OpCounter(TorchDispatchMode):
    """Counts the operations that reach PyTorch's dispatcher, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.last = ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.last = func._schema.name
        self.calls[self.last] += 1
        return func(*args, **(kwargs or {}))

    def ours(self) -> dict[str, int]:
        return {name.removeprefix("nerf::"): n for name, n in self.calls.items() if name.startswith("nerf::")}


def operations_of_a_step(config: Config, backend_name: str) -> dict[str, int]:
    """Our operations that one training step calls, with their number."""
    config, state = tiny_state(config, select(backend_name, "cpu"))
    with OpCounter() as counter:
        TrainStep(config, state)()
    assert counter.calls["aten::mul"] + counter.calls["aten::mul.Tensor"] > 0  # the counter counts
    assert state.optimizer.step_number == 1
    return counter.ours()


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("variation", [0.0, 1e-6])
def test_native_calls_our_operations_for_all_that_they_do(field: str, variation: float) -> None:
    config = replace(tiny_config(field), loss=LossConfig(tv_density=variation, tv_color=variation))
    parameters = 2 if field == "voxel_sh" else 2 + 6  # grids; weights and biases of three layers
    expected = {
        "camera_rays": 1,
        "draw_pixels": 1,
        "sample_images": 1,
        "march_visible": 1,
        "interpolate_trilinear": 2,  # density and color
        "interpolate_trilinear_grad": 2,
        "composite_rays": 1,
        "composite_rays_backward": 1,
        "all_finite": 1,
        "adam_step": parameters,
    }
    if field == "voxel_sh":
        expected |= {"contract_basis": 1, "contract_basis_backward": 1}
        expected |= {"distortion_loss": 1, "distortion_loss_backward": 1}
    if field == "voxel_deferred":
        expected["adam_step"] -= 2  # matrices of hidden layers take steps of Muon on a CPU
        expected |= {"shading_inputs": 1, "shading_inputs_backward": 1}
        expected |= {"pixel_colors": 1, "pixel_colors_backward": 1}
    if variation:
        expected["total_variation_grad"] = 2
    assert operations_of_a_step(config, "native") == expected


def test_nothing_is_queued_behind_adam() -> None:
    """On a GPU the sums of a step run beside its large kernels."""
    config, state = tiny_state(tiny_config(), select("native", "cpu"))
    step = TrainStep(config, state)
    with OpCounter() as counter:
        step()
    assert counter.last == "nerf::adam_step" and step.read().samples > 0


def test_distortion_costs_one_operation_each_way() -> None:
    config = tiny_config()
    plain = operations_of_a_step(config, "native")
    found = operations_of_a_step(replace(config, loss=replace(config.loss, distortion=0.01)), "native")
    assert found == plain | {"distortion_loss": 1, "distortion_loss_backward": 1}


def test_structure_costs_one_operation_each_way_and_one_for_the_neighbors() -> None:
    config = tiny_config()
    plain = operations_of_a_step(config, "native")
    found = operations_of_a_step(replace(config, loss=replace(config.loss, pair_ssim=0.01)), "native")
    assert found == plain | {"pair_ssim": 1, "pair_ssim_backward": 1, "shift_pixels": 1}


@pytest.mark.parametrize("field", FIELDS)
def test_torch_calls_none_of_them(field: str) -> None:
    config = tiny_config(field)
    assert operations_of_a_step(replace(config, loss=replace(config.loss, pair_ssim=0.01)), "torch") == {}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("distortion", "per_pixel"), [(0.0, 1), (0.1, 1), (0.1, 4)])
def test_both_backends_take_the_same_step(field: str, distortion: float, per_pixel: int) -> None:
    """One step from one state: the same loss, and parameters that have moved alike."""
    moved, sums = [], []
    for name in BACKENDS:
        config = tiny_config(field)
        config = replace(config, loss=replace(config.loss, distortion=distortion))
        config, state = tiny_state(config, select(name, "cpu"))
        state.rays_per_pixel = per_pixel
        step = TrainStep(config, state)
        step()
        sums.append(step.read())
        moved.append(dict(state.field.named_parameters()))
    assert sums[0].losses == pytest.approx(sums[1].losses, rel=1e-5) and sums[0].samples == sums[1].samples
    for name, parameter in moved[0].items():
        # Adam's first step has the size of the rate whatever the gradient's: only where it is tiny may signs differ.
        same = torch.isclose(parameter, moved[1][name], rtol=1e-3, atol=1e-5)
        assert same.double().mean() > 0.999, name


# What the distortion loss is for


def test_distortion_makes_surfaces_thin_and_keeps_the_pictures() -> None:
    """The tiny scene without the loss and with it: the weights spread less along the rays, fewer samples see it all.

    A voxel's own thickness is most of the spread here, and it stays. Seen: 0.0077 and 0.0064, 32.1 and 32.8 dB.
    """
    spreads, psnrs = [], []
    for weight in (0.0, 0.3):
        config = tiny_config(steps=120)
        config = replace(config, loss=replace(config.loss, distortion=weight))
        config, state = tiny_state(config)
        reports = list(train(config, state))
        psnrs.append(reports[-1].psnr)
        batch = state.batches.draw(512)
        sampler = make_sampler(config, state)
        samples = visible_samples(state.field, sampler, batch.rays)
        with torch.no_grad():
            seen = composite_samples(state.field, sampler, samples, with_distortion=True)
            spreads.append(losses.distortion(seen.distortion, state.field.box.size.norm()).item())
    assert spreads[1] < 0.9 * spreads[0]
    assert psnrs[1] > psnrs[0] - 0.5


def test_structure_takes_part_in_a_step() -> None:
    """Batches are paired where it weighs something; of one and the same batch it changes what a step does."""
    moved, errors = [], []
    for weight in (0.0, 0.1):
        config = replace(tiny_config(), loss=replace(tiny_config().loss, pair_ssim=weight))
        config, state = tiny_state(config)
        assert state.batches.paired == (weight > 0)
        state.batches.paired, step = True, TrainStep(config, state)
        step()
        moved.append(state.field.sh_grid.detach())
        errors.append(step.read().losses["photometric"])
    assert errors[0] == errors[1]  # what the PSNR comes from
    assert not torch.isclose(*moved, rtol=1e-3, atol=1e-4).all()


def test_a_cuda_graph_takes_the_steps_of_plain_calls(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every term of the loss. Atomic additions come in any order, so the runs are alike and not equal."""
    calls, psnrs, plain_step = {}, {}, TrainStep.__call__
    for graphed in (False, True):
        seen: list[int] = []

        def counted(*arguments: object, seen: list[int] = seen) -> None:
            seen.append(1)
            plain_step(*arguments)

        monkeypatch.setattr(TrainStep, "__call__", counted)
        config = tiny_config(steps=120, cuda_graph=graphed)
        weights = {"distortion": 0.1, "pair_ssim": 0.01, "alpha": 0.1, "multi_view": 0.01, "tv_global": 1e-6}
        config = replace(config, loss=replace(config.loss, **weights))
        config, state = tiny_state(config, select("native", cuda))
        psnrs[graphed] = list(train(config, state))[-1].psnr
        calls[graphed] = len(seen)
    assert calls[False] == 120 and calls[True] < 60  # a replay calls nothing
    assert psnrs[True] == pytest.approx(psnrs[False], abs=0.5)


# Several rays of a pixel


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("start", "plain_steps"), [(0.5, 20), (0.0, 0), (1.0, STEPS)])
def test_pixels_get_several_rays_from_their_share_of_the_run_on(
    field: str, start: float, plain_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many pixels as before, and the picture they are compared with stays that of the images."""
    seen: list[tuple[int, int]] = []

    def watched(*arguments: object, **more: object) -> Composited:
        seen.append((arguments[2].rays.per_pixel, len(arguments[2].rays)))
        return composite_samples(*arguments, **more)

    monkeypatch.setattr(train_step, "composite_samples", watched)
    config, state = tiny_state(supersampled(tiny_config(field), start))
    assert state.rays_per_pixel == 1
    last = run_to(config, state, STEPS)[-1]
    assert seen == [(1, 128)] * plain_steps + [(4, 512)] * (STEPS - plain_steps)
    assert last.psnr > 15


def test_rays_and_samples_of_a_look_are_counted_by_the_ray() -> None:
    """Neither falls to a quarter nor rises fourfold where a pixel gets four rays."""
    config, state = tiny_state(supersampled(tiny_config(), 0.5))
    reports = run_to(config, state, STEPS)
    before, after = reports[-3], reports[-1]
    assert (before.step, after.step) == (20, 40)
    assert 0.5 * before.samples_per_ray < after.samples_per_ray < 2 * before.samples_per_ray


def test_a_cuda_graph_takes_the_steps_of_plain_calls_with_several_rays_a_pixel(cuda: str) -> None:
    psnrs = []
    for graphed in (False, True):
        config = supersampled(tiny_config(steps=120, cuda_graph=graphed), 0.5)
        config, state = tiny_state(config, select("native", cuda))
        psnrs.append(list(train(config, state))[-1].psnr)
        assert state.rays_per_pixel == 4
    assert psnrs[1] == pytest.approx(psnrs[0], abs=0.5)


# What stops a run


@pytest.mark.parametrize("name", ["density_grid", "sh_grid"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_parameter_that_is_not_finite_stops_training(name: str, value: float) -> None:
    config, state = tiny_state(tiny_config())
    run_to(config, state, 12)
    with torch.no_grad():
        getattr(state.field, name)[4:8, 4:8, 4:8] = value
    with pytest.raises(NonFiniteLoss, match="not finite"):
        run_to(config, state, 100)
    assert state.clock.step == 20  # the first look


def test_a_loss_that_is_not_finite_stops_training(monkeypatch: pytest.MonkeyPatch) -> None:
    config, state = tiny_state(tiny_config())
    run_to(config, state, 12)
    break_loss_after(2, monkeypatch)
    with pytest.raises(NonFiniteLoss, match="6 of the 8 steps up to step 20"):
        run_to(config, state, 100)


def break_loss_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on the loss is infinite while everything else is as it was."""
    calls, photometric = [], losses.photometric

    def broken(rgb: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return photometric(rgb, truth) + (math.inf if len(calls) > steps else 0)

    monkeypatch.setattr(losses, "photometric", broken)


@pytest.mark.slow
@pytest.mark.parametrize("good_steps", [3, 0])
def test_the_script_keeps_and_names_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], good_steps: int
) -> None:
    call, run = script_caller(monkeypatch, tmp_path), tmp_path / "run"
    break_loss_after(good_steps, monkeypatch)
    arguments = ("experiment=smoke", "train.save_every=1", f"hydra.run.dir={run}")
    assert call("train", *arguments) == 2
    message = capsys.readouterr().err
    assert f"5 of the 5 steps up to step {good_steps + 5}" in message
    assert "field.lr_density" in message
    assert f"the last good checkpoint is kept in {run}" in message
    content = checkpoint.load_resume(run)
    assert content["step"] == good_steps + 4 and content["optimizer"]["step_number"] == good_steps
    assert all(value.isfinite().all() for value in content["field"].values())


# The scene box


def with_box(*aabb: float) -> tuple[Config, TrainState]:
    config = tiny_config()
    return tiny_state(replace(config, dataset=replace(config.dataset, aabb=list(aabb))))


def test_a_box_that_is_given_is_taken() -> None:
    _, state = with_box(-1.5, -1.0, -1.25, 1.5, 1.0, 1.25)
    assert state.field.box.aabb.tolist() == [[-1.5, -1.0, -1.25], [1.5, 1.0, 1.25]]


@pytest.mark.parametrize("aabb", [(), (1.0, 2.0), (0, 0, 0, 1, 1, 0.0), (1, 1, 1, 0, 0, 0), (-math.inf, 0, 0, 1, 1, 1)])
def test_a_box_that_is_none_is_refused(aabb: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="is no box, expected x0,y0,z0,x1,y1,z1"):
        with_box(*aabb)


def test_a_box_that_no_camera_sees_is_refused() -> None:
    with pytest.raises(UserError, match="scene box .*dataset.aabb"):
        with_box(50, 50, 50, 51, 51, 51)


# Learning


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [5.0, 60.0])
def test_the_network_of_a_gpus_recipe_does_not_stand_still(seconds: float) -> None:
    """In the first steps all is fog and most pixels are background: color must not saturate before a scene appears."""
    recipe = resolve_config(Config(train=TrainConfig(max_seconds=seconds)), "cuda", "bounded").field
    config = Config(
        field=replace(recipe, num_voxels=32**3), train=TrainConfig(steps=160, rays_per_step=1024, log_every=40)
    )
    backend = select("native", "cpu")
    config = resolve_config(config, backend.device.type)
    state = init_state(config, load_blender(BRICKS, "train", 4), backend)
    last = list(train(config, state))[-1]
    assert last.psnr > 16.5  # 14.6 where it stands still


# Backgrounds


def test_truth_is_the_image_over_the_background_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tiny_images().pixels[:, 3].eq(0).double().mean().item()
    for background, color, share in (("white", 1, empty), ("black", 0, empty), ("random", 1, 0), ("random", 0, 0)):
        seen: list[torch.Tensor] = []
        monkeypatch.setattr(losses, "photometric", lambda rgb, truth, seen=seen: seen.append(truth) or rgb.sum())
        config = tiny_config()
        config, state = tiny_state(replace(config, dataset=replace(config.dataset, background=background)))
        TrainStep(config, state)()
        assert (seen[0] == color).all(-1).double().mean().item() == pytest.approx(share, abs=0.12 * (share > 0))


if __name__ == "__main__":
    for name in FIELDS:
        found = first_losses(name, "native")
        golden_file(name).write_text("".join(f"{step} {loss:.8f}\n" for step, loss in enumerate(found, start=1)))
