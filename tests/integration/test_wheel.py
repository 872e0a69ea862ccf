"""The wheel: its tag is one that indexes take, and its commands run where there is no compiler and no checkout.

PyTorch and the other dependencies are those of the environment that the tests run in; `make wheel-matrix` installs them
from the index, under the oldest and the newest PyTorch.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def module(name: str) -> ModuleType:
    """A program of cuda_ext/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "cuda_ext" / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from a copy of the sources with the library that is built."""
    if module("build").is_stale():
        pytest.skip("the native library is not built from these sources")
    tree = tmp_path_factory.mktemp("tree")
    for folder in ("nerf", "cuda_ext", "configs", "data/bricks"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, tree / name)
    try:
        return module("wheel").make_wheel(tree, tmp_path_factory.mktemp("dist"))
    finally:
        shutil.rmtree(tree)


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it; its folder. The dependencies are seen through a .pth file."""
    folder = tmp_path_factory.mktemp("clean") / "env"
    venv.create(folder, with_pip=False)
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*install, "--prefix", str(folder), "--ignore-installed", str(wheel)], check=True)
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_wheel_is_one_for_all_and_holds_what_its_commands_need(wheel: Path) -> None:
    assert "-py3-none-manylinux" in wheel.name and wheel.stat().st_size < 15e6
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
    assert {"nerf/ops/libnerf.so", "nerf/configs/train.yaml", "nerf/scenes/bricks/transforms_train.json"} <= names
    assert not [name for name in names if name.startswith(("cuda_ext/", "tests/", "scripts/", "data/"))]


def test_the_code_of_every_gpu_generation_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the wheel of all generations has 17.7 MB, more than it may; nvcc's default compression leaves 14.5."""
    nvcc = module("build").find_nvcc()
    if nvcc is None:
        pytest.skip("no nvcc here")
    (tmp_path / "empty.cu").touch()
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--threads 1")
    told = subprocess.run(
        [nvcc, "--dryrun", "-c", "empty.cu"],
        cwd=tmp_path, env=module("wheel").build_environment(), capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    assert "--threads 1 " in told
    assert [line for line in told.splitlines() if "fatbinary " in line and "--compress-mode=size" in line], told


# Several commands in one process, which imports PyTorch once.
ONE_AFTER_THE_OTHER = """
import json, sys
from nerf.cli.main import main

for arguments in json.loads(sys.argv[1]):
    sys.argv = ["nerf", *arguments]
    if main():
        sys.exit(f"failed: {arguments}")
"""


def test_its_commands_run_without_compiler_and_checkout(clean: Path, tmp_path: Path) -> None:
    def python(*arguments: str) -> str:
        env = {"PATH": str(clean / "bin"), "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        program = [str(clean / "bin" / "python"), *arguments]
        found = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout + found.stderr

    training = ("train.steps=60", "dataset.downscale=4", "evaluation.every=5", "device=cpu", "hydra.run.dir=run")
    assert "native" in python("-m", "nerf", "train", *training)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["psnr"]["mean"] > 14  # 16.1 after 60 steps
    others = [
        ["render", "run=run", "frames=2", "width=32", "height=32", "hydra.run.dir=frames"],
        ["evaluate", "run=run", "every=10", "hydra.run.dir=scores"],
        ["mesh", "run=run", "hydra.run.dir=mesh"],
        ["doctor"],
    ]
    assert str(clean) in python("-c", ONE_AFTER_THE_OTHER, json.dumps(others))
    assert list((tmp_path / "frames").rglob("*.png")) and (tmp_path / "scores" / "metrics.json").is_file()
    assert (tmp_path / "mesh" / "mesh.glb").stat().st_size > 1000


def test_a_command_of_its_own_is_installed(clean: Path, tmp_path: Path) -> None:
    env = {"PATH": f"{clean / 'bin'}{os.pathsep}/usr/bin:/bin"}
    shown = subprocess.run(["nerf", "--help"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout
    assert "train" in shown and "render" in shown
