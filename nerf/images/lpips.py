"""LPIPS: perceptual distance of two images (Zhang et al. 2018), if its package and weights are installed.

The package `lpips` is optional. It uses torchvision's VGG16 weights, which torchvision downloads if they are missing.
An evaluation must not depend on a network connection, so the presence of the weights is checked first.
"""

import importlib
import pickle
from pathlib import Path

import torch
from torch import Tensor

from nerf.images.metrics import IMAGE, check_float

WEIGHTS = "vgg16-397923af.pth"  # torchvision's own name for VGG16_Weights.IMAGENET1K_V1
SMALLEST_SIDE = 16  # pixels: VGG halves its input four times


class LpipsUnavailable(RuntimeError):
    """LPIPS cannot be computed here; the message says what is missing and how to get it."""


class Lpips:
    """LPIPS version 0.1 with VGG16, the variant that radiance-field papers report, on one device."""

    def __init__(self, device: torch.device) -> None:
        """Raises LpipsUnavailable; nothing is downloaded."""
        try:
            package = importlib.import_module("lpips")
        except (ImportError, OSError, RuntimeError) as error:  # the last: torchvision of another PyTorch
            absent = isinstance(error, ModuleNotFoundError) and error.name == "lpips"
            reason = "is not installed" if absent else f"cannot be imported ({str(error).splitlines()[0]})"
            raise LpipsUnavailable(f"the package lpips {reason}; pip install lpips") from error
        weights = Path(torch.hub.get_dir()) / "checkpoints" / WEIGHTS
        if not weights.is_file():
            raise LpipsUnavailable(
                f"torchvision's weights {weights} are missing; download them once with: "
                "python -c \"import torchvision; torchvision.models.vgg16(weights='IMAGENET1K_V1')\""
            )
        try:
            self._network = package.LPIPS(net="vgg", verbose=False).to(device).eval()
        except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise LpipsUnavailable(f"{weights} cannot be loaded ({reason}); remove it and download it again") from error
        self._device = device

    @torch.no_grad()
    def __call__(self, image: Tensor, target: Tensor) -> float:
        """LPIPS of image against target, both float [H,W,3] in [0,1], clamped; the network sees them in [-1,1].

        0 for identical images. Raises ValueError if the shapes differ or either is not a float image.
        """
        check_float("target", target, IMAGE)
        check_float("image", image, target.shape)
        pair = torch.stack([image, target]).to(self._device, torch.float32).clamp(0, 1)
        pred, rgb_gt = (2 * pair - 1).permute(0, 3, 1, 2)[:, None]
        return self._network(pred, rgb_gt).item()
