"""Training: batches, losses, the step, and the loop with its schedule of grids."""

from nerf.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "nerf.errors": ("TrainingStopped",),
        "nerf.training.grid_schedule": ("EmptyGrid",),
        "nerf.training.loop": ("Callback", "NonFiniteLoss", "StopWhen", "TrainMetrics", "train"),
        "nerf.training.losses": ("Loss", "LossInputs"),
        "nerf.training.initial_state": ("init_state",),
        "nerf.training.state": ("TrainState", "make_sampler"),
        "nerf.training.step": ("TrainStep",),
    },
)
