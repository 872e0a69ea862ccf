"""completion.json, which completion.py reads in place of the commands: one line for each setting.

A line: "commands" that have the setting, its "name", a "kind", "values" to choose from, and "doc", its meaning.
kind: value; group (of configs/); path; run (folder of one); scene; flag (an option that takes no value). The name of
what a command takes without one is empty.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

from nerf.cli import download, prepare
from nerf.cli.ablate import AblateScriptConfig
from nerf.cli.benchmark import BenchmarkScriptConfig
from nerf.cli.evaluate import EvaluateConfig
from nerf.cli.export import ExportConfig
from nerf.cli.help_text import GROUPS, leaves
from nerf.cli.mesh import MeshConfig
from nerf.cli.render import RenderConfig
from nerf.cli.train import TrainScriptConfig
from nerf.cli.view import ViewConfig
from nerf.config.schema import FIELDS

SETTINGS = {
    "train": TrainScriptConfig,
    "render": RenderConfig,
    "evaluate": EvaluateConfig,
    "mesh": MeshConfig,
    "export": ExportConfig,
    "view": ViewConfig,
    "ablate": AblateScriptConfig,
    "benchmark": BenchmarkScriptConfig,
}
PARSERS = {"prepare": prepare.parser, "download": download.parser}
RUNS = ("run", "runs", "ensemble", "resume", "poses.from_run")  # paths that are folders of runs
WIDTH = 72  # characters of a meaning that a shell has room for


def completion_table() -> str:
    """The text of completion.json. Settings of one name and meaning share a line."""
    commands: dict[str, list[str]] = {}
    tables = {name: _settings(cls) for name, cls in SETTINGS.items()}
    tables |= {name: _arguments(parser()) for name, parser in PARSERS.items()}
    for name, rows in tables.items():
        for row in rows:
            commands.setdefault(json.dumps(row), []).append(name)
    lines = [json.dumps({"commands": " ".join(names)} | json.loads(row)) for row, names in commands.items()]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _settings(cls: type) -> Iterator[dict]:
    names = [f.name for f in dataclasses.fields(cls)]
    if "dataset" in names:
        for group in GROUPS:
            if group in names or group == "experiment":
                yield _row(group, "group", [], f"a file of configs/{group}")
    found = {name: f for field in FIELDS for name, f in leaves(cls, field)}
    for name, f in found.items():
        if name != "field.name":
            kind = "run" if name in RUNS else "scene" if name == "dataset.scene" else "path"
            yield _row(name, kind if f.metadata.get("path") else "value", _values(f), f.metadata["doc"])
    yield _row("hydra.run.dir", "path", [], "where the files of this run go")
    yield _row("-m", "flag", [], "a sweep: one run for each combination of the listed values")
    yield _row("--help", "flag", [], "every setting, its default and its meaning")


def _values(f: dataclasses.Field) -> list[str]:
    if f.type in (bool, "bool"):
        return ["true", "false"]
    open_to_none = ["none"] if f.default is None else []
    return list(dict.fromkeys([*map(str, f.metadata.get("choices") or ()), *open_to_none]))


def _arguments(parser: argparse.ArgumentParser) -> Iterator[dict]:
    for action in parser._actions:  # argparse has no public list of them
        name = next((option for option in action.option_strings if option.startswith("--")), "")
        kind = "flag" if action.nargs == 0 else "path" if action.type is Path else "value"
        yield _row(name, kind, [str(choice) for choice in action.choices or ()], action.help or "")


def _row(name: str, kind: str, values: list[str], doc: str) -> dict:
    short = doc if len(doc) <= WIDTH else doc[: WIDTH - 3].rpartition(" ")[0].rstrip(",;:") + "..."
    return {"name": name, "kind": kind, "values": values, "doc": short}
