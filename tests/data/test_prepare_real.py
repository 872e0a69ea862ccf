"""A real capture, photos and a video of it, becomes a scene with poses that are right. Needs pycolmap."""

import json
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import warm_python
from PIL import Image
from script_runs import ROOT, TIMEOUT
from test_prepare import command, run, stored, write_video

FOX = ROOT.parent / "shared" / "scenes" / "fox"


@pytest.fixture
def fox_photos(tmp_path: Path) -> Path:
    """Ten neighboring photos of a real capture, at a quarter of their size, one of them lying on its side by EXIF."""
    pytest.importorskip("pycolmap", reason="pycolmap is not installed: pip install pycolmap")
    if not (FOX / "images").is_dir():
        pytest.skip(f"there is no {FOX}")
    folder = tmp_path / "Fuchs & Höhle"
    folder.mkdir()
    for index, path in enumerate(sorted((FOX / "images").iterdir())[:10]):
        image = Image.open(path).resize((432, 768), Image.Resampling.BOX)
        exif = Image.Exif()
        if index == 4:
            image, exif[0x0112] = image.transpose(Image.Transpose.ROTATE_90), 6
        image.save(folder / f"Füchse {path.stem}.jpg", quality=95, exif=exif)
    return folder


def test_photos_become_a_scene_whose_poses_are_right(fox_photos: Path, tmp_path: Path) -> None:
    import pycolmap

    out = tmp_path / "Szene ö"
    found = run(fox_photos, out, "--threads", 2)
    assert found.returncode == 0, found.stderr
    assert "10 of 10 photos could be registered, with a mean reprojection error of 0." in found.stdout
    assert "45 pairs: each is matched with each" in found.stdout and "dry_run=true" in found.stdout
    assert "1 camera: OPENCV 432x768" in found.stdout  # the one that lay on its side is upright now
    assert stored(out) == ["colmap", "images", "sparse"] and stored(out / "sparse") == ["0"]

    given = {
        Path(frame["file_path"]).stem: np.array(frame["transform_matrix"])
        for frame in json.loads((FOX / "transforms.json").read_text())["frames"]
    }
    rotations, theirs = [], []
    for image in pycolmap.Reconstruction(str(out / "sparse" / "0")).images.values():
        rotations.append(image.cam_from_world().rotation.matrix().T @ np.diag([1, -1, -1]))
        theirs.append(given[Path(image.name).stem.removeprefix("Füchse ")][:3, :3])
    u, _, v = np.linalg.svd(sum(b @ a.T for a, b in zip(rotations, theirs)))
    world = u @ v
    angles = [np.degrees(np.arccos(min(1, (np.trace(world @ a @ b.T) - 1) / 2))) for a, b in zip(rotations, theirs)]
    assert np.linalg.det(world) > 0 and max(angles) < 1

    again = run(fox_photos, out)
    assert again.returncode == 0 and "is there already, made of the same photos" in again.stdout
    assert found.stdout.splitlines()[-3:] == again.stdout.splitlines()[-3:]


def test_an_interrupted_run_goes_on(fox_photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = warm_python.Popen(
        command(fox_photos, out, "--threads", 1), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    waited = time.monotonic() + TIMEOUT
    while not (out / "colmap" / "database.db-wal").exists() and time.monotonic() < waited:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130 and "interrupted; the same command goes on from here" in errors
    assert "Traceback" not in errors and stored(out / "images") and not (out / "sparse").exists()
    before = {path.name: path.stat().st_mtime_ns for path in (out / "images").iterdir()}
    found = run(fox_photos, out, "--threads", 2)
    assert found.returncode == 0 and "10 of 10 photos" in found.stdout, found.stderr
    assert before == {path.name: path.stat().st_mtime_ns for path in (out / "images").iterdir()}


def test_a_video_becomes_a_scene(fox_photos: Path, tmp_path: Path) -> None:
    frames = [np.asarray(Image.open(path)) for path in sorted(fox_photos.iterdir())]
    frames = [frame if frame.shape[:2] == (768, 432) else np.rot90(frame, -1) for frame in frames]
    write_video(tmp_path / "fox.mp4", frames)
    found = run(tmp_path / "fox.mp4", tmp_path / "out", "--threads", 2, "--frames", 10)
    assert found.returncode == 0, found.stderr
    assert "each is matched with those near it (--match sequential)" in found.stdout
    assert "10 of 10 photos could be registered" in found.stdout
    assert (tmp_path / "out" / "sparse" / "0" / "cameras.bin").exists()
    other = run(tmp_path / "fox.mp4", tmp_path / "out", "--threads", 2, "--frames", 10, "--match", "exhaustive")
    assert other.returncode == 0 and "is there already" not in other.stdout, other.stderr
    assert stored(tmp_path / "out" / "sparse") == ["0"]
