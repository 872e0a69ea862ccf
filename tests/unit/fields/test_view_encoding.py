"""The view direction's encoding."""

import torch

from nerf.fields.view_encoding import encode_view, encoding_width


def test_it_is_the_direction_and_its_sines_and_cosines() -> None:
    directions = torch.nn.functional.normalize(torch.randn(5, 3), dim=-1)
    encoded = encode_view(directions, 3, 24)
    expected = [directions]
    for function in (torch.sin, torch.cos):
        expected += [function(2**k * directions) for k in range(3)]
    assert encoding_width(3) == 21
    torch.testing.assert_close(encoded[:, :21], torch.cat(expected, dim=-1))
    assert not encoded[:, 21:].any() and encoded.shape == (5, 24)


def test_no_frequencies_leave_the_direction() -> None:
    directions = torch.randn(4, 3)
    assert torch.equal(encode_view(directions, 0, 3), directions)


def test_it_can_be_rounded_on_the_way() -> None:
    directions = torch.nn.functional.normalize(torch.randn(5, 3), dim=-1)
    assert torch.equal(encode_view(directions, 3, 24, torch.bfloat16), encode_view(directions, 3, 24).bfloat16())
