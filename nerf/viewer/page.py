"""The page of one client: its panels, and the pictures that it gets."""

import numpy as np
import viser

from nerf.viewer.cameras_panel import CamerasPanel
from nerf.viewer.client import ClientRenderer
from nerf.viewer.live import LiveScene
from nerf.viewer.look import ViewCamera
from nerf.viewer.look_panel import LookPanel
from nerf.viewer.scene import Scene, SceneSource
from nerf.viewer.training_panel import TrainingPanel

LARGEST = 1600  # pixels along a side of a picture; a larger window shows it enlarged
QUALITY = {False: 70, True: 95}  # of JPEG, moving and at rest


class ClientPage:
    """Panels and renderer of one client, from its arrival until close()."""

    def __init__(self, client: viser.ClientHandle, source: SceneSource, scene: Scene, reach: float) -> None:
        """scene: at the client's arrival. reach: distance beyond which nothing of it is expected, world units."""
        self._client = client
        self.renderer = ClientRenderer(source, self._send, self._fail)
        self.training = TrainingPanel(client, source) if isinstance(source, LiveScene) else None
        self.view = LookPanel(client, scene, reach, lambda: self.renderer.show(look=self.view.look()))
        self.cameras = CamerasPanel(client, scene, reach)
        self.status = client.gui.add_markdown("")
        client.camera.on_update(lambda _: self.move())
        self.move()

    def move(self) -> None:
        """Asks for a picture from where the client's camera is now."""
        camera = self._client.camera
        size = camera.image_width, camera.image_height
        self.renderer.show(ViewCamera.of_page(camera.wxyz, camera.position, camera.fov, *size, LARGEST))

    def update(self) -> None:
        """Shows how training goes on."""
        if self.training is not None:
            self.training.update()

    def close(self, timeout: float | None = None) -> None:
        """Ends the client's threads, waiting at most timeout seconds for each."""
        self.renderer.close(timeout)

    def _send(self, picture: np.ndarray, resting: bool) -> None:
        self._client.scene.set_background_image(picture, format="jpeg", jpeg_quality=QUALITY[resting])
        height, width = picture.shape[:2]
        self.status.content = f"{width} x {height}{'' if resting else ', moving'}"

    def _fail(self, message: str) -> None:
        self.status.content = f"no picture: {message}"
