"""The fields by name, with their settings. field=auto prefers fields that stand earlier in the table."""

from dataclasses import dataclass

from nerf.config.fields import FieldConfig, FieldSettings
from nerf.fields import voxel_deferred, voxel_mlp, voxel_sh
from nerf.fields.field import Field
from nerf.ops.backend import Backend
from nerf.scene.box import Resolution, SceneBox


@dataclass(frozen=True)
class FieldKind:
    """A field's class and its settings."""

    field: type[Field]
    settings: FieldSettings


FIELDS: dict[str, FieldKind] = {
    "voxel_deferred": FieldKind(voxel_deferred.VoxelDeferred, voxel_deferred.SETTINGS),
    "voxel_mlp": FieldKind(voxel_mlp.VoxelMlp, voxel_mlp.SETTINGS),
    "voxel_sh": FieldKind(voxel_sh.VoxelSh, voxel_sh.SETTINGS),
}


def build_field(
    config: FieldConfig, box: SceneBox, resolution: Resolution, finest_voxel: float, backend: Backend
) -> Field:
    """The untrained field that the config names. resolution: of its lattice. finest_voxel: world units."""
    return FIELDS[config.name].field(config, box, resolution, finest_voxel, backend)
