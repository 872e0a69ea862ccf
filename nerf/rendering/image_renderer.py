"""Many images of one field: on a GPU each is a replayed CUDA graph.

A picture of lego takes the GPU two milliseconds. Before its first long kernel, the walk along the rays, come a dozen
short ones, for which the GPU waits a quarter of a millisecond while the host queues them.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import Lenses
from nerf.fields.field import Field
from nerf.ops.cuda_graphs import record, run_on, side_stream
from nerf.rendering.render import Rendering, is_one_chunk, render_image
from nerf.rendering.sampler import RaySampler


class ImageRenderer:
    """render_image, for many images of one field; of one thread at a time.

    The first image of a size is rendered plainly, the second is recorded as a CUDA graph, and those that follow are
    replays. What cannot be recorded is rendered plainly, always: on a CPU, with normals, by the PyTorch backend, of
    fields whose samples are stored, and where an image is more than one chunk. Values and grids of the field and the
    occupancy may change in between.
    """

    def __init__(self, field: Field, sampler: RaySampler, background: Tensor) -> None:
        """background [3]: behind the scene, on the field's device."""
        self.field, self.sampler, self.background = field, sampler, background
        # A field keeps its modules and may replace their parameters; to find the modules takes longer than to ask them.
        self._modules = tuple(field.modules())
        self._last: tuple[Any, ...] = ()  # what the last image depended on
        self._recorded: _RecordedImage | None = None  # of images that depend on the same

    def render(self, cameras: Cameras, index: int, with_normals: bool = False) -> Rendering:
        """One camera's image, as render_image returns it."""
        if not self._can_be_recorded(cameras, index, with_normals):
            return render_image(self.field, self.sampler, cameras, index, self.background, with_normals)
        camera, before, self._last = _one(cameras, index), self._last, self._addresses(cameras, index)
        if self._last != before:
            self._recorded = None
        elif self._recorded is None:
            self._recorded = _RecordedImage(self, camera)
        if self._recorded is not None:
            return self._recorded.replayed(camera)
        found: list[Rendering] = []
        stream = side_stream(self.background.device.index)
        run_on(stream, lambda: found.append(self.plainly(camera)))
        for tensor in (found[0].rgb, found[0].opacity, found[0].depth):
            tensor.record_stream(torch.cuda.current_stream())
        return found[0]

    def plainly(self, camera: Cameras) -> Rendering:
        """The image of a single camera, kernel by kernel."""
        return render_image(self.field, self.sampler, camera, 0, self.background)

    def _can_be_recorded(self, cameras: Cameras, index: int, with_normals: bool) -> bool:
        field, backend = self.field, self.sampler.backend
        if backend.device.type != "cuda" or backend.name != "native" or with_normals:
            return False
        stored = field.density_grid_view is None or field.deferred_grid is None
        return not stored and is_one_chunk(field, self.sampler, cameras, index)

    def _addresses(self, cameras: Cameras, index: int) -> tuple[Any, ...]:
        """All that a graph holds on to: where its tensors are and their shapes, and what is a constant in it."""
        grid, lenses = self.field.density_grid_view, cameras.lenses
        read = [x for module in self._modules for x in module._parameters.values() if x is not None]
        read += [x for x in vars(self.field).values() if isinstance(x, Tensor)]
        occupancy = self.sampler.occupancy
        read += [occupancy.occupied, occupancy.words, occupancy.clear, *(() if grid.table is None else (grid.table,))]
        kind = None if lenses is None else (lenses.kinds, lenses.iterations)
        constants = grid.shift, grid.scale, cameras.size(index), kind, self.field.annealed < 1
        return *((x.data_ptr(), x.shape, x.dtype) for x in read), *constants


class _RecordedImage:
    """The graph of an image, which reads its camera from where this one keeps it."""

    def __init__(self, renderer: ImageRenderer, camera: Cameras) -> None:
        lenses = camera.lenses
        kept = None if lenses is None else Lenses(*(x.clone() for x in _of(lenses)), lenses.kinds, lenses.iterations)
        self._camera = replace(camera, c2w=camera.c2w.clone(), intrinsics=camera.intrinsics.clone(), lenses=kept)
        self._found: list[Rendering] = []
        torch.cuda.empty_cache()  # what the plain image has freed would be kept beside the memory of the graph
        stream = side_stream(renderer.background.device.index)
        call = lambda: self._found.append(renderer.plainly(self._camera))  # noqa: E731
        self._graph = record(call, stream, errors="thread_local")

    def replayed(self, camera: Cameras) -> Rendering:
        torch._foreach_copy_(_tensors(self._camera), _tensors(camera))
        self._graph.replay()
        found = self._found[0]
        return Rendering(found.rgb.clone(), found.opacity.clone(), found.depth.clone())


def _one(cameras: Cameras, index: int) -> Cameras:
    """One of the cameras, without a read of the device."""
    index = range(len(cameras))[index]  # counted from the end where it is negative
    one = slice(index, index + 1)
    lenses = None if cameras.lenses is None else cameras.lenses[one]
    return Cameras(cameras.c2w[one], cameras.intrinsics[one], *cameras.size(index), None, lenses)


def _tensors(camera: Cameras) -> list[Tensor]:
    return [camera.c2w, camera.intrinsics, *(() if camera.lenses is None else _of(camera.lenses))]


def _of(lenses: Lenses) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return lenses.coefficients, lenses.reach, lenses.rim, lenses.numbers
