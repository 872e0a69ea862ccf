"""Hooks of mkdocs: pages that live outside of docs/ are part of the site, and links to them lead to these pages.

Links in the sources are those of the repository, so that they work where it is browsed, too.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {  # of the repository: of the site
    "README.md": "index.md",
    "cuda_ext/README.md": "kernels/library.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}
SOURCES = {page: source for source, page in OUTSIDE.items()}
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that live outside of docs/."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns a page's links, relative to its place in the repository, into links of the site."""
    here = page.file.src_uri
    source = SOURCES.get(here, f"docs/{here}")

    def turned(match: re.Match[str]) -> str:
        opening, target, anchor, closing = match.groups()
        if "://" in target:
            return match[0]
        aim = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = OUTSIDE.get(aim, aim.removeprefix("docs/"))
        return f"{opening}{posixpath.relpath(place, posixpath.dirname(here) or '.')}{anchor or ''}{closing}"

    return LINK.sub(turned, markdown)
