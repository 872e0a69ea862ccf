"""The surface of a trained scene as points with colors and normals, which point cloud programs read."""

from pathlib import Path

import numpy as np
import torch

from nerf.export.mesh import Mesh, vertex_normals
from nerf.files import replacing


def write_points(path: Path, mesh: Mesh) -> None:
    """Binary PLY: the vertices of a mesh in world units, unit normals outwards, colors as bytes.

    Raises UserError where it cannot be written.
    """
    fields = [("position", "<f4", 3), ("normal", "<f4", 3), ("color", "u1", 3)]
    points = np.empty(len(mesh.vertices), fields)
    points["position"] = mesh.vertices.numpy()
    points["normal"] = vertex_normals(mesh.vertices, mesh.faces).numpy()
    points["color"] = (255 * mesh.colors + 0.5).to(torch.uint8).numpy()
    header = [
        "ply",
        "format binary_little_endian 1.0",
        f"element vertex {len(points)}",
        *(f"property float {name}" for name in ("x", "y", "z", "nx", "ny", "nz")),
        *(f"property uchar {name}" for name in ("red", "green", "blue")),
        "end_header\n",
    ]
    with replacing(path) as partial:
        partial.write_bytes("\n".join(header).encode() + points.tobytes())
