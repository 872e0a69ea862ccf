"""Renders a path to a video while pages go on being served."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.errors import UserError
from nerf.images.write import write_video
from nerf.viewer.look import Look
from nerf.viewer.modes import timed_part
from nerf.viewer.path_folder import PathFolder
from nerf.viewer.resolution import Resolution
from nerf.viewer.scene import SceneClosed, SceneSource

CANCELLED = "cancelled; nothing was written"
UNKNOWN = "failed; the viewer's terminal says why"


class Cancelled(Exception):
    """Nobody wants the video any more."""


@dataclass(frozen=True)
class VideoOrder:
    """What a video shows, and where it goes."""

    look: Look
    cameras: Cameras  # of the frames
    fps: float
    file: Path


class VideoRendering:
    """A thread that renders a video, from its start until it is written, cancelled or has failed.

    Frames have the run's rays per pixel. They are rendered in small parts, between which other renderers of the scene
    get their turns. The file appears when it is whole, and not at all otherwise.
    """

    def __init__(
        self,
        source: SceneSource,
        folder: PathFolder,
        order: VideoOrder,
        progress: Callable[[int], None],
        ended: Callable[[str | None], None],
    ) -> None:
        """progress: told how many frames are done. ended: told why there is no video, None where there is one.

        Both are called in the thread.
        """
        self._source, self._folder, self._order = source, folder, order
        self._progress, self._ended = progress, ended
        self._resolution, self._version = Resolution(), None
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="viewer-video", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Ends it after the part of a frame that is being rendered."""
        self._cancelled.set()

    def close(self, timeout: float | None = None) -> None:
        """Cancels, and waits at most timeout seconds for the thread."""
        self.cancel()
        self._thread.join(timeout)

    def _run(self) -> None:
        reason = UNKNOWN
        try:
            with self._folder.writing(self._order.file):
                write_video(self._order.file, self._frames(), self._order.fps)
            reason = None
        except (Cancelled, SceneClosed):
            reason = CANCELLED
        except UserError as error:
            reason = str(error)
        except RuntimeError as error:  # out of memory
            reason = str(error).splitlines()[0]
        finally:
            self._ended(reason)

    def _frames(self) -> Iterator[Tensor]:
        for index in range(len(self._order.cameras)):
            yield self._frame(self._order.cameras[index], index)
            self._progress(index + 1)

    def _frame(self, camera: Cameras, index: int) -> Tensor:
        """A frame [H,W,3] in [0,1]."""
        per_pixel, parts, first = self._source.scene().sampler.rays_per_pixel, [], 0
        while first < camera.width * camera.height:
            if self._cancelled.is_set():
                raise Cancelled
            span = first, first + self._resolution.band(per_pixel)
            part, seconds = self._source.run(
                lambda scene, span=span: timed_part(scene, self._order.look, camera, *span, per_pixel), True
            )
            self._check_still(index)
            self._resolution.measured(len(part) * per_pixel, seconds)
            parts.append(part)
            first += len(part)
        return torch.cat(parts).view(camera.height, camera.width, 3).float() / 255

    def _check_still(self, index: int) -> None:
        """Raises UserError if the scene is not the one of the first frame any more."""
        version = self._source.version
        if self._version is None:
            self._version = version
        if not self._source.still or version != self._version:
            raise UserError(
                f"the run trains again since frame {index + 1} of {len(self._order.cameras)}, expected a scene that "
                "stays as it is, so no video was written; pause the run and render again."
            )
