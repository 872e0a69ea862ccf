"""Mesh files: GLB (binary glTF) for browsers and phones, PLY and OBJ for modeling programs."""

import io
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nerf.export.mesh import Mesh
from nerf.files import replacing

# Of the glTF 2.0 specification.
GLB_MAGIC, JSON_CHUNK, BINARY_CHUNK = 0x46546C67, 0x4E4F534A, 0x004E4942
FLOAT, UNSIGNED_INT, ARRAY_BUFFER, ELEMENT_ARRAY_BUFFER = 5126, 5125, 34962, 34963


def write_ply(path: Path, mesh: Mesh) -> None:
    """Binary PLY: positions in world units as float32, colors as bytes.

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
    """Binary glTF 2.0, shown upright and unlit, in its texture or its vertex colors. up [3]: of the world, unit.

    Vertices keep their world coordinates; the node's rotation makes them upright. Raises UserError if it cannot be
    written.
    """
    vertices, faces = (mesh.vertices, mesh.faces) if mesh.texture is None else textured(mesh)
    positions = vertices.float().numpy().astype("<f4")
    size = {"min": positions.min(0).tolist(), "max": positions.max(0).tolist()}
    arrays = [(faces.numpy().astype("<u4").reshape(-1), "SCALAR", ELEMENT_ARRAY_BUFFER, {})]
    arrays.append((positions, "VEC3", ARRAY_BUFFER, size))
    material: dict[str, object] = {"extensions": {"KHR_materials_unlit": {}}, "doubleSided": True}
    pictures: dict[str, object] = {}
    parts = [array.tobytes() for array, *_ in arrays]
    if mesh.texture is None:
        # glTF's vertex colors are linear; those of photos are sRGB (IEC 61966-2-1).
        colors = torch.where(mesh.colors <= 0.04045, mesh.colors / 12.92, ((mesh.colors + 0.055) / 1.055) ** 2.4)
        arrays.append((colors.numpy().astype("<f4"), "VEC3", ARRAY_BUFFER, {}))
        parts.append(arrays[-1][0].tobytes())
        attributes = {"POSITION": 1, "COLOR_0": 2}
    else:
        arrays.append((mesh.texture.uv.float().numpy().astype("<f4"), "VEC2", ARRAY_BUFFER, {}))
        parts += [arrays[-1][0].tobytes(), png_bytes(mesh.texture.image)]
        attributes = {"POSITION": 1, "TEXCOORD_0": 2}
        material["pbrMetallicRoughness"] = {"baseColorTexture": {"index": 0}, "metallicFactor": 0.0}
        pictures = {"textures": [{"source": 0}], "images": [{"bufferView": 3, "mimeType": "image/png"}]}
    parts = [part + bytes(-len(part) % 4) for part in parts]
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    views = [{"buffer": 0, "byteOffset": start, "byteLength": len(part)} for start, part in zip(starts, parts)]
    for view, (_, _, target, _) in zip(views, arrays):
        view["target"] = target
    scene = {
        "asset": {"version": "2.0", "generator": "nerf-voxel"},
        "extensionsUsed": ["KHR_materials_unlit"],
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0, "rotation": _upright(up.tolist())}],
        "meshes": [{"primitives": [{"attributes": attributes, "indices": 0, "material": 0}]}],
        "materials": [material],
        **pictures,
        "accessors": [
            {
                "bufferView": number,
                "componentType": UNSIGNED_INT if kind == "SCALAR" else FLOAT,
                "count": len(array),
                "type": kind,
                **limits,
            }
            for number, (array, kind, _, limits) in enumerate(arrays)
        ],
        "bufferViews": views,
        "buffers": [{"byteLength": starts[-1]}],
    }
    text = json.dumps(scene, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(struct.pack("<3I", GLB_MAGIC, 2, 12 + 8 + len(text) + 8 + starts[-1]))
        file.write(struct.pack("<2I", len(text), JSON_CHUNK) + text)
        file.write(struct.pack("<2I", starts[-1], BINARY_CHUNK))
        for part in parts:
            file.write(part)


def write_obj(path: Path, mesh: Mesh) -> None:
    """Wavefront OBJ in world coordinates. A texture is NAME.png beside it, named by NAME.mtl; else colors follow the
    positions of the vertices, as MeshLab and Blender read them.

    Raises UserError if it cannot be written.
    """
    if mesh.texture is None:
        rows = torch.cat([mesh.vertices, mesh.colors], dim=1)
        lines = ["v {:.7g} {:.7g} {:.7g} {:.4f} {:.4f} {:.4f}".format(*row) for row in rows.tolist()]
        lines += ["f {} {} {}".format(*face) for face in (mesh.faces + 1).tolist()]
        with replacing(path) as partial:
            partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    material, picture = path.with_suffix(".mtl"), path.with_suffix(".png")
    uv = mesh.texture.uv * torch.tensor([1.0, -1.0]) + torch.tensor([0.0, 1.0])  # OBJ's v goes upwards
    corners = torch.stack([mesh.texture.sources[mesh.texture.faces], mesh.texture.faces], dim=-1) + 1
    lines = [f"mtllib {material.name}", "usemtl field"]
    lines += ["v {:.7g} {:.7g} {:.7g}".format(*row) for row in mesh.vertices.tolist()]
    lines += ["vt {:.6f} {:.6f}".format(*row) for row in uv.tolist()]
    lines += ["f {}/{} {}/{} {}/{}".format(*face) for face in corners.flatten(1).tolist()]
    texture = f"newmtl field\nKa 1 1 1\nKd 1 1 1\nKs 0 0 0\nillum 1\nmap_Kd {picture.name}\n"
    with replacing(path) as mesh_file, replacing(material) as material_file, replacing(picture) as picture_file:
        picture_file.write_bytes(png_bytes(mesh.texture.image))
        material_file.write_text(texture, encoding="utf-8")
        mesh_file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def textured(mesh: Mesh) -> tuple[Tensor, Tensor]:
    """Vertices [W,3] and faces [F,3] of a mesh with a texture, cut along the edges of its charts."""
    return mesh.vertices[mesh.texture.sources], mesh.texture.faces


def png_bytes(image: Tensor) -> bytes:
    """A uint8 image [H,W,3] as the content of a PNG file."""
    content = io.BytesIO()
    Image.fromarray(image.numpy()).save(content, "PNG")
    return content.getvalue()


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
    ".obj": lambda path, mesh, up: write_obj(path, mesh),
}
