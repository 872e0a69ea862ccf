"""The folder beside a run in which the pages of a viewer save camera paths and videos."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from nerf.errors import UserError

FOLDER = "paths"  # in that of the run
LONGEST_NAME = 100  # characters
MARKS = " ._-"  # in names, beside letters and digits


class PathFolder:
    """Names to files, and which of them are being written; one for all pages."""

    def __init__(self, run: Path) -> None:
        """run: the folder of the run. It is not touched before something is saved."""
        self.folder = run / FOLDER
        self._lock, self._busy = threading.Lock(), set[Path]()

    def file(self, name: str, suffix: str) -> Path:
        """The file of that name. Raises UserError for what is no plain name: a page writes nowhere else."""
        name = name.strip()
        allowed = all(character.isalnum() or character in MARKS for character in name)
        if not allowed or not 0 < len(name) <= LONGEST_NAME or name.startswith("."):
            raise UserError(
                f"the name '{name[:LONGEST_NAME]}' cannot be used, expected 1 to {LONGEST_NAME} letters, digits, "
                "spaces, points, - and _, no point first; choose another."
            )
        return self.folder / f"{name}{suffix}"

    def saved(self) -> list[str]:
        """Names of the paths that are there."""
        return sorted(file.stem for file in self.folder.glob("*.json") if not file.name.startswith("."))

    @contextlib.contextmanager
    def writing(self, file: Path) -> Iterator[None]:
        """Keeps a file from other pages while it is written. Raises UserError if one of them writes it."""
        with self._lock:
            if file in self._busy:
                raise UserError(f"{file} is just being written by another page; choose another name, or wait.")
            self._busy.add(file)
        try:
            yield
        finally:
            with self._lock:
                self._busy.remove(file)
