"""shift_pixels: the neighbors of a batch's pixels, in the same images."""

import torch
from torch import Tensor

from nerf.ops.registry import example, fake, numbers


def shift_pixels(
    pixel_indices: Tensor,
    shifts: Tensor,
    width: int,
    height: int,
    sizes: Tensor | None = None,
    first_pixels: Tensor | None = None,
) -> Tensor:
    """The pixels [R] int64 that are some columns and rows beside others, clamped at the edges of their images.

    pixel_indices [R] int64 counts pixels image by image, row by row. shifts [R,2]: columns and rows, which are rounded,
    halves to even; one that is no number leads to column or row 0.

    width, height: of all images, of which there may be any number. Where sizes differ: sizes [I,2] int64, width and
    height of each image, and first_pixels [I+1] int64, the number of pixels before each image and of all; width and
    height are not read then. No side is longer than 2^31 - 1.

    A pixel outside the images raises ValueError on the CPU, and on CUDA it stays outside. First pixels that are not
    those of sizes raise ValueError on the CPU, and on CUDA lead to some pixel. Not differentiable.
    """
    within = pixel_indices
    if sizes is not None:
        image = torch.searchsorted(first_pixels, pixel_indices, right=True) - 1
        within = pixel_indices - first_pixels.index_select(0, image)
        width, height = sizes.index_select(0, image).unbind(-1)
    column, row = within % width, within // width % height
    right, down = shifts.double().round().unbind(-1)
    to_column, to_row = _nearest(column + right, width), _nearest(row + down, height)
    return pixel_indices + (to_row - row) * width + to_column - column


def _nearest(place: Tensor, size: Tensor | int) -> Tensor:
    return place.nan_to_num(0.0).clamp(min=0).clamp(max=size - 1).long()


@fake("shift_pixels")
def _(pixel_indices, shifts, width, height, sizes=None, first_pixels=None):
    return pixel_indices.new_empty(pixel_indices.shape)


@example("shift_pixels")
def _():
    sizes = torch.tensor([[9, 8], [5, 11], [7, 7]])
    first_pixels = torch.nn.functional.pad(sizes.prod(1).cumsum(0), (1, 0))
    return (176 * numbers(50)).long(), numbers(50, 2, low=-6, high=6, seed=1), 9, 11, sizes, first_pixels
