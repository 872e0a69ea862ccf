"""The part of a page that says what is shown, and what is cut away."""

import math
from collections.abc import Callable, Sequence

import torch
import viser

from nerf.viewer.look import Look
from nerf.viewer.modes import modes_of
from nerf.viewer.scene import Scene

MOST_STOPS = 5.0  # of exposure, in both directions


class LookPanel:
    """Kind of picture, exposure, background, clipping planes and crop box; look() is what they say."""

    def __init__(self, client: viser.ClientHandle, scene: Scene, reach: float, changed: Callable[[], None]) -> None:
        """reach: distance at the far end of the clipping sliders, world units. changed: called after every change."""
        gui, self._reach = client.gui, reach
        with gui.add_folder("Picture"):
            self.mode = gui.add_dropdown("picture", modes_of(scene), initial_value="color")
            self.exposure = gui.add_slider(
                "exposure, EV", -MOST_STOPS, MOST_STOPS, 0.1, 0.0, hint="stops: each doubles the light of colors"
            )
            self.own_background = gui.add_checkbox("own background", False)
            self.background = gui.add_rgb("background", _bytes(scene.background))
            self.near = gui.add_slider("near plane", 0.0, reach, reach / 200, 0.0, hint="nothing nearer is shown")
            self.far = gui.add_slider("far plane", 0.0, reach, reach / 200, reach, hint="at its end: no limit")
        with gui.add_folder("Crop box", expand_by_default=False):
            self.crop = [gui.add_multi_slider(axis, 0.0, 1.0, 0.01, (0.0, 1.0)) for axis in "xyz"]
        rest = self.exposure, self.own_background, self.background, self.near, self.far, *self.crop
        for control in (self.mode, *rest):
            control.on_update(lambda _: changed())

    def look(self) -> Look:
        """The settings of the page."""
        background = tuple(c / 255 for c in self.background.value) if self.own_background.value else None
        far = math.inf if self.far.value >= self._reach else self.far.value
        lower, upper = (tuple(axis.value[end] for axis in self.crop) for end in (0, 1))
        return Look(self.mode.value, background, self.near.value, far, lower, upper, self.exposure.value)


def _bytes(color: torch.Tensor) -> Sequence[int]:
    return tuple(round(255 * value) for value in color.tolist())
