"""From a command line to a checked dataclass, for all commands.

Hydra composes configs/ and the overrides; the result is built and checked by nerf/config/schema.py.
"""

import contextlib
import dataclasses
import difflib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict
from omegaconf.errors import MissingMandatoryValue

from nerf.cli import signals
from nerf.cli.failures import explain, forbidden
from nerf.cli.help_text import GROUPS, help_text, leaves, path_names, setting_names
from nerf.cli.overrides import (
    HYDRA_PATHS,
    is_sweep,
    listed_values,
    lists_values,
    quoted,
    runs_of_sweep,
    with_quoted_path,
)
from nerf.config import renamed
from nerf.config import schema as settings
from nerf.config.settings import unknown_setting
from nerf.errors import UserError
from nerf.files import CONFIGS, clear_left_overs
from nerf.runs.run_folder import new_folder

ROOTS = ("dataset.root", "root")  # folder of the scene, for commands that train and for commands that open a run
EXIT_OF_ONE_RUN = (0, 1, 2)  # a sweep continues after these; other statuses come from signals and end the sweep


@dataclasses.dataclass(frozen=True)
class SweptRun:
    """One run of a sweep."""

    folder: Path
    overrides: list[str]
    problem: object | None  # why it failed; None if it did not


def run(
    config_name: str,
    cls: type,
    main: Callable[[Any, Path, list[str]], None],
    doc: str,
    after_sweep: Callable[[Path, list[SweptRun]], None] = lambda folder, runs: None,
) -> None:
    """Runs main(config, output folder, overrides) with the composed config, a checked instance of cls.

    after_sweep: called with the folder of a sweep (-m) and its runs, when all have ended.

    A mistake of the user ends with one message and exit status 2; settings are checked before a folder is made.
    """
    if any(a in ("--help", "-h") for a in sys.argv[1:]):
        print(help_text(cls, doc))
        return
    typed = sys.argv[1:]
    sweep = is_sweep(typed)
    try:
        in_new_words = renamed.arguments(typed, renamed.tell)
        arguments = as_hydra_reads(cls, in_new_words)
        overrides = [a for a in arguments if not a.startswith("-")]
        if sweep:
            _check_sweep(config_name, cls, overrides)
        else:
            given, folder = _composed(config_name, cls, overrides)
            resumed = getattr(given, "resume", None)
    except UserError as error:
        _fail(error)
    if sweep:
        _add_new_folder("hydra.sweep.dir", time.strftime("multirun/%Y-%m-%d/%H-%M-%S"), arguments)
    elif resumed and Path(resumed).is_dir():  # goes on in its own folder: Hydra shall make no other
        arguments.append(f"hydra.run.dir={quoted(resumed)}")
    else:
        _add_new_folder("hydra.run.dir", folder, arguments)
    runs: list[SweptRun] = []
    sweep_folder = Path()

    @hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)
    def task(composed: Any) -> None:
        own = list(HydraConfig.get().overrides.task) if sweep else typed
        sys.argv[1:] = own  # what results name as their command
        nonlocal sweep_folder
        settings = HydraConfig.get()
        sweep_folder = Path(settings.runtime.cwd) / settings.sweep.dir
        runs.append(SweptRun(Path(settings.runtime.output_dir), own, "an error of the program"))
        problem = _problem(cls, composed, main, own if sweep else in_new_words, sweep)
        runs[-1] = dataclasses.replace(runs[-1], problem=problem)
        if problem is not None and not sweep:
            _fail(problem)
        if problem is not None:  # the other runs go on
            print(f"error: {problem}", file=sys.stderr)

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else Hydra answers itself where it cannot make the folder
    sys.argv[1:] = [*(a for a in arguments if a.startswith("-")), *(a for a in arguments if not a.startswith("-"))]
    try:
        with signals.raised():
            task()
    except OSError as error:
        if runs:
            raise
        place = next(a for a in arguments if a.startswith(("hydra.run.dir=", "hydra.sweep.dir="))).partition("=")[2]
        _fail(explain(error, place.strip("'"), setting_names(cls, "")) or forbidden(error, place))
    except HydraException as error:
        if runs:
            raise
        _fail(_of_hydra(error))
    except signals.Stopped as stopped:  # outside of training, which saves
        print(f"\n{stopped}", file=sys.stderr)
        sys.exit(stopped.exit_status)
    finally:
        sys.argv[1:] = typed
        failed = [one for one in runs if one.problem is not None]
        if sweep and failed:
            print(f"error: {len(failed)} of the {len(runs)} runs of this sweep failed:", file=sys.stderr)
            for one in failed:
                print(f"  {' '.join(one.overrides)}: {one.problem}", file=sys.stderr)
    if sweep:
        clear_left_overs(sweep_folder)
        after_sweep(sweep_folder, runs)
    if failed:
        sys.exit(2)


def _problem(cls: type, composed: Any, main: Callable, own: list[str], sweep: bool) -> object | None:
    """Runs main; returns the message of the error that ended it, None without error."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    try:
        clear_left_overs(folder)
        main(_build(cls, composed, own), folder, own)
    except SystemExit as end:
        if not sweep or end.code not in (None, *EXIT_OF_ONE_RUN):
            raise
        return f"exit status {end.code}" if end.code else None
    except (UserError, OSError, RuntimeError, MemoryError) as error:
        message = error if isinstance(error, UserError) else explain(error, folder, setting_names(cls, ""))
        if message is None:
            raise
        with contextlib.suppress(OSError):  # goes only if it is empty
            folder.rmdir()
        return message
    return None


def _add_new_folder(setting: str, folder: str, arguments: list[str]) -> None:
    """Creates a new folder and passes it to Hydra, unless the command line names one."""
    if any(a.lstrip("+").startswith(f"{setting}=") for a in arguments):
        return
    try:
        arguments.append(f"{setting}={quoted(str(new_folder(Path(folder))))}")
    except OSError as error:
        _fail(forbidden(error, folder))


def compose(config_name: str, cls: type, overrides: list[str]) -> Any:
    """The settings of a command line, a checked instance of cls; nothing runs. Raises UserError."""
    return _composed(config_name, cls, renamed.arguments(overrides))[0]


def _composed(config_name: str, cls: type, overrides: list[str]) -> tuple[Any, str]:
    """The settings as compose() returns them, and the folder that Hydra would use. Raises UserError."""
    _check_overrides(cls, overrides)
    _register(config_name, cls)
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        try:
            composed = hydra.compose(config_name, overrides, return_hydra_config=True)
        except HydraException as error:
            raise UserError(_of_hydra(error)) from error
    folder = composed.hydra.run.dir
    with open_dict(composed):
        del composed["hydra"]
    return _build(cls, composed, overrides), folder


def _of_hydra(error: HydraException) -> str:
    reasons = dict.fromkeys(str(e).splitlines()[0] for e in (error, error.__cause__) if e)
    return f"{': '.join(reasons)}; see --help for what each setting takes."


def _check_sweep(config_name: str, cls: type, overrides: list[str]) -> None:
    """Raises UserError if a name in the overrides of a sweep is wrong, or none of its runs can be composed."""
    _check_overrides(cls, overrides, sweep=True)
    try:
        runs = runs_of_sweep(overrides)
    except HydraException as error:
        raise UserError(_of_hydra(error)) from error
    problems = {}
    for index, run_overrides in enumerate(runs):
        try:
            compose(config_name, cls, run_overrides)
        except UserError as error:
            problems[index] = error
    if runs and len(problems) == len(runs):
        raise problems[0]
    _register(config_name, cls)


def as_hydra_reads(cls: type, arguments: list[str]) -> list[str]:
    """The typed arguments in Hydra's grammar: `none` becomes null, and paths are quoted."""
    paths = {*HYDRA_PATHS, *(name for field in settings.FIELDS for name in path_names(cls, field))}
    sweep = is_sweep(arguments)
    return [with_quoted_path(none_as_null(cls, own_root(cls, argument)), paths, sweep) for argument in arguments]


def own_root(cls: type, argument: str) -> str:
    """Maps dataset.root=FOLDER and root=FOLDER to the name that the command has: every command accepts both."""
    name, equals, value = argument.partition("=")
    known = setting_names(cls, "")
    if name in ROOTS and name not in known:
        name = next((other for other in ROOTS if other in known), name)
    return name + equals + value


def none_as_null(cls: type, argument: str) -> str:
    """name=none, as --help writes it, in Hydra's words; some settings have it as one of their choices."""
    name, _, value = argument.partition("=")
    known = (f for field in settings.FIELDS for n, f in leaves(cls, field) if n == name)
    open_to_none = any("none" not in (f.metadata.get("choices") or ()) or "None" in str(f.type) for f in known)
    return f"{name}=null" if value == "none" and open_to_none else argument


def _build(cls: type, composed: Any, overrides: list[str]) -> Any:
    if "dataset" in composed and OmegaConf.is_missing(composed.dataset, "scene"):
        rooted = not OmegaConf.is_missing(composed.dataset, "root") and composed.dataset.root
        if rooted:
            composed.dataset.scene = Path(composed.dataset.root).resolve().name
    try:
        values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise UserError(
            f"{str(error).splitlines()[0]}; give it as name=value, for example dataset.scene=lego or "
            "dataset.root=FOLDER."
        ) from error
    values.pop("experiment", None)
    typed = {override.lstrip("+").partition("=")[0] for override in overrides}
    return settings.build(cls, renamed.composed(values, cls(), typed, renamed.tell))


def _fail(message: object) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def _register(config_name: str, cls: type) -> None:
    store, node = ConfigStore.instance(), cls()
    if hasattr(node, "dataset"):  # configs/dataset and configs/field fill these in
        node.dataset.scene = MISSING  # dataset=blender alone names none
        node.field = settings.FieldConfig()
    store.store(name=f"{config_name}_settings", node=_open_to_old_names(OmegaConf.structured(node)))
    groups = OmegaConf.create({"dataset": settings.DatasetConfig(scene=MISSING), "poses": settings.PosesConfig()})
    _open_to_old_names(groups)
    store.store(group="dataset", name="blender_settings", node=groups.dataset)
    store.store(group="poses", name="poses_settings", node=groups.poses)
    for name, field in settings.FIELDS.items():
        store.store(group="field", name=f"{name}_settings", node=field)


def _check_overrides(cls: type, overrides: list[str], sweep: bool = False) -> None:
    """Answers a mistyped name or choice before Hydra does, with the nearest right one."""
    groups = {g for g in GROUPS if any(f.name == g for f in dataclasses.fields(cls))} | {"experiment"}
    chosen = dict(o.split("=", 1) for o in overrides if "=" in o)
    fields = listed_values(f"field={chosen['field']}") if chosen.get("field") else [""]
    known = [*(name for field in fields for name in setting_names(cls, field)), *sorted(groups)]
    for override in overrides:
        name, equals, value = override.partition("=")
        name = name.lstrip("+~")
        if not equals:
            raise UserError(f"'{override}' is not name=value; for example dataset=lego or train.steps=1000.")
        if not sweep and name in known and lists_values(override):
            lists = {n for field in fields for n, f in leaves(cls, field) if "list" in str(f.type)}
            as_list = f", or write {name}=[{value}], which is one list" if name in lists else ""
            raise UserError(f"{override} gives several values; give -m too for one run with each of them{as_list}.")
        if name in groups:
            options = sorted(path.stem for path in (CONFIGS / name).glob("*.yaml"))
            values = () if lists_values(override) and listed_values(override) == [value] else listed_values(override)
            for one in values:
                if one not in options:
                    near = difflib.get_close_matches(one, options, n=1)
                    hint = f" Did you mean {name}={near[0]}?" if near else ""
                    raise UserError(f"{name}={one}: there is no such {name}; choose one of {', '.join(options)}.{hint}")
        elif not name.startswith(("hydra.", "hydra/")) and name not in known:
            of_fields = {n: field for field in settings.FIELDS for n in setting_names(cls, field)}
            if name in of_fields:
                raise UserError(f"{name} is a setting of field={of_fields[name]}; give field={of_fields[name]} too.")
            raise UserError(unknown_setting(name, [*known, *of_fields]))


def _open_to_old_names(node: DictConfig) -> DictConfig:
    """Groups with settings that were renamed take any name from a config file; settings.build answers for them."""
    for group in renamed.GROUPS & node.keys():
        OmegaConf.set_struct(node[group], False)
    return node
