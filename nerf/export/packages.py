"""Optional packages of the export."""

import importlib.util

from nerf.errors import UserError


def require(package: str, what: str) -> None:
    """Raises UserError if an optional package is missing. what: the setting that needs it."""
    if importlib.util.find_spec(package) is None:
        name = package.replace("_", "-")
        extra = "pip install 'nerf-voxel[export]'"
        raise UserError(f"{what} needs the optional package {name}; run: pip install {name}, or {extra}.")
