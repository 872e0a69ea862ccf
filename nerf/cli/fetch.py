"""Download of one file over HTTP: it resumes after interruptions, and the checksum is verified before use."""

import contextlib
import hashlib
import http.client
import json
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from email.message import Message
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from nerf.files import DISK_FULL
from nerf.system import lock_file

TIMEOUT = 30  # seconds without a byte
ATTEMPTS = 5  # consecutive attempts without progress
PAUSE = 1.0  # seconds before the second attempt, and as many more before each next one
PIECE = 1 << 20  # bytes
BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)
SPARE = 64 << 20  # bytes that a disk keeps free


class Failure(RuntimeError):
    """The download cannot be finished; the message says why, what is kept and what to do."""


@dataclass
class Origin:
    """The origin of a partial download, stored beside it, so that it is continued only with bytes of the same file."""

    url: str
    etag: str | None = None  # the server's name for this version of the file
    size: int | None = None  # bytes
    sha256: str | None = None  # as the host states it


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects and notes the checksum that Hugging Face states in the first answer."""

    stated: str | None = None

    def redirect_request(self, req, fp, code, msg, headers: Message, newurl):
        found = re.fullmatch(r'"?([0-9a-f]{64})"?', headers.get("X-Linked-Etag", ""))
        self.stated = found[1] if found else self.stated
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(url: str, part: Path, sha256: str | None = None) -> tuple[str, str | None]:
    """Downloads url to part, resuming what lies there; returns its SHA-256 and who vouched for it, None if nobody did.

    Raises Failure. A file with a wrong checksum is removed; one that broke off stays and is gone on with.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("ab") as file:
        try:
            lock_file(file, wait=False)
        except OSError as error:
            raise Failure(f"{part} is being written by another download; wait for it.") from error
        origin = _read_origin(part, url)
        try:
            _download(origin, part)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            raise Failure(
                f"{part} cannot be written ({error.strerror}); free some space and run the command again, which goes "
                f"on from {_megabytes(part.stat().st_size)}."
            ) from error
        finally:
            if part.stat().st_size == 0:
                discard(part)
        found = _digest(part)
        expected, by = (sha256, "as asked") if sha256 else (origin.sha256, "as its host states")
        if expected is not None and found != expected.lower():
            discard(part)
            raise Failure(
                f"{url} has the SHA-256 {found}, expected {expected} ({by}); the file is removed. Run the command "
                "again, or name another source with --source."
            )
    return found, by if expected else None


def discard(part: Path) -> None:
    """Removes a download and its note."""
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _note(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_origin(part: Path, url: str) -> Origin:
    """The origin of the bytes in part; bytes of another address or without a note are dropped."""
    try:
        origin = Origin(**json.loads(_note(part).read_text()))
    except (OSError, ValueError, TypeError):
        origin = None
    if origin is None or origin.url != url:
        part.write_bytes(b"")
        origin = Origin(url)
    return origin


def _download(origin: Origin, part: Path) -> None:
    failures = 0
    while True:
        before = part.stat().st_size
        if before and before == origin.size:
            return
        problem = "the server closed the connection"
        try:
            _receive(origin, part)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise Failure(
                    f"{origin.url} answers {error.code} {error.reason}; the file has moved or may not be had. Name "
                    "another source with --source."
                ) from error
            problem = f"the server answers {error.code} {error.reason}"
        except BROKEN as error:
            problem = str(getattr(error, "reason", None) or error or type(error).__name__)
        size = part.stat().st_size
        if size and size == origin.size:
            return
        if origin.size is None and size and problem == "the server closed the connection":
            return  # the server gave no length; the archive's own checks show whether it is complete
        failures = 0 if size > before else failures + 1
        if failures == ATTEMPTS:
            host = urlsplit(origin.url).netloc or origin.url
            of = f" of {_megabytes(origin.size)}" if origin.size else ""
            raise Failure(
                f"{host} cannot be reached or breaks off ({problem}); {_megabytes(size)}{of} are in {part}. Check the "
                "network and run the command again, which goes on from there, or name another source with --source."
            )
        time.sleep(PAUSE * failures)


def _receive(origin: Origin, part: Path) -> None:
    """One connection: appends the server's data to part, or starts again if the server does not support ranges."""
    have = part.stat().st_size
    request = urllib.request.Request(origin.url, headers={"User-Agent": "nerf-voxel", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        if origin.etag:
            request.add_header("If-Range", origin.etag)
    redirects = _Redirects()
    try:
        response = urllib.request.build_opener(redirects).open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        part.write_bytes(b"")  # longer than the file: these are other bytes
        return
    with response:
        headers = response.headers
        length = int(headers["Content-Length"]) if headers.get("Content-Length") else None
        resumed = response.status == http.client.PARTIAL_CONTENT  # None for file:, which knows no ranges
        if resumed and not re.match(rf"bytes {have}-\d+/({origin.size or '.*'})$", headers.get("Content-Range", "")):
            part.write_bytes(b"")  # another part, or of a file of another size
            return
        if not resumed:
            have = 0
            part.write_bytes(b"")
            etag = headers.get("ETag")
            origin.etag = None if etag is None or etag.startswith("W/") else etag  # If-Range takes strong ones alone
            origin.size, origin.sha256 = length, redirects.stated
            _note(part).write_text(json.dumps(asdict(origin)))
        _check_space(part, length)
        with part.open("ab") as file, _progress(part, have, origin.size) as bar:
            while piece := response.read(PIECE):
                file.write(piece)
                file.flush()
                bar.update(len(piece))


@contextlib.contextmanager
def _progress(part: Path, have: int, size: int | None) -> Iterator[tqdm]:
    name = part.name.removesuffix(".part")
    with tqdm(total=size, initial=have, desc=name, unit="B", unit_scale=True, unit_divisor=1000) as bar:
        yield bar


def _check_space(part: Path, needed: int | None) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed is not None and needed + SPARE > free:
        raise Failure(
            f"{part.parent} has {_megabytes(free)} free, {_megabytes(needed + SPARE)} are needed; free some space, or "
            "set NERF_DATA to a folder on another disk."
        )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
