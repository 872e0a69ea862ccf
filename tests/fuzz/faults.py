"""Commands on a disk that fails, or killed, at calls that change a file: make fuzz, or

    python tests/fuzz/faults.py                    every call of every command, with an error and with a kill; an hour
    python tests/fuzz/faults.py 300                so many of these cases, drawn
    python tests/fuzz/faults.py 200 --kills        of the kills alone
    python tests/fuzz/faults.py 300 --memory       of allocations that fail, once or from then on
    python tests/fuzz/faults.py --names train render

Prints each problem: what is lost, half or left behind, and what ended in another way than with a message. The exit
status is 1 if there is one.
"""

import argparse
import errno
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1] / "helpers")]
from fault_cases import COMMANDS, ERRORS, fault_problems, kill_problems, prepare  # noqa: E402
from faulty_disk import EVERY_KIND, Fault, commands  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", type=int, nargs="?", default=sys.maxsize)
    parser.add_argument("--names", nargs="+", default=list(COMMANDS), choices=COMMANDS)
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    dice, began, found = random.Random(given.seed), time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder, commands() as runner:
        place = prepare(Path(folder), runner)
        kinds = ("memory",) if given.memory else EVERY_KIND
        calls = {name: place.calls(name, kinds) for name in given.names}
        print(", ".join(f"{name} {count}" for name, count in calls.items()), "calls", flush=True)
        kills = (False,) if given.memory else (True, given.kills)
        cases = [(name, at, kill) for name in calls for at in range(1, calls[name] + 1) for kill in kills]
        cases = dice.sample(list(dict.fromkeys(cases)), min(given.cases, len(set(cases))))
        for number, (name, at, kill) in enumerate(cases, start=1):
            fault = Fault(at, errno.ENOMEM if given.memory else dice.choice(ERRORS), dice.random() < 0.3, kinds)
            problems = kill_problems(place, name, at) if kill else fault_problems(place, name, fault)
            found += len(problems)
            for problem in problems:
                print(problem, flush=True)
            if number % 20 == 0 or number == len(cases):
                kills = sum(kill for _, _, kill in cases[:number])
                print(f"{number} cases, {kills} kills, {found} problems, {time.monotonic() - began:.0f} s", flush=True)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
