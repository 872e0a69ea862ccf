"""The fields by name, each with its settings; field=auto prefers those further up."""

from dataclasses import dataclass

from nerf.config.fields import FieldConfig, FieldSettings
from nerf.fields import voxel_deferred, voxel_mlp, voxel_sh
from nerf.fields.field import Field
from nerf.ops.backend import Backend
from nerf.scene.box import Resolution, SceneBox


@dataclass(frozen=True)
class FieldKind:
    """A field and what its own file says of its settings."""

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
    """The field that the config names, untrained, on a lattice of the given resolution."""
    return FIELDS[config.name].field(config, box, resolution, finest_voxel, backend)
