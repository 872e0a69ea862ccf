"""The method of NerfBaselines: its trainer and its scores around our own training loop and renderer.

An iteration of theirs is a step of ours. Nothing here imports NerfBaselines, whose protocol is duck-typed; the spec
that names this class is nerf/benchmarks/nerfbaselines_spec.py.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nerf.benchmarks.nerfbaselines_data import CAMERA_MODELS, background_of, cameras_of, posed_images
from nerf.calibration.vignetting import vignetted_image, vignetting_of
from nerf.config.overrides import GROUP_NAMES, settings
from nerf.config.recipes import DEFAULT_STEPS_CUDA, flat
from nerf.config.schema import Config
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.runs.checkpoint import MODEL_FILE, RESUME_FILE, load_resume, restore_config
from nerf.runs.open_run import LoadedRun, restored
from nerf.runs.run import TrainingRun, resume, start

STEPS = "train.steps"
OUTPUTS = ("color", {"name": "depth", "type": "depth"}, "accumulation")
OF_THE_SCENE = ("dataset.kind", "dataset.background", "dataset.aabb")  # the other settings of dataset are for files


class NerfVoxel:
    """A run that NerfBaselines trains, saves, loads and renders.

    checkpoint: a folder that save() wrote. train_dataset: as NerfBaselines loads it, with images; None: to render only.
    config_overrides: settings by the names of the command line; of a checkpoint only train.steps may be another.
    Raises UserError for settings that are unknown, that mean nothing here, or that differ from a checkpoint's.
    """

    def __init__(
        self,
        *,
        checkpoint: str | None = None,
        train_dataset: Mapping[str, Any] | None = None,
        config_overrides: Mapping[str, Any] | None = None,
    ) -> None:
        given = {name: _typed(value) for name, value in (config_overrides or {}).items()}
        _refuse_what_means_nothing(given)
        self._checkpoint, self._loaded_step = checkpoint, None
        self._run: TrainingRun | None = None
        self._loaded: LoadedRun | None = None
        if checkpoint is None:
            if train_dataset is None:
                raise UserError("found neither a checkpoint nor a data set to train on, expected one of them.")
            images = posed_images(train_dataset)
            own = {"train.log_every": 1, STEPS: DEFAULT_STEPS_CUDA}
            own["dataset"] = str(train_dataset["metadata"].get("scene") or images.names[0])
            if images.has_alpha:
                own["dataset.background"] = background_of(train_dataset)
            self._run = start(settings({**own, **given}), images)
        else:
            content = load_resume(Path(checkpoint))
            self._loaded_step = content["step"]
            config = restore_config(content)
            _refuse_other_settings(given, config, checkpoint)
            if train_dataset is not None:
                self._run = resume(Path(checkpoint), steps=given.get(STEPS), images=posed_images(train_dataset))
            else:
                self._loaded = restored(Path(checkpoint), content, config, select("auto", "auto"))
        self._entries = None if self._run is None else self._run.train()

    @classmethod
    def get_method_info(cls) -> dict[str, Any]:
        """What data sets have to bring; NerfBaselines fills in its own name of the method."""
        return {
            "method_id": "",
            "required_features": frozenset(("color", "points3D_xyz")),
            "supported_camera_models": frozenset(CAMERA_MODELS),
            "supported_outputs": OUTPUTS,
            "can_resume_training": True,
        }

    def get_info(self) -> dict[str, Any]:
        """The same with the run's settings, its number of steps and where it was loaded from."""
        config = self._opened.config
        return {
            **self.get_method_info(),
            "num_iterations": config.train.steps,
            "batch_size": config.train.rays_per_step,
            "loaded_step": self._loaded_step,
            "loaded_checkpoint": self._checkpoint,
            "hparams": flat(asdict(config)),
        }

    def train_iteration(self, step: int) -> dict[str, float]:
        """Trains one step, which step counts from 0: its PSNR in dB, loss, losses by name, samples per ray."""
        if self._run is None:
            raise UserError("the method was loaded without a data set, so it renders only; give one to train on.")
        done = self._run.state.clock.step
        if step != done or self._run.finished:
            raise UserError(f"found step {step} of a run that has done {done} of {self._run.config.train.steps} steps.")
        metrics = next(self._entries)
        figures = {"psnr": metrics.psnr, "samples_per_ray": metrics.samples_per_ray}
        return {"loss": sum(metrics.losses.values()), **figures, **metrics.losses}

    def render(self, camera: Any, *, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The picture of one camera, NumPy float32: color [H,W,3] over the run's background, depth [H,W] in world
        units along the ray, accumulation [H,W]. Of the options none applies. Where vignetting was learned, the picture
        is darkened as the photo of the likest training camera is, since it is scored beside a photo."""
        run, cameras = self._opened, cameras_of(camera)
        rendering = run.render(cameras)
        color = rendering.rgb
        if run.vignetting is not None:
            known = vignetting_of(cameras, run.given_cameras, run.vignetting)
            opaque = rendering.opacity if run.config.dataset.kind == "bounded" else torch.ones_like(rendering.opacity)
            color = vignetted_image(color, opaque[..., None], cameras, 0, known)
        return {
            "color": color.clamp(0, 1).numpy(),
            "depth": rendering.depth.numpy(),
            "accumulation": rendering.opacity.numpy(),
        }

    def save(self, path: str) -> None:
        """Writes model.pt, which the commands that open a run read, and resume.pt into a folder."""
        if self._run is not None:
            self._run.save(path)
            return
        Path(path).mkdir(parents=True, exist_ok=True)
        for name in (RESUME_FILE, MODEL_FILE):
            shutil.copyfile(Path(self._checkpoint) / name, Path(path) / name)

    @property
    def _opened(self) -> LoadedRun:
        return self._loaded if self._run is None else self._run.open()


def _typed(value: Any) -> Any:
    """A value from NerfBaselines' command line, which passes text, as what it stands for."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads({"none": "null"}.get(value.lower(), value))
    except json.JSONDecodeError:
        return value


def _refuse_what_means_nothing(given: Mapping[str, Any]) -> None:
    """Raises UserError for settings that NerfBaselines decides, or that it could not score."""
    for name, value in given.items():
        why = None
        if name == "train.max_seconds":
            why = f"its trainer counts iterations, which are steps; give {STEPS}"
        elif name == "train.log_every" and value != 1:
            why = "each of its iterations is logged"
        elif name in ("poses", "poses.mode") and value != "fixed":
            why = "it scores from the poses of the data set, so learned ones would be scored from beside them"
        elif name.startswith("evaluation.") or (name.startswith("dataset.") and name not in OF_THE_SCENE):
            why = "it reads the images and scores them itself"
        if why is not None:
            raise UserError(f"{name}={value} means nothing in NerfBaselines: {why}.")


def _refuse_other_settings(given: Mapping[str, Any], saved: Config, checkpoint: str) -> None:
    """Raises UserError where settings that were given differ from those of a checkpoint, but for the steps."""
    asked, had = flat(asdict(settings(given))), flat(asdict(saved))
    names = [GROUP_NAMES.get(name, name) for name in given if name != STEPS]
    other = [f"{name}={asked[name]} (of {checkpoint}: {had[name]})" for name in names if asked[name] != had[name]]
    if other:
        raise UserError(f"a checkpoint keeps its settings; drop {', '.join(other)}.")
