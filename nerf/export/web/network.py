"""The network that a browser evaluates once a pixel: a few features and the view direction become a color.

The network of a run has a hundred neurons per layer and more; a fragment shader evaluates one of 32 at every pixel of
a frame.

Legend: P pixels, F channels of the field, K channels that are kept.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from nerf.fields.view_encoding import encode_view, encoding_width

FREQUENCIES = 4  # of the view direction, the most that fields have by default
LAYERS = 2  # hidden ones
SMALLEST_VARIANCE = 1e-4  # of a principal component; one of less is not scaled up to 1, as it may be rounding


class SmallMlp(nn.Module):
    """Colors [P,3] from composited features [P,F] and unit directions [P,3].

    The first layer maps the field's features to a few channels without looking at the direction. That map is linear,
    and so is compositing: it can be applied to the vertices instead of the pixels.

    diffuse: the first three kept channels are also a color, added to the network's.
    """

    def __init__(self, features: int, kept: int, width: int, layers: int = LAYERS, diffuse: bool = False) -> None:
        super().__init__()
        self.diffuse = diffuse
        self.projection = nn.Linear(features, kept, bias=False)
        widths = [kept + encoding_width(FREQUENCIES)] + [width] * layers
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False))
        self.color = nn.Linear(width, 3)

    @torch.no_grad()
    def begin(self, features: Tensor) -> None:
        """Makes the kept channels the principal components of the features [P,F], each of variance 1; they are learned
        from there. If diffuse, the first three stay the first three features, which are a color in such a field.
        """
        weight, own = self.projection.weight, 3 if self.diffuse else 0
        rest = features[:, own:].double().cpu()
        rest = rest - rest.mean(0)
        variances, axes = torch.linalg.eigh(rest.T @ rest / len(rest))  # in rising order
        scales = variances.clamp(min=SMALLEST_VARIANCE).rsqrt()
        components = (axes * scales).T.flip(0)[: len(weight) - own]
        weight[:own] = torch.eye(own, weight.shape[1])
        weight[own : own + len(components), :own] = 0
        weight[own : own + len(components), own:] = components.to(weight)

    def forward(self, features: Tensor, directions: Tensor) -> Tensor:
        return self.decode(self.projection(features), directions)

    def decoder(self) -> list[nn.Parameter]:
        """What decode() reads."""
        return [*self.hidden.parameters(), *self.color.parameters()]

    def decode(self, kept: Tensor, directions: Tensor) -> Tensor:
        """Colors [P,3] from the kept channels [P,K]."""
        x = torch.cat([kept, encode_view(directions, FREQUENCIES, encoding_width(FREQUENCIES))], dim=-1)
        for layer in self.hidden:
            x = functional.relu(layer(x))
        rgb = torch.sigmoid(self.color(x))
        return rgb + kept[:, :3] if self.diffuse else rgb
