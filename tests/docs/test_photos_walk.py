"""The walk from photos to a web page, run from its first command to its last at small size, on photos made for it."""

import importlib.util
from pathlib import Path

import pytest
from capture_files import Ring, write_colmap
from doc_pages import ROOT, copied_tree, snippets
from test_snippets import commands, run
from textured_photos import FOCAL, HEIGHT, WIDTH, poses, seen_points, write_textured_photos

PAGE = ROOT / "docs" / "walks" / "photos.md"
# Behind the words of the page, by the program; None: not run. What serves until it is stopped has tests of its own.
SMALLER = {
    "prepare": ("--threads", "1"),
    "dry_run": (),
    "train": ("train.steps=30", "dataset.downscale=4", "evaluation.every=4", "field.num_voxels=60000"),
    "view": None,
    "export": ("web_steps=20",),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, with the folder of photos that the page asks for."""
    tree = copied_tree(tmp_path, "nerf", "configs", "scripts")
    write_textured_photos(tree / "photos")
    return tree


def steps() -> list[tuple[str, list[str]]]:
    """The page's commands in Python: what they are, and their words."""
    found = []
    for block in snippets(PAGE):
        for program, *words in commands(block) if block.language == "bash" else ():
            if program == "python":
                name = Path(words[0]).stem if words[0].endswith(".py") else words[2]
                found.append(("dry_run" if "dry_run=true" in words else name, words))
    return found


def test_the_walk_has_these_steps() -> None:
    assert [name for name, _ in steps()] == list(SMALLER)


def test_photos_become_a_web_page(tree: Path) -> None:
    """Without pycolmap: everything behind the poses, which are then written by the test."""
    names = list(SMALLER)
    if importlib.util.find_spec("pycolmap") is None:
        names.remove("prepare")
        ring = Ring(sorted(path.name for path in (tree / "photos").iterdir()), poses(12))
        lens = (FOCAL, FOCAL, WIDTH / 2, HEIGHT / 2)
        write_colmap(tree / "scene", ring, True, "PINHOLE", lens, seen_points(), (WIDTH, HEIGHT))
        (tree / "photos").rename(tree / "scene" / "images")
    for name, words in steps():
        if name in names and SMALLER[name] is not None:
            run([*words, *SMALLER[name]], tree)
    assert (tree / "scene" / "sparse" / "0" / "images.bin").is_file()
    assert "view" in (tree / "outputs" / "look" / "dry_run.html").read_text()
    assert (tree / "outputs" / "scene" / "scene.html").stat().st_size > 50_000
