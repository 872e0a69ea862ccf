"""A model of a disk that loses what was not flushed, fed with the recorded calls of a command.

POSIX promises little: data of a file are on the disk after fsync(file), and a name, a rename or a removal after
fsync(folder). Anything else may be there or not, in any order.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

from faulty_disk import Call


@dataclass
class File:
    data: bytearray = field(default_factory=bytearray)
    flushed: bytes = b""


class Disk:
    """Files below one folder. Those that stood there before the record began are not known."""

    def __init__(self) -> None:
        self._names: dict[str, File] = {}  # as programs see them
        self._flushed: dict[str, File] = {}  # as the disk has them
        self._pending: list[tuple[str, str, File | None]] = []  # folder, name, what it becomes; None = removed

    def apply(self, call: Call) -> None:
        path = call.path
        if call.kind == "open":
            if call.offset or path not in self._names:
                self._set(path, File())
            else:
                self._names[path].data.clear()
        elif call.kind == "write" and path in self._names:
            data = self._names[path].data
            data.extend(bytes(max(0, call.offset - len(data))))
            data[call.offset : call.offset + len(call.data)] = call.data
        elif call.kind == "truncate" and path in self._names:
            del self._names[path].data[call.offset :]
        elif call.kind == "link":
            self._set(call.other, self._names[path])
        elif call.kind == "rename" and path in self._names:
            moved = self._names[path]
            if self._names.get(call.other) is not moved:  # two names of one file stay as they are
                self._set(call.other, moved)
                self._set(path, None)
        elif call.kind == "unlink":
            self._set(path, None)
        elif call.kind == "fsync":
            self._flush(path)

    def _set(self, path: str, file: File | None) -> None:
        if file is None:
            self._names.pop(path, None)
        else:
            self._names[path] = file
        self._pending.append((str(Path(path).parent), path, file))

    def _flush(self, path: str) -> None:
        if path in self._names:
            self._names[path].flushed = bytes(self._names[path].data)
            return
        for _, name, file in (change for change in self._pending if change[0] == path):
            _change(self._flushed, name, file)
        self._pending = [change for change in self._pending if change[0] != path]

    def after_power_loss(self, chance: float, dice: random.Random) -> dict[str, bytes]:
        """The files by path where each change of a name that was not flushed is there with this chance.

        Data that were not flushed are missing, wherever the name is.
        """
        names = dict(self._flushed)
        for _, name, file in self._pending:
            if dice.random() < chance:
                _change(names, name, file)
        return {name: file.flushed for name, file in names.items()}


def _change(names: dict[str, File], name: str, file: File | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file
