"""Train a radiance field and score it.

    python scripts/train.py                                   the bundled scene
    python scripts/train.py dataset=lego                      Synthetic-NeRF lego
    python scripts/train.py dataset=blender dataset.scene=NAME
    python scripts/train.py dataset=capture dataset.root=DIR  photos with poses: COLMAP, nerfstudio, LLFF, NSVF, ...
    python scripts/train.py dataset=lego train.max_seconds=60 in a minute
    python scripts/train.py dataset=lego poses=refine         learns the cameras' poses with the scene
    python scripts/train.py dataset=lego poses.from_run=RUN   trains with the poses that another run learned
    python scripts/train.py resume=outputs/RUN                go on with a stopped run
    python scripts/train.py dataset=lego dry_run=true         look before: poses, box, memory, time, as one HTML page

The run folder gets config.yaml, model.pt (renders), resume.pt (goes on; may be deleted after the end), metrics.json,
test renders, a contact sheet, an orbit video, and TensorBoard events where tensorboard is installed. Ctrl-C saves and
says how to go on.
"""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path

from _hydra import CONFIGS, run  # before torch
from _dry_run import look_before
from _report import RunReport, image_size, progress_bar, save_config
from omegaconf import OmegaConf

from nerf import checkpoint
from nerf.config import Config, setting
from nerf.errors import UserError
from nerf.interrupts import StopOnInterrupt
from nerf.run_notes import run_notes
from nerf.runs import check_split, resume, start
from nerf.training import TrainingStopped, train

# Overrides that leave the result of a resumed run as it is.
RESUME_FREE = ("resume", "hydra.", "-", "evaluation.", "dataset.root", "train.log_every", "train.save_every")


@dataclass
class TrainScriptConfig(Config):
    resume: str | None = setting(None, "folder of a stopped run to go on with")
    dry_run: bool = setting(
        False, "write dry_run.html, which looks at the scene and the plan, and train nothing"
    )


def main(given: TrainScriptConfig, folder: Path, overrides: list[str]) -> None:
    if given.resume is None:
        check_split(given.dataset, given.evaluation.split)
        config = Config(**{f.name: getattr(given, f.name) for f in dataclasses.fields(Config)})
        if given.dry_run:
            sys.exit(look_before(config, folder))
        begun = start(config)
    elif given.dry_run:
        raise UserError(
            "dry_run=true looks at a run that begins, resume= goes on with one; drop one of the two."
        )
    else:
        folder = Path(given.resume)
        if folder.is_file():
            raise UserError(f"resume={folder} is a file, expected the folder of a run; give resume={folder.parent}.")
        begun = resume(folder, lambda saved: _resumed_config(given, saved, overrides))
    config, state, backend = begun.config, begun.state, begun.state.field.backend
    images, cameras = begun.images, begun.images.cameras
    save_config(folder, config)
    for note in images.notes:
        print(note, file=sys.stderr)
    size = image_size(images.cameras)
    print(f"{len(images)} training views {size} on the {config.train.images}; {backend}", file=sys.stderr)
    print(f"scene kind {config.dataset.kind}: {'; '.join(begun.reasons)}", file=sys.stderr)
    if backend.device.type == "cuda":
        print(f"memory plan: {begun.memory_plan()}", file=sys.stderr)
    del begun, images  # the state holds what training needs, and lets it go

    report, looks = RunReport(folder, config, backend), []
    with StopOnInterrupt() as interrupt, progress_bar(state.clock) as bar:
        try:
            for look in train(config, state, lambda: interrupt.asked):
                bar.show(look)
                report.add(look)
                looks.append(look)
                if config.train.save_every and look.step % config.train.save_every == 0:
                    checkpoint.save(folder, config, state, cameras)
        except TrainingStopped as error:
            saved = (folder / checkpoint.RESUME_FILE).exists()
            kept = f"the last good checkpoint is kept in {folder}" if saved else "no checkpoint was saved yet"
            raise UserError(f"{error}; {kept}. {error.remedy}.") from error
    peak_memory = report.peak_memory()
    checkpoint.save(folder, config, state, cameras)
    if not state.clock.finished:
        print(f"\nStopped at step {state.clock.step}, saved in {folder}.")
        print(f"Go on with: python scripts/train.py resume={folder}")
        sys.exit(130)
    state.batches.drop_images()
    scores = report.finish(state, cameras, peak_memory)
    for note in run_notes(config, state, looks, scores):
        print(f"note: {note}", file=sys.stderr)


def _resumed_config(given: TrainScriptConfig, saved: Config, overrides: list[str]) -> Config:
    """The saved config with the overrides that do not change the result. Raises UserError naming those that do."""
    refused = []
    for override in overrides:
        if override.startswith("hydra.run.dir=") and override != f"hydra.run.dir={given.resume}":
            refused.append(f"{override} (it goes on in {given.resume})")
        for name in _names(override):
            if not name.startswith(RESUME_FREE) and _lookup(given, name) != _lookup(saved, name):
                refused.append(f"{override} (of this run: {name}={_lookup(saved, name)})")
            elif name.startswith(("evaluation.", "dataset.", "train.")):
                _set(saved, name, _lookup(given, name))
    if refused:
        raise UserError(
            f"a resumed run keeps its settings, so that it ends as if never stopped; drop {', '.join(refused)}."
        )
    return saved


def _names(override: str) -> list[str]:
    """The settings that an override sets: one, or those in the file of an experiment."""
    name, _, value = override.lstrip("+").partition("=")
    if name != "experiment":
        return [name]
    content = OmegaConf.to_container(OmegaConf.load(CONFIGS / name / f"{value}.yaml"))
    groups = {group: leaves for group, leaves in content.items() if isinstance(leaves, dict)}
    return [f"{group}.{leaf}" for group in groups for leaf in groups[group]] + sorted(content.keys() - groups.keys())


def _lookup(config: Config, name: str) -> object:
    value: object = config
    for part in name.split("."):
        value = getattr(value, part, None)
    chosen = {"dataset": "scene", "field": "name", "poses": "mode"}  # what the name of a group's file means
    return getattr(value, chosen[name]) if name in chosen else value


def _set(config: Config, name: str, value: object) -> None:
    group, leaf = name.split(".")
    setattr(getattr(config, group), leaf, value)


if __name__ == "__main__":
    run("train", TrainScriptConfig, main, __doc__)
