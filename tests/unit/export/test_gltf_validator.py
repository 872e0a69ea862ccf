"""GLB files in the eyes of Khronos's validator, a package of npm: npm install -g gltf-validator, or NODE_PATH."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_textured_mesh import UP, textured  # noqa: F401, a fixture

from nerf.export.mesh import Mesh
from nerf.export.mesh_files import write_glb

SAID_OF_ANY_SIZE = "IMAGE_NPOT_DIMENSIONS"  # information: sides that are no powers of two are slow in WebGL 1
VALIDATE = """
const bytes = new Uint8Array(require("fs").readFileSync(process.argv[1]));
require("gltf-validator").validateBytes(bytes).then((report) => console.log(JSON.stringify(report.issues)));
"""


@pytest.fixture(scope="module")
def node() -> dict[str, str]:
    """The environment in which node finds the validator; skips where there is no such thing."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("no node: apt install nodejs npm")
    root = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=True).stdout.strip()
    known = [os.environ.get("NODE_PATH"), root]
    environment = os.environ | {"NODE_PATH": ":".join(filter(None, known))}
    asked = ["node", "-e", 'require.resolve("gltf-validator")']
    if subprocess.run(asked, env=environment, capture_output=True, check=False).returncode != 0:
        pytest.skip("no gltf-validator: npm install -g gltf-validator")
    return environment


def issues(path: Path, node: dict[str, str]) -> list[str]:
    """What the validator says of a file: its errors, warnings and hints, by their codes."""
    done = subprocess.run(["node", "-e", VALIDATE, str(path)], env=node, capture_output=True, text=True, check=True)
    found = [issue for issue in json.loads(done.stdout)["messages"] if issue["code"] != SAID_OF_ANY_SIZE]
    return [f"{issue['code']} at {issue.get('pointer')}" for issue in found]


def test_it_finds_what_is_wrong(node: dict[str, str], textured: Mesh, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "mesh.glb"
    write_glb(path, replace(textured, texture=None), UP)
    path.write_bytes(path.read_bytes().replace(b'"VEC3"', b'"VEC2"', 1))
    assert issues(path, node)


@pytest.mark.parametrize("colors", ["vertices", "texture"])
def test_meshes_are_valid(node: dict[str, str], textured: Mesh, tmp_path: Path, colors: str) -> None:  # noqa: F811
    path = tmp_path / "mesh.glb"
    write_glb(path, textured if colors == "texture" else replace(textured, texture=None), UP)
    assert issues(path, node) == []


def test_a_mesh_that_lies_on_its_side_is_valid(node: dict[str, str], tmp_path: Path) -> None:
    corners = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    faces = torch.tensor([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    for up in (torch.tensor([0.6, -0.8, 0.0]), torch.tensor([0.0, -1.0, 0.0])):
        write_glb(tmp_path / "mesh.glb", Mesh(corners, faces, torch.rand(4, 3)), up)
        assert issues(tmp_path / "mesh.glb", node) == []
