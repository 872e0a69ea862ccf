"""One client of the viewer: a thread that renders what it looks at, as fast as it moves and as well as it rests."""

import threading
from collections.abc import Callable

import numpy as np
import torch

from nerf.viewer.look import Look, ViewCamera
from nerf.viewer.modes import timed_part
from nerf.viewer.resolution import FRAME_SECONDS, Resolution
from nerf.viewer.scene import SceneClosed, SceneSource

REST_SECONDS = 0.2  # a camera that has not moved for so long rests
WHILE_TRAINING = (
    0.4  # seconds that the picture of a resting camera may take then; at 4% of the time one comes every 10 seconds
)
REFRESH_SECONDS = 0.5  # until a whole picture of a scene that is being trained is drawn again


class ClientRenderer:
    """Renders the newest request of a client in its own thread until close().

    send(picture [H,W,3] uint8, resting) gets every finished picture; fail(message) what went wrong. Both are called in
    the thread. A request overtakes those before it: none is queued, so a slow client costs no memory.
    """

    def __init__(
        self, source: SceneSource, send: Callable[[np.ndarray, bool], None], fail: Callable[[str], None]
    ) -> None:
        self._source, self._send, self._fail = source, send, fail
        self._changed = threading.Condition()
        self._camera: ViewCamera | None = None
        self._look, self._version, self._closed = Look(), 0, False
        self.resolution = Resolution()
        self._thread = threading.Thread(target=self._run, name="viewer-client", daemon=True)
        self._thread.start()

    def show(self, camera: ViewCamera | None = None, look: Look | None = None) -> None:
        """Asks for a picture: of a camera that has moved, of other settings, or again because the scene has changed."""
        with self._changed:
            self._camera, self._look = camera or self._camera, look or self._look
            self._version += 1
            self._changed.notify()

    @property
    def camera(self) -> ViewCamera | None:
        """The newest camera; None before the first."""
        return self._camera

    @property
    def look(self) -> Look:
        return self._look

    def close(self, timeout: float | None = None) -> None:
        """Ends the thread, waiting at most timeout seconds for the part of a picture that it renders."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        drawn, at_rest, scene_version = 0, True, self._source.version
        while True:
            with self._changed:
                if drawn == self._version and not at_rest:
                    self._changed.wait(REST_SECONDS)
                else:
                    refresh = REFRESH_SECONDS if self._source.changes else None
                    if refresh and drawn == self._version:
                        self._changed.wait(refresh)
                    while not self._closed and self._version == drawn and self._source.version == scene_version:
                        self._changed.wait(refresh)
                if self._closed:
                    return
                resting = drawn == self._version
                version, camera, look = self._version, self._camera, self._look
            scene_version = self._source.version
            if camera is None:
                drawn = version
                continue
            try:
                picture = self._picture(camera, look, version, resting)
            except SceneClosed:
                return
            except RuntimeError as error:  # out of memory; the next picture may be smaller
                self._fail(str(error).splitlines()[0])
                drawn, at_rest = version, True
                continue
            if picture is not None:
                self._send(picture, resting)
                drawn, at_rest = version, resting

    def _picture(self, camera: ViewCamera, look: Look, version: int, resting: bool) -> np.ndarray | None:
        """The picture [H,W,3] uint8; None if it rests no more, or the client left."""
        limit = self._source.frame_seconds
        full, self.resolution.frame_seconds = (camera.width, camera.height), limit or FRAME_SECONDS
        size, per_pixel = self.resolution.moving(full), 1
        if resting:
            size, per_pixel = full, self._source.scene().sampler.rays_per_pixel
            if limit is not None and self.resolution.in_time(full, WHILE_TRAINING / per_pixel) != full:
                size, per_pixel = self.resolution.in_time(full, WHILE_TRAINING), 1
        width, height = size
        cameras, parts, first = camera.cameras(width, height), [], 0
        while first < width * height:
            # A picture of a moving camera is one part: half of it would be of no use.
            end = first + self.resolution.band(per_pixel) if resting else width * height
            part, seconds = self._source.run(
                lambda scene, span=(first, end): timed_part(scene, look, cameras, *span, per_pixel), resting
            )
            parts.append(part)
            first += len(part)
            if not resting:
                self.resolution.measured(len(part), seconds)
            if self._closed or (resting and self._version != version):
                return None
        return torch.cat(parts).view(height, width, 3).numpy()
