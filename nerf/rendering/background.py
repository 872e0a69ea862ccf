"""What lies behind the scene: in training, where the loss is to pull rays either opaque or clear, and in pictures.

Legend: R rays.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.config.schema import DatasetConfig

WHITE, GREY, BLACK = 1.0, 0.5, 0.0


@dataclass(frozen=True)
class Background:
    """The color behind the scene: white, black, random for each ray in training, or one that is learned."""

    mode: str  # white, black, random or learned
    opaque_images: bool = False  # of a forward-facing capture
    learned: Tensor | None = None  # [3] before the sigmoid, a parameter of the field

    @classmethod
    def of(cls, dataset: DatasetConfig, learned: Tensor | None) -> "Background":
        """That of resolved settings; learned: the field's parameter, if it has one."""
        return cls(dataset.background, dataset.kind == "forward", learned)

    def draw(self, num_rays: int, generator: torch.Generator, device: torch.device) -> Tensor:
        """Colors [R,3] of a training batch; black where the learned one takes their place in train()."""
        if self.mode == "random":
            return torch.rand(num_rays, 3, generator=generator, device=device)
        return torch.full((num_rays, 3), WHITE if self.mode == "white" else BLACK, device=device)

    def train(self, drawn: Tensor) -> Tensor:
        """The color behind the rays of a training batch: drawn [R,3], or the learned one [3], differentiable."""
        return drawn if self.learned is None else torch.sigmoid(self.learned)

    def eval(self, device: torch.device) -> Tensor:
        """The color [3] in pictures: the learned one, else white unless black was chosen.

        Images of a forward-facing capture are opaque, so a background that shows in a picture was never observed: grey
        is the guess with the smallest expected error.
        """
        if self.learned is not None:
            return torch.sigmoid(self.learned).detach()
        unobserved = self.opaque_images and self.mode == "random"
        shade = BLACK if self.mode == "black" else GREY if unobserved else WHITE
        return torch.full((3,), shade, device=device)
