"""The output folder of prepare.py: its lock, the inputs it was made from, and the finished results."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import IO

from nerf.cli.prepare_photos import write_file
from nerf.cli.prepare_poses import Found
from nerf.errors import UserError
from nerf.files import clear_left_overs, make_folder
from nerf.system import lock_file

NOTE = "prepare.json"
LOCK = "lock"
MADE = ("images", "images.part", "sparse", "sparse.part")  # beside colmap: what prepare.py makes in OUT, and may remove


class Prepared:
    """The folder OUT, locked by one process at a time. A note in it records the inputs; different inputs are refused.

    Raises UserError if OUT contains something else, was made from other photos, or is used by another process.
    """

    def __init__(self, out: Path, asked: dict, again: bool) -> None:
        self.out, self.asked, self.again = out, asked, again
        self.note = out / "colmap" / NOTE
        self._lock: IO | None = None

    def __enter__(self) -> "Prepared":
        clear_left_overs(self.note.parent)
        if not self.note.exists() and self.out.exists() and not self._barely_begun():
            raise UserError(f"{self.out} is there already and was not made by this command; name a new folder OUT.")
        make_folder(self.note.parent)
        self._lock = (self.note.parent / LOCK).open("w")
        try:
            lock_file(self._lock, wait=False)
        except BlockingIOError as error:
            raise UserError(f"{self.out} is being made by another process; wait for it.") from error
        clear_left_overs(self.out)  # photos that were being stored
        content = None if self.again else self._read()
        differing = [name for name, value in self.asked.items() if content and content["asked"].get(name) != value]
        if self.again:
            self._discard()
        elif differing:
            raise UserError(
                f"{self.out} was made with another {', another '.join(differing)}; name a new folder OUT, or add "
                "--again to throw away what is there."
            )
        if content is None:
            self._write({"asked": self.asked, "results": {}})
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.close()

    def _barely_begun(self) -> bool:
        """Whether OUT is empty, or was left by a call that was killed before its note was written."""
        if not self.out.is_dir():
            return False
        return all(path in (self.note.parent, self.note.parent / LOCK) for path in self.out.rglob("*"))

    def result(self, how: str) -> Found | None:
        """The result of an earlier call with this way of matching; None if it did not finish."""
        found = self._read()["results"].get(how)
        return Found(**found) if found and (self.out / "sparse" / "0").is_dir() else None

    def finish(self, how: str, found: Found) -> None:
        """Records a finished scene; it replaces a result by the other way of matching."""
        self._write({"asked": self.asked, "results": {how: asdict(found)}})

    def _discard(self) -> None:
        for name in MADE:
            shutil.rmtree(self.out / name, ignore_errors=True)
        for path in self.note.parent.iterdir():
            if path.name != LOCK:
                path.unlink()

    def _read(self) -> dict | None:
        try:
            return json.loads(self.note.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise UserError(f"{self.note} is damaged ({error}); add --again to make {self.out} anew.") from error

    def _write(self, content: dict) -> None:
        write_file(self.note, json.dumps(content, indent=1).encode())
