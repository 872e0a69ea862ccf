"""One table for all scenes: each is trained with each budget, scored, and its worst test view kept as a picture."""

import math
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from nerf.benchmarks.curve import CurveConfig, measure_run
from nerf.benchmarks.figures import SceneRun
from nerf.benchmarks.scene_sets import Scene
from nerf.config.schema import Config, DatasetConfig
from nerf.datasets.load import check_split, load_split
from nerf.errors import UserError
from nerf.images import metrics, visualize
from nerf.images.write import save_png
from nerf.ops.backend import Backend
from nerf.rendering.render import Rendering

PICTURE_SIDE = 800  # pixels
CAPTIONS = ("truth", "render", "error")


def check(config: Config, budgets: list[float], steps: list[int]) -> None:
    """Raises UserError for settings that mode=scenes cannot use."""
    if not all(isinstance(seconds, int | float) and seconds >= 0.1 for seconds in budgets):
        raise UserError(f"budgets={budgets} is no list of training seconds, expected for example [15,60].")
    if not all(isinstance(count, int) and count >= 1 for count in steps):
        raise UserError(f"budget_steps={steps} is no list of training steps, expected for example [500].")
    if not budgets and not steps:
        raise UserError("budgets=[] leaves nothing to train; give budgets=[SECONDS,...] or budget_steps=[STEPS,...].")
    if config.train.steps is not None or config.train.max_seconds is not None:
        raise UserError(
            "train.steps and train.max_seconds are one run's; give budgets=[SECONDS,...] or budget_steps=[STEPS,...] "
            "with mode=scenes."
        )


def dataset_of(scene: Scene, given: DatasetConfig) -> DatasetConfig:
    """The settings of one scene: its folder, its photos by its set's custom; the rest as given."""
    images = given.images if given.images is not None else scene.images
    return replace(given, scene=scene.name, root=str(scene.folder.absolute()), format="auto", images=images)


def with_budget(config: Config, seconds: float | None, steps: int | None) -> Config:
    return replace(config, train=replace(config.train, max_seconds=seconds, steps=steps))


def measure_scene(config: Config, scene: Scene, backend: Backend, folder: Path, picture: Path) -> SceneRun:
    """Trains one scene with the budget in the config; writes the worst view's picture, and the model into the folder.

    Raises UserError for a scene that cannot be used, TrainingStopped like train().
    """
    check_split(config.dataset, config.evaluation.split)
    train, test = load_split(config.dataset, "train"), load_split(config.dataset, config.evaluation.split)
    worst: list[tuple[float, int, Rendering, Tensor]] = []

    def keep_worst(index: int, rendering: Rendering, target: Tensor) -> None:
        valid = test.valid_mask(index)
        psnr = metrics.psnr(rendering.rgb, target, None if valid is None else valid.to(target.device))
        if not worst or psnr < worst[0][0] or math.isnan(psnr):
            worst[:] = [(psnr, index, rendering, target)]

    run = measure_run(config, CurveConfig(looks=0), train, test, backend, folder, keep_worst)
    psnr, index, rendering, target = worst[0]
    row = [target, rendering.rgb, visualize.color_error(rendering.rgb, target, valid=test.valid_mask(index))]
    row = [visualize.shrunk(image.cpu(), PICTURE_SIDE) for image in row]
    save_png(picture, visualize.contact_sheet([row], CAPTIONS, [f"{scene.name} {test.names[index]}: {psnr:.2f} dB"]))
    return {
        "set": scene.set,
        "scene": scene.name,
        "images": config.dataset.images,
        "image_size": [test.cameras.width, test.cameras.height],
        "training_views": len(train),
        "budget_seconds": config.train.max_seconds,
        "budget_steps": config.train.steps,
        "worst_view": {"name": test.names[index], "psnr": psnr, "picture": picture.name},
        **run,
    }
