"""What must hold after a command on a disk that failed, or one that was killed: nothing lost, half, or left behind."""

import contextlib
import gzip
import importlib
import io
import json
import re
import zipfile
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from faulty_disk import Outcome
from omegaconf import OmegaConf
from PIL import Image

from nerf.runs import checkpoint

PARTIAL = re.compile(r"\.(.*)\.\d+-[0-9a-f]{8}\.partial(\.\w+)?")
OF_COLMAP = ("database.db", "log-", "rigs.", "cameras.bin", "frames.", "images.bin", "points3D.bin")  # its files
UNFINISHED = {"scene", "colmap", "sparse.part"}  # folders: what is given, and what no command takes for a result
# What a person sees of an error that nobody answered.
SHORT_OF_MEMORY = re.compile(r"memory[\s\S]*(lower |close other programs)")
CRASHES = ("Traceback", "Exception ignored", "Fatal Python error")


def complaints(outcome: Outcome, folder: Path, lasting: bool = False) -> list[str]:
    """What is wrong with how a command ended in whose folder one call failed, or all from one on (lasting)."""
    if outcome.kind == "memory":
        return memory_complaints(outcome, folder)
    found = _crashes(outcome)
    path = Path(outcome.failed or "")
    of_colmap = path.name.startswith(OF_COLMAP)
    of_folder = outcome.kind in ("fsync", "mkdir") and not path.is_file() and not PARTIAL.fullmatch(path.name)
    needless = of_colmap or of_folder or outcome.kind in ("unlink", "link")
    if outcome.failed is not None and path != folder and (outcome.status or not needless):
        names = [final_name(path), path.parent.name, path.parents[1].name][: 1 + lasting + of_colmap]
        if not any(name in outcome.said for name in names) and not names[-1].startswith("."):
            found.append(f"{' or '.join(names)} is not named")
    if outcome.kind != "unlink" and not lasting:
        found += [f"{path} is left" for path in left_overs(folder)]
    return found + half_files(folder)


def memory_complaints(outcome: Outcome, folder: Path) -> list[str]:
    """What is wrong with how a command ended in that memory was short."""
    found = _crashes(outcome)
    if outcome.status and not SHORT_OF_MEMORY.search(outcome.said):
        found.append("it does not say that memory is short, and what to do")
    return found + [f"{path} is left" for path in left_overs(folder)] + half_files(folder)


def _crashes(outcome: Outcome) -> list[str]:
    status = [] if outcome.status in (0, 2) else [f"exit status {outcome.status}"]
    return [f"it shows '{crash}'" for crash in CRASHES if crash in outcome.said] + status


def final_name(path: Path) -> str:
    """The name that a temporary file would have got."""
    partial = PARTIAL.fullmatch(path.name)
    return partial[1] if partial else path.name


def left_overs(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if PARTIAL.fullmatch(path.name)]


def half_files(folder: Path) -> list[str]:
    """The files under their final names that cannot be read to their ends."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and not UNFINISHED.intersection(path.parts):
            try:
                _read(path)
            except Exception as error:  # noqa: BLE001 - each reader has its own
                found.append(f"{path} is half: {type(error).__name__} {error}")
    return found


def _read(path: Path) -> None:
    content = path.read_bytes()
    if path.suffix == ".pt":
        with contextlib.redirect_stderr(io.StringIO()):
            (checkpoint.load if path.name == "model.pt" else checkpoint.load_resume)(path)
    elif path.suffix in (".png", ".jpg"):
        Image.open(path).load()
    elif path.suffix == ".json":
        json.loads(content)
    elif path.suffix == ".mp4":
        assert imageio_ffmpeg.count_frames_and_secs(str(path))[0]
    elif path.suffix == ".yaml":
        assert OmegaConf.load(path).train
    elif path.suffix == ".npz":
        assert zipfile.ZipFile(path).testzip() is None
    elif path.suffix == ".npy":
        np.load(path)
    elif path.name == "images.bin":
        importlib.import_module("pycolmap").Reconstruction(str(path.parent))
    elif path.suffix == ".ply":
        _read_ply(content)
    elif path.suffix == ".spz":
        gzip.decompress(content)
    elif path.suffix == ".glb":
        assert int.from_bytes(content[8:12], "little") == len(content)
    elif path.suffix in (".html", ".txt", ".obj", ".mtl", ".vti"):
        assert content.endswith((b"\n", b">")) or path.name == "points3D.txt"


def _read_ply(content: bytes) -> None:
    header, _, body = content.partition(b"end_header\n")
    counts = {name: int(count) for name, count in re.findall(r"element (\w+) (\d+)", header.decode())}
    vertex = header.partition(b"element face")[0].decode()
    size = {"float": 4, "uchar": 1}
    row = sum(size[kind] for kind in re.findall(r"property (\w+) ", vertex))
    assert len(body) == counts["vertex"] * row + counts.get("face", 0) * 13


def saved_step(run: Path) -> int:
    """The step that a run would go on from, 0 if it has none; or that of one file."""
    if run.is_file():
        return checkpoint.load_resume(run)["step"]
    with contextlib.redirect_stderr(io.StringIO()):
        states = (checkpoint.RESUME_FILE, checkpoint.PREVIOUS_FILE)
        return checkpoint.load_resume(run)["step"] if any((run / name).exists() for name in states) else 0
