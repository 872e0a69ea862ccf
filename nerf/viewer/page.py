"""The page of one client: its controls, and what they make of a Look. The only place that knows the page's state."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import viser

from nerf.cameras.cameras import Cameras
from nerf.images import visualize
from nerf.viewer.client import ClientRenderer
from nerf.viewer.live import LiveScene
from nerf.viewer.look import Look, ViewCamera, page_pose, vertical_fov
from nerf.viewer.modes import MODES
from nerf.viewer.scene import Scene, SceneSource
from nerf.viewer.training_panel import TrainingPanel

LARGEST = 1600  # pixels along a side of a picture; a larger window shows it enlarged
QUALITY = {False: 70, True: 95}  # of JPEG, moving and at rest
MOST_FRUSTA = 60
THUMBNAIL = 64  # pixels along a side


class ClientPage:
    """Controls, frusta and renderer of one client, from its arrival until close()."""

    def __init__(self, client: viser.ClientHandle, source: SceneSource, scene: Scene, reach: float) -> None:
        """scene: at the client's arrival. reach: distance of the clipping sliders' end, world units."""
        self._client, self._reach = client, reach
        self.renderer = ClientRenderer(source, self._send, self._fail)
        modes = [mode for mode in MODES if mode != "error" or scene.photos is not None]
        gui = client.gui
        self.training = TrainingPanel(client, source) if isinstance(source, LiveScene) else None
        with gui.add_folder("View"):
            self.mode = gui.add_dropdown("picture", modes, initial_value="color")
            self.own_background = gui.add_checkbox("own background", False)
            self.background = gui.add_rgb("background", _bytes(scene.background))
            self.near = gui.add_slider("near plane", 0.0, reach, reach / 200, 0.0, hint="nothing nearer is shown")
            self.far = gui.add_slider("far plane", 0.0, reach, reach / 200, reach, hint="at its end: no limit")
        with gui.add_folder("Crop box", expand_by_default=False):
            self.crop = [gui.add_multi_slider(axis, 0.0, 1.0, 0.01, (0.0, 1.0)) for axis in "xyz"]
        with gui.add_folder("Training cameras", expand_by_default=False):
            self.frusta_shown = gui.add_checkbox("show", False)
        self.status = gui.add_markdown("")
        for control in (self.mode, self.own_background, self.background, self.near, self.far, *self.crop):
            control.on_update(lambda _: self.renderer.show(look=self.look()))
        self._frusta: list[viser.CameraFrustumHandle] = []
        self._scene = scene
        self.frusta_shown.on_update(lambda _: self._show_frusta())
        client.camera.on_update(lambda _: self.move())
        self.move()

    def look(self) -> Look:
        """The settings of the page."""
        background = tuple(c / 255 for c in self.background.value) if self.own_background.value else None
        far = math.inf if self.far.value >= self._reach else self.far.value
        lower, upper = (tuple(axis.value[end] for axis in self.crop) for end in (0, 1))
        return Look(self.mode.value, background, self.near.value, far, lower, upper)

    def move(self) -> None:
        """Asks for a picture from where the client's camera is now."""
        camera = self._client.camera
        size = camera.image_width, camera.image_height
        self.renderer.show(ViewCamera.of_page(camera.wxyz, camera.position, camera.fov, *size, LARGEST))

    def update(self) -> None:
        """Shows how training goes on."""
        if self.training is not None:
            self.training.update()

    def close(self) -> None:
        self.renderer.close()

    def _send(self, picture: np.ndarray, resting: bool) -> None:
        self._client.scene.set_background_image(picture, format="jpeg", jpeg_quality=QUALITY[resting])
        height, width = picture.shape[:2]
        self.status.content = f"{width} x {height}{'' if resting else ', moving'}"

    def _fail(self, message: str) -> None:
        self.status.content = f"no picture: {message}"

    def _show_frusta(self) -> None:
        if not self._frusta:
            self._frusta = add_frusta(self._client, self._scene, 0.02 * self._reach)
        for frustum in self._frusta:
            frustum.visible = self.frusta_shown.value


def add_frusta(client: viser.ClientHandle, scene: Scene, scale: float) -> list[viser.CameraFrustumHandle]:
    """The training cameras, evenly chosen where they are many, with small photos; a click moves the client there."""
    cameras, handles = scene.cameras, []
    chosen = np.linspace(0, len(cameras) - 1, min(MOST_FRUSTA, len(cameras))).round().astype(int)
    for index in sorted(set(chosen.tolist())):
        (width, height), (wxyz, position) = cameras.size(index), page_pose(cameras.c2w[index])
        handle = client.scene.add_camera_frustum(
            f"/cameras/{index}",
            vertical_fov(cameras, index),
            width / height,
            scale=scale,
            thickness=0.03 * scale,
            color=(60, 90, 160),
            image=_thumbnail(scene, index),
            wxyz=wxyz,
            position=position,
        )
        handle.on_click(_mover(client, cameras, index, scale))
        handles.append(handle)
    return handles


def _mover(client: viser.ClientHandle, cameras: Cameras, index: int, scale: float) -> Callable[[object], None]:
    """What a click on a frustum does: the client's camera goes where the training camera was."""

    def move(_: object) -> None:
        pose = cameras.c2w[index].double()
        up, forward, center = pose[:, 1], -pose[:, 2], pose[:, 3]
        with client.atomic():
            client.camera.up_direction = up.numpy()
            client.camera.position = center.numpy()
            client.camera.look_at = (center + 25 * scale * forward).numpy()
            client.camera.fov = vertical_fov(cameras, index)

    return move


def _thumbnail(scene: Scene, index: int) -> np.ndarray | None:
    if scene.photos is None:
        return None
    photo = visualize.shrunk(scene.photos.image_over(index, scene.background.cpu()), THUMBNAIL)
    return (photo.clamp(0, 1) * 255).byte().numpy()


def _bytes(color: torch.Tensor) -> Sequence[int]:
    return tuple(round(255 * value) for value in color.tolist())
