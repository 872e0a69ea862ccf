"""The part of a page that shows the training cameras."""

from collections.abc import Callable

import numpy as np
import viser

from nerf.cameras.panoramas import views_ahead
from nerf.images import visualize
from nerf.viewer.look import page_pose, vertical_fov
from nerf.viewer.scene import Scene
from nerf.viewer.steering import Orbit, move_client

MOST_FRUSTA = 60
SIZE = 0.02  # of a frustum, as a fraction of the scene's reach
COLOR = (60, 90, 160)
THUMBNAIL = 64  # pixels along a side


class CamerasPanel:
    """A checkbox for the frusta of the training cameras with small photos; a click on one moves the client there."""

    def __init__(self, client: viser.ClientHandle, scene: Scene, reach: float) -> None:
        """reach: of the scene, world units. Frusta are made when they are first shown."""
        self._client, self._scene, self._scale = client, scene, SIZE * reach
        self.frusta: list[viser.CameraFrustumHandle] = []
        with client.gui.add_folder("Training cameras", expand_by_default=False):
            self.shown = client.gui.add_checkbox("show", False)
        self.shown.on_update(lambda _: self._show())

    def _show(self) -> None:
        if not self.frusta:
            number = len(self._scene.cameras)
            chosen = np.linspace(0, number - 1, min(MOST_FRUSTA, number)).round().astype(int)
            self.frusta = [self._frustum(index) for index in sorted(set(chosen.tolist()))]
        for frustum in self.frusta:
            frustum.visible = self.shown.value

    def _frustum(self, index: int) -> viser.CameraFrustumHandle:
        cameras = self._scene.cameras
        (width, height), (wxyz, position) = views_ahead(cameras[index]).size(0), page_pose(cameras.c2w[index])
        handle = self._client.scene.add_camera_frustum(
            f"/cameras/{index}",
            vertical_fov(cameras, index),
            width / height,
            scale=self._scale,
            thickness=0.03 * self._scale,
            color=COLOR,
            image=_thumbnail(self._scene, index),
            wxyz=wxyz,
            position=position,
        )
        handle.on_click(self._mover(index))
        return handle

    def _mover(self, index: int) -> Callable[[object], None]:
        """What a click on a frustum does: the client's camera goes where the training camera was."""
        cameras = self._scene.cameras
        pose, fov = cameras.c2w[index], vertical_fov(cameras, index)
        return lambda _: move_client(self._client, Orbit.of(self._client), pose, fov)


def _thumbnail(scene: Scene, index: int) -> np.ndarray | None:
    if scene.photos is None:
        return None
    photo = scene.photos.image_over(index, scene.background.cpu())
    if scene.cameras.panoramas[index]:  # 90 of 360 degrees across and of 180 down
        height, width = photo.shape[:2]
        photo = photo[height // 4 : -(height // 4) or None, 3 * width // 8 : -(3 * width // 8) or None]
    photo = visualize.shrunk(photo, THUMBNAIL)
    return (photo.clamp(0, 1) * 255).byte().numpy()
