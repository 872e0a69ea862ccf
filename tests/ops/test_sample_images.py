"""sample_images: every byte becomes the nearest float to byte / 255, at the right pixel."""

import pytest
import torch
from cases import CASES
from proofs import (
    assert_as_accurate,
    assert_checks_devices,
    assert_checks_types_and_shapes,
    assert_opcheck,
    assert_rejected,
)

from nerf.ops import native, reference

NAME = "sample_images"
BOTH = pytest.mark.parametrize("ops", [native, reference], ids=["native", "torch"])


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


@pytest.mark.parametrize("case", CASES[NAME])
def test_native_is_as_accurate_as_the_reference(case, device):
    assert_as_accurate(NAME, CASES[NAME][case](torch.float32, device))


def test_an_index_outside_the_images_reads_not_a_number(device):
    """The GPU cannot raise without a wait, so a wrong index has to show in the loss."""
    images, _ = CASES[NAME]["typical"](torch.float32, device)
    colors = native.sample_images(images, torch.tensor([0, -1, 69, 70, 2**40, -(2**62)], device=device))
    assert colors.isnan().all(-1).tolist() == [False, True, False, True, True, True]


@pytest.mark.parametrize("case", ["typical", "empty", "non_contiguous", "channels_4"])
def test_opcheck(case, device):
    assert_opcheck(NAME, CASES[NAME][case](torch.float32, device))


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_checks_types_and_shapes(NAME, arguments)
    assert_rejected(NAME, arguments, "images", arguments[0].float(), "expected uint8")


def test_arguments_on_another_device_are_named(cuda):
    assert_checks_devices(NAME, CASES[NAME]["typical"](torch.float32, cuda), first="images")
