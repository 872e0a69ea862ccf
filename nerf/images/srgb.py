"""sRGB and linear light (IEC 61966-2-1)."""

import torch
from torch import Tensor


def to_linear(image: Tensor) -> Tensor:
    """Linear light of sRGB values in [0, 1], any shape."""
    return torch.where(image <= 0.04045, image / 12.92, ((image.clamp(min=0) + 0.055) / 1.055) ** 2.4)


def from_linear(light: Tensor) -> Tensor:
    """sRGB values of linear light >= 0, any shape; not clamped above."""
    return torch.where(light <= 0.0031308, 12.92 * light, 1.055 * light.clamp(min=0) ** (1 / 2.4) - 0.055)


def exposed_by_stops(image: Tensor, stops: float) -> Tensor:
    """sRGB values as if exposed `stops` longer: each stop doubles the linear light. image: clamped to [0, 1] first.

    0 stops change nothing, not even by rounding; values above 1 are left to the caller.
    """
    return image if stops == 0 else from_linear(to_linear(image.clamp(0, 1)) * 2.0**stops)
