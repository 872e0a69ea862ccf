"""Visual hulls that tests carve once: most runs of one process of tests begin with the same few scenes."""

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from torch import Tensor

from nerf.scene import visual_hull
from nerf.scene.box import Resolution, SceneBox
from nerf.scene.occupancy import OccupancyGrid
from nerf.scene.silhouettes import Silhouettes


class _Contents(pickle.Pickler):
    """What is in an object, the same bytes for the same numbers: a tensor's own pickle names its address."""

    def reducer_override(self, value: object) -> object:
        if isinstance(value, Tensor):
            return tuple, ([str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()],)
        return NotImplemented


_CARVED: dict[bytes, OccupancyGrid] = {}


@contextmanager
def carved_once() -> Iterator[None]:
    """Meanwhile a hull of the same silhouettes, box and resolution as an earlier one is a copy of that one."""
    with mock.patch.object(visual_hull, "carve", _remembering(visual_hull.carve)):
        yield


def _remembering(carve: Callable[..., OccupancyGrid]) -> Callable[..., OccupancyGrid]:
    def remembered(silhouettes: Silhouettes | None, box: SceneBox, resolution: Resolution) -> OccupancyGrid:
        if silhouettes is None or box.aabb.device.type != "cpu":
            return carve(silhouettes, box, resolution)
        file = io.BytesIO()
        looked_at = {name: value for name, value in vars(silhouettes).items() if name != "ops"}
        _Contents(file).dump((looked_at, vars(box), tuple(resolution)))
        content = hashlib.sha256(file.getvalue()).digest()
        if content not in _CARVED:
            _CARVED[content] = carve(silhouettes, box, resolution)
        return OccupancyGrid(_CARVED[content].occupied.clone())

    return remembered
