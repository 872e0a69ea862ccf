"""sample_images: every byte becomes the nearest float to byte / 255, at the right pixel."""

import math

import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import (
    BOTH,
    assert_rejected,
)

from nerf.ops import native

NAME = "sample_images"


def _pixels(rays: int = 20, channels: int = 3, shape: tuple[int, int, int] = (2, 5, 7)) -> tuple:
    count = math.prod(shape)
    images = (256 * numbers(*shape, channels, seed=12)).to(torch.uint8)
    indices = (count * numbers(rays, seed=13)).long()
    indices[:2] = torch.tensor([0, count - 1])[:rays]
    return images, indices


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_pixels),
            "empty": as_case(_pixels, rays=0),
            "one_pixel": as_case(_pixels, shape=(1, 1, 1), rays=1),
            "non_contiguous": with_gaps(as_case(_pixels)),
            **{f"channels_{c}": as_case(_pixels, channels=c) for c in (1, 3, 4)},
        },
        no_derivative="bytes have no derivative",
        sizes=("images", "pixel_indices"),
        opcheck=("typical", "empty", "non_contiguous", "channels_4"),
    ),
}
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
def test_every_byte_becomes_its_share_of_255(ops, device):
    """Native rounds the quotient once; PyTorch on a GPU multiplies by 1 / 255, which is rounded too."""
    every = torch.arange(256, device=device)
    colors = ops.sample_images(every.to(torch.uint8).view(1, 16, 16, 1), every)[:, 0]
    exact = torch.arange(256, device=device).double() / 255
    assert colors.dtype == torch.float32 and colors[0] == 0 and colors[255] == 1
    if ops is native:
        assert torch.equal(colors, exact.float())
    torch.testing.assert_close(colors.double(), exact, rtol=2**-23, atol=0)


@BOTH
def test_pixels_are_counted_image_by_image_row_by_row(ops, device):
    count, height, width = 2, 3, 5
    image, row, column = torch.meshgrid(*map(torch.arange, (count, height, width)), indexing="ij")
    images = torch.stack([image, row, column], dim=-1).to(torch.uint8).to(device)
    indices = (image * height + row) * width + column
    colors = ops.sample_images(images, indices.reshape(-1).to(device))
    assert torch.equal((255 * colors).round().to(torch.uint8), images.reshape(-1, 3))


@BOTH
def test_pixels_may_repeat_in_any_order(ops, device):
    images, _ = CASES[NAME]["typical"](torch.float32, device)
    picked = torch.tensor([69, 0, 69, 12], device=device)
    everything = ops.sample_images(images, torch.arange(70, device=device))
    assert torch.equal(ops.sample_images(images, picked), everything[picked])


def test_an_index_outside_the_images_reads_not_a_number_on_a_gpu(cuda):
    """Which cannot raise without a wait, so a wrong index has to show in the loss."""
    images, _ = CASES[NAME]["typical"](torch.float32, cuda)
    colors = native.sample_images(images, torch.tensor([0, -1, 69, 70, 2**40, -(2**62)], device=cuda))
    assert colors.isnan().all(-1).tolist() == [False, True, False, True, True, True]


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "images", arguments[0].float(), "expected uint8")
