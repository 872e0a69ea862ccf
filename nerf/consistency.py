"""Do the poses belong to the images? A plane sweep tells, before anything is trained.

A textured patch of one image is moved through depth (Collins 1996) and looked up in the views beside it. At the depth
of the surface all of them show the same patch, if the poses are right; where images are shuffled or axes are mistaken,
no depth suits several neighbours at once. The score of a patch is its best agreement over all depths, where agreement
is the normalised cross-correlation of the colours, averaged over the neighbours that see it.

Chance finds some agreement too: how much, the same images in another order tell.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras import Cameras
from nerf.datasets.posed_images import PosedImages
from nerf.rays import Rays

WORKING_SIZE = 256  # pixels on the longer side: patches then cover what a few pixels of blur or noise do not hide
PATCH = 7  # pixels along each side of a patch, at working size
PATCHES = 16  # of each image, spread over it
DEPTHS = 128  # even in inverse depth, so even along the neighbour's epipolar line
MAX_DISPARITY = 0.6  # share of the image's longer side by which the nearest depth moves a patch
NEIGHBORS = 4
MAX_ANGLE = 60.0  # degrees between the directions in which neighbours look
MIN_NEIGHBORS = 2  # one neighbour agrees by chance somewhere on its line
FLAT = 0.02  # standard deviation of brightness below which a patch shows nothing
POINT_AGREEMENT = 0.85  # patches that agree so well give a point of the surface


@dataclass(frozen=True)
class Convention:
    """A way to read a pose matrix. convert gives what our cameras expect, [I,3,4], from poses that follow it."""

    name: str
    remedy: str
    convert: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Agreement:
    """How well images and poses fit, over P patches."""

    scores: Tensor  # [P] in [-1,1]: best agreement over all depths
    images: Tensor  # [P] int64: whose patch it is
    points: Tensor  # [P,3] world: where it agrees best
    colors: Tensor  # [P,3] in [0,1]
    distances: Tensor  # [P] world: from that image's camera to the point

    @property
    def score(self) -> float:
        """Mean over the patches; 0 where there are none."""
        return self.scores.mean().item() if len(self.scores) else 0.0

    @property
    def standard_error(self) -> float:
        """Of the mean, from image to image, as patches of one image are not independent."""
        means = torch.stack(list(self.by_image().values())) if len(self.scores) else torch.zeros(0)
        return (means.std() / len(means) ** 0.5).item() if len(means) > 1 else 1.0

    def by_image(self) -> dict[int, Tensor]:
        """The mean score of each image that has patches."""
        return {int(image): self.scores[self.images == image].mean() for image in self.images.unique()}

    def surface(self) -> "Agreement":
        """The patches that agree so well that their depth can be trusted."""
        good = self.scores > POINT_AGREEMENT
        return Agreement(*(x[good] for x in (self.scores, self.images, self.points, self.colors, self.distances)))


class PlaneSweep:
    """Images of one scene at working size, ready to be compared under any poses."""

    def __init__(self, images: PosedImages) -> None:
        self.cameras = images.cameras.to("cpu")
        self.stride = max(1, round(max(images.cameras.width, images.cameras.height) / WORKING_SIZE))
        # Of each image [4,h,w] in [0,1]: colours and opacity, which is 0 where pixels do not count
        self.pictures = [_reduced(images, index, self.stride) for index in range(len(images))]
        self._known_corners: dict[int, Tensor] = {}

    def score(
        self, image_indices: Sequence[int], poses: Tensor | None = None, order: Tensor | None = None
    ) -> Agreement:
        """The agreement of some images with their neighbours.

        poses [I,3,4]: to be tried instead of those given. order [I]: the image that each neighbour shows instead of its
        own, to learn what chance gives.
        """
        cameras = self.cameras if poses is None else replace(self.cameras, c2w=poses)
        order = torch.arange(len(cameras)) if order is None else order
        found = [self._score_image(cameras, index, order) for index in image_indices]
        found = [parts for parts in found if len(parts[0])]
        if not found:
            return Agreement(
                torch.zeros(0), torch.zeros(0).long(), torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0)
            )
        return Agreement(*(torch.cat(column) for column in zip(*found, strict=True)))

    def _corners(self, index: int) -> Tensor:
        """_textured_patches of an image, which do not depend on its pose."""
        if index not in self._known_corners:
            self._known_corners[index] = _textured_patches(self.pictures[index])
        return self._known_corners[index]

    def _score_image(self, cameras: Cameras, index: int, order: Tensor) -> tuple[Tensor, ...]:
        corners = self._corners(index)
        beside = neighbors(cameras, index)
        zeros = torch.zeros(len(corners))
        labels = torch.full((len(corners),), index)
        offsets = torch.arange(PATCH)
        rows = (corners[:, 0, None, None] + offsets[:, None]).expand(-1, PATCH, PATCH).flatten(1)  # [P,Q] pixels
        columns = (corners[:, 1, None, None] + offsets).expand(-1, PATCH, PATCH).flatten(1)
        patches = self.pictures[index][:3, rows, columns].permute(1, 2, 0)  # [P,Q,3]
        colors = patches.mean(1)
        if len(beside) < min(MIN_NEIGHBORS, len(cameras) - 1) or len(corners) == 0:  # nothing agrees with nobody
            return zeros, labels, torch.zeros(len(corners), 3), colors, zeros
        rays, t = self._sweep(cameras, index, beside, rows, columns)
        total, seen = torch.zeros(len(corners), DEPTHS), torch.zeros(len(corners), DEPTHS)
        for other in beside.tolist():
            agreement, visible = self._agreement(cameras, other, int(order[other]), rays, t, patches)
            total += torch.where(visible, agreement, 0.0)
            seen += visible
        enough = seen >= min(MIN_NEIGHBORS, len(beside))
        best = torch.where(enough, total / seen.clamp(min=1), -1.0).max(dim=1)
        scores = torch.where(enough.any(1), best.values, 0.0)
        middles = PATCH * PATCH * torch.arange(len(corners)) + PATCH * PATCH // 2
        places = rays.origins[middles] + rays.directions[middles] * t[middles, best.indices, None]
        return scores, labels, places, colors, (places - cameras.centers[index]).norm(dim=-1)

    def _sweep(
        self, cameras: Cameras, index: int, beside: Tensor, rows: Tensor, columns: Tensor
    ) -> tuple[Rays, Tensor]:
        """Rays [P*Q] through patches' pixels, and where on them each depth is, [P*Q,D]; a patch faces its camera."""
        stride, middle = self.stride, self.stride // 2
        width, height = cameras.size(index)
        u, v = (columns * stride + middle).clamp(max=width - 1), (rows * stride + middle).clamp(max=height - 1)
        rays = cameras.rays_through((cameras.first_pixel(index) + v * width + u).flatten())
        baseline = (cameras.centers[beside] - cameras.centers[index]).norm(dim=-1).mean()
        focal = cameras.intrinsics[index, 0]
        nearest = focal * baseline / (MAX_DISPARITY * max(width, height))
        depth = nearest * DEPTHS / (torch.arange(DEPTHS) + 0.5)  # camera z
        cosine = (rays.directions @ -cameras.c2w[index, :, 2]).clamp(min=0.1)
        return rays, depth / cosine[:, None]

    def _agreement(
        self, cameras: Cameras, view: int, shown: int, rays: Rays, t: Tensor, patches: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Correlation [P,D] of patches with what a view shows at t on their rays, and whether it sees all of that."""
        *pixels, z = cameras.project_along(view, rays, t)
        x, y = (2 / size * places - 1 for size, places in zip(cameras.size(view), pixels, strict=True))  # -1 to 1
        inside = (x.abs() <= 1) & (y.abs() <= 1) & (z > 0)
        where = torch.stack([x, y], dim=-1)[None]
        colors = functional.grid_sample(self.pictures[shown][None, :3], where, align_corners=False)[0]
        of_patches = *patches.shape[:2], t.shape[1]
        return _correlation(patches, colors.view(3, *of_patches)), inside.view(of_patches).all(1)


def neighbors(cameras: Cameras, index: int) -> Tensor:
    """The views [K] beside one: they look the same way, and stand apart from it and not too near each other in time.

    Of many views, the nearest ones are passed over: between frames of a video nothing moves, under any poses.
    """
    distance = (cameras.centers - cameras.centers[index]).norm(dim=-1)
    forward = -functional.normalize(cameras.c2w[:, :, 2], dim=-1)
    aligned = (forward @ forward[index]) > torch.cos(torch.deg2rad(torch.tensor(MAX_ANGLE)))
    apart = distance > 1e-3 * distance.median()
    candidates = (aligned & apart).nonzero()[:, 0]
    candidates = candidates[distance[candidates].argsort()]
    step = max(1, min(len(cameras) // 50, len(candidates) // NEIGHBORS))
    return candidates[step - 1 :: step][:NEIGHBORS]


def shuffled(count: int) -> Tensor:
    """An order [count] of images in which none is where it was, nor next to it if there are enough."""
    return torch.arange(count).roll(max(1, count // 2))


def _reduced(images: PosedImages, index: int, stride: int) -> Tensor:
    """One image to [4,h,w] in [0,1], area averages; what is transparent or does not count is grey."""
    pixels = images.image(index).permute(2, 0, 1).float() / 255
    alpha = pixels[3:] if images.has_alpha else torch.ones_like(pixels[:1])
    counted = images.counts(index)
    if counted is not None:
        alpha = alpha * counted
    pixels = torch.cat([alpha * pixels[:3] + (1 - alpha) * 0.5, alpha])
    return functional.avg_pool2d(pixels[None], stride, ceil_mode=True)[0]


def _textured_patches(picture: Tensor) -> Tensor:
    """Upper left corners [P,2] (row, column) of patches that show something, spread over a picture [4,h,w]."""
    brightness = picture[:3].mean(0)[None, None]
    if min(brightness.shape[2:]) < PATCH:
        return torch.zeros(0, 2, dtype=torch.int64)
    mean = functional.avg_pool2d(brightness, PATCH, stride=1)
    deviation = (functional.avg_pool2d(brightness.square(), PATCH, stride=1) - mean.square()).clamp(min=0).sqrt()
    opaque = -functional.max_pool2d(-picture[3][None, None], PATCH, stride=1)
    deviation = deviation * (opaque > 0.99)  # an outline looks different from everywhere
    height, width = deviation.shape[2:]
    cell = max(PATCH, int((height * width / (4 * PATCHES)) ** 0.5))  # more cells than patches: some show nothing
    best, places = functional.max_pool2d(deviation, cell, stride=cell, ceil_mode=True, return_indices=True)
    best, places = best.flatten(), places.flatten()
    chosen = best.topk(min(PATCHES, len(best))).indices
    chosen = chosen[best[chosen] > FLAT]
    return torch.stack([places[chosen] // width, places[chosen] % width], dim=-1)


def _correlation(patches: Tensor, colors: Tensor) -> Tensor:
    """Normalised cross-correlation [P,D] of patches [P,Q,3] with colors [3,P,Q,D], over pixels and colours.

    Each colour's mean is taken off; 0 where one of the two is flat.
    """
    count = patches.shape[1]
    patches = patches - patches.mean(1, keepdim=True)
    product = torch.einsum("pqc,cpqd->pd", patches, colors)
    energy = (colors.square().sum(2) - colors.sum(2).square() / count).sum(0).clamp(min=0)
    both = patches.square().sum((1, 2))[:, None] * energy
    return torch.where(both > (3 * count * FLAT**2 / 4) ** 2, product / both.clamp(min=1e-12).sqrt(), 0.0)


def _turned(*columns: tuple[int, int]) -> Callable[[Tensor], Tensor]:
    """Poses whose right, up and backward axes are the named columns, each with its sign."""

    def convert(poses: Tensor) -> Tensor:
        return torch.stack([*(sign * poses[:, :, axis] for axis, sign in columns), poses[:, :, 3]], dim=-1)

    return convert


def _inverted(poses: Tensor) -> Tensor:
    rotation = poses[:, :, :3].transpose(1, 2)
    return torch.cat([rotation, -rotation @ poses[:, :, 3:]], dim=-1)


_OPENCV = _turned((0, 1), (1, -1), (2, -1))

GIVEN = "camera to world, OpenGL axes (x right, y up, looking along -z)"
CONVENTIONS = (
    Convention(
        "camera to world, OpenCV axes (x right, y down, looking along +z)",
        "negate the second and the third column of each pose's rotation",
        _OPENCV,
    ),
    Convention("world to camera, OpenGL axes", "invert each pose matrix: camera to world is expected", _inverted),
    Convention(
        "world to camera, OpenCV axes (as COLMAP stores it)",
        "invert each pose matrix, then negate the second and the third column of its rotation",
        lambda poses: _OPENCV(_inverted(poses)),
    ),
    Convention(
        "left-handed axes, x mirrored (or mirrored images)",
        "negate the first column of each pose's rotation, or mirror the images back",
        _turned((0, -1), (1, 1), (2, 1)),
    ),
    Convention(
        "left-handed axes, looking along +z (x right, y up)",
        "negate the third column of each pose's rotation",
        _turned((0, 1), (1, 1), (2, -1)),
    ),
    Convention(
        "left-handed axes, y down, looking along -z (or images upside down and mirrored)",
        "negate the second column of each pose's rotation",
        _turned((0, 1), (1, -1), (2, 1)),
    ),
    Convention(
        "LLFF's axes (x down, y right, looking along -z), or images turned to the left",
        "make the second column of each pose's rotation its first, and minus the first its second; or turn the images",
        _turned((1, 1), (0, -1), (2, 1)),
    ),
    Convention(
        "x up, y left (images turned to the right)",
        "make minus the second column of each pose's rotation its first, and the first its second; or turn the images",
        _turned((1, -1), (0, 1), (2, 1)),
    ),
    Convention(
        "x left, y down, looking along -z (images upside down)",
        "negate the first and the second column of each pose's rotation, or turn the images",
        _turned((0, -1), (1, -1), (2, 1)),
    ),
)
