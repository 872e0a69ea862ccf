"""Fields by name."""

from nerf.config import FieldConfig
from nerf.fields.field import Field
from nerf.fields.voxel_deferred import VoxelDeferred
from nerf.fields.voxel_mlp import VoxelMlp
from nerf.fields.voxel_sh import VoxelSh
from nerf.ops.backend import Backend
from nerf.scene_box import Resolution, SceneBox

FIELDS: dict[str, type[Field]] = {"voxel_deferred": VoxelDeferred, "voxel_mlp": VoxelMlp, "voxel_sh": VoxelSh}


def build_field(
    config: FieldConfig, box: SceneBox, resolution: Resolution, finest_voxel: float, backend: Backend
) -> Field:
    """The field that the config names, with zero grids of the given resolution."""
    return FIELDS[config.name](config, box, resolution, finest_voxel, backend)
