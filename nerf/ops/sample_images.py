"""sample_images: bytes to colors, for the pixels of a batch."""

import torch
from torch import Tensor

from nerf.ops.registry import example, fake, numbers


def sample_images(images: Tensor, pixel_indices: Tensor) -> Tensor:
    """Colors of single pixels.

    images [I,H,W,C] uint8. pixel_indices [R] int64: (image * H + row) * W + column. Returns [R,C] float32 in [0,1].
    An index outside the images raises ValueError on the CPU and reads NaN on CUDA.
    """
    return images.reshape(-1, images.shape[3]).index_select(0, pixel_indices).float() / 255


@fake("sample_images")
def _(images, pixel_indices):
    return images.new_empty(pixel_indices.shape[0], images.shape[3], dtype=torch.float32)


@example("sample_images")
def _():
    return (256 * numbers(2, 8, 9, 4)).to(torch.uint8), (144 * numbers(100, seed=1)).long()
