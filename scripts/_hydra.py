"""From a command line to a checked dataclass: what all scripts share.

Hydra composes configs/ and the overrides; the result is built and checked by nerf/config.py. Import this module before
torch: it sets how OpenMP's threads wait, which is read once.
"""

import contextlib
import dataclasses
import difflib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Threads that spin while they wait starve each other where cores are shared with other processes.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # a checkout runs without being installed

import hydra  # noqa: E402
from _failures import explain, forbidden  # noqa: E402
from hydra.core.config_store import ConfigStore  # noqa: E402
from hydra.core.hydra_config import HydraConfig  # noqa: E402
from hydra.errors import HydraException  # noqa: E402
from omegaconf import MISSING, OmegaConf  # noqa: E402
from omegaconf.errors import MissingMandatoryValue  # noqa: E402

from nerf import config as settings  # noqa: E402
from nerf.errors import UserError  # noqa: E402

CONFIGS = ROOT / "configs"
GROUPS = {
    "dataset": settings.DatasetConfig,
    "field": settings.FieldConfig,
    "poses": settings.PosesConfig,
    "experiment": None,
}


def run(config_name: str, cls: type, main: Callable[[Any, Path, list[str]], None], doc: str) -> None:
    """Runs main(config, output folder, overrides) with the composed config, a checked instance of cls.

    A mistake of the user ends with one message and exit status 2; settings are checked before a folder is made.
    """
    if any(a in ("--help", "-h") for a in sys.argv[1:]):
        print(help_text(cls, doc))
        return
    arguments = [none_as_null(cls, a) for a in sys.argv[1:]]
    sys.argv[1:] = arguments
    if any(a in ("--multirun", "-m") for a in arguments):  # a sweep is many configs, checked one by one
        _register(config_name, cls)
    else:
        try:
            given = compose(config_name, cls, [a for a in arguments if not a.startswith("-")])
        except UserError as error:
            _fail(error)
        resumed = getattr(given, "resume", None)
        if resumed and Path(resumed).is_dir():  # goes on in its own folder: Hydra shall make no other
            sys.argv.append(f"hydra.run.dir='{resumed}'")

    begun = False

    @hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)
    def task(composed: Any) -> None:
        nonlocal begun
        begun = True
        folder = Path(HydraConfig.get().runtime.output_dir)
        try:
            main(_build(cls, composed), folder, arguments)
        except (UserError, OSError, RuntimeError, MemoryError) as error:
            message = error if isinstance(error, UserError) else explain(error, folder, setting_names(cls, ""))
            if message is None:
                raise
            with contextlib.suppress(OSError):  # goes only if it is empty
                folder.rmdir()
            _fail(message)

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else Hydra answers itself where it cannot make the folder
    try:
        task()
    except OSError as error:
        if begun:
            raise
        _fail(forbidden(error, "the run's folder"))
    except KeyboardInterrupt:  # outside of training, which saves
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)


def compose(config_name: str, cls: type, overrides: list[str]) -> Any:
    """The settings of a command line, a checked instance of cls; nothing runs. Raises UserError."""
    _check_overrides(cls, overrides)
    _register(config_name, cls)
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        try:
            composed = hydra.compose(config_name, overrides)
        except HydraException as error:
            reasons = dict.fromkeys(str(e).splitlines()[0] for e in (error, error.__cause__) if e)
            raise UserError(f"{': '.join(reasons)}; see --help for what each setting takes.") from error
    return _build(cls, composed)


def none_as_null(cls: type, argument: str) -> str:
    """name=none, as --help writes it, in Hydra's words."""
    name, _, value = argument.partition("=")
    is_setting = any(name in setting_names(cls, field) for field in settings.FIELDS)
    return f"{name}=null" if value == "none" and is_setting else argument


def _build(cls: type, composed: Any) -> Any:
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
    return settings.build(cls, values)


def _fail(message: object) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def _register(config_name: str, cls: type) -> None:
    store, node = ConfigStore.instance(), cls()
    if hasattr(node, "dataset"):  # configs/dataset and configs/field fill these in
        node.dataset.scene = MISSING  # dataset=blender alone names none
        node.field = settings.FieldConfig()
    store.store(name=f"{config_name}_settings", node=node)
    store.store(group="dataset", name="blender_settings", node=settings.DatasetConfig(scene=MISSING))
    store.store(group="poses", name="poses_settings", node=settings.PosesConfig)
    for name, field in settings.FIELDS.items():
        store.store(group="field", name=f"{name}_settings", node=field)


def _check_overrides(cls: type, overrides: list[str]) -> None:
    """Answers a mistyped name or choice before Hydra does, with the nearest right one."""
    groups = {g for g in GROUPS if any(f.name == g for f in dataclasses.fields(cls))} | {"experiment"}
    chosen = dict(o.split("=", 1) for o in overrides if "=" in o)
    known = setting_names(cls, chosen.get("field", "")) + sorted(groups)
    for override in overrides:
        name, equals, value = override.partition("=")
        name = name.lstrip("+~")
        if not equals:
            raise UserError(f"'{override}' is not name=value; for example dataset=lego or train.steps=1000.")
        if name in groups:
            options = sorted(path.stem for path in (CONFIGS / name).glob("*.yaml"))
            if value not in options:
                near = difflib.get_close_matches(value, options, n=1)
                hint = f" Did you mean {name}={near[0]}?" if near else ""
                raise UserError(f"{override}: there is no such {name}; choose one of {', '.join(options)}.{hint}")
        elif not name.startswith("hydra.") and name not in known:
            of_fields = {n: field for field in settings.FIELDS for n in setting_names(cls, field)}
            if name in of_fields:
                raise UserError(f"{name} is a setting of field={of_fields[name]}; give field={of_fields[name]} too.")
            raise UserError(settings.unknown_setting(name, [*known, *of_fields]))


def _leaves(cls: type, field_name: str, prefix: str = "") -> list[tuple[str, dataclasses.Field]]:
    result = []
    for f in dataclasses.fields(cls):
        node = f.default_factory if f.default is dataclasses.MISSING else None
        if isinstance(node, type) and issubclass(node, settings.FieldConfig):
            node = settings.FIELDS.get(field_name, node)
        if dataclasses.is_dataclass(node):
            result += _leaves(node, field_name, f"{prefix}{f.name}.")
        else:
            result.append((prefix + f.name, f))
    return result


def setting_names(cls: type, field_name: str) -> list[str]:
    """Every setting of a script, as it is written on the command line; without a field's name, of its own field."""
    return [name for name, _ in _leaves(cls, field_name)]


def _meaning(f: dataclasses.Field) -> str:
    choices = ", ".join(map(str, f.metadata.get("choices", ())))
    return f"{f.metadata['doc']}: {choices}" if choices else f.metadata["doc"]


def help_text(cls: type, doc: str) -> str:
    """What --help prints: the script's own words, then every setting with default and meaning."""
    lines = [doc.strip(), "", "Settings, given as name=value:"]
    rows = dict.fromkeys(
        (name, _default(f), _meaning(f))
        for field_name in settings.FIELDS
        for name, f in _leaves(cls, field_name)
        if name != "field.name"
    )
    lines += [f"  {name + '=' + default:<44} {meaning}" for name, default, meaning in rows]
    lines.append(f"  {'hydra.run.dir=DIR':<44} where the files of this run go")
    for group in GROUPS if any(name == "dataset.scene" for name, _, _ in rows) else ():
        options = sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
        lines.append(f"  {group + '=' + '|'.join(options):<44} a file of configs/{group}")
    return "\n".join(lines)


def _default(f: dataclasses.Field) -> str:
    value = f.default if f.default is not dataclasses.MISSING else f.default_factory()
    if isinstance(value, list):  # as it is typed
        return f"[{','.join(map(str, value))}]"
    return "none" if value is None else str(value)
