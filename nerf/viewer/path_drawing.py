"""A path in the scene of one client: a frustum for each key frame, and the line on which the camera will move."""

from collections.abc import Callable

import numpy as np
import torch
import viser

from nerf.cameras.key_frames import KeyFramePath
from nerf.viewer.look import page_pose

SIZE = 0.03  # of a frustum, as a fraction of the scene's reach
COLOR, CHOSEN = (217, 119, 6), (220, 38, 38)
THICKNESS = 0.03  # of lines, by the size of a frustum; seen from its key frame a frustum is a frame on the picture
POINTS = 32  # of the line, for each key frame


class PathDrawing:
    """What is drawn of a path; update() draws another."""

    def __init__(self, client: viser.ClientHandle, reach: float, clicked: Callable[[int], None]) -> None:
        """reach: of the scene, world units. clicked: called with the index of a key frame whose frustum is clicked."""
        self._client, self._scale, self._clicked = client, SIZE * reach, clicked
        self.handles: list[viser.SceneNodeHandle] = []

    def show(self, shown: bool) -> None:
        for handle in self.handles:
            handle.visible = shown

    def update(self, path: KeyFramePath, chosen: int | None, aspect: float) -> None:
        """aspect: width by height of the frusta."""
        with self._client.atomic():
            for handle in self.handles:
                handle.remove()
            self.handles = [self._frustum(path, index, index == chosen, aspect) for index in range(len(path))]
            if len(path) > 1:
                self.handles.append(self._line(path))

    def _frustum(self, path: KeyFramePath, index: int, chosen: bool, aspect: float) -> viser.CameraFrustumHandle:
        key = path.keys[index]
        wxyz, position = page_pose(key.c2w)
        name = f"/path/{index + 1}"
        handle = self._client.scene.add_camera_frustum(
            name,
            key.fov,
            aspect,
            scale=self._scale,
            thickness=THICKNESS * self._scale,
            color=CHOSEN if chosen else COLOR,
            wxyz=wxyz,
            position=position,
        )
        handle.on_click(lambda _: self._clicked(index))
        self._client.scene.add_label(f"{name}/number", str(index + 1))  # goes with its frustum
        return handle

    def _line(self, path: KeyFramePath) -> viser.LineSegmentsHandle:
        times = torch.linspace(0, path.seconds, POINTS * len(path.durations) + 1)
        points = path.at(times)[0][:, :, 3].numpy()
        pieces = np.stack([points[:-1], points[1:]], axis=1)
        return self._client.scene.add_line_segments("/path/line", pieces, COLOR, thickness=THICKNESS * self._scale)
