"""sRGB and linear light: there and back, known pairs, and stops."""

import pytest
import torch

from nerf.images.srgb import exposed_by_stops, from_linear, to_linear


def test_known_values_and_back() -> None:
    image = torch.tensor([0.0, 0.04045, 0.5, 188 / 255, 1.0], dtype=torch.float64)
    light = torch.tensor([0.0, 0.0031308, 0.21404, 0.50289, 1.0], dtype=torch.float64)
    torch.testing.assert_close(to_linear(image), light, rtol=0, atol=2e-5)
    torch.testing.assert_close(from_linear(to_linear(image)), image, rtol=0, atol=1e-6)


@pytest.mark.parametrize("stops", [-3.0, -0.5, 1.0])
def test_a_stop_doubles_the_light(stops: float) -> None:
    image = torch.linspace(0, 1, 64).view(4, 16)
    torch.testing.assert_close(
        to_linear(exposed_by_stops(image, stops)), to_linear(image) * 2**stops, rtol=1e-4, atol=1e-6
    )


def test_no_stops_change_no_bit() -> None:
    image = torch.linspace(-0.1, 1.1, 64)
    assert exposed_by_stops(image, 0.0).equal(image)
