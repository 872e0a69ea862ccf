"""Structure from motion with pycolmap: features, matches, poses, in stages that resume where they were stopped.

The stages run in a thread, so that Ctrl-C can cancel them between two photos. Results in the database are not computed
again.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from PIL import Image
from tqdm import tqdm

from nerf.errors import UserError
from nerf.files import flush_files, flush_folder

POLL = 0.25  # seconds between updates of the progress bar
SEQUENTIAL_OVERLAP = 12  # neighbors in time on each side; further ones at distances 2, 4, 8, ... too
FEW_PHOTOS = 10  # that share a camera: with fewer, its lens gets one coefficient of distortion, else OPENCV's four
CENTERED_PHOTOS = 20  # with as many for each camera, the principal point is estimated too: a phone's is a percent off
MAKE, MODEL, FOCAL, FOCAL_35MM = 0x010F, 0x0110, 0x920A, 0xA405  # EXIF tags
EXIF_IFD = 0x8769
PRINTED = "printed.txt"  # beside COLMAP's log: what its libraries print
SCENE = "the scene's files"
SEED = 0  # of RANSAC: the same photos give the same poses


@dataclass(frozen=True)
class Found:
    """A solved scene."""

    registered: list[str]  # names of the photos that have a pose
    missing: list[str]  # names of those that have none
    reprojection_error: float  # pixels, mean over the observations of all points
    num_points: int
    cameras: str  # in words


@dataclass(frozen=True)
class TooFew:
    """Too few photos could be registered."""

    registered: list[str]
    missing: list[str]


def load_pycolmap() -> ModuleType:
    """The module pycolmap, which is optional. Raises UserError where it is absent."""
    try:
        import pycolmap
    except ImportError as error:
        raise UserError(
            f"poses are found by pycolmap, which cannot be imported here ({error}); run: pip install "
            "'nerf-voxel[capture]', or pip install pycolmap pillow-heif."
        ) from error
    return pycolmap


def lenses(folder: Path, names: list[str]) -> list[list[str]]:
    """Photos by size and, as far as EXIF tells, lens: those of one group are taken to share a camera."""
    groups: dict[tuple, list[str]] = defaultdict(list)
    for name in names:
        with Image.open(folder / name) as image:
            exif = image.getexif()
            details = exif.get_ifd(EXIF_IFD)
            lens = exif.get(MAKE), exif.get(MODEL), details.get(FOCAL), details.get(FOCAL_35MM)
            groups[(image.size, *map(str, lens))].append(name)
    return list(groups.values())


def _described(camera: Any) -> str:
    return f"{camera.model.name} {camera.width}x{camera.height}"


@contextlib.contextmanager
def printed_to(path: Path) -> Iterator[None]:
    """What libraries print goes to the end of a file: OpenBLAS writes to standard output."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # a process without standard output
        yield
        return
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 1)
        yield
    finally:
        if os.name == "posix":
            ctypes.CDLL(None).fflush(None)  # what C has buffered
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, where the system can hold it; a thread started inside never gets it.

    A start that it broke off would leave a thread at work that nobody waits for, and COLMAP would crash at the exit.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def failing_in_words(name: str, folder: Path) -> Iterator[None]:
    """COLMAP at work on `name`: raises UserError where it gives up, and ends the process in words where it aborts.

    A thread of COLMAP's that cannot write, or has too little memory, aborts the process; no call of its returns then.
    folder: where its log and its database are.
    """
    advice = f"its log is in {folder}. The same command goes on from here; --again starts anew."
    aborted = (
        f"\nerror: COLMAP broke off while it computed {name}, as on a full disk or with too little memory (its last "
        f"words stand above); {advice}\n"
    )

    def say(_: int) -> None:
        os.write(2, aborted.encode())
        os._exit(2)

    try:
        with _answered_abort(say):
            yield
    except UserError:
        raise
    except (RuntimeError, ValueError, LookupError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"COLMAP stopped while it computed {name} ({reason}); {advice}") from error


@contextlib.contextmanager
def _answered_abort(answer: Callable[[int], None]) -> Iterator[None]:
    """Calls answer at SIGABRT, in the thread that aborts: Python's own handlers run in the main thread, too late."""
    if os.name != "posix":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(answer)
    before = libc.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        libc.signal(signal.SIGABRT, before)


class Run:
    """The stages over one folder of images; the database is in folder."""

    def __init__(self, pycolmap: ModuleType, images: Path, folder: Path, names: list[str], threads: int) -> None:
        self.pycolmap, self.images, self.folder, self.names, self.threads = pycolmap, images, folder, names, threads
        self.database = folder / "database.db"
        log = pycolmap.logging
        log.logtostderr = log.alsologtostderr = False
        log.stderrthreshold = int(log.Level.FATAL)
        log.set_log_destination(log.Level.INFO, str(folder / "log-"))

    def extract(self, camera_each: bool) -> None:
        """Finds the features of the images that have none yet."""
        pycolmap = self.pycolmap
        with failing_in_words("the list of photos", self.folder):
            if self._num_images() != len(self.names):  # broken off before all were in it
                self._list_images(camera_each)
        options = pycolmap.FeatureExtractionOptions(num_threads=self.threads)

        def work(token: Any) -> None:
            pycolmap.extract_features(
                str(self.database), str(self.images), extraction_options=options, cancellation_token=token
            )

        def done(database: Any) -> int:
            return sum(database.exists_descriptors(image.image_id) for image in database.read_all_images())

        self._stage("features", len(self.names), done, work)

    def _list_images(self, camera_each: bool) -> None:
        """Makes the database anew, of the images and their cameras."""
        pycolmap = self.pycolmap
        for path in self.folder.glob(f"{self.database.name}*"):
            path.unlink()
        pycolmap.Database.open(str(self.database)).close()
        groups = [[name] for name in self.names] if camera_each else lenses(self.images, self.names)
        for group in groups:
            model = "OPENCV" if len(group) >= FEW_PHOTOS else "SIMPLE_RADIAL"
            options = pycolmap.ImageReaderOptions(camera_model=model)
            pycolmap.import_images(str(self.database), str(self.images), pycolmap.CameraMode.SINGLE, group, options)

    def match(self, how: str) -> None:
        """Matches pairs of images, exhaustive or sequential; pairs in the database are not matched again."""
        pycolmap, count = self.pycolmap, len(self.names)
        options = pycolmap.FeatureMatchingOptions(num_threads=self.threads)
        if how == "exhaustive":
            total = count * (count - 1) // 2

            def work(token: Any) -> None:
                pycolmap.match_exhaustive(str(self.database), options, cancellation_token=token)

        else:
            pairing = pycolmap.SequentialPairingOptions(overlap=SEQUENTIAL_OVERLAP, quadratic_overlap=True)
            distances = {*range(1, SEQUENTIAL_OVERLAP + 1), *(2**power for power in range(SEQUENTIAL_OVERLAP))}
            total = sum(max(0, count - distance) for distance in distances)

            def work(token: Any) -> None:
                pycolmap.match_sequential(str(self.database), options, pairing, cancellation_token=token)

        self._stage("matches", total, lambda database: database.num_matched_image_pairs(), work)

    def solve(self, sparse: Path, needed: float) -> Found | TooFew:
        """Poses and points, the largest model that the matches give, to sparse/0; nothing is written below needed."""
        pycolmap, part = self.pycolmap, sparse.with_name("sparse.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        options = pycolmap.IncrementalPipelineOptions(num_threads=self.threads, random_seed=SEED)
        models: dict[int, Any] = {}
        placed = Counter()

        def work(token: Any) -> None:
            solved = pycolmap.incremental_mapping(
                str(self.database),
                str(self.images),
                str(part),
                options,
                next_image_callback=lambda: placed.update(["images"]),
                cancellation_token=token,
            )
            models.update(solved)

        self._stage("poses", len(self.names), lambda database: placed["images"], work)
        best = max(models, key=lambda index: models[index].num_reg_images(), default=None)
        images = models[best].images.values() if best is not None else ()
        registered = sorted(image.name for image in images if image.has_pose)
        missing = sorted(set(self.names) - set(registered))
        if len(registered) < needed:
            shutil.rmtree(part)
            return TooFew(registered, missing)
        model = models[best]
        used = Counter(image.camera_id for image in images if image.has_pose)
        if min(used.values()) >= CENTERED_PHOTOS:
            self._refine_principal_points(model)
            with failing_in_words(SCENE, self.folder):
                model.write(str(part / str(best)))
        self._check_written(part / str(best), model)
        shutil.rmtree(sparse, ignore_errors=True)
        sparse.mkdir()
        (part / str(best)).replace(sparse / "0")
        flush_folder(sparse)
        shutil.rmtree(part)
        kinds = Counter(_described(model.cameras[index]) for index in used)
        cameras = f"{len(used)} camera{'s' if len(used) > 1 else ''}: " + ", ".join(
            f"{count} {kind}" if count > 1 else kind for kind, count in sorted(kinds.items())
        )
        return Found(registered, missing, model.compute_mean_reprojection_error(), model.num_points3D(), cameras)

    def _check_written(self, folder: Path, model: Any) -> None:
        """Reads the model back, as COLMAP does not tell of a write that failed, and flushes it to disk."""
        with failing_in_words(SCENE, self.folder):
            found = self.pycolmap.Reconstruction(str(folder))
            counts = [(x.num_reg_images(), x.num_points3D(), x.num_cameras()) for x in (found, model)]
            if counts[0] != counts[1]:
                raise RuntimeError(f"{folder} was not written whole")
        flush_files(folder)

    def _refine_principal_points(self, model: Any) -> None:
        """Adjusts everything once more with the principal points free, which COLMAP leaves at the middle until then."""
        pycolmap = self.pycolmap
        options = pycolmap.BundleAdjustmentOptions(refine_principal_point=True, print_summary=False)
        adjusted: list[Any] = []

        def work(token: Any) -> None:
            pycolmap.bundle_adjustment(model, options)
            model.update_point_3d_errors()
            adjusted.append(model)

        self._stage("refinement", 1, lambda database: len(adjusted), work)

    def _num_images(self) -> int:
        if not self.database.exists():
            return 0
        with self.pycolmap.Database.open(str(self.database)) as database:
            return database.num_images()

    def _stage(self, name: str, total: int, done: Callable[[Any], int], work: Callable[[Any], None]) -> None:
        """Runs work in a thread, with a progress bar. Raises UserError with COLMAP's words where it fails.

        done tells from the database how far it is. Looking into it by Python's sqlite3 would end in a crash: two copies
        of SQLite in one process take each other's locks away. The end of work is waited for by its future: up to
        Python 3.12 a thread counts as ended once Ctrl-C interrupts Thread.join, and COLMAP at work crashes the exit.
        """
        token = self.pycolmap.CancellationToken()
        with (
            failing_in_words(name, self.folder),
            printed_to(self.folder / PRINTED),
            self.pycolmap.Database.open(str(self.database)) as database,
            tqdm(total=total, desc=name, unit="") as bar,
            ThreadPoolExecutor(1) as pool,
        ):
            try:
                with interrupts_held():
                    stage = pool.submit(work, token)
                while not wait([stage], POLL).done:
                    bar.n = max(bar.n, min(total, done(database)))
                    bar.refresh()
                bar.n = max(bar.n, min(total, done(database)))
            except KeyboardInterrupt:
                token.cancel()
                bar.set_description_str(f"{name}: stopping")
                raise
            stage.result()
