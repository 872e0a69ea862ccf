"""What the viewer shows, and who may render it when."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.datasets.posed_images import PosedImages
from nerf.fields.field import Field
from nerf.rendering.sampler import RaySampler

T = TypeVar("T")


@dataclass(frozen=True)
class Scene:
    """A field at one moment, with all that rendering needs."""

    field: Field
    sampler: RaySampler
    background: Tensor  # [3] on the device
    cameras: Cameras  # training cameras on the CPU
    photos: PosedImages | None = None  # of these cameras; None: not found


class SceneClosed(Exception):
    """The scene is not rendered any more: the viewer is closing."""


class SceneSource(Protocol):
    """Lets threads render the scene, one at a time."""

    def run(self, work: Callable[[Scene], T]) -> T:
        """The result of work. Raises SceneClosed after close()."""

    def close(self) -> None:
        """Ends run() for all threads."""


class StillScene:
    """A scene that does not change any more: whoever asks renders it in their own thread."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._lock, self._closed = scene, threading.Lock(), False

    def run(self, work: Callable[[Scene], T]) -> T:
        with self._lock:
            if self._closed:
                raise SceneClosed
            return work(self._scene)

    def close(self) -> None:
        self._closed = True
