"""Voxel-grid radiance fields, from posed images to novel views.

In a notebook or a program: settings, start or resume, train, save; load, render. README.md shows them, "In Python".
A name is imported from its module when it is first used, so that `import nerf` itself is quick.
"""

import importlib

_HOMES = {
    "nerf.runs": ("OpenRun", "TrainingRun", "load", "newest_run", "resume", "settings", "start"),
    "nerf.camera_paths": ("look_at", "orbit"),
    "nerf.cameras": ("Cameras",),
    "nerf.config": ("Config",),
    "nerf.errors": ("UserError",),
    "nerf.images": ("color_depth", "save_png", "write_video"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'nerf' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
