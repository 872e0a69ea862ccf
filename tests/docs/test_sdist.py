"""A source distribution holds what a build needs, and nothing that a build made; a wheel runs every command."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
import warm_python

ROOT = Path(__file__).resolve().parents[2]
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
FOLDERS = ("nerf", "cuda_ext", "configs", "data/bricks")


def copy_of_the_tree(tree: Path, *ignored: str) -> Path:
    """What setup.py reads, without what a pattern of `ignored` names."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", *ignored))
    for name in FILES:
        shutil.copyfile(ROOT / name, tree / name)
    return tree


def builder(tree: Path) -> ModuleType:
    """cuda_ext/build.py of a tree."""
    spec = importlib.util.spec_from_file_location("build_of_a_tree", tree / "cuda_ext" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_build_from_the_archive_compiles_the_same_sources(tmp_path: Path) -> None:
    """The archive of a tree with a library in it: every source, by the hash that decides what is built; no library."""
    setuptools = pytest.importorskip("setuptools", minversion="77")
    tree = copy_of_the_tree(tmp_path / "tree", "*.so")
    (tree / "nerf" / "ops" / "libnerf.so").write_bytes(b"machine code")
    (tree / "cuda_ext" / "__pycache__").mkdir()
    (tree / "cuda_ext" / "__pycache__" / "build.cpython-311.pyc").write_bytes(b"byte code")
    command = [sys.executable, "setup.py", "-q", "sdist", "--formats=tar", "--dist-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"setuptools {setuptools.__version__}: {result.stderr}"
    (archive,) = tmp_path.glob("*.tar")
    with tarfile.open(archive) as content:
        names = [Path(*Path(name).parts[1:]) for name in content.getnames()]
        content.extractall(tmp_path / "unpacked", filter="data")
    assert not [name for name in names if name.suffix in (".so", ".pyc")]
    assert {Path(name) for name in FILES} <= set(names)
    packed = [*tree.glob("nerf/**/*.py"), *tree.glob("configs/**/*.yaml"), *tree.glob("data/bricks/**/*.json")]
    assert {path.relative_to(tree) for path in packed} <= set(names)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert builder(unpacked).source_hash() == builder(ROOT).source_hash()


def test_an_installed_package_runs_the_commands_with_their_configs(tmp_path: Path) -> None:
    """As a wheel packs it: without the checkout, in any folder."""
    pytest.importorskip("setuptools", minversion="77")
    tree, site = copy_of_the_tree(tmp_path / "tree"), tmp_path / "site"
    if builder(tree).is_stale():
        pytest.skip("the native library is not built from these sources")
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(site)]
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    shutil.rmtree(tree)
    (tmp_path / "empty").mkdir()

    def nerf(*arguments: str) -> subprocess.CompletedProcess:
        return warm_python.run(
            [sys.executable, "-m", "nerf", *arguments],
            cwd=tmp_path / "empty",
            env=os.environ | {"PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=False,
        )

    assert (site / "nerf" / "scenes" / "bricks" / "transforms_train.json").is_file()
    for name in ("train", "mesh"):
        found = nerf(name, "--help")
        assert found.returncode == 0 and "Settings, given as name=value:" in found.stdout, found.stderr
    found = nerf("train", "experiment=seconds_5", "dataset=capture", "dataset.root=nowhere", "device=cpu")
    assert found.returncode == 2 and "nowhere" in found.stderr and "Traceback" not in found.stderr
