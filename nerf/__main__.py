"""python -m nerf COMMAND. Training, rendering and scoring are scripts of the checkout: scripts/."""

import difflib
import importlib
import importlib.util
import sys

# Each is the module nerf.NAME with a main() that returns the exit status; imported only when it is asked for.
COMMANDS = {
    "doctor": "versions, what `auto` chooses and why, a check of every operation; fails where one is broken",
}


def main(arguments: list[str]) -> int:
    """Runs the command that the arguments name; returns the exit status."""
    if not arguments or arguments[0] in ("--help", "-h"):
        print("python -m nerf COMMAND\n")
        for name, meaning in COMMANDS.items():
            print(f"  {name:<10} {meaning}")
        print("\nTraining, rendering and scoring are scripts of the checkout: python scripts/train.py --help")
        return 0
    if arguments[0] not in COMMANDS:
        near = difflib.get_close_matches(arguments[0], COMMANDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        choices = ", ".join(COMMANDS)
        print(f"error: there is no command '{arguments[0]}'; choose one of {choices}.{hint}", file=sys.stderr)
        return 2
    if arguments[1:]:
        print(f"error: {arguments[0]} takes no arguments, found {' '.join(arguments[1:])}.", file=sys.stderr)
        return 2
    if importlib.util.find_spec("torch") is None:
        remedy = "get it with: pip install 'torch>=2.10'"
        print(f"error: PyTorch is not installed in {sys.prefix}; {remedy}", file=sys.stderr)
        return 1
    return importlib.import_module(f"nerf.{arguments[0]}").main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
