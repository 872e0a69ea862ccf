"""Registers this trainer with NerfBaselines (Kulhanek and Sattler 2024), which trains and scores many methods alike.

Installed packages are found by NerfBaselines through their entry point; for a checkout that is not installed, the
environment's NERFBASELINES_REGISTER names this file. The method is nerf/benchmarks/nerfbaselines_method.py.
"""

from nerfbaselines import register

register(
    {
        "id": "nerf-voxel",
        "method_class": "nerf.benchmarks.nerfbaselines_method:NerfVoxel",
        "backends_order": ["python"],
        "metadata": {
            "name": "nerf-voxel",
            "description": "Voxel-grid radiance fields, trained by native operations for CPU and CUDA.",
            "licenses": [{"name": "MIT"}],
        },
        # The schedule stretches with the number of steps, so that a short run is a whole one.
        "presets": {"quick": {"train.steps": 2000}},
        "implementation_status": {"blender": "working", "llff": "working", "mipnerf360": "working"},
    }
)
