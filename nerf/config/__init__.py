"""Settings: what they are, their ranges and units, and what those that nobody gives become."""

from nerf.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "nerf.config.schema": (
            "Config",
            "DatasetConfig",
            "EvaluationConfig",
            "ExposureConfig",
            "FIELDS",
            "LossConfig",
            "OccupancyConfig",
            "PosesConfig",
            "SamplerConfig",
            "TrainConfig",
            "build",
        ),
        "nerf.config.fields": ("FieldConfig", "FieldSettings", "Recipe"),
        "nerf.fields.voxel_deferred": ("VoxelDeferredConfig",),
        "nerf.fields.voxel_mlp": ("VoxelMlpConfig",),
        "nerf.fields.voxel_sh": ("VoxelShConfig",),
        "nerf.config.settings": ("setting", "unknown_setting"),
    },
)
