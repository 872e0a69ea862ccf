"""Runs: start, train, save, resume and load; the files of a run."""

from nerf.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "nerf.datasets.load": ("check_split", "load_split", "sparse_points"),
        "nerf.runs.run": ("TrainingRun", "resume", "start"),
        "nerf.runs.resolve": ("resolve_for_run",),
        "nerf.runs.open_run": ("LoadedRun", "load", "newest_run"),
        "nerf.config.overrides": ("settings",),
        "nerf.rendering.sampler": ("depth_range",),
    },
)
