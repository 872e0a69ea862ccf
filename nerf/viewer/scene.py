"""What the viewer shows, and who may render it when."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.datasets.posed_images import PosedImages
from nerf.fields.field import Field
from nerf.rendering.sampler import RaySampler
from nerf.viewer.features import FeatureColors, feature_colors
from nerf.viewer.turns import Turns

T = TypeVar("T")


@dataclass(frozen=True)
class Scene:
    """A field at one moment, with all that rendering needs."""

    field: Field
    sampler: RaySampler
    background: Tensor  # [3] on the device
    cameras: Cameras  # training cameras on the CPU
    photos: PosedImages | None = None  # of these cameras; None: not found
    vignetting: Tensor | None = None  # [I,3] coefficients of these cameras, on the CPU; None: not learned

    @cached_property
    def feature_colors(self) -> FeatureColors:
        """How features are shown in every picture of this scene. Only of a field that has_features()."""
        return feature_colors(self.field, self.sampler, self.cameras)


class SceneClosed(Exception):
    """The scene is not rendered any more: the viewer is closing."""


class SceneSource(Protocol):
    """Lets threads render the scene, one at a time."""

    version: int  # grows whenever a picture would look different
    frame_seconds: float | None  # rendering time for a picture of a moving camera; None: as long as it likes

    @property
    def changes(self) -> bool:
        """Whether a picture grows old by itself."""

    @property
    def still(self) -> bool:
        """Whether nothing changes the scene at the moment: it is finished, or paused."""

    def scene(self) -> Scene:
        """The newest scene. Only run() may render it."""

    def run(self, work: Callable[[Scene], T], resting: bool = False) -> T:
        """The result of work. resting: it may take its time. Raises SceneClosed after close()."""

    def close(self) -> None:
        """Ends run() for all threads."""


class StillScene:
    """A scene that does not change any more: whoever asks renders it in their own thread."""

    version, frame_seconds, changes, still = 0, None, False, True

    def __init__(self, scene: Scene) -> None:
        self._scene, self._turns, self._closed = scene, Turns(), False

    def scene(self) -> Scene:
        return self._scene

    def run(self, work: Callable[[Scene], T], resting: bool = False) -> T:
        with self._turns.take(patient=resting):
            if self._closed:
                raise SceneClosed
            return work(self._scene)

    def close(self) -> None:
        self._closed = True
