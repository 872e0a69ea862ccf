"""The part of a page that renders its camera path to a video."""

import threading
from collections.abc import Callable

import viser

from nerf.errors import UserError
from nerf.images.write import check_encoder
from nerf.viewer.look import Look
from nerf.viewer.notices import errors_told
from nerf.viewer.path_files import PathFilesPanel
from nerf.viewer.path_folder import PathFolder
from nerf.viewer.path_panel import PathPanel
from nerf.viewer.scene import SceneSource
from nerf.viewer.video import VideoOrder, VideoRendering

TRAINING = "Pause the run to render a video: its frames are of one moment."


class VideoPanel:
    """Buttons to render, cancel and download, and how far it is; update() brings them up to date."""

    def __init__(
        self,
        client: viser.ClientHandle,
        source: SceneSource,
        folder: PathFolder,
        editor: PathPanel,
        files: PathFilesPanel,
        look: Callable[[], Look],
    ) -> None:
        """look: what the page shows now, which the video shows, too."""
        self._client, self._source, self._folder, gui = client, source, folder, client.gui
        self._editor, self._files, self._look = editor, files, look
        self._lock, self._rendering, self._order = threading.RLock(), None, None
        self._closed = False
        with gui.add_folder("Video"):
            self.render = gui.add_button("render MP4", hint="of the path above, as this page shows the scene")
            self.progress = gui.add_progress_bar(0.0)
            self.status = gui.add_markdown("")
            self.cancel = gui.add_button("cancel", color="red", disabled=True)
            self.download = gui.add_button("download", color="gray", disabled=True)
        self.render.on_click(lambda _: self._start())
        self.cancel.on_click(lambda _: self._cancel())
        self.download.on_click(lambda _: self._send())
        self.update()

    def update(self) -> None:
        """Shows whether a video can be rendered now."""
        with self._lock:
            self.render.disabled = self._rendering is not None or not self._source.still
            if self._rendering is None and self.status.content in ("", TRAINING):
                self.status.content = "" if self._source.still else TRAINING

    def close(self, timeout: float | None = None) -> None:
        """Cancels, waiting at most timeout seconds for the thread. A click that comes later starts nothing."""
        with self._lock:
            self._closed, rendering = True, self._rendering
        if rendering is not None:
            rendering.close(timeout)

    def _start(self) -> None:
        with self._lock, errors_told(self._client):
            if self._closed or self._rendering is not None or not self._source.still:
                return
            check_encoder()
            edited, file = self._editor.edited(), self._folder.file(self._files.name.value, ".mp4")
            cameras = edited.path.cameras(edited.fps, edited.width, edited.height)
            self._order = VideoOrder(self._look(), cameras, edited.fps, file)
            self.progress.value, self.status.content = 0.0, f"0 of {len(cameras)} frames"
            self.cancel.disabled, self.download.disabled = False, True
            self._rendering = VideoRendering(self._source, self._folder, self._order, self._count, self._ended)
            self.update()

    def _cancel(self) -> None:
        rendering = self._rendering
        if rendering is not None:
            rendering.cancel()

    def _count(self, frames: int) -> None:
        number = len(self._order.cameras)
        self.progress.value = 100 * frames / number
        self.status.content = f"{frames} of {number} frames"

    def _ended(self, reason: str | None) -> None:
        with self._lock:
            self._rendering, self.cancel.disabled, self.download.disabled = None, True, reason is not None
            self.status.content = reason or f"written: `{self._order.file}`"
            self.update()

    def _send(self) -> None:
        """Sends the newest video to the client's browser."""
        file = self._order.file
        with errors_told(self._client):
            try:
                content = file.read_bytes()
            except OSError as error:
                raise UserError(
                    f"{file} cannot be read ({error.strerror}), expected the video; render again."
                ) from error
            self._client.send_file_download(file.name, content, save_immediately=True)
