"""The background behind the scene: for training batches and for rendered images.

Legend: R rays.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.config.schema import DatasetConfig

WHITE, GRAY, BLACK = 1.0, 0.5, 0.0


@dataclass(frozen=True)
class Background:
    """The background color: white, black, random per ray in training, or learned.

    A random background makes every partly transparent ray an error, so training drives rays to be opaque or clear.
    """

    mode: str  # white, black, random or learned
    opaque_images: bool = False  # true for a forward-facing capture
    learned: Tensor | None = None  # [3] before the sigmoid, a parameter of the field

    @classmethod
    def of(cls, dataset: DatasetConfig, learned: Tensor | None) -> "Background":
        """The background of resolved settings. learned: the field's parameter, None if it has none."""
        return cls(dataset.background, dataset.kind == "forward_facing", learned)

    def draw(self, num_rays: int, generator: torch.Generator, device: torch.device) -> Tensor:
        """Random or constant background colors of a training batch, [R,3]; black for the learned mode, see train()."""
        if self.mode == "random":
            return torch.rand(num_rays, 3, generator=generator, device=device)
        return torch.full((num_rays, 3), WHITE if self.mode == "white" else BLACK, device=device)

    def train(self, drawn: Tensor) -> Tensor:
        """The background of a training batch: drawn [R,3], or the learned color [3], differentiable."""
        return drawn if self.learned is None else torch.sigmoid(self.learned)

    def eval(self, device: torch.device) -> Tensor:
        """The background color [3] of rendered images: learned, black if the mode is black, else white.

        With a random background and opaque (forward-facing) images it is mid-gray: visible background was never
        observed, and gray has the smallest expected error.
        """
        if self.learned is not None:
            return torch.sigmoid(self.learned).detach()
        unobserved = self.opaque_images and self.mode == "random"
        shade = BLACK if self.mode == "black" else GRAY if unobserved else WHITE
        return torch.full((3,), shade, device=device)
