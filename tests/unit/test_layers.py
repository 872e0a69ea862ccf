"""Imports between the rooms of nerf/ point down only, and no files import each other in a circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Rooms of one line do not import each other. What is not named here is below all of them: nerf/*.py.
LAYERS = (
    "cli",
    "benchmarks viewer diagnostics",
    "runs",
    "evaluation",
    "training export",
    "distributed",
    "rendering",
    "datasets calibration fields",
    "scene",
    "cameras images optim",
    "ops config",
)
MOST_ROOMS = 19
MOST_IMPORTS = 20
LIST_OF_OPERATIONS = "nerf.ops.reference"  # a line for each
LEVEL = {room: level for level, rooms in enumerate(reversed(LAYERS), start=1) for room in rooms.split()}
# `import nerf` names what the rooms offer, and does so when it is first asked; python -m nerf is the commands' door.
DOORS = ("nerf", "nerf.__main__")


def imports() -> dict[str, set[str]]:
    """The files of nerf/ that each of them imports, as modules, wherever the statement stands."""
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.glob("nerf/**/*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    assert len(files) > 200
    found = {}
    for module, path in files.items():
        names = []
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names += [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
            elif isinstance(node, ast.Import):
                names += [(alias.name, alias.name) for alias in node.names]
        found[module] = {name if name in files else parent for name, parent in names if parent in files}
    return found


def room(module: str) -> str:
    name = (module + ".").split(".")[1]
    return name if name in LEVEL else ""


def upward(found: dict[str, set[str]]) -> list[str]:
    """The imports that do not point down, between two rooms."""
    return [
        f"{module} -> {other}"
        for module, others in found.items()
        for other in sorted(others)
        if module not in DOORS
        and room(module) != room(other)
        and LEVEL.get(room(module), 0) <= LEVEL.get(room(other), 0)
    ]


def test_imports_point_down() -> None:
    assert upward(imports()) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    found = {module: others - {module} for module, others in imports().items()}
    TopologicalSorter(found).prepare()  # raises CycleError with the circle


def test_no_file_imports_very_many_of_ours() -> None:
    many = {module: len(others) for module, others in imports().items() if len(others) > MOST_IMPORTS}
    assert many.keys() <= {LIST_OF_OPERATIONS}


def test_the_package_shows_few_rooms() -> None:
    rooms = {path.parent.name for path in ROOT.glob("nerf/*/__init__.py")}
    assert len(rooms) <= MOST_ROOMS and rooms <= LEVEL.keys()
    beside = {path.stem for path in ROOT.glob("nerf/*.py")}
    assert beside == {"__init__", "__main__", "errors", "files", "lazy", "system", "reading"}
