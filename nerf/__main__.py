"""python -m nerf COMMAND."""

import sys

from nerf.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
