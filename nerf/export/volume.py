"""The density of a scene in a box, as a NumPy archive or VTK's image data, for programs that show volumes."""

import struct
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from tqdm import tqdm

from nerf.errors import UserError
from nerf.fields.field import Field
from nerf.files import replacing
from nerf.rendering.sampler import RaySampler
from nerf.scene.occupancy import cells_to_vertices
from nerf.scene.space import WorldSpace

SHOWN = 1 << 20  # bytes of an array from which on it takes a time worth showing


def write_volume(path: Path, field: Field, sampler: RaySampler) -> None:
    """Writes what a viewer of volumes needs to place density in the world: a .vti file by its name, else .npz.

    density [X,Y,Z] float32, per world unit, 0 where no cell is occupied; aabb [2,3] float64: vertex (0,0,0) and the
    last one, along axes [3,3] float64, the columns: axes @ aabb[0] is a world position. They are those of the world
    unless the scene's box is turned to the object. occupied [X-1,Y-1,Z-1] bool; unit: "1/world unit".
    Raises UserError for a scene that is not in a box, whose grid is warped, and where the file cannot be written.
    """
    if not isinstance(field.box.space, WorldSpace):
        raise UserError(
            "format=volume writes scenes inside of a box, and this run's grid is warped to hold more; export "
            "format=mesh or format=points, of an unbounded scene with a crop."
        )
    with torch.no_grad():
        density = field.activate_density(field.raw_density_at_vertices())
    density = density * cells_to_vertices(sampler.occupancy.occupied)
    axes = field.box.space.axes
    arrays = {
        "density": density.float().cpu().numpy(),
        "aabb": field.box.aabb.double().cpu().numpy(),
        "axes": np.eye(3) if axes is None else axes.double().cpu().numpy(),
        "occupied": sampler.occupancy.occupied.cpu().numpy(),
        "unit": np.array("1/world unit"),
    }
    with replacing(path) as partial, partial.open("wb") as file:
        if path.suffix == ".vti":
            file.write(vti_bytes(arrays))
        else:
            write_npz(file, arrays)


def write_npz(file: BinaryIO, arrays: dict[str, np.ndarray]) -> None:
    """What np.savez_compressed writes, with a progress bar: a grid of 512^3 takes half a minute."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, values in arrays.items():
            bar = {"total": values.nbytes, "desc": name, "leave": False, "disable": values.nbytes < SHOWN}
            with (
                archive.open(f"{name}.npy", "w", force_zip64=True) as member,
                tqdm.wrapattr(member, "write", **bar) as counted,
            ):
                np.lib.format.write_array(counted, values, allow_pickle=False)


def vti_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """VTK's XML image data, which ParaView opens: density at the points, occupied at the cells, unit as field data."""
    density, aabb, axes = arrays["density"], arrays["aabb"], arrays["axes"]
    spacing = (aabb[1] - aabb[0]) / (np.array(density.shape) - 1)
    extent = " ".join(f"0 {size - 1}" for size in density.shape)
    x_first = [arrays["density"].astype("<f4").ravel("F"), arrays["occupied"].astype("u1").ravel("F")]
    blocks = [struct.pack("<Q", values.nbytes) + values.tobytes() for values in x_first]
    direction = f'Direction="{_numbers(axes.ravel())}"'
    unit = " ".join(str(code) for code in (*str(arrays["unit"]).encode(), 0))
    header = f"""<?xml version="1.0"?>
<VTKFile type="ImageData" version="1.0" byte_order="LittleEndian" header_type="UInt64">
<ImageData WholeExtent="{extent}" Origin="{_numbers(axes @ aabb[0])}" Spacing="{_numbers(spacing)}" {direction}>
<FieldData><Array type="String" Name="unit" NumberOfTuples="1" format="ascii">{unit}</Array></FieldData>
<Piece Extent="{extent}">
<PointData Scalars="density"><DataArray type="Float32" Name="density" format="appended" offset="0"/></PointData>
<CellData><DataArray type="UInt8" Name="occupied" format="appended" offset="{len(blocks[0])}"/></CellData>
</Piece>
</ImageData>
<AppendedData encoding="raw">_"""
    return header.encode() + b"".join(blocks) + b"</AppendedData></VTKFile>\n"


def _numbers(values: np.ndarray) -> str:
    return " ".join(repr(float(value)) for value in values)
