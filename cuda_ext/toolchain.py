"""How each system compiles: one row for each kind of compiler. build.py puts the rows into its ninja file.

The tests compile with g++ and, where it is installed, clang++ on Linux. The rows of macOS and Windows follow their
compilers' manuals and have not been run. The library has one name everywhere, libnerf.so: loaders go by content.
"""

import platform
import shlex
from pathlib import Path
from typing import NamedTuple


class Toolchain(NamedTuple):
    """A compiler's options. {torch} in a text stands for PyTorch's folder."""

    default: str  # the compiler, where CXX names none
    remedy: str  # how to get it
    compile: str  # options, and PyTorch's headers, of which nobody wants to see warnings
    objects: str  # from $in to $out, with the headers it read told to ninja
    dependencies: str  # how they are told
    same_samples: str  # every backend makes the same samples to the last bit: no fused multiply-add
    link: str  # the linker's command, from $in to $out
    nvcc_host: str  # what nvcc hands to this compiler
    nvcc_objects: str  # as objects
    nvcc_link: str  # nvcc's options where it links


# Nobody here asks the processor whether a comparison met a NaN, nor errno whether a root did: both keep the compiler
# from vectors.
_VECTORS = "-O3 -fno-trapping-math -fno-math-errno"
_GNU = f"-std=c++17 {_VECTORS} {{machine}} -fPIC -fvisibility=hidden -Wall -isystem {{torch}}/include"
_WHOLE = "-MT $out -MF $out.d -c $in -o $out.part && mv -f $out.part $out"  # or nothing, where it is killed
_GNU_OBJECTS = f"-MMD {_WHOLE}"
_GNU_DEPENDENCIES = "depfile = $out.d"
LINUX = Toolchain(
    default="g++",
    remedy="Install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++)",
    compile=_GNU,
    objects=_GNU_OBJECTS,
    dependencies=_GNU_DEPENDENCIES,
    same_samples="-ffp-contract=off",
    link="$cxx -shared -Wl,-s $in -o $out -L{torch}/lib -ltorch_cpu -ldl",
    nvcc_host="-Xcompiler -fPIC,-fvisibility=hidden",
    nvcc_objects=f"-MD {_WHOLE}",
    nvcc_link="-Xlinker -s -shared $in -o $out -L{torch}/lib -ltorch_cpu $cudart -ldl",
)
# PyTorch has loaded its libraries before ours: their names are looked up then. The linker has no -s; -x drops names.
MACOS = Toolchain(
    default="clang++",
    remedy="Install Apple's: xcode-select --install",
    compile=_GNU,
    objects=_GNU_OBJECTS,
    dependencies=_GNU_DEPENDENCIES,
    same_samples="-ffp-contract=off",
    link="$cxx -dynamiclib -undefined dynamic_lookup -Wl,-x $in -o $out",
    nvcc_host="",  # there is no CUDA for macOS
    nvcc_objects="",
    nvcc_link="",
)
WINDOWS = Toolchain(
    default="cl",
    remedy="Install Visual Studio's Build Tools and start from its x64 Native Tools prompt",
    compile="/nologo /std:c++17 /O2 /fp:precise {machine} /EHsc /MD /W3 /DNOMINMAX /permissive- /Zc:__cplusplus "
    "/external:W0 /external:I {torch}/include",
    objects="/showIncludes /c $in /Fo$out",
    dependencies="deps = msvc",
    same_samples="",  # /fp:precise has none
    link="link /nologo /DLL $in /OUT:$out /LIBPATH:{torch}/lib torch_cpu.lib c10.lib",
    nvcc_host="-Xcompiler /MD",
    nvcc_objects="-MD -MF $out.d -c $in -o $out",
    nvcc_link="-shared $in -o $out -L{torch}/lib -ltorch_cpu -lc10 $cudart",
)
_ROWS = {"Darwin": MACOS, "Windows": WINDOWS}  # by platform.system(); others are taken for relatives of Linux


def toolchain() -> Toolchain:
    """The row of this system."""
    return _ROWS.get(platform.system(), LINUX)


def machine_options() -> str:
    """What the code may ask of the processor.

    Every x86-64 server since 2013 has AVX2; a library for one machine alone may say CXXFLAGS=-march=native. Compilers
    for ARM know their machine's vectors by themselves.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ""
    return "/arch:AVX2" if platform.system() == "Windows" else "-march=x86-64-v3"


def quoted(path: Path | str) -> str:
    """A path where ninja hands a command to the shell: a blank would end it."""
    return (f'"{path}"' if platform.system() == "Windows" else shlex.quote(str(path))).replace("$", "$$")


def escaped(path: Path | str) -> str:
    """A path where ninja reads one: blanks, and the colon of a Windows drive, have a meaning there."""
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")
