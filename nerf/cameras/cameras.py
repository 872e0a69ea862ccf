"""Cameras: from a pixel to a ray, through a lens that may distort, or all around.

Axes are OpenGL's: x right, y up, the camera looks along -z. Pixel (column u, row v) has its center at
(u + 0.5, v + 0.5), rows run downwards. Loaders of data with other axes convert before they come here.

The pixels of all images are counted in one row: image by image, row by row.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch import Tensor

from nerf.cameras.distortion import NUMBER_OF, Lenses
from nerf.cameras.rays import Rays
from nerf.ops import reference

# Positions of rays within a pixel, (u, v) from its center in pixels, by rays per pixel; no two in a row or column.
SUBPIXELS = {
    1: ((0.0, 0.0),),
    2: ((-0.25, -0.25), (0.25, 0.25)),
    4: ((-0.125, -0.375), (0.375, -0.125), (0.125, 0.375), (-0.375, 0.125)),
}
PANORAMA = "equirectangular"
ROUNDED_SHAPE = 0.01  # of its width, by which a panorama may miss being twice as wide as high


@dataclass(frozen=True)
class Cameras:
    """I cameras, each with intrinsics, a lens and an image size of its own.

    c2w maps camera to world: columns are the camera's right, up and backward axes, then its center.
    """

    c2w: Tensor  # [I,3,4]
    intrinsics: Tensor  # [I,4]: fx, fy, cx, cy in pixels
    width: int  # of all images, or of the widest where sizes differ
    height: int  # of all images, or of the highest
    sizes: Tensor | None = None  # [I,2] int64, width and height of each image; None: all have one size
    lenses: Lenses | None = None  # None: pinholes
    _first_pixels: Tensor | None = field(init=False, repr=False, compare=False)  # [I+1] int64 where sizes differ

    def __post_init__(self) -> None:
        if min(self.width, self.height) < 1:
            raise ValueError(f"width, height: found {self.width}, {self.height}, expected at least 1")
        first = None if self.sizes is None else torch.nn.functional.pad(self.sizes.prod(1).cumsum(0), (1, 0))
        object.__setattr__(self, "_first_pixels", first)

    @staticmethod
    def of_sizes(
        c2w: Tensor, intrinsics: Tensor, sizes: Sequence[tuple[int, int]] | Tensor, lenses: Lenses | None = None
    ) -> "Cameras":
        """Cameras by the width and height of each of their I images. Raises ValueError where there are none."""
        sizes = torch.as_tensor(sizes, dtype=torch.int64).view(-1, 2)
        if not len(sizes):
            raise ValueError("sizes: found none, expected those of at least one image")
        width, height = sizes.amax(0).tolist()
        different = None if (sizes == sizes[0]).all() else sizes.to(c2w.device)
        return Cameras(c2w, intrinsics, width, height, different, lenses)

    def __len__(self) -> int:
        return self.c2w.shape[0]

    def __repr__(self) -> str:
        """One line, however many cameras there are."""
        lenses = "pinholes" if self.lenses is None else " and ".join(self.lenses.kinds) + " lenses"
        return f"Cameras({len(self)}, {self.described_size}, {lenses}, on {self.c2w.device})"

    def __getitem__(self, index: slice | int | Sequence[int]) -> "Cameras":
        """Some of the cameras. sizes becomes None if they have the same size.

        A number chooses one, from the end where it is negative. Raises IndexError where there is no such camera.
        """
        rows = index
        if isinstance(index, int):
            first = range(len(self))[index]
            rows = slice(first, first + 1)
        lenses = None if self.lenses is None else self.lenses[rows]
        chosen = self.c2w[rows], self.intrinsics[rows]
        if self.sizes is None or len(chosen[0]) == 0:
            return Cameras(*chosen, self.width, self.height, None, lenses)
        return Cameras.of_sizes(*chosen, self.sizes[rows], lenses)

    def to(self, device: torch.device | str) -> "Cameras":
        sizes, lenses = (None if part is None else part.to(device) for part in (self.sizes, self.lenses))
        return Cameras(self.c2w.to(device), self.intrinsics.to(device), self.width, self.height, sizes, lenses)

    def size(self, index: int) -> tuple[int, int]:
        """Width and height of one image."""
        return (self.width, self.height) if self.sizes is None else tuple(self.sizes[index].tolist())

    def first_pixel(self, index: int) -> int:
        """Number of the first pixel of an image; for the index after the last image: the number of all pixels."""
        if self._first_pixels is None:
            return index * self.width * self.height
        return int(self._first_pixels[index])

    @property
    def panoramas(self) -> Tensor:
        """Which of them see all around, [I] bool: their depth is the distance, and no direction is ahead of them."""
        if self.lenses is None or PANORAMA not in self.lenses.kinds:
            return torch.zeros(len(self), dtype=torch.bool, device=self.c2w.device)
        return self.lenses.numbers == NUMBER_OF[PANORAMA]

    @property
    def has_panoramas(self) -> bool:
        """Whether any sees all around. Reads from the device where lenses are of several kinds."""
        return self.lenses is not None and PANORAMA in self.lenses.kinds and bool(self.panoramas.any())

    @property
    def described_size(self) -> str:
        """The size of the images in words."""
        size = f"{self.width}x{self.height}"
        return size if self.sizes is None else f"of several sizes, up to {size}"

    @property
    def image_sizes(self) -> Tensor:
        """Width and height of each image, [I,2] int64."""
        if self.sizes is not None:
            return self.sizes
        size = torch.tensor([self.width, self.height], device=self.c2w.device)
        return size.expand(len(self), 2)

    @property
    def centers(self) -> Tensor:
        """Camera centers in world space, [I,3]."""
        return self.c2w[:, :, 3]

    def locate(self, pixel_indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Image, column and row [R] int64 of pixels [R], which are counted image by image, row by row."""
        if self.sizes is None:
            column = pixel_indices % self.width
            row = (pixel_indices // self.width) % self.height
            return pixel_indices // (self.width * self.height), column, row
        image = torch.searchsorted(self._first_pixels, pixel_indices, right=True) - 1
        within = pixel_indices - self._first_pixels.index_select(0, image)
        width = self.sizes[:, 0].index_select(0, image)
        return image, within % width, within // width

    def moved(self, pixel_indices: Tensor, shifts: Tensor, ops: ModuleType = reference) -> Tensor:
        """The pixels [R] shifted by columns and rows, shifts [R,2], rounded and clamped at the edges of their images.

        ops: Backend.ops, whose shift_pixels does it.
        """
        return ops.shift_pixels(pixel_indices, shifts, self.width, self.height, self.sizes, self._first_pixels)

    def rays_through(self, pixel_indices: Tensor, per_pixel: int = 1, ops: ModuleType = reference) -> Rays:
        """Rays through pixels: one through the center of each, or more, as SUBPIXELS has them.

        pixel_indices [P] int64 counts pixels image by image, row by row: where all images have one size,
        (image * height + v) * width + u. ops: Backend.ops, whose camera_rays makes them.
        """
        if ops is reference and self.lenses is not None:  # which would try all models, not those that occur alone
            points, image = self.plane_points(pixel_indices, per_pixel)
            return posed_rays(self.directions_through(points, image), self.c2w.index_select(0, image), per_pixel)
        shifts = subpixels(per_pixel, self.c2w.device, self.c2w.dtype)
        cameras = self.c2w, self.intrinsics, pixel_indices, self.width, self.height, shifts
        return Rays(*ops.camera_rays(*cameras, self.sizes, self._first_pixels, *self._lens_numbers()), per_pixel)

    def refined(self) -> "Cameras":
        """Themselves, as they are given; learned cameras (PoseRefinement) return those of their current poses."""
        return self

    def image_of(self, pixel_indices: Tensor) -> Tensor:
        """The images [R] that pixels belong to; pixel_indices: see rays_through."""
        return self.locate(pixel_indices)[0]

    def plane_points(self, pixel_indices: Tensor, per_pixel: int = 1) -> tuple[Tensor, Tensor]:
        """Points of rays on the image plane, [R,2] in focal lengths from the principal point, x right, y down, and
        their images, [R].

        pixel_indices, per_pixel: see rays_through.
        """
        image, column, row = self.locate(pixel_indices)
        fx, fy, cx, cy = self.intrinsics.index_select(0, image).unbind(-1)
        if per_pixel == 1:
            return torch.stack([(column + 0.5 - cx) / fx, (row + 0.5 - cy) / fy], dim=-1), image
        middle = torch.stack([column + 0.5 - cx, row + 0.5 - cy], dim=-1)
        points = middle[:, None] + subpixels(per_pixel, middle.device, middle.dtype)
        points = points / torch.stack([fx, fy], dim=-1)[:, None]
        return points.flatten(0, 1), image.repeat_interleave(per_pixel, output_size=per_pixel * len(image))

    def directions_through(self, points: Tensor, image: Tensor) -> Tensor:
        """Ray directions [R,3] in camera axes, not normalized, through points of plane_points; differentiable."""
        if self.lenses is not None:
            x, y, z = self.lenses.undistort(image, points).unbind(-1)
        else:
            x, y = points.unbind(-1)
            z = torch.ones_like(x)
        return torch.stack([x, -y, -z], dim=-1)

    def _lens_numbers(self) -> tuple[Tensor | int, ...]:
        """The lenses as camera_rays takes them."""
        if self.lenses is None:
            return ()
        lenses = self.lenses
        numbers = (x.to(self.c2w) for x in (lenses.coefficients, lenses.reach, lenses.rim))
        return lenses.numbers, *numbers, lenses.iterations

    def image_rays(self, index: int) -> Rays:
        """All rays of one image, row by row: R = height * width."""
        width, height = self.size(index)
        return self.pixel_range_rays(index, 0, width * height)

    def pixel_range_rays(
        self, index: int, first: int, end: int, per_pixel: int = 1, ops: ModuleType = reference
    ) -> Rays:
        """Rays of one image through its pixels first to end - 1, counted row by row; end may exceed the image.

        per_pixel, ops: see rays_through. Raises ValueError for other pixels.
        """
        index = range(len(self))[index]  # counted from the end where it is negative
        one, (width, height) = slice(index, index + 1), self.size(index)
        lens = None if self.lenses is None else self.lenses[one]
        camera = Cameras(self.c2w[one], self.intrinsics[one], width, height, None, lens)
        if not 0 <= first <= min(end, width * height):
            raise ValueError(f"first, end: found {first}, {end}, expected pixels of {width}x{height} in their order")
        pixels = torch.arange(first, min(end, width * height), device=self.c2w.device)
        return camera.rays_through(pixels, per_pixel, ops)

    def resized(self, width: int | None = None, height: int | None = None, scale: float | None = None) -> "Cameras":
        """The same cameras with pictures of another size.

        width, height: in pixels; one of them keeps the aspect ratio of each image, none keeps the size. scale: a factor
        on both instead. The vertical field of view and the shape of pixels are kept; a new aspect ratio crops or
        extends the sides. A panorama has no sides: two lengths stretch it, by one or by scale it stays twice as wide as
        high. Raises ValueError for sizes below 1, a scale that is not above 0, scale together with a size, and where
        there are no cameras.
        """
        if scale is not None and (width is not None or height is not None):
            raise ValueError(f"scale, width, height: found {scale}, {width}, {height}, expected scale alone")
        if scale is not None and not 0 < scale < math.inf:
            raise ValueError(f"scale: found {scale}, expected a finite number above 0")
        before = self.image_sizes
        sizes = [_resized(*size, width, height, scale) for size in before.tolist()]
        if self.has_panoramas and (scale is not None or (width is None) != (height is None)):
            around = zip(sizes, before.tolist(), self.panoramas.tolist())
            sizes = [_twice_as_wide(*size) if it and is_unstretched(*old) else size for size, old, it in around]
        for name, size in zip(("width", "height"), sizes[0] if sizes else ()):
            if size < 1:
                raise ValueError(f"{name}: found {size}, expected at least 1")
        after = torch.tensor(sizes, device=before.device).view(-1, 2)
        factor = after[:, 1].to(self.intrinsics) / before[:, 1]
        fx, fy, cx, cy = self.intrinsics.unbind(-1)
        center = 0.5 * after[:, 0] + factor * (cx - 0.5 * before[:, 0])
        across = factor
        if self.lenses is not None:
            across = torch.where(self.panoramas, after[:, 0].to(self.intrinsics) / before[:, 0], factor)
            center = torch.where(self.panoramas, across * cx, center)
        intrinsics = torch.stack([across * fx, factor * fy, center, factor * cy], dim=-1)
        return Cameras.of_sizes(self.c2w, intrinsics, after, self.lenses)

    def within(self, side: int) -> "Cameras":
        """The same cameras with images reduced so that no side is longer than `side` pixels.

        Raises ValueError for a side below 1, and as resized.
        """
        if side < 1:
            raise ValueError(f"side: found {side}, expected at least 1")
        longest = max(self.width, self.height)
        return self if longest <= side else self.resized(scale=side / longest)

    def project(self, image: int, points: Tensor) -> tuple[Tensor, Tensor]:
        """World points [N,3] to pixel coordinates [N,2] (u, v) and camera z [N], positive in front.

        A panorama sees in all directions: its z is the distance.
        """
        image = range(len(self))[image]  # counted from the end where it is negative
        pixels, z = self.project_into(range(image, image + 1), points)
        return pixels[0], z[0]

    def project_into(self, images: range, points: Tensor) -> tuple[Tensor, Tensor]:
        """World points [N,3] into V images: pixel coordinates [V,N,2] (u, v) and z [V,N]; see project."""
        rows = slice(images.start, images.stop)
        rotation, center = self.c2w[rows, :, :3], self.c2w[rows, :, 3]
        u, v, z = self._in_pixels(images, *((points - center[:, None]) @ rotation).unbind(-1))
        return torch.stack([u, v], dim=-1), z

    def z_along(self, image: int, directions: Tensor) -> Tensor:
        """How much z, as project has it, grows along unit directions [R,3] per distance, [R]."""
        if self.has_panoramas and self.panoramas[image]:
            return torch.ones_like(directions[:, 0])
        return -directions @ self.c2w[image, :, 2]

    def project_along(self, image: int, rays: Rays, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """project for the points at distances t [N,T] along rays [N]: u, v and camera z, each [N,T].

        Each ray is rotated once instead of each of its points.
        """
        image = range(len(self))[image]
        rotation, center = self.c2w[image, :, :3], self.c2w[image, :, 3]
        start, step = (rays.origins - center) @ rotation, rays.directions @ rotation
        axes = (torch.addcmul(start[:, i, None], step[:, i, None], t).view(1, -1) for i in range(3))
        u, v, z = self._in_pixels(range(image, image + 1), *axes)
        return u.view(t.shape), v.view(t.shape), z.view(t.shape)

    def _in_pixels(self, images: range, right: Tensor, up: Tensor, backward: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Camera coordinates of V images: pixel coordinates u, v and z as project has it; each [V,N]."""
        fx, fy, cx, cy = self.intrinsics[images.start : images.stop, :, None].unbind(1)
        z = -backward
        if self.lenses is not None:
            owner = torch.arange(images.start, images.stop, device=z.device).repeat_interleave(z.shape[1])
            directions = torch.stack([right, -up, z], dim=-1)
            x, y = self.lenses.distort(owner, directions.flatten(0, 1)).view(*z.shape, 2).unbind(-1)
            if PANORAMA in self.lenses.kinds:
                all_around = self.panoramas[images.start : images.stop, None]
                z = torch.where(all_around, torch.linalg.vector_norm(directions, dim=-1), z)
            return cx + fx * x, cy + fy * y, z
        inverse = torch.where(z > 0, z, torch.ones_like(z)).reciprocal_()
        return cx + fx * right * inverse, cy - fy * up * inverse, z


def _resized(
    width: int, height: int, new_width: int | None, new_height: int | None, scale: float | None
) -> tuple[int, int]:
    """The new size of one image; see Cameras.resized."""
    if scale is not None:
        return max(1, round(scale * width)), max(1, round(scale * height))
    if new_height is None:
        new_height = height if new_width is None else max(1, round(new_width * height / width))
    return max(1, round(new_height * width / height)) if new_width is None else new_width, new_height


def _twice_as_wide(width: int, height: int) -> tuple[int, int]:
    """The size of a panorama nearest to one that was rounded, and no wider; a single pixel stays."""
    return (2 * (width // 2), width // 2) if width > 1 else (width, height)


def is_unstretched(width: int, height: int) -> bool:
    """Whether a panorama of this size is twice as wide as high, up to rounding, as its 360 by 180 degrees are."""
    return abs(width - 2 * height) <= max(1, ROUNDED_SHAPE * 2 * height)


def corner_radii(intrinsics: Tensor, sizes: Tensor) -> list[float]:
    """Distance of the farthest corner of each image from its principal point, in focal lengths.

    intrinsics [I,4] and sizes [I,2] (width, height): as Cameras has them.
    """
    focal, center = intrinsics[:, :2], intrinsics[:, 2:]
    return (torch.maximum(center, sizes - center).clamp(min=0) / focal).norm(dim=-1).tolist()


@functools.cache
def subpixels(per_pixel: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """SUBPIXELS as a tensor [per_pixel,2], cached per device, because a captured step cannot copy from the host.

    Raises ValueError for other numbers of rays per pixel.
    """
    if per_pixel not in SUBPIXELS:
        raise ValueError(f"per_pixel: found {per_pixel}, expected one of {', '.join(map(str, SUBPIXELS))}")
    with torch.inference_mode(False):  # training may come after a picture
        return torch.tensor(SUBPIXELS[per_pixel], device=device, dtype=dtype)


def posed_rays(in_camera: Tensor, c2w: Tensor, per_pixel: int = 1) -> Rays:
    """World rays of directions in_camera [R,3] of cameras c2w [R,3,4], one for each ray. Differentiable in both."""
    directions = (c2w[:, :, :3] * in_camera[:, None, :]).sum(-1)
    return Rays(c2w[:, :, 3].contiguous(), torch.nn.functional.normalize(directions, dim=-1), per_pixel)


def focal_from_fov(size: int, fov: float) -> float:
    """Focal length in pixels of a camera that sees the angle fov across size pixels.

    fov: radians. Raises ValueError unless it is above 0 and below pi, and if size is below 1.
    """
    if not (0 < fov < math.pi and size >= 1):
        raise ValueError(
            f"fov, size: found {fov}, {size}, expected an angle above 0 and below pi, and at least a pixel"
        )
    return 0.5 * size / math.tan(0.5 * fov)
