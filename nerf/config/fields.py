"""What a field brings with it: its settings, and what those that nobody gives become.

Both stand in the field's own file; nerf/fields/registry.py lists the fields.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass

from nerf.config.settings import setting
from nerf.errors import UserError


@dataclass
class FieldConfig:
    name: str = setting("auto", "which field")
    num_voxels: int | None = setting(None, "voxels of the finest grid; fewer where GPU memory is short", low=8)
    min_voxel_pixels: float = setting(0.8, "smallest size of a voxel, in pixels", low=0.01)
    min_level_steps: int = setting(100, "least number of steps between two doublings", low=0)
    initial_num_voxels: int | None = setting(
        None,
        "voxels of the first grid, from which field.upsample_at then follows; 0 = a sixteenth of num_voxels; learned "
        "poses have poses.initial_num_voxels instead",
        low=0,
    )
    upsample_at: list[float] | None = setting(None, "fractions of the run at which the number of voxels doubles")
    initial_alpha: float = setting(0.003, "alpha of one voxel before training", low=1e-9, high=0.5)
    lr_density: float | None = setting(None, "learning rate of raw density", low=0)
    sparse: bool | None = setting(
        None,
        "large grids have values only where the scene is: half of the memory, and steps that take longer; taken where "
        "GPU memory is short",
    )
    sparse_gain: float = setting(
        1.0,  # 8 brings chair 0.16 dB in a minute on a GPU, lego nothing, for a quarter more memory or more
        "largest factor by which sparse grids exceed num_voxels where the scene fills little of its box; 1 = never",
        low=1,
        high=1000,
    )

    def check_together(self) -> None:
        """Raises UserError for doublings that would never be, or not where they are said to be."""
        fractions = self.upsample_at or []
        if not all(0 <= fraction <= 1 for fraction in fractions) or fractions != sorted(fractions):
            raise UserError(
                f"field.upsample_at={fractions} is no list of fractions of a run, expected rising numbers from 0 to 1."
            )


@dataclass(frozen=True)
class Recipe:
    """The settings of a field on a device, for budgets of up to so many seconds."""

    device: str
    field: str
    up_to: float  # training seconds
    settings: Mapping[str, int | float | str]  # by their names on the command line
    # Those that a kind of scene changes where its poses are not learned.
    of_kind: Mapping[str, Mapping[str, int | float | str]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class FieldSettings:
    """A field's settings, their values on each device, and those that a kind of scene, or many passes over its pixels
    on a CPU (nerf/runs/resolve.py), change for this field alone."""

    settings: type[FieldConfig]
    recipes: tuple[Recipe, ...]  # of a device from the smallest budget on
    of_kind: Mapping[str, Mapping[str, int | float | str]] = dataclasses.field(default_factory=dict)
    # By kind of scene; where poses are not learned.
    many_passes: Mapping[str, Mapping[str, int | float | str]] = dataclasses.field(default_factory=dict)


def known_fields() -> Mapping[str, FieldSettings]:
    """All fields' settings by name, in the order in which field=auto prefers them.

    Fields stand above the settings, which only learn here, at first use, what there is, as a program asks its plug-ins.
    """
    registry = importlib.import_module("nerf.fields.registry")
    return {name: kind.settings for name, kind in registry.FIELDS.items()}


def field_settings() -> dict[str, type[FieldConfig]]:
    """The settings' class of each field by name, and of auto: what all fields share."""
    return {"auto": FieldConfig} | {name: known.settings for name, known in known_fields().items()}


def settings_of(name: object) -> type[FieldConfig]:
    """The settings' class of a field, of auto too. Raises UserError where there is no such field."""
    classes = field_settings()
    if name not in classes:
        raise UserError(f"field.name={name} is unknown; choose one of {', '.join(classes)}.")
    return classes[name]
