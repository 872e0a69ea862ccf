"""The pages: short README, links and named places that are there, a strict site that fetches nothing from elsewhere."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, pages

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
PLACE = re.compile(r"`((?:nerf|scripts|data|tests|cuda_ext|configs)/[\w./]+\.\w+)(?::(\w+))?`")
README_BYTES = 12 * 1024


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_readme_is_a_few_pages() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= README_BYTES


@pytest.mark.parametrize(
    "page", [*pages(), *sorted((ROOT / "docs").glob("log*.md")), ROOT / "cuda_ext" / "README.md"], ids=name
)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{name(page)} links to {target}"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_files_and_functions_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    made = set(re.findall(r"^`([^`\n]+)`:$", text, re.MULTILINE))  # by the page's own steps
    for file, defined in PLACE.findall(text):
        if file in made:
            continue
        assert (ROOT / file).is_file(), f"{name(page)} names {file}"
        if defined:
            body = ast.parse((ROOT / file).read_text()).body
            names = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
            assert defined in names, f"{name(page)} names {defined} of {file}"


def test_the_site_builds_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="make docs installs it")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    found = sorted((tmp_path / "site").rglob("*.html"))
    assert len(found) >= len(pages())
    for page in found:
        fetched = re.findall(r"<(?:script|link|img)\b[^>]*?(?:src|href)=\"?(https?://[^\s\">]+)", page.read_text())
        assert not fetched, f"{page.name} fetches {fetched}"
