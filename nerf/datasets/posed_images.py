"""Posed images: the record that every loader returns."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.images.pixel_runs import PixelRuns
from nerf.scene.description import SceneDescription


@dataclass(frozen=True)
class PosedImages:
    """I images, of one size or of many, with the cameras that took them; all on the CPU.

    The P pixels of all images are kept in one row, image by image, row by row, as Cameras counts them. Alpha is
    straight, not premultiplied; colors are sRGB. Blending and averaging work on the sRGB values, as is the custom with
    Synthetic-NeRF.
    """

    pixels: Tensor  # [P,C] uint8: red, green, blue, and alpha where any of the files stores transparency (C = 4)
    cameras: Cameras
    names: list[str]  # of each image, no two alike; fit for a file name
    depths: Tensor | None = None  # [P] float32: world distance along the unit ray, 0 = no hit
    valid_pixels: PixelRuns | None = None  # pixels that are trained on and scored; None: all
    notes: tuple[str, ...] = ()  # what whoever trains on them should know about how they were read
    scene: SceneDescription | None = None  # what the capture says of where the scene is
    files: tuple[Path, ...] = ()  # of each image; empty where none are told
    vignetting: Tensor | None = None  # [I,3] coefficients known from training (calibration/vignetting.py); None: none

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        """One line, however many images there are."""
        parts = {"alpha": self.has_alpha, "depths": self.depths is not None, "masks": self.valid_pixels is not None}
        extra = [name for name, there in parts.items() if there]
        named = self.names if len(self) <= 2 else [self.names[0], "...", self.names[-1]]
        kind = f", {self.scene.kind}" if self.scene is not None else ""
        with_ = f" with {' and '.join(extra)}" if extra else ""
        return f"PosedImages({len(self)} images {self.cameras.described_size}{with_}{kind}: {' '.join(named)})"

    @property
    def has_alpha(self) -> bool:
        """Whether transparency is stored."""
        return self.pixels.shape[1] == 4

    def image(self, index: int) -> Tensor:
        """One image, [H,W,C] uint8, without a copy."""
        return self._of(self.pixels, index)

    def depth(self, index: int) -> Tensor | None:
        """One depth map, [H,W] float32, or None where no depth is known."""
        return None if self.depths is None else self._of(self.depths, index)

    def valid_mask(self, index: int) -> Tensor | None:
        """Which pixels of one image count, [H,W] bool, or None where all of every image do."""
        if self.valid_pixels is None:
            return None
        width, height = self.cameras.size(index)
        first = self.cameras.first_pixel(index)
        return self.valid_pixels.mask(first, first + width * height).view(height, width)

    def image_over(self, index: int, background: Tensor) -> Tensor:
        """One image blended over a background color [3] in [0,1]: [H,W,3] float32 in [0,1]."""
        image = self.image(index).float() / 255
        if not self.has_alpha:
            return image
        alpha = image[..., 3:]
        return alpha * image[..., :3] + (1 - alpha) * background

    def chosen(self, indices: Sequence[int]) -> "PosedImages":
        """Some of the images, in the order of the indices, with copies of what is known of their pixels."""
        spans = [(self.cameras.first_pixel(i), self.cameras.first_pixel(i + 1)) for i in indices]
        cameras = self.cameras[list(indices)]
        valid_pixels = self.valid_pixels
        if valid_pixels is not None:
            parts = [valid_pixels.mask(*span) for span in spans]
            valid_pixels = PixelRuns.of_mask(torch.cat(parts))
        return replace(
            self,
            pixels=torch.cat([self.pixels[first:end] for first, end in spans]),
            cameras=cameras,
            names=[self.names[i] for i in indices],
            files=tuple(self.files[i] for i in indices) if self.files else (),
            depths=None if self.depths is None else torch.cat([self.depths[first:end] for first, end in spans]),
            valid_pixels=valid_pixels,
            vignetting=None if self.vignetting is None else self.vignetting[list(indices)],
        )

    def _of(self, values: Tensor, index: int) -> Tensor:
        width, height = self.cameras.size(index)
        first = self.cameras.first_pixel(index)
        return values[first : first + width * height].view(height, width, *values.shape[1:])


def names_of(paths: Sequence[Path]) -> list[str]:
    """A name for each image file, fit for a file name and no two alike: as much of the path as that takes."""
    stems = [path.stem for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    whole = [os.path.abspath(path) for path in paths]  # noqa: PTH100 - normalizes ".." too
    folder = os.path.commonpath([Path(path).parent for path in whole])
    names = [os.path.relpath(path, folder).replace(os.sep, "_") for path in whole]
    return names if len(set(names)) == len(names) else [f"{index}_{name}" for index, name in enumerate(names)]
