"""One picture of several trained fields of one scene: the mean of what each shows.

Fields that differ in their seed alone err in different places, and the errors average out (deep ensembles,
Lakshminarayanan et al. 2017). Where the members disagree none of them is to be trusted (for radiance fields:
Suenderhauf et al. 2022).

Legend: I cameras, H W pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from nerf.calibration.vignetting import vignetted_image
from nerf.cameras.cameras import Cameras
from nerf.fields.field import Field
from nerf.rendering.image_renderer import ImageRenderer
from nerf.rendering.render import Rendering
from nerf.rendering.sampler import RaySampler


@dataclass(frozen=True)
class Member:
    """A trained field, and the cameras that see it. One alone is an ensemble, too."""

    field: Field
    sampler: RaySampler
    cameras: Cameras  # I, on the field's device; in the world of this field, which learned poses may have moved
    background: Tensor  # [3]
    vignetting: Tensor | None = None  # [I,3] coefficients of its cameras; None: not learned

    @cached_property
    def _images(self) -> ImageRenderer:
        return ImageRenderer(self.field, self.sampler, self.background)

    def render(self, index: int, with_normals: bool = False, photo_alpha: Tensor | None = None) -> Rendering:
        """Its picture from one of the cameras; arguments and result as of render_mean."""
        rendering = self._images.render(self.cameras, index, with_normals)
        if self.vignetting is None or photo_alpha is None:
            return rendering
        return replace(rendering, rgb=vignetted_image(rendering.rgb, photo_alpha, self.cameras, index, self.vignetting))


def render_mean(
    members: Sequence[Member], index: int, with_normals: bool = False, photo_alpha: Tensor | None = None
) -> Rendering:
    """The mean of the members' pictures from camera number index: rgb [H,W,3], opacity and depth [H,W].

    A member's distance to the scene counts by its opacity, and so does its normal; the mean of the normals is brought
    to unit length. spread [H,W] is the standard deviation of the members' colors. One member has none, and its picture
    is as it is.

    photo_alpha [H,W,1]: of the camera's photo, where pictures shall be as dark as that is by the vignetting of the
    members; None: no vignetting. All tensors are on the device of the members.
    """
    seen = [member.render(index, with_normals, photo_alpha) for member in members]
    if len(seen) == 1:
        return seen[0]
    rgb, opacity, depth = (torch.stack([getattr(one, name) for one in seen]) for name in ("rgb", "opacity", "depth"))
    normals = None
    if with_normals:
        normals = functional.normalize(sum(one.opacity[..., None] * one.normals for one in seen), dim=-1)
    return Rendering(
        rgb.mean(0), opacity.mean(0), depth.mean(0), normals, spread=rgb.var(0, correction=0).mean(-1).sqrt()
    )
