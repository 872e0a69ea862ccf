"""Pinhole cameras: from a pixel to a ray.

Axes are OpenGL's: x right, y up, the camera looks along -z. Pixel (column u, row v) has its centre at
(u + 0.5, v + 0.5), rows run downwards. Loaders of data with other axes convert before they come here.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.rays import Rays


@dataclass(frozen=True)
class Cameras:
    """I cameras that share one image size.

    c2w maps camera to world: columns are the camera's right, up and backward axes, then its centre.
    """

    c2w: Tensor  # [I,3,4]
    intrinsics: Tensor  # [I,4]: fx, fy, cx, cy in pixels
    width: int
    height: int

    def __len__(self) -> int:
        return self.c2w.shape[0]

    def __getitem__(self, index: slice | int) -> "Cameras":
        rows = slice(index, index + 1) if isinstance(index, int) else index
        return Cameras(self.c2w[rows], self.intrinsics[rows], self.width, self.height)

    def to(self, device: torch.device | str) -> "Cameras":
        return Cameras(self.c2w.to(device), self.intrinsics.to(device), self.width, self.height)

    @property
    def centers(self) -> Tensor:
        """Camera centres in world space, [I,3]."""
        return self.c2w[:, :, 3]

    def rays_through(self, pixel_indices: Tensor) -> Rays:
        """Rays through pixel centres.

        pixel_indices [R] counts pixels image by image, row by row: (image * height + v) * width + u.
        """
        in_camera, image = self.in_camera_directions(pixel_indices)
        return posed_rays(in_camera, self.c2w.index_select(0, image))

    def image_of(self, pixel_indices: Tensor) -> Tensor:
        """The images [R] that pixels belong to; pixel_indices: see rays_through."""
        return pixel_indices // (self.width * self.height)

    def in_camera_directions(self, pixel_indices: Tensor) -> tuple[Tensor, Tensor]:
        """Where pixels look in the axes of their cameras, [R,3] with z = -1, and which image each belongs to, [R].

        pixel_indices: see rays_through.
        """
        column = pixel_indices % self.width
        row = (pixel_indices // self.width) % self.height
        image = self.image_of(pixel_indices)
        fx, fy, cx, cy = self.intrinsics.index_select(0, image).unbind(-1)
        in_camera = torch.stack(
            [(column + 0.5 - cx) / fx, -(row + 0.5 - cy) / fy, -torch.ones_like(fx)], dim=-1
        )
        return in_camera, image

    def image_rays(self, index: int) -> Rays:
        """All rays of one image, row by row: R = height * width."""
        return self.pixel_range_rays(index, 0, self.width * self.height)

    def pixel_range_rays(self, index: int, first: int, end: int) -> Rays:
        """Rays of one image through its pixels first to end - 1, counted row by row, as far as there are pixels."""
        pixels = self.width * self.height
        bounds = (index * pixels + first, index * pixels + min(end, pixels))
        return self.rays_through(torch.arange(*bounds, device=self.c2w.device))

    def resized(self, width: int | None = None, height: int | None = None, scale: float | None = None) -> "Cameras":
        """The same cameras with pictures of another size.

        width, height: in pixels; one alone keeps the proportions, none keeps the size. scale: a factor on both instead.
        The vertical field of view stays and so does the shape of a pixel: where the proportions change, more or less is
        seen at the sides, and nothing is stretched. Raises ValueError for sizes below 1, and for scale beside a size.
        """
        if scale is not None:
            if width is not None or height is not None:
                raise ValueError(f"scale, width, height: found {scale}, {width}, {height}, expected scale alone")
            width, height = max(1, round(scale * self.width)), max(1, round(scale * self.height))
        elif height is None:
            height = self.height if width is None else max(1, round(width * self.height / self.width))
        width = max(1, round(height * self.width / self.height)) if width is None else width
        for name, size in (("width", width), ("height", height)):
            if size < 1:
                raise ValueError(f"{name}: found {size}, expected at least 1")
        factor = height / self.height
        fx, fy, cx, cy = self.intrinsics.unbind(-1)
        center = 0.5 * width + factor * (cx - 0.5 * self.width)
        return Cameras(self.c2w, torch.stack([factor * fx, factor * fy, center, factor * cy], dim=-1), width, height)

    def project(self, image: int, points: Tensor) -> tuple[Tensor, Tensor]:
        """World points [N,3] to pixel coordinates [N,2] (u, v) and camera z [N], positive in front."""
        rotation, center = self.c2w[image, :, :3], self.c2w[image, :, 3]
        right, up, backward = ((points - center) @ rotation).unbind(-1)
        fx, fy, cx, cy = self.intrinsics[image].unbind(-1)
        z = -backward
        safe_z = torch.where(z > 0, z, torch.ones_like(z))
        return torch.stack([cx + fx * right / safe_z, cy - fy * up / safe_z], dim=-1), z


def posed_rays(in_camera: Tensor, c2w: Tensor) -> Rays:
    """World rays of directions in_camera [R,3] of cameras c2w [R,3,4], one for each ray. Differentiable in both."""
    directions = (c2w[:, :, :3] * in_camera[:, None, :]).sum(-1)
    return Rays(c2w[:, :, 3].contiguous(), torch.nn.functional.normalize(directions, dim=-1))


def focal_from_fov(size: int, fov: float) -> float:
    """Focal length in pixels of a camera that sees the angle fov (radians) across size pixels."""
    return 0.5 * size / math.tan(0.5 * fov)
