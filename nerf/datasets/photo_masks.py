"""What masks and alpha of a capture's photos mean, and the pixels that they leave out.

Masks mean what mask_use decides, and alpha of the photos' own likewise, unless dataset.masks says.
"""

from collections.abc import Sequence

import numpy as np
import torch

from nerf.cameras.cameras import Cameras
from nerf.datasets.capture import Capture, Frame
from nerf.datasets.decoding import image_info, read_all, read_mask, read_pixels, read_whiteness
from nerf.datasets.mask_use import LOOKED_AT, MaskUse, decide
from nerf.datasets.photo import Photo, cameras_of, checked_photo, some_of
from nerf.datasets.readers import missing_images
from nerf.errors import UserError
from nerf.images.pixel_runs import PixelRuns

OPAQUE = 128  # of 255: a pixel whose alpha is left out counts from there on


def use_of_alpha(capture: Capture, wanted: str) -> MaskUse | None:
    """What the photos' own alpha means, the same for all splits of a capture; None where it means nothing.

    wanted: dataset.masks. A photo without alpha is opaque.
    """
    there = frames_there(capture)
    if wanted == "none" or not any(read_all(lambda i: image_info(there[i].image).has_alpha, len(there), "alpha found")):
        return None
    if wanted != "auto":
        return MaskUse(wanted, f"taken so as dataset.masks={wanted} says")
    photos = _looked_at(there)
    opaque = read_all(lambda i: _stored_alpha(photos[i]) >= OPAQUE, len(photos), "alpha looked at")
    return decide(opaque, cameras_of(photos, 1))


def use_of_masks(capture: Capture, wanted: str, alpha: MaskUse | None) -> MaskUse | None:
    """What the masks of a capture mean, the same for all of its splits; None where there are none.

    wanted: auto, object or leave_out. alpha: see use_of_alpha. Raises UserError for object where a photo has neither
    mask nor alpha.
    """
    there = frames_there(capture)
    masked = [frame for frame in there if frame.mask is not None]
    if wanted == "object" and len(masked) < len(there) and (masked or alpha is None):
        bare = some_of({frame.image for frame in there if frame.mask is None})
        raise UserError(
            f"{capture.root}: dataset.masks=object takes masks for the outline of an object, but {bare} of "
            f"{len(there)} photos have none, so nothing would be known of what is empty there. Add these masks (docs/"
            "data.md says how they are named), drop the photos, or set dataset.masks=leave_out."
        )
    if not masked:
        return None
    if wanted != "auto":
        return MaskUse(wanted, f"taken so as dataset.masks={wanted} says")
    if len(masked) < len(there):
        return MaskUse("leave_out", f"there for {len(masked)} of {len(there)} photos alone")
    if alpha is not None and alpha.use == "object":
        return MaskUse("leave_out", "beside alpha of the photos' own")
    photos = _looked_at(masked)
    white = read_all(lambda i: outline(photos[i]) >= 128, len(photos), "masks looked at")
    return decide(white, cameras_of(photos, 1))


def frames_there(capture: Capture) -> list[Frame]:
    """The frames whose photos are not missing."""
    missing = set(missing_images(capture))
    return [frame for frame in capture.frames if frame.image not in missing]


def _looked_at(frames: Sequence[Frame]) -> list[Photo]:
    """A few of the photos, evenly spread, by whose masks or alpha it is decided what they mean."""
    chosen = [frames[i] for i in np.linspace(0, len(frames) - 1, min(len(frames), LOOKED_AT)).round().astype(int)]
    return [checked_photo(frame, image_info(frame.image)) for frame in chosen]


def _stored_alpha(photo: Photo) -> np.ndarray:
    """A photo's own alpha at full size, [H,W] uint8; 255 where it has none."""
    if not photo.info.has_alpha:
        return np.full(photo.size[::-1], 255, np.uint8)
    return read_pixels(photo.frame.image, 4, 1, photo.upright)[..., 3]


def without_alpha(pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Of pixels [P,4] the colors [P,3], and which are opaque, [P] bool; None: all are."""
    opaque = pixels[:, 3] >= OPAQUE
    return pixels[:, :3].contiguous(), None if opaque.all() else opaque


def outline(photo: Photo) -> np.ndarray:
    """A photo's mask as alpha, [H,W] uint8. Raises UserError where its proportions differ from the photo's."""
    return read_whiteness(photo.frame.mask, photo.size, photo.frame.mask_inverted)


def valid_pixels(
    photos: Sequence[Photo], cameras: Cameras, downscale: int, opaque: torch.Tensor | None
) -> PixelRuns | None:
    """The pixels that no mask excludes and that are opaque, [P] bool (None: all are); None where these are all."""
    if opaque is None and all(photo.frame.mask is None for photo in photos):
        return None

    def read(index: int) -> PixelRuns:
        first, end = cameras.first_pixel(index), cameras.first_pixel(index + 1)
        path, inverted = photos[index].frame.mask, photos[index].frame.mask_inverted
        counted = torch.ones(end - first, dtype=torch.bool) if opaque is None else opaque[first:end]
        if not counted.any():
            raise UserError(f"{photos[index].frame.image}: the photo is transparent everywhere; drop the frame.")
        if path is not None:
            white = torch.from_numpy(read_mask(path, photos[index].size, downscale, inverted)).reshape(-1)
            counted = counted & white
            if not counted.any():
                counts = "black" if inverted else "white"
                remedy = f"{counts} counts. Invert it, or drop the frame"
                raise UserError(f"{path}: the mask excludes every pixel; {remedy}.")
        return PixelRuns.of_mask(counted, first)

    return PixelRuns.join(read_all(read, len(photos), "masks"))
