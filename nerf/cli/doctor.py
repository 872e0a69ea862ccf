"""Prints versions and hardware, what `auto` chooses and why, and checks every operation.

python -m nerf doctor
"""

import sys

from nerf.diagnostics import doctor


def command() -> int:
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(__doc__.strip())
        return 0
    if sys.argv[1:]:
        print(f"error: doctor takes no arguments, found {' '.join(sys.argv[1:])}.", file=sys.stderr)
        return 2
    return doctor.main()
