"""The GPU generations that CI compiles for meet both branches of every #if that tells generations apart."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONDITION = re.compile(r"__CUDA_ARCH__ *([<>=!]=?) *(\d+)")


def test_ci_compiles_both_branches() -> None:
    given = re.search(r'export NERF_CUDA_ARCHS="([\d ]+)"', (ROOT / ".ci" / "run").read_text())
    generations = [10 * int(number) for number in given[1].split()]
    sources = [path for path in sorted((ROOT / "cuda_ext").rglob("*")) if path.suffix in (".cu", ".cuh", ".h")]
    found = {condition for path in sources for condition in CONDITION.findall(path.read_text())}
    assert (">=", "900") in found and ("<", "800") in found, "the pattern finds nothing any more"
    for operator, number in found:
        assert {eval(f"{generation} {operator} {number}") for generation in generations} == {True, False}
