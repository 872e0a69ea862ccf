"""What masks mean: the outline of one object, or pixels to leave out.

Both are kept alike, white where a photo counts. Around an object they say that all else is empty, which is alpha; over
passers-by, the sky or a car's bonnet they say nothing of what is behind. They are an object's outline if every photo
has one, most are black along the picture's edges, they differ from photo to photo, and they see one place in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras

LOOKED_AT = 24  # masks of a capture, evenly spread, that decide
RIM = 0.02  # of the picture's sides: how wide its edge is
WHITE_RIM = 0.35  # at most so much of it is white in the median mask of an object, which may be cut off at one side
FILLED = 0.75  # at most so much of the whole picture
SAME, WIDE = 0.97, 0.9  # masks that overlap so far and span so much of the picture are the lens' or the camera's own
MEETING = 0.5  # of the masks see the place where the rays through their middles meet
SLACK = 0.1  # of a mask's width and height, by which it may miss that place
THUMBNAIL = 64  # pixels along each side at which masks are compared


@dataclass(frozen=True)
class MaskUse:
    """object: masks are alpha; leave_out: black pixels are neither trained on nor scored."""

    use: str
    why: str  # completes "they are ..."


def decide(masks: Sequence[np.ndarray], cameras: Cameras) -> MaskUse:
    """What masks [H,W] bool mean, True where white, of photos taken by these cameras; at least one of them."""
    rims, fills = np.median([rim(mask).mean() for mask in masks]), np.median([mask.mean() for mask in masks])
    if rims > WHITE_RIM or fills > FILLED:
        return MaskUse("leave_out", f"white along {rims:.0%} of the pictures' edges and on {fills:.0%} of their area")
    boxes = [_extent(mask) for mask in masks]
    found = [index for index, box in enumerate(boxes) if box is not None]
    if len(found) < 2:
        return MaskUse("leave_out", "black nearly everywhere")
    if of_the_lens(masks):
        return MaskUse("leave_out", "the same in all photos, as those of a lens or of the camera's carrier are")
    share = _meeting([masks[index] for index in found], cameras[found], [boxes[index] for index in found])
    if share < MEETING:
        return MaskUse("leave_out", f"around no place that the photos have in common ({share:.0%} see it)")
    return MaskUse("object", f"black around one object, white on {fills:.0%} of the pictures")


def rim(picture: np.ndarray) -> np.ndarray:
    """The pixels [N] along the edges of a picture [H,W]."""
    wide = max(1, round(RIM * min(picture.shape)))
    sides = (picture[:wide], picture[-wide:], picture[:, :wide], picture[:, -wide:])
    return np.concatenate([side.ravel() for side in sides])


def of_the_lens(masks: Sequence[np.ndarray]) -> bool:
    """Whether all masks are white in the same part of the picture and that is nearly as wide, as before a lens.

    Masks that are black everywhere do not count.
    """
    found = [(mask, box) for mask, box in ((mask, _extent(mask)) for mask in masks) if box is not None]
    if len(found) < 2:
        return False
    spans = [max(box[2] - box[0], box[3] - box[1]) for _, box in found]
    return bool(np.median(spans) >= WIDE and _overlap([mask for mask, _ in found]) >= SAME)


def _extent(mask: np.ndarray) -> tuple[float, float, float, float] | None:
    """Left, top, right, bottom of what is white, as fractions of the picture; None where nothing is."""
    columns, rows = mask.any(0).nonzero()[0], mask.any(1).nonzero()[0]
    if not len(columns):
        return None
    height, width = mask.shape
    return columns[0] / width, rows[0] / height, (columns[-1] + 1) / width, (rows[-1] + 1) / height


def _overlap(masks: Sequence[np.ndarray]) -> float:
    """Mean intersection over union of each mask with the one before, all at one size."""
    small = [torch.from_numpy(mask)[None, None].float() for mask in masks]
    small = [torch.nn.functional.interpolate(mask, (THUMBNAIL, THUMBNAIL), mode="area") > 0.5 for mask in small]
    pairs = zip(small[:-1], small[1:])
    return float(np.mean([((a & b).sum() / (a | b).sum().clamp(min=1)).item() for a, b in pairs]))


def _meeting(
    masks: Sequence[np.ndarray], cameras: Cameras, boxes: Sequence[tuple[float, float, float, float]]
) -> float:
    """The fraction of the masks within whose extent the point nearest to the rays through all their middles falls."""
    pixels = []
    for index, mask in enumerate(masks):
        rows, columns = mask.nonzero()
        width, height = cameras.size(index)
        column, row = int(columns.mean() / mask.shape[1] * width), int(rows.mean() / mask.shape[0] * height)
        pixels.append(cameras.first_pixel(index) + row * width + column)
    rays = cameras.rays_through(torch.tensor(pixels))
    place = _nearest_point(rays.origins.double(), rays.directions.double())
    seen = 0
    for index, (left, top, right, bottom) in enumerate(boxes):
        pixel, depth = cameras.project(index, place[None].float())
        width, height = cameras.size(index)
        x, y = (pixel[0] / torch.tensor([width, height])).tolist()
        across, down = SLACK * (right - left), SLACK * (bottom - top)
        inside = left - across <= x <= right + across and top - down <= y <= bottom + down
        seen += inside and depth.item() > 0
    return seen / len(masks)


def _nearest_point(origins: Tensor, directions: Tensor) -> Tensor:
    """The point [3] with the least sum of squared distances to rays [R,3], unit; far ahead where they are parallel."""
    across = torch.eye(3, dtype=origins.dtype) - directions[:, :, None] * directions[:, None, :]  # [R,3,3]
    normal, right = across.sum(0), (across @ origins[:, :, None]).sum(0)
    return torch.linalg.lstsq(normal, right).solution[:, 0]
