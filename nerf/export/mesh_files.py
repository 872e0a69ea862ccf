"""Mesh files: PLY for modelling programs, GLB (binary glTF) for browsers and phones."""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nerf.export.mesh import Mesh
from nerf.files import replacing

# Of the glTF 2.0 specification.
GLB_MAGIC, JSON_CHUNK, BINARY_CHUNK = 0x46546C67, 0x4E4F534A, 0x004E4942
FLOAT, UNSIGNED_INT, ARRAY_BUFFER, ELEMENT_ARRAY_BUFFER = 5126, 5125, 34962, 34963


def write_ply(path: Path, mesh: Mesh) -> None:
    """Binary PLY: positions in world units as float32, colours as bytes.

    Raises UserError if it cannot be written.
    """
    vertex = np.empty(len(mesh.vertices), [("position", "<f4", 3), ("color", "u1", 3)])
    vertex["position"] = mesh.vertices.numpy()
    vertex["color"] = (255 * mesh.colors + 0.5).to(torch.uint8).numpy()
    face = np.empty(len(mesh.faces), [("count", "u1"), ("corners", "<i4", 3)])
    face["count"], face["corners"] = 3, mesh.faces.numpy()
    header = [
        "ply",
        "format binary_little_endian 1.0",
        f"element vertex {len(vertex)}",
        *(f"property float {axis}" for axis in "xyz"),
        *(f"property uchar {color}" for color in ("red", "green", "blue")),
        f"element face {len(face)}",
        "property list uchar int vertex_indices",
        "end_header\n",
    ]
    with replacing(path) as partial:
        partial.write_bytes("\n".join(header).encode() + vertex.tobytes() + face.tobytes())


def write_glb(path: Path, mesh: Mesh, up: Tensor) -> None:
    """Binary glTF 2.0, shown upright and unlit in the vertex colours. up [3]: the world's up direction, unit.

    Vertices keep their world coordinates; the node's rotation makes them upright. Raises UserError if it cannot be
    written.
    """
    positions = mesh.vertices.float().numpy()
    # glTF's vertex colours are linear; those of photos are sRGB (IEC 61966-2-1).
    colors = torch.where(mesh.colors <= 0.04045, mesh.colors / 12.92, ((mesh.colors + 0.055) / 1.055) ** 2.4)
    parts = [mesh.faces.numpy().astype("<u4"), positions.astype("<f4"), colors.numpy().astype("<f4")]
    starts = np.cumsum([0, *(part.nbytes for part in parts)]).tolist()
    targets = (ELEMENT_ARRAY_BUFFER, ARRAY_BUFFER, ARRAY_BUFFER)
    size = {"min": positions.min(0).tolist(), "max": positions.max(0).tolist()}
    scene = {
        "asset": {"version": "2.0", "generator": "nerf-voxel"},
        "extensionsUsed": ["KHR_materials_unlit"],
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0, "rotation": _upright(up.tolist())}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 1, "COLOR_0": 2}, "indices": 0, "material": 0}]}],
        "materials": [{"extensions": {"KHR_materials_unlit": {}}, "doubleSided": True}],
        "accessors": [
            {"bufferView": 0, "componentType": UNSIGNED_INT, "count": parts[0].size, "type": "SCALAR"},
            {"bufferView": 1, "componentType": FLOAT, "count": len(positions), "type": "VEC3", **size},
            {"bufferView": 2, "componentType": FLOAT, "count": len(positions), "type": "VEC3"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": start, "byteLength": part.nbytes, "target": target}
            for start, part, target in zip(starts, parts, targets, strict=False)
        ],
        "buffers": [{"byteLength": starts[-1]}],
    }
    text = json.dumps(scene, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)  # every part is whole words already
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(struct.pack("<3I", GLB_MAGIC, 2, 12 + 8 + len(text) + 8 + starts[-1]))
        file.write(struct.pack("<2I", len(text), JSON_CHUNK) + text)
        file.write(struct.pack("<2I", starts[-1], BINARY_CHUNK))
        for part in parts:
            file.write(part.tobytes())


def _upright(up: list[float]) -> list[float]:
    """The smallest rotation that maps up (unit) to glTF's y axis, as a quaternion x, y, z, w."""
    x, y, z = up
    if y < -0.999999:
        return [1.0, 0.0, 0.0, 0.0]
    length = (x * x + z * z + (1 + y) ** 2) ** 0.5
    return [-z / length, 0.0, x / length, (1 + y) / length]


# Writers by suffix: path, mesh in world coordinates, up [3] of the world.
FORMATS: Mapping[str, Callable[[Path, Mesh, Tensor], None]] = {
    ".glb": write_glb,
    ".ply": lambda path, mesh, up: write_ply(path, mesh),
}
