"""Voxel-grid radiance fields, from posed images to novel views.

In a notebook or a program: settings, start or resume, train, save; load, render. README.md shows them under "Python".
A name is imported from its module when it is first used, so that `import nerf` itself is quick.
"""

from nerf.lazy import exports
from nerf.ops.gpu_memory import join_freed_memory
from nerf.ops.mkl import multiply_in_one_order
from nerf.ops.openmp import sleep_while_waiting

sleep_while_waiting()
multiply_in_one_order()
join_freed_memory()
__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "nerf.runs.run": ("TrainingRun", "resume", "start"),
        "nerf.runs.open_run": ("LoadedRun", "load", "newest_run"),
        "nerf.config.overrides": ("settings",),
        "nerf.cameras.paths": ("orbit", "turn"),
        "nerf.cameras.poses": ("look_at",),
        "nerf.cameras.cameras": ("Cameras",),
        "nerf.config.schema": ("Config",),
        "nerf.errors": ("UserError",),
        "nerf.images.visualize": ("color_depth",),
        "nerf.images.write": ("save_png", "write_video"),
    },
)
