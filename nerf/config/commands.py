"""Commands and settings inside of messages, written so that they work when they are copied into a shell."""

import shlex
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def program(script: str, *arguments: object) -> str:
    """python SCRIPT ARGUMENT ..., quoted for the shell.

    script: below the checkout, as "scripts/train.py". From any other current folder its whole path is named, and where
    there is no checkout, the command of the installed package.
    """
    path = CHECKOUT / script
    words = [script]
    if path.is_file() and Path.cwd() != CHECKOUT:
        words = [str(path)]
    elif not path.is_file() and Path(__file__).parents[1].joinpath("cli", path.name).is_file():
        words = ["-m", "nerf", path.stem]
    return shlex.join(["python", *words, *map(str, arguments)])


def assignment(name: str, value: object) -> str:
    """name=value, quoted for the shell. The command line takes a path as it is, whatever letters it has."""
    return shlex.quote(f"{name}={value}")


def as_typed(arguments: Sequence[str]) -> str:
    """The command of this process, from sys.argv, whose first word may be "-m nerf NAME" too (nerf/cli/main.py)."""
    module = arguments[0].split(" ") if arguments[0].startswith("-m ") else arguments[:1]
    return shlex.join(["python", *module, *arguments[1:]])
