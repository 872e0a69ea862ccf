"""`log=`: curves and pictures of a run in TensorBoard, Weights & Biases or MLflow.

A tracker that fails while a run trains is left out from then on, and said once: it never ends the run. A resumed run
goes on in the tracker's own run, whose name the run's folder keeps (TRACKED_FILE).
"""

import contextlib
import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import imageio.v3 as imageio
import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor

from nerf.config.recipes import flat
from nerf.config.schema import Config
from nerf.errors import UserError
from nerf.files import write_text
from nerf.images import visualize
from nerf.rendering.background import Background
from nerf.rendering.render import render_image
from nerf.rendering.sampler import depth_range
from nerf.runs.run_folder import TRACKED_FILE
from nerf.training.loop import Callback, TrainMetrics
from nerf.training.state import TrainState, make_sampler

CHOICES = ("auto", "none", "tensorboard", "wandb", "mlflow")
MODULES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
PROJECT = "nerf-voxel"
PICTURES_AT = (0.05, 0.25, 0.5, 0.75)  # of a run; the held-out views come at its end
PICTURE_SIDE = 512  # pixels
PARAMETER_LENGTH = 500  # characters, MLflow's limit


class Tracker(Protocol):
    """Where figures and pictures go."""

    run_id: str | None  # by which the tracker knows the run again; None: by its folder

    def scalars(self, values: dict[str, float], step: int) -> None: ...

    def picture(self, name: str, image: np.ndarray, step: int) -> None:
        """image: [H,W,3] uint8."""

    def close(self) -> None: ...


class TensorBoardTracker:
    run_id = None

    def __init__(self, folder: Path, config: Config, trained: int, _before: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What a run logged between its last save and its kill comes again; TensorBoard drops the first.
        self._writer = SummaryWriter(str(folder), purge_step=trained + 1 if trained else None)
        self._writer.add_text("config", "```\n" + OmegaConf.to_yaml(OmegaConf.create(asdict(config))) + "```")

    def scalars(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def picture(self, name: str, image: np.ndarray, step: int) -> None:
        self._writer.add_image(name, image, step, dataformats="HWC")

    def close(self) -> None:
        self._writer.close()


class WandbTracker:
    def __init__(self, folder: Path, config: Config, _trained: int, before: str | None) -> None:
        import wandb

        self._wandb = wandb
        again = {} if before is None else {"id": before, "resume": "allow"}
        self._run = wandb.init(project=PROJECT, name=folder.name, dir=str(folder), config=flat(asdict(config)), **again)
        self.run_id = self._run.id
        # It refuses steps below the last that it has, which a killed run comes by again, so these go to the next one:
        # scores of the last step, which were not yet there, would be lost.
        self._next = 0 if before is None else self._run.step

    def scalars(self, values: dict[str, float], step: int) -> None:
        self._run.log(values, step=max(step, self._next))

    def picture(self, name: str, image: np.ndarray, step: int) -> None:
        self._run.log({name: self._wandb.Image(image)}, step=max(step, self._next))

    def close(self) -> None:
        self._run.finish()


class MlflowTracker:
    def __init__(self, folder: Path, config: Config, _trained: int, before: str | None) -> None:
        import mlflow

        self._mlflow = mlflow
        mlflow.set_experiment(PROJECT)
        if before is not None:
            mlflow.start_run(run_id=before)
            self.run_id = before
            return  # it has the settings, and refuses others, as those of a longer run
        self.run_id = mlflow.start_run(run_name=folder.name).info.run_id
        try:
            mlflow.log_params({name: str(value)[:PARAMETER_LENGTH] for name, value in flat(asdict(config)).items()})
        except Exception:
            mlflow.end_run()  # it is the process', which may have another run to train
            raise

    def scalars(self, values: dict[str, float], step: int) -> None:
        self._mlflow.log_metrics(values, step=step)

    def picture(self, name: str, image: np.ndarray, step: int) -> None:
        self._mlflow.log_image(image, artifact_file=f"{name}_{step}.png")

    def close(self) -> None:
        self._mlflow.end_run()


TRACKERS = {"tensorboard": TensorBoardTracker, "wandb": WandbTracker, "mlflow": MlflowTracker}


def chosen_tracker(name: str) -> str:
    """What log=NAME means here: auto is TensorBoard where that is installed. Raises UserError for a missing package."""
    if name == "auto":
        return "tensorboard" if importlib.util.find_spec("tensorboard") else "none"
    if name != "none" and importlib.util.find_spec(MODULES[name]) is None:
        raise UserError(f"log={name} needs the package {MODULES[name]}; get it with: pip install {MODULES[name]}")
    return name


class Tracking(Callback):
    """Sends the figures of each log entry to a tracker, and a picture now and then, with the training clock stopped.

    A folder that names the tracker's run goes on with it: nerf/runs/run_folder.py removes the name with an old run.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        config: Config,
        note: Callable[[str], None],
        trained: int = 0,
        required: bool = True,
    ) -> None:
        """name: of chosen_tracker. note: shows the user a message. trained: steps of a run that goes on.

        Raises UserError if the tracker cannot begin; one that is not required is left out, and that is noted.
        """
        self._name, self._config, self._note = name, config, note
        self._tracker: Tracker | None = None
        self._given_up: Tracker | None = None  # after a failure
        self._occupied: float | None = None
        self._shown = 0  # of PICTURES_AT
        self._asked = False  # for a log with a picture
        if name != "none":
            try:
                self._tracker = self._begun(folder, trained)
            except Exception as error:
                problem = f"cannot begin: {_words(error)}; mend that, or give log=none."
                if required:
                    raise UserError(f"log={name} {problem}") from error
                note(f"no curves are logged, {name} {problem}")
        self._runs = _runs_in(folder)
        if self._tracker is not None and self._tracker.run_id is not None:
            self._runs[name] = self._tracker.run_id
            try:
                self.describe(folder)
            except (UserError, OSError) as error:
                note(f"{_words(error)}; after resume= {name} would begin a new run.")

    def _begun(self, folder: Path, trained: int) -> Tracker:
        before = _runs_in(folder).get(self._name)
        if before is not None:
            try:
                return TRACKERS[self._name](folder, self._config, trained, before)
            except Exception as error:  # noqa: BLE001 - it was deleted, or is of another server
                self._note(f"{self._name} cannot go on with its run {before}: {_words(error)}; it begins a new one.")
        return TRACKERS[self._name](folder, self._config, trained, None)

    def describe(self, folder: Path) -> None:
        """Writes into the folder of a run which runs of trackers are its own. Raises UserError or OSError."""
        if self._runs:
            write_text(folder / TRACKED_FILE, json.dumps(self._runs, indent=2) + "\n")

    def on_grid_change(self, state: TrainState) -> None:
        self._occupied = None

    def wants_log(self, state: TrainState) -> bool:
        """Whether a picture is due of a scene that has to be put together for it."""
        due = self._shown < len(PICTURES_AT) and state.clock.progress >= PICTURES_AT[self._shown]
        self._asked = state.parts is not None and self._tracker is not None and due
        return self._asked

    def on_log(self, state: TrainState, metrics: TrainMetrics) -> None:
        if self._tracker is None:
            return
        if self._occupied is None:
            self._occupied = state.occupancy.occupied_fraction
        self._send(lambda tracker: tracker.scalars(self._figures(state, metrics), metrics.step))
        passed = sum(metrics.progress >= at for at in PICTURES_AT)
        if self._asked or (state.parts is None and passed > self._shown):
            self._asked, self._shown = False, max(passed, self._shown + 1)
            for name, image in self._pictures(state).items():
                self.picture(f"train/{name}", image, metrics.step)

    def picture(self, name: str, image: Tensor, step: int) -> None:
        """A picture [H,W,3] in [0,1]."""
        array = (255 * image.clamp(0, 1) + 0.5).to(torch.uint8).cpu().numpy()
        self._send(lambda tracker: tracker.picture(name, array, step))

    def finish(self, split: str, scores: Mapping[str, Any], sheet: Path, step: int) -> None:
        """The scores of held-out views, their contact sheet, and the end. scores: Scores.summary()."""
        means = {f"{split}/{name}": scores[name]["mean"] for name in ("psnr", "ssim", "lpips") if name in scores}
        self._send(lambda tracker: tracker.scalars(means, step))
        self._send(lambda tracker: tracker.picture(f"{split}/views", imageio.imread(sheet)[..., :3], step))
        self.close()

    def close(self) -> None:
        """Ends the tracker's run, also one that failed; nothing is sent afterwards.

        MLflow and Weights & Biases have one run in a process: left open, the next run of a sweep could not begin.
        """
        self._send(lambda tracker: tracker.close())
        if self._given_up is not None:
            with contextlib.suppress(Exception):  # its failure was said
                self._given_up.close()
        self._tracker = self._given_up = None

    def _figures(self, state: TrainState, metrics: TrainMetrics) -> dict[str, float]:
        optimizer = state.optimizer
        decay = optimizer.decay.item()
        figures = {
            "train/psnr": metrics.psnr,
            "train/rays_per_second": metrics.rays_per_second,
            "train/samples_per_ray": metrics.samples_per_ray,
            "train/occupied_fraction": self._occupied,
            "train/seconds": metrics.seconds,
        }
        if state.device.type == "cuda":
            figures["train/memory_gib"] = torch.cuda.memory_reserved(state.device) / 2**30
        figures |= {f"loss/{name}": value for name, value in metrics.losses.items()}
        return figures | {f"lr/{group.name}": group.lr[0] * decay for group in optimizer.groups}

    def _pictures(self, state: TrainState) -> dict[str, Tensor]:
        """Color and depth from the first training camera."""
        sampler, config = make_sampler(self._config, state), self._config
        cameras = state.cameras[[0]].within(PICTURE_SIDE)
        color = Background.of(config.dataset, state.field.background).eval(state.device)
        seen = render_image(state.field, sampler, cameras, 0, color)
        near, far = depth_range(sampler, state.cameras)
        return {"color": seen.rgb, "depth": visualize.color_depth(seen.depth, seen.opacity, near, far)}

    def _send(self, what: Callable[[Any], None]) -> None:
        if self._tracker is None:
            return
        try:
            what(self._tracker)
        except Exception as error:  # noqa: BLE001 - a full disk, a network that is gone, ...
            self._tracker, self._given_up = None, self._tracker
            self._note(f"nothing more is logged to {self._name}: {_words(error)}; training goes on.")


def _runs_in(folder: Path) -> dict[str, str]:
    """The runs of trackers that a run's folder names, by tracker; empty where it names none that can be read."""
    try:
        found = json.loads((folder / TRACKED_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    known = found.items() if isinstance(found, dict) else ()
    return {name: run for name, run in known if name in TRACKERS and isinstance(run, str) and run}


def _words(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
