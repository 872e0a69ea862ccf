"""Builds the native library and packs it into the package; all else stands in pyproject.toml.

pip install --no-build-isolation -e .     to work on the code
pip install --no-build-isolation .        to use it elsewhere
"""

import importlib.util
import os
import shutil
from pathlib import Path
from types import ModuleType

import setuptools

if int(setuptools.__version__.partition(".")[0]) < 77:
    raise SystemExit(f"error: setuptools {setuptools.__version__} is too old; run: pip install 'setuptools>=77'")

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py


def _load_builder() -> ModuleType:
    path = Path(__file__).resolve().parent / "cuda_ext" / "build.py"
    spec = importlib.util.spec_from_file_location("nerf_build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildWithLibrary(build_py):
    """Makes nerf/ops/libnerf.so before the package's files are gathered; packs configs/ and the bundled scene too.

    NERF_BUILD=0 leaves the library of a checkout, which is used in place, to a run of build.py beside this one.
    """

    def run(self) -> None:
        if not (self.editable_mode and os.environ.get("NERF_BUILD") == "0"):
            self.make_library()
        super().run()
        if not self.editable_mode:  # in place, a checkout has them at its top: nerf/files.py
            for folder, packed in {"configs": "configs", "data/bricks": "scenes/bricks"}.items():
                shutil.copytree(folder, Path(self.build_lib) / "nerf" / packed, dirs_exist_ok=True)

    def make_library(self) -> None:
        builder = _load_builder()
        try:
            builder.build(announce=False)
        except builder.BuildError as error:
            # Not an Exception: an editable install would turn that into a warning and go on without the library.
            raise SystemExit(f"error: {error}") from None


class PlatformWheel(bdist_wheel):
    """One wheel for every Python 3: the library uses PyTorch's stable ABI and no Python ABI."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(setuptools.Distribution):
    """The package holds machine code, though setuptools sees no extension module."""

    def has_ext_modules(self) -> bool:
        return True


setuptools.setup(
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
)
