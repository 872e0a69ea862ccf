"""Compares trained runs: `nerf evaluate runs=A,B`, and the end of a sweep."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from PIL import Image
from yaml import YAMLError

from nerf.cameras.cameras import Cameras
from nerf.cli.open_run import listed
from nerf.cli.sweeps import SweptRun
from nerf.config import renamed
from nerf.config.commands import program
from nerf.config.schema import Config, build
from nerf.datasets.load import found_again, load_split
from nerf.errors import UserError
from nerf.evaluation.compare import (
    Comparison,
    RunResult,
    compare,
    read_metrics,
    setting_rows,
    table,
    text,
)
from nerf.evaluation.compare_page import page
from nerf.files import METRICS, write_text
from nerf.rendering.background import Background
from nerf.runs.archive import FORMATS, MODEL_FILE, RESUME_FILE, SINGLE_FILE, UNREADABLE, read_archive
from nerf.runs.open_run import check_scene
from nerf.runs.packed_cameras import restore_cameras

TEXT = "compare.txt"
FREE = ("runs", "root", "dataset.root")  # settings that go with runs=; the others are of a scoring


def compare_runs(runs: str, root: str | None, folder: Path, overrides: list[str]) -> None:
    """Prints the comparison and writes compare.txt and compare.html into the folder. Raises UserError."""
    names = [override.lstrip("+").partition("=")[0] for override in overrides]
    refused = [name for name in names if name not in FREE and not name.startswith("hydra.")]
    if refused:
        raise UserError(f"runs= compares the scores that the runs have; drop {', '.join(refused)}.")
    folders = list(dict.fromkeys(Path(name) for name in listed(runs)))
    if len(folders) < 2:
        raise UserError(f"runs={runs}: found one folder, expected two or more, as runs=outputs/A,outputs/B.")
    missing = [str(path) for path in folders if not path.is_dir()]
    if missing:
        raise UserError(f"runs={runs}: there is no folder {', '.join(missing)}.")
    _show(compare([read_result(path) for path in folders]), root, folder)


def compare_sweep(folder: Path, runs: Sequence[SweptRun]) -> None:
    """The comparison of a sweep's runs, each named by the settings that not all have, in the folder of the sweep.

    Runs that have no picture in common, of several scenes say, become a table of their own scores. Nothing is written
    where fewer than two runs have scores. Of runs that differ in their seed alone it says how their mean is scored.
    """
    results = [read_result(run.folder) for run in runs]
    failed = [str(run.problem) if run.problem else result.problem for run, result in zip(runs, results, strict=True)]
    results = [replace(result, problem=problem) for result, problem in zip(results, failed, strict=True)]
    if sum(result.problem is None for result in results) < 2:
        return
    shared = set.intersection(*(set(run.overrides) for run in runs))
    names = [" ".join(given for given in run.overrides if given not in shared) for run in runs]
    try:
        _show(replace(compare(results), names=names), None, folder)
    except UserError as error:
        words = table(names, results) + f"\n\nnot view by view: {error}\n"
        write_text(folder / TEXT, words)
        print(words)
        return
    command = _scoring_of_mean([result for result in results if result.problem is None])
    if command is not None:
        print(f"the mean of the pictures of runs that differ in their seed alone is scored by: {command}")


def _scoring_of_mean(runs: list[RunResult]) -> str | None:
    """The command that scores the mean of the pictures of runs with scores, over the views that these scored.

    None unless the runs are known to differ in their seed alone.
    """
    different = setting_rows(Comparison(runs, [], [], []))
    if [name for name, *_ in different] != ["seed"] or not all(run.settings and run.model_bytes for run in runs):
        return None
    first, *others = (str(run.folder) for run in runs)
    if any("," in folder for folder in others):  # ensemble= separates folders by commas
        return None
    usual = {"split": "test", "every": 1}  # of evaluate; the runs may have scored other views
    chosen = {name: runs[0].settings.get(f"evaluation.{name}", value) for name, value in usual.items()}
    views = [f"{name}={value}" for name, value in chosen.items() if value != usual[name]]
    return program("scripts/evaluate.py", f"run={first}", f"ensemble={','.join(others)}", *views)


def _show(compared: Comparison, root: str | None, folder: Path) -> None:
    """Prints a comparison and writes it into the folder, with a page."""
    split = compared.scored[0][1].metrics.get("split", "test")
    try:
        photo = photos([run.folder for _, run in compared.scored], split, root)
    except UserError as error:
        compared.notes.append(f"the page shows renders only: {error}")
        photo = _no_photo
    words = text(compared)
    for name, content in ((TEXT, words), ("compare.html", page(compared, split, photo))):
        write_text(folder / name, content)
    print(words)
    print(folder / "compare.html")


def read_result(folder: Path) -> RunResult:
    """A run as its folder shows it, with the reason in words where it has no scores."""
    metrics, problem = read_metrics(folder)
    if problem is not None and not (folder / METRICS).is_file():
        problem = _without_metrics(folder)
    model = folder / MODEL_FILE
    try:
        settings = _flat(saved_settings(folder))
    except UserError:
        settings = {}
    return RunResult(folder, metrics, settings, model.stat().st_size if model.is_file() else None, problem)


def _without_metrics(folder: Path) -> str:
    """Why a run has no metrics.json, and the remedy."""
    # A run that is stopped leaves model.pt too, so resume.pt comes first: its end scores it, in its own folder.
    if (folder / RESUME_FILE).is_file():
        return f"stopped before it was scored; resume it: {program('scripts/train.py', f'resume={folder}')}"
    if (folder / MODEL_FILE).is_file():
        # Without hydra.run.dir the scores would go to a folder of their own, and the same comparison fail again.
        score = program("scripts/evaluate.py", f"run={folder}", f"hydra.run.dir={folder}")
        return f"stopped before it was scored, and its {RESUME_FILE} is gone; score it in its folder: {score}"
    if (folder / SINGLE_FILE).is_file():
        return "written by version 1 of this program; train it again"
    return f"no run is in it, expected {MODEL_FILE} and {METRICS}"


def saved_settings(folder: Path) -> dict[str, Any]:
    """The settings of a run's config.yaml, under their present names. Raises UserError if it cannot be read."""
    path = folder / "config.yaml"
    try:
        found = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); expected the settings of a run.") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no settings; expected those of a run.")
    return renamed.nested(found)


def _flat(nested: dict[str, Any], group: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in nested.items():
        flat |= _flat(value, f"{group}{name}.") if isinstance(value, dict) else {f"{group}{name}": value}
    return flat


def photos(folders: list[Path], split: str, root: str | None) -> Callable[[str], Image.Image | None]:
    """The ground truth of a view by name, from the scene of the first run that says where it lies.

    Raises UserError where that is not found, or is another scene's.
    """
    settings = next((folder for folder in folders if (folder / "config.yaml").is_file()), folders[0])
    config = build(Config, saved_settings(settings))
    if root is not None:
        config.dataset.root = root
    dataset = found_again(config.dataset)
    given = _given_cameras(settings / MODEL_FILE)
    if given is not None:
        check_scene(given, dataset)
    views = load_split(dataset, split)
    # A learned background is the field's, which is not loaded here; it becomes white, and photos show none.
    color = Background.of(config.dataset, None).eval(torch.device("cpu"))
    index = {name: number for number, name in enumerate(views.names)}

    def photo(view: str) -> Image.Image | None:
        if view not in index:
            return None
        pixels = (255 * views.image_over(index[view], color)).round().clamp(0, 255).byte()
        return Image.fromarray(pixels.numpy())

    return photo


def _given_cameras(model: Path) -> Cameras | None:
    """The training cameras of a run as its dataset had them; None where its model is missing or damaged."""
    try:
        return restore_cameras(read_archive(model, FORMATS[MODEL_FILE]), "given_cameras")
    except (UserError, *UNREADABLE):
        return None


def _no_photo(view: str) -> None:
    return None
