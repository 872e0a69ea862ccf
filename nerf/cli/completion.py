"""Print a shell's completion of `nerf`, to be sourced.

    source <(nerf completion bash)            in ~/.bashrc
    source <(nerf completion zsh)             in ~/.zshrc, after compinit
    nerf completion fish | source             in ~/.config/fish/config.fish

Completes commands, settings, their values, scenes, folders of runs and files. On each TAB the script calls this command
again, with --words. It reads completion.json, which scripts/tables.py makes of the settings: the commands themselves
import PyTorch, for which nobody waits at a TAB.
"""

import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from nerf.cli.main import COMMANDS, OF_A_RUN
from nerf.files import CONFIGS, DATA, PACKED_SCENES

SHELLS = ("bash", "zsh", "fish")
TABLE = Path(__file__).with_name("completion.json")
MODELS = ("model.pt", "resume.pt")  # which make a folder a run's
SPECIAL = re.compile(r"[\s\\'\"$&;()<>|*?\[\]{}`!#]")  # in an unquoted word of bash

Row = dict  # of TABLE: commands, name, kind, values, doc
Found = tuple[str, str]  # a whole word, and what it means


def command() -> int:
    shell, *rest = sys.argv[1:] or [""]
    if shell in ("--help", "-h"):
        print(__doc__.strip())
        return 0
    if shell not in SHELLS or (rest and rest[0] != "--words"):
        given = " ".join(sys.argv[1:])
        print(f"error: completion takes the name of a shell, {', '.join(SHELLS)}, found '{given}'.", file=sys.stderr)
        return 2
    if not rest:
        print(TABLE.with_suffix(f".{shell}").read_text(), end="")
    elif shell == "bash":
        print(*as_bash_reads(*rest[1:]), sep="\n")
    else:
        print(*(f"{word}\t{meaning}" for word, meaning in complete(rest[1:])), sep="\n")
    return 0


def as_bash_reads(line: str, breaks: str) -> list[str]:
    """What may stand in place of a line's last word, or of its part that bash takes for one.

    line: up to the cursor, with the program's name. breaks: $COMP_WORDBREAKS, at which bash splits words too.
    """
    words, quoted = split(line)
    if quoted:  # bash asks for what stands behind the quote
        kept = len(_last_word(line[: line.rfind(quoted)]))
        return [word[kept:] for word, _ in complete(words[1:])]
    raw = _last_word(line)
    kept = max((match.end() for match in re.finditer(r"(?<!\\)[=:]", raw) if match[0] in breaks), default=0)
    return [SPECIAL.sub(r"\\\g<0>", word)[kept:] for word, _ in complete(words[1:])]


def _last_word(line: str) -> str:
    return re.split(r"(?<!\\)\s", line)[-1]


def split(line: str) -> tuple[list[str], str]:
    """The words of a shell's line, whose last one is unfinished, and the quote that is open at its end, if any."""
    for quote in ("", "'", '"'):
        try:
            words = shlex.split(line + quote)
        except ValueError:
            continue
        ended = not quote and re.search(r"(?<!\\)\s$", line)
        return [*words, ""] if ended or not words else words, quote
    return shlex.split(line.rstrip("\\")), ""


def complete(words: list[str]) -> list[Found]:
    """The whole words that the last one may become. words: behind the program's name."""
    if len(words) < 2:
        return _matching(words[-1] if words else "", [*COMMANDS.items(), ("--help", "this list")])
    name, *given, word = words
    if name == "completion":
        return _matching(word, [(shell, "") for shell in SHELLS] if not given else [])
    rows = {row["name"]: row for row in json.loads(TABLE.read_text()) if name in row["commands"].split()}
    asking = rows.get(given[-1]) if given and given[-1].startswith("--") else None
    if asking and asking["kind"] != "flag":
        return [(value, "") for value in _values(asking, word)]
    setting, equals, value = word.partition("=")
    if equals:
        row = rows.get(setting.lstrip("+"))
        *listed, last = value.split(",")  # of a sweep, or of the runs to compare
        before = f"{setting}={''.join(f'{one},' for one in listed)}"
        return [(before + found, "") for found in _values(row, last) if found not in listed] if row else []
    found = [(one, "folder") for one in _runs(word)] if name in OF_A_RUN and not given else []
    if "" in rows:
        found += [(value, "") for value in _values(rows[""], word)]
    return found + _matching(word, list(_names(rows, given, word)))


def _names(rows: dict[str, Row], given: list[str], word: str) -> Iterator[Found]:
    """Options and settings that were not given yet; the settings of a group under its name until that is typed."""
    used = {argument.partition("=")[0].lstrip("+") for argument in given}
    sizes, told = Counter(name.partition(".")[0] for name in rows if "." in name), set()
    for name, row in rows.items():
        group = name.partition(".")[0]
        if not name or name in used:
            continue
        if name.startswith("-"):
            yield name, row["doc"]
        elif "." not in name or sizes[group] == 1 or word.startswith(f"{group}."):
            yield f"{name}=", row["doc"]
        elif group not in told:
            told.add(group)
            yield f"{group}.", f"settings of {group}"


def _values(row: Row, text: str) -> list[str]:
    """The values of a setting that begin with the text."""
    known = list(row["values"])
    if row["kind"] == "group":
        known += sorted(path.stem for path in (CONFIGS / row["name"]).glob("*.yaml"))
    elif row["kind"] == "scene":
        places = [DATA / "nerf_synthetic", DATA, PACKED_SCENES, Path(os.environ.get("NERF_DATA") or DATA)]
        known += sorted({path.parent.name for place in places for path in place.glob("*/transforms_train.json")})
    found = [value for value, _ in _matching(text, [(value, "") for value in known])]
    if row["kind"] == "run":
        return found + _runs(text)
    return found + list(_entries(text)) if row["kind"] == "path" else found


def _runs(text: str) -> list[str]:
    """Folders of runs, and folders that may hold some, which end in a slash."""
    folders = [entry for entry in _entries(text) if entry.endswith("/")]
    return [entry.rstrip("/") if _is_run(entry) else entry for entry in folders]


def _is_run(folder: str) -> bool:
    return any((Path(folder).expanduser() / name).is_file() for name in MODELS)


def _entries(text: str) -> Iterator[str]:
    """Files and folders whose path begins with the text; folders end in a slash."""
    folder, slash, name = text.rpartition("/")
    try:
        entries = sorted(os.scandir(Path(folder + slash or ".").expanduser()), key=lambda entry: entry.name)
    except OSError:  # not there, or closed: nothing to offer
        return
    for entry in entries:
        if entry.name.startswith(name) and (name.startswith(".") or not entry.name.startswith(".")):
            yield folder + slash + entry.name + ("/" if entry.is_dir() else "")


def _matching(text: str, known: list[Found]) -> list[Found]:
    return [(word, meaning) for word, meaning in known if word.startswith(text)]
