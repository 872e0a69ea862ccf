"""Files that appear whole or not at all, and a full or read-only disk answered in words."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nerf.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside path that takes its place on success and is removed on failure.

    Missing folders are created. Raises UserError, naming path, where the disk is full or cannot be written.
    """
    partial = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")  # ffmpeg goes by the suffix
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path} cannot be written ({reason}); free some space, or set hydra.run.dir to a folder on another disk."
        ) from error
