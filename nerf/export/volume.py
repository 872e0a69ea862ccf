"""The density of a scene in a box as a NumPy archive, for programs that show or measure volumes."""

from pathlib import Path

import numpy as np
import torch

from nerf.errors import UserError
from nerf.fields.field import Field
from nerf.files import replacing
from nerf.rendering.sampler import RaySampler
from nerf.scene.occupancy import cells_to_vertices
from nerf.scene.space import WorldSpace


def write_volume(path: Path, field: Field, sampler: RaySampler) -> None:
    """Writes a compressed .npz: what a viewer of volumes needs to place density in the world.

    density [X,Y,Z] float32, per world unit, 0 where no cell is occupied; aabb [2,3] float64: world positions of vertex
    (0,0,0) and of the last one; occupied [X-1,Y-1,Z-1] bool; unit: "1/world unit".
    Raises UserError for a scene that is not in a box, whose grid is warped, and where the file cannot be written.
    """
    if not isinstance(field.box.space, WorldSpace):
        raise UserError(
            "format=volume writes scenes inside of a box, and this run's grid is warped to hold more; export "
            "format=mesh or format=points."
        )
    with torch.no_grad():
        density = field.activate_density(field.raw_density_at_vertices())
    density = density * cells_to_vertices(sampler.occupancy.occupied)
    arrays = {
        "density": density.float().cpu().numpy(),
        "aabb": field.box.aabb.double().cpu().numpy(),
        "occupied": sampler.occupancy.occupied.cpu().numpy(),
        "unit": np.array("1/world unit"),
    }
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)
