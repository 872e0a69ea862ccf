"""The download of scenes, from a server of our own that breaks off, forgets, lies and refuses."""

import hashlib
import io
import json
import os
import random
import resource
import stat
import subprocess
import sys
import threading
import urllib.parse
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from broken_server import Server
from script_runs import ROOT, TIMEOUT

from nerf.cli import download
from nerf.datasets.blender import SYNTHETIC_NERF

SCRIPT = ROOT / "data" / "download.py"
VIEWS = {"train": 100, "val": 100, "test": 200}


def archive(
    *scenes: str, inside: str = "", views: dict[str, int] = VIEWS, extra: dict[str, bytes] | None = None
) -> bytes:
    """A zip archive of scenes as the authors laid them out; the pictures are noise."""
    dice, buffer = random.Random(0), io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as content:
        for scene in scenes:
            for split, count in views.items():
                frames = [{"file_path": f"./{split}/r_{i}"} for i in range(VIEWS[split])]
                content.writestr(f"{inside}{scene}/transforms_{split}.json", json.dumps({"frames": frames}))
                for i in range(count):
                    content.writestr(f"{inside}{scene}/{split}/r_{i}.png", dice.randbytes(1000))
        for name, data in (extra or {}).items():
            content.writestr(name, data)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def lego() -> bytes:
    return archive("lego")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "scenes"


def run(root: Path, *arguments: str, limit: int | None = None) -> subprocess.CompletedProcess:
    """The command in a process of its own, which does not wait between attempts."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from nerf.cli import fetch, main;"
        "fetch.PAUSE = 0; sys.exit(main.command('download'))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"NERF_DATA": str(root), "no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))),
    )


def succeed(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    found = run(root, *arguments)
    assert found.returncode == 0, found.stderr
    return found


def fail(root: Path, *arguments: str, limit: int | None = None) -> str:
    found = run(root, *arguments, limit=limit)
    assert found.returncode == 2 and "Traceback" not in found.stderr, found.stderr
    last = found.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    return last


def assert_whole(root: Path, scene: str = "lego", others: tuple[str, ...] = ()) -> None:
    """The scene is there with every view, and nothing else is."""
    assert sorted(path.name for path in root.iterdir()) == sorted([scene, *others])
    for split, count in VIEWS.items():
        assert len(list((root / scene / split).glob("r_*.png"))) == count
        assert (root / scene / f"transforms_{split}.json").is_file()


# What works


def test_the_loader_and_the_command_know_the_same_scenes() -> None:
    text = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True).stdout
    assert ", ".join((*SYNTHETIC_NERF, "all")) in " ".join(text.split())


def test_a_scene_is_fetched_checked_and_unpacked(root: Path, server: Server, lego: bytes) -> None:
    server.files["/lego.zip"] = lego
    found = succeed(root, "lego", "--source", f"{server.url}/{{scene}}.zip")
    assert_whole(root)
    digest = hashlib.sha256(lego).hexdigest()
    assert f"lego.zip: SHA-256 {digest} (no checksum is known for this source" in found.stdout
    assert f"{root}/lego: 100 train, 100 val, 200 test views" in found.stdout and "dataset.scene=lego" in found.stdout
    assert "lego.zip: 100%" in found.stderr
    with zipfile.ZipFile(io.BytesIO(lego)) as content:
        assert (root / "lego/test/r_199.png").read_bytes() == content.read("lego/test/r_199.png")

    server.files.clear()
    assert f"{root}/lego is there already" in succeed(root, "lego", "--source", server.url).stdout
    assert len(server.requests) == 1


def test_all_scenes_of_one_archive_are_one_download(root: Path, server: Server) -> None:
    junk = {"__MACOSX/nerf_synthetic/lego/._transforms_train.json": b""}
    server.files["/nerf_synthetic.zip"] = archive(*SYNTHETIC_NERF, inside="nerf_synthetic/", extra=junk)
    succeed(root, "all", "--source", f"{server.url}/nerf_synthetic.zip")
    for scene in SYNTHETIC_NERF:
        assert_whole(root, scene, tuple(set(SYNTHETIC_NERF) - {scene}))
    assert len(server.requests) == 1


def test_only_the_scene_that_was_asked_for_is_unpacked_from_a_file(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.zip").write_bytes(archive("mic", "ship", inside="nerf_synthetic/"))
    succeed(root, "ship", "--source", str(tmp_path / "mine.zip"))
    assert_whole(root, "ship")
    assert (tmp_path / "mine.zip").is_file()


# A server that breaks off


def test_a_download_that_breaks_off_goes_on(root: Path, server: Server, lego: bytes) -> None:
    server.files["/lego.zip"], server.etags["/lego.zip"], server.break_after = lego, '"1"', len(lego) // 3 + 1
    succeed(root, "lego", "--source", f"{server.url}/lego.zip")
    assert_whole(root)
    assert server.requests == ["", f"bytes={len(lego) // 3 + 1}-", f"bytes={2 * (len(lego) // 3 + 1)}-"]


def test_a_server_that_is_gone_is_told_and_the_next_call_goes_on(root: Path, server: Server, lego: bytes) -> None:
    server.files["/lego.zip"], server.break_after = lego, 0
    source = ("lego", "--source", f"{server.url}/lego.zip")
    root.mkdir()
    (root / "lego.zip.part").write_bytes(lego[:1000])
    (root / "lego.zip.part.json").write_text(json.dumps({"url": f"{server.url}/lego.zip", "size": len(lego)}))
    message = fail(root, *source)
    assert "cannot be reached or breaks off (the server closed the connection)" in message and "0.0 MB of 0." in message

    server.breaks, server.break_after = 1, len(lego) // 2
    assert not (root / "lego").exists()
    server.requests.clear()
    succeed(root, *source)
    assert server.requests[0] == "bytes=1000-" and server.requests[1] == f"bytes={1000 + len(lego) // 2}-"
    assert_whole(root)


def test_nobody_at_the_other_end(root: Path) -> None:
    message = fail(root, "lego", "--source", "http://127.0.0.1:9/lego.zip")
    assert "127.0.0.1:9 cannot be reached or breaks off" in message and "refused" in message
    assert "Check the network and run the command again" in message and "--source" in message


@pytest.mark.parametrize("lengths", [True, False])
def test_a_server_without_ranges_is_asked_again_from_the_start(
    root: Path, server: Server, lego: bytes, lengths: bool
) -> None:
    server.files["/lego.zip"], server.ranges, server.lengths = lego, False, lengths
    note = {"url": f"{server.url}/lego.zip", "etag": None, "size": len(lego) if lengths else None, "sha256": None}
    root.mkdir()
    (root / "lego.zip.part").write_bytes(bytes(5000))
    (root / "lego.zip.part.json").write_text(json.dumps(note))
    succeed(root, "lego", "--source", f"{server.url}/lego.zip")
    assert server.requests == ["bytes=5000-"]
    assert_whole(root)


def test_a_file_that_has_changed_meanwhile_is_fetched_anew(root: Path, server: Server, lego: bytes) -> None:
    server.files["/lego.zip"], server.etags["/lego.zip"] = lego, '"new"'
    note = {"url": f"{server.url}/lego.zip", "etag": '"old"', "size": len(lego), "sha256": None}
    root.mkdir()
    (root / "lego.zip.part").write_bytes(bytes(5000))
    (root / "lego.zip.part.json").write_text(json.dumps(note))
    succeed(root, "lego", "--source", f"{server.url}/lego.zip")
    assert_whole(root)


@pytest.mark.parametrize("note", [None, "{}", '{"url": "http://elsewhere/lego.zip", "size": 9000}'])
def test_bytes_of_another_source_are_not_added_to(root: Path, server: Server, lego: bytes, note: str | None) -> None:
    server.files["/lego.zip"] = lego
    root.mkdir()
    (root / "lego.zip.part").write_bytes(bytes(5000))
    if note:
        (root / "lego.zip.part.json").write_text(note)
    succeed(root, "lego", "--source", f"{server.url}/lego.zip")
    assert server.requests == [""]
    assert_whole(root)


def test_more_bytes_than_the_file_has_are_dropped(root: Path, server: Server, lego: bytes) -> None:
    server.files["/lego.zip"] = lego
    root.mkdir()
    (root / "lego.zip.part").write_bytes(bytes(len(lego) + 1))
    (root / "lego.zip.part.json").write_text(json.dumps({"url": f"{server.url}/lego.zip", "size": len(lego)}))
    succeed(root, "lego", "--source", f"{server.url}/lego.zip")
    assert_whole(root)


# Wrong bytes


def test_a_wrong_checksum_is_refused_and_the_file_removed(root: Path, server: Server, lego: bytes) -> None:
    server.files["/lego.zip"] = lego
    digest = hashlib.sha256(lego).hexdigest()
    source = ("lego", "--source", f"{server.url}/lego.zip", "--sha256")
    message = fail(root, *source, "0" * 64)
    assert f"has the SHA-256 {digest}, expected {'0' * 64} (as asked); the file is removed" in message
    assert not any(root.iterdir())
    assert f"SHA-256 {digest} (as asked)" in succeed(root, *source, digest.upper()).stdout
    assert_whole(root)


def test_the_checksum_that_a_host_states_is_compared(root: Path, server: Server, lego: bytes) -> None:
    server.files["/lego.zip"], server.stated["/lego.zip"] = lego, "ab" * 32
    message = fail(root, "lego", "--source", f"{server.url}/lego.zip")
    assert f"expected {'ab' * 32} (as its host states)" in message and not any(root.iterdir())
    server.stated["/lego.zip"] = hashlib.sha256(lego).hexdigest()
    server.break_after, server.breaks = 1000, 1  # it is remembered when the download goes on
    assert "(as its host states)" in succeed(root, "lego", "--source", f"{server.url}/lego.zip").stdout
    assert_whole(root)


@pytest.mark.parametrize("damage", ["picture", "page", "cut", "no scene", "too few views"])
def test_wrong_bytes_without_a_checksum_are_refused_and_removed(
    root: Path, server: Server, lego: bytes, damage: str
) -> None:
    picture = lego.index(b"lego/val/r_50.png") + 100
    data = {
        "picture": lego[:picture] + bytes(100) + lego[picture + 100 :],
        "page": b"<!DOCTYPE html><title>Quota exceeded</title>",
        "cut": lego[:-1000],
        "no scene": archive("ship"),
        "too few views": archive("lego", views={"train": 100, "val": 100, "test": 199}),
    }[damage]
    server.files["/lego.zip"] = data
    message = fail(root, "lego", "--source", f"{server.url}/lego.zip")
    assert "damaged or not of Synthetic-NeRF" in message and "it is removed. Run the command again" in message
    reason = {
        "picture": "Bad CRC-32",
        "page": "<!DOCTYPE html>",
        "cut": "File is not a zip file",
        "no scene": "holds 0 folders 'lego'",
        "too few views": "names 200 views of which 199 are there",
    }[damage]
    assert reason in message
    assert not any(root.iterdir())


@pytest.mark.parametrize("name", ["lego/../../outside", "lego/train/../../../outside"])
def test_nothing_is_written_outside(root: Path, server: Server, name: str) -> None:
    server.files["/lego.zip"] = archive("lego", extra={name: b"bad", "/tmp/never": b"bad", "../outside": b"bad"})
    assert "points out of the scene's folder" in fail(root, "lego", "--source", f"{server.url}/lego.zip")
    assert not any(root.iterdir()) and [path.name for path in root.parent.iterdir()] == ["scenes"]


def test_a_link_in_the_archive_is_refused(root: Path, server: Server) -> None:
    buffer = io.BytesIO(archive("lego"))
    with zipfile.ZipFile(buffer, "a") as content:
        link = zipfile.ZipInfo("lego/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        content.writestr(link, "/etc/passwd")
    server.files["/lego.zip"] = buffer.getvalue()
    assert "points out of the scene's folder" in fail(root, "lego", "--source", f"{server.url}/lego.zip")


# Refusals


@pytest.mark.parametrize(("status", "expected"), [(404, "404 Not Found"), (403, "403 Forbidden")])
def test_a_source_that_has_moved(root: Path, server: Server, status: int, expected: str) -> None:
    server.status = status
    message = fail(root, "lego", "--source", f"{server.url}/lego.zip")
    assert f"{server.url}/lego.zip answers {expected}" in message and "--source" in message
    assert len(server.requests) == 1 and not any(root.iterdir())


def test_a_server_in_trouble_is_asked_again(root: Path, server: Server) -> None:
    server.status = 503
    assert "the server answers 503 Service Unavailable" in fail(root, "lego", "--source", f"{server.url}/lego.zip")
    assert len(server.requests) == 5


def test_a_full_disk_keeps_what_has_come(root: Path, server: Server, lego: bytes) -> None:
    server.files["/lego.zip"] = lego
    message = fail(root, "lego", "--source", f"{server.url}/lego.zip", limit=100_000)
    assert "lego.zip.part cannot be written (File too large); free some space" in message
    assert "goes on from 0.1 MB" in message
    assert (root / "lego.zip.part").read_bytes() == lego[:100_000]
    succeed(root, "lego", "--source", f"{server.url}/lego.zip")
    assert server.requests == ["", "bytes=100000-"]
    assert_whole(root)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = fail(tmp_path / "file" / "scenes", "lego", "--source", "http://127.0.0.1:9/lego.zip")
    assert "cannot be made or written (Not a directory)" in message and "set NERF_DATA" in message


def test_a_scene_that_is_there_in_part_is_left_alone(root: Path, server: Server) -> None:
    (root / "lego").mkdir(parents=True)
    (root / "lego" / "mine.txt").write_text("mine")
    message = fail(root, "lego", "--source", f"{server.url}/lego.zip")
    assert f"{root}/lego is there but not whole: transforms_train.json is missing" in message
    assert "Move it away" in message
    assert (root / "lego" / "mine.txt").read_text() == "mine" and not server.requests


def test_left_overs_of_a_killed_process_go(root: Path, server: Server, lego: bytes) -> None:
    (root / ".lego.123" / "train").mkdir(parents=True)
    server.files["/lego.zip"] = lego
    succeed(root, "lego", "--source", f"{server.url}/lego.zip")
    assert_whole(root)


def test_an_unknown_scene_is_answered_with_the_known_ones(root: Path) -> None:
    found = run(root, "legoo")
    assert found.returncode == 2 and "invalid choice: 'legoo'" in found.stderr and "lego" in found.stderr


def test_the_default_source_has_an_archive_for_each_scene() -> None:
    assert urllib.parse.urlsplit(download.SOURCE).scheme == "https" and "{scene}" in download.SOURCE
    assert download.part(Path("x"), download.SOURCE.replace("{scene}", "mic")) == Path("x/mic.zip.part")


def test_scenes_of_large_archives_are_named_and_not_fetched(root: Path) -> None:
    for scene, title, size in (("bicycle", "mip-NeRF 360", "12 GB"), ("truck", "Tanks and Temples", "650 MB")):
        out = run(root, "lego", scene)
        assert out.returncode == 2 and not root.exists()
        assert title in out.stderr and size in out.stderr and ".zip" in out.stderr and "license" in out.stderr
        assert f"/{scene}" in out.stderr and "dataset=capture" in out.stderr
