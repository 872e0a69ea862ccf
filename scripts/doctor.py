"""The door to nerf/cli/doctor.py from a checkout."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout runs without being installed
from nerf.cli.main import command

if __name__ == "__main__":
    sys.exit(command("doctor"))
