"""The fields by name, with their settings. field=auto prefers fields that stand earlier in the table."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from nerf.config.fields import FieldConfig, FieldSettings
from nerf.fields import voxel_deferred, voxel_mlp, voxel_sh
from nerf.fields.field import Field
from nerf.fields.voxel_field import VoxelField
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


def restored_field(
    config: FieldConfig,
    box: SceneBox,
    resolution: Resolution,
    finest_voxel: float,
    backend: Backend,
    saved: Mapping[str, Tensor],
    vertices: Tensor,
    sparse: bool = True,
    features_in_host: bool = False,
) -> Field:
    """A field with the values of another one's state_dict.

    vertices [L] int64, rising: those of sparse grids, which saved may have, and of those of the field if sparse is True
    (VoxelField.restore_grids). features_in_host: Field.keep_features_in_host_memory.
    """
    voxels = issubclass(FIELDS[config.name].field, VoxelField)  # whose grids are not made only to be replaced
    field = build_field(config, box, (2, 2, 2) if voxels else resolution, finest_voxel, backend)
    if features_in_host:
        field.keep_features_in_host_memory()
    if "background" in saved:
        field.learn_background()
    if isinstance(field, VoxelField):
        grids = {name: saved[name] for name in ("density_grid", field.appearance_name)}
        field.restore_grids(grids, resolution, vertices, sparse)
        saved = {**saved, **{name: getattr(field, name) for name in grids}}
    field.load_state_dict(saved)
    return field
