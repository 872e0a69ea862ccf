"""Reading pages of Markdown: their blocks of code, and the sources that a page adds to a copy of the tree.

A block belongs to the sentence before it. `FILE`: is a new file; `FILE`, below `TEXT`: goes behind the first line with
that text; `FILE`, instead of `TEXT`: takes the place of that line; `FILE`, at the end: is appended.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACED = re.compile(
    r"^`([^`\n]+)`(?:, (at the end)|, (below|instead of) `([^`\n]+)`)?:\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
FENCED = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_COPIED = shutil.ignore_patterns("__pycache__", ".pytest_cache", "golden")


@dataclass(frozen=True)
class Block:
    """A block of code that is no file of its own."""

    language: str
    code: str
    not_run: str | None  # the reason
    line: int


def pages() -> list[Path]:
    """README and every page of docs/, but for the logs of experiments, whose commands are of their time."""
    others = (path for path in sorted((ROOT / "docs").rglob("*.md")) if not path.name.startswith("log"))
    return [ROOT / "README.md", *others]


def snippets(page: Path) -> list[Block]:
    """The blocks of a page that belong to no file."""
    text = page.read_text()
    placed = {match.end() for match in PLACED.finditer(text)}
    return [
        Block(match[2], match[3], match[1], text[: match.start()].count("\n") + 1)
        for match in FENCED.finditer(text)
        if match.end() not in placed
    ]


def copied_tree(folder: Path, *names: str) -> Path:
    """A copy of the sources; data is linked."""
    for name in names:
        shutil.copytree(ROOT / name, folder / name, ignore=NOT_COPIED)
    (folder / "data").symlink_to(ROOT / "data")
    return folder


def places(page: Path) -> list[str]:
    """The files that a page's steps make or edit, each once."""
    return list(dict.fromkeys(match[1] for match in PLACED.finditer(page.read_text())))


def apply_steps(page: Path, tree: Path) -> None:
    """Makes and edits the files of a page's blocks in a tree. Fails where a place is not there, or a new file is."""
    for name, end, how, anchor, code in PLACED.findall(page.read_text()):
        path = tree / name
        if not end and not how:
            assert not path.exists(), f"{page.name}: {name} is new there, but exists"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
            continue
        lines = path.read_text().splitlines(keepends=True)
        if end:
            path.write_text("".join([*lines, code]))
            continue
        where = next((number for number, line in enumerate(lines) if anchor in line), None)
        assert where is not None, f"{page.name}: {name} has no line with '{anchor}'"
        kept = lines[: where + 1] if how == "below" else lines[:where]
        path.write_text("".join([*kept, code, *lines[where + 1 :]]))
