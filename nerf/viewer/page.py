"""The page of one client: its panels, and the pictures that it gets."""

import numpy as np
import viser

from nerf.viewer.cameras_panel import CamerasPanel
from nerf.viewer.client import ClientRenderer
from nerf.viewer.live import LiveScene
from nerf.viewer.look import ViewCamera
from nerf.viewer.look_panel import LookPanel
from nerf.viewer.path_files import PathFilesPanel
from nerf.viewer.path_folder import PathFolder
from nerf.viewer.path_panel import PathPanel
from nerf.viewer.scene import Scene, SceneSource
from nerf.viewer.training_panel import TrainingPanel
from nerf.viewer.video_panel import VideoPanel

LARGEST = 1600  # pixels along a side of a picture; a larger window shows it enlarged
QUALITY = {False: 70, True: 95}  # of JPEG, moving and at rest


class ClientPage:
    """Panels and renderer of one client, from its arrival until close()."""

    def __init__(
        self, client: viser.ClientHandle, source: SceneSource, scene: Scene, reach: float, folder: PathFolder
    ) -> None:
        """scene: at the client's arrival. reach: distance beyond which nothing of it is expected, world units.

        folder: of paths and videos.
        """
        self._client = client
        self.renderer = ClientRenderer(source, self._send, self._fail)
        self.training = None
        tabs = client.gui.add_tab_group()
        if isinstance(source, LiveScene):
            with tabs.add_tab("Training"):
                self.training = TrainingPanel(client, source)
        with tabs.add_tab("View"):
            self.view = LookPanel(client, scene, reach, lambda: self.renderer.show(look=self.view.look()))
            self.cameras = CamerasPanel(client, scene, reach)
        with tabs.add_tab("Camera path"):
            self.path = PathPanel(client, scene, reach, self._camera)
            self.files = PathFilesPanel(client, folder, self.path)
            self.video = VideoPanel(client, source, folder, self.path, self.files, self.view.look)
        self.status = client.gui.add_markdown("")
        client.camera.on_update(lambda _: self.move())
        self.move()

    def move(self) -> None:
        """Asks for a picture from where the client's camera is now."""
        self.renderer.show(self._camera())

    def update(self) -> None:
        """Shows how training goes on."""
        if self.training is not None:
            self.training.update()
        self.video.update()

    def close(self, timeout: float | None = None) -> None:
        """Ends the client's threads, waiting at most timeout seconds for each."""
        for part in (self.video, self.path, self.renderer):
            part.close(timeout)

    def _camera(self) -> ViewCamera:
        """Where the client looks from now."""
        camera = self._client.camera
        size = camera.image_width, camera.image_height
        return ViewCamera.of_page(camera.wxyz, camera.position, camera.fov, *size, LARGEST)

    def _send(self, picture: np.ndarray, resting: bool) -> None:
        self._client.scene.set_background_image(picture, format="jpeg", jpeg_quality=QUALITY[resting])
        height, width = picture.shape[:2]
        self.status.content = f"{width} x {height}{'' if resting else ', moving'}"

    def _fail(self, message: str) -> None:
        self.status.content = f"no picture: {message}"
