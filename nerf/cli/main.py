"""The entry point of all commands: `nerf NAME`, `python -m nerf NAME` and, in a checkout, `python scripts/NAME.py`.

It imports only the standard library, so that signals are handled while heavy modules are imported.
"""

import difflib
import importlib
import sys

from nerf.cli import signals
from nerf.cli.output import outlasting
from nerf.errors import OUT_OF_MEMORY, is_of_memory

# Each is nerf/cli/NAME.py and imported only when it is used. Its command() reads sys.argv and returns the exit status,
# or None for 0.
COMMANDS = {
    "train": "trains a radiance field and scores it",
    "render": "renders a trained run along a path of cameras",
    "evaluate": "scores a trained run again, on any split",
    "mesh": "writes the surface of a trained run as a mesh",
    "export": "exports a trained run: a web page, splats, points, a mesh, a volume, cameras",
    "view": "shows a trained run in a browser",
    "ablate": "compares native operations with PyTorch's, stage by stage of a training step",
    "benchmark": "measures operations, the stages of a step, or quality against training seconds",
    "prepare": "makes poses for photos or a video, with COLMAP",
    "download": "fetches scenes of Synthetic-NeRF",
    "tables": "writes the tables of README.md and docs/ anew from docs/results/data",
    "completion": "prints the completion of these commands for bash, zsh or fish",
    "doctor": "versions, what `auto` chooses and why, a check of every operation; fails where one is broken",
}
# Their first word may be the folder of a run: `nerf export outputs/RUN`.
OF_A_RUN = ("render", "evaluate", "mesh", "export", "view")


def main() -> int:
    """`nerf NAME ...`: runs the command that sys.argv names; returns the exit status."""
    with outlasting() as output:
        return output.exit_status(_main(sys.argv[1:]))


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("--help", "-h"):
        print("nerf COMMAND, or python -m nerf COMMAND\n")
        for name, meaning in COMMANDS.items():
            print(f"  {name:<10} {meaning}")
        print("\nA command's own settings: nerf COMMAND --help. The version: nerf --version")
        return 0
    if arguments[0] in ("--version", "-V"):
        print(importlib.import_module("nerf.system").version())
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        print(f"error: there is no command '{name}'; choose one of {', '.join(COMMANDS)}.{hint}", file=sys.stderr)
        return 2
    sys.argv = [f"-m nerf {name}", *arguments[1:]]  # as results record it: "python", then this
    return command(name)


def command(name: str) -> int:
    """Runs the command with the arguments in sys.argv; returns the exit status."""
    with outlasting() as output:
        try:
            status = _command(name)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        return output.exit_status(status)


def _command(name: str) -> int:
    if name in OF_A_RUN and len(sys.argv) > 1 and "=" not in sys.argv[1] and not sys.argv[1].startswith("-"):
        sys.argv[1] = f"run={sys.argv[1]}"
    with signals.ended_at_once():
        try:
            module = importlib.import_module(f"nerf.cli.{name}")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            remedy = "get it with: pip install 'torch>=2.10'"
            print(f"error: PyTorch is not installed in {sys.prefix}; {remedy}", file=sys.stderr)
            return 1
        try:
            return module.command() or 0
        except Exception as error:
            if not is_of_memory(error):
                raise
            print(f"error: {OUT_OF_MEMORY}", file=sys.stderr)  # in Hydra, or while another failure was answered
            return 2
