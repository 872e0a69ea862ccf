"""Do the poses belong to the images? A plane sweep tells, before anything is trained.

A textured patch of one image is moved through depth (Collins 1996) and looked up in the views beside it. At the depth
of the surface all of them show the same patch, if the poses are right; where images are shuffled or axes are mistaken,
no depth suits several neighbors at once. The score of a patch is its best agreement over all depths, where agreement
is the normalized cross-correlation of the colors, averaged over the neighbors that see it.

Chance finds some agreement too: how much, the same images in another order tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.datasets.posed_images import PosedImages

WORKING_SIZE = 256  # pixels on the longer side: patches then cover what a few pixels of blur or noise do not hide
PATCH = 7  # pixels along each side of a patch, at working size
PATCHES = 16  # of each image, spread over it
DEPTHS = 128  # even in inverse depth, so even along the neighbor's epipolar line
MAX_DISPARITY = 0.6  # fraction of the image's longer side by which the nearest depth moves a patch
SCANNED, SCANS = (-2.0, 2.0), 256  # powers of 10 times the inverse of it at which neighbors are asked what they see
NEIGHBORS = 4
MAX_ANGLE = 60.0  # degrees between the directions in which neighbors look
MIN_NEIGHBORS = 2  # one neighbor agrees by chance somewhere on its line
FLAT = 0.02  # standard deviation of brightness below which a patch shows nothing
POINT_AGREEMENT = 0.85  # patches that agree so well give a point of the surface
# A point's depth is the only one that its patch agrees with so well: elsewhere, farther than so many depths from there,
# agreement is less by this. Edges along a neighbor's epipolar line agree everywhere, repetitive patterns in places.
DISTINCT, BESIDE = 0.2, 4
MANY_NEIGHBORS = 3  # have to see such a point, if there are so many
THINNED = 3  # pixels along each side of a block that are averaged where time matters


@dataclass(frozen=True)
class Agreement:
    """How well images and poses fit, over P patches."""

    scores: Tensor  # [P] in [-1,1]: best agreement over all depths
    images: Tensor  # [P] int64: whose patch it is
    points: Tensor  # [P,3] world: where it agrees best
    colors: Tensor  # [P,3] in [0,1]
    distances: Tensor  # [P] world: from that image's camera to the point; 0 where no neighbors could be compared

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
        return self._chosen(self.scores > POINT_AGREEMENT)

    def compared(self) -> "Agreement":
        """The patches that enough neighbors could see: what is compared with nothing says nothing of the poses."""
        return self._chosen(self.distances > 0)

    def of_images(self, indices: Sequence[int]) -> "Agreement":
        """The patches of some of the images."""
        return self._chosen(torch.isin(self.images, torch.tensor(indices)))

    def _chosen(self, where: Tensor) -> "Agreement":
        return Agreement(*(x[where] for x in (self.scores, self.images, self.points, self.colors, self.distances)))


class PlaneSweep:
    """Images of one scene at working size, ready to be compared under any poses."""

    def __init__(self, images: PosedImages, thinned: bool = False) -> None:
        """thinned: a few pixels of each block are averaged, not all of them: large photos are ready in a moment."""
        self.cameras = images.cameras.to("cpu")
        self.stride = max(1, round(max(images.cameras.width, images.cameras.height) / WORKING_SIZE))
        self._images, self._thinned = images, thinned
        self._known_pictures: dict[int, Tensor] = {}
        self._known_corners: dict[int, Tensor] = {}

    @property
    def pictures(self) -> list[Tensor]:
        """Every image at working size."""
        return [self.picture(index) for index in range(len(self.cameras))]

    def picture(self, index: int) -> Tensor:
        """One image at working size, [4,h,w] in [0,1]: colors and opacity, which is 0 where pixels do not count."""
        if index not in self._known_pictures:
            reduce = _thinly_reduced if self._thinned else _reduced
            self._known_pictures[index] = reduce(self._images, index, self.stride)
        return self._known_pictures[index]

    def score(
        self, image_indices: Sequence[int], poses: Tensor | None = None, order: Tensor | None = None
    ) -> Agreement:
        """The agreement of some images with their neighbors.

        poses [I,3,4]: to be tried instead of those given. order [I]: the image that each neighbor shows instead of its
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

    def distinct_points(self, image_indices: Sequence[int]) -> tuple[Tensor, int]:
        """Points [P,3] of the surface whose depth is beyond doubt, and of how many patches these are.

        A patch gives one where it agrees well with its neighbors, at this depth alone.
        """
        found, count = [torch.zeros(0, 3)], 0
        for index in image_indices:
            compared = self._compare(self.cameras, index, torch.arange(len(self.cameras)))
            if compared is None:
                continue
            best = compared.agreement.max(dim=1)
            apart = (torch.arange(DEPTHS) - best.indices[:, None]).abs() > BESIDE
            rival = torch.where(apart, compared.agreement, -1.0).amax(dim=1)
            many = compared.seen.gather(1, best.indices[:, None])[:, 0] >= min(MANY_NEIGHBORS, compared.neighbors)
            found.append(
                compared.places(best.indices)[(best.values > POINT_AGREEMENT) & (rival < best.values - DISTINCT) & many]
            )
            count += len(best.values)
        return torch.cat(found), count

    def _corners(self, index: int) -> Tensor:
        """_textured_patches of an image, which do not depend on its pose."""
        if index not in self._known_corners:
            self._known_corners[index] = _textured_patches(self.picture(index))
        return self._known_corners[index]

    def _score_image(self, cameras: Cameras, index: int, order: Tensor) -> tuple[Tensor, ...]:
        corners = self._corners(index)
        zeros = torch.zeros(len(corners))
        labels = torch.full((len(corners),), index)
        colors = self._patches(index)[2].mean(1)
        compared = self._compare(cameras, index, order)
        if compared is None:
            return zeros, labels, torch.zeros(len(corners), 3), colors, zeros
        best, seen = compared.agreement.max(dim=1), (compared.agreement > -1).any(1)
        places = compared.places(best.indices)
        distances = (places - cameras.centers[index]).norm(dim=-1)
        return torch.where(seen, best.values, 0.0), labels, places, colors, torch.where(seen, distances, 0.0)

    def _patches(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows and columns [P,Q] of the pixels of an image's patches, and their colors [P,Q,3]."""
        corners, offsets = self._corners(index), torch.arange(PATCH)
        rows = (corners[:, 0, None, None] + offsets[:, None]).expand(-1, PATCH, PATCH).flatten(1)
        columns = (corners[:, 1, None, None] + offsets).expand(-1, PATCH, PATCH).flatten(1)
        return rows, columns, self.picture(index)[:3, rows, columns].permute(1, 2, 0)

    def _compare(self, cameras: Cameras, index: int, order: Tensor) -> "_Compared | None":
        """An image's patches against its neighbors at every depth; None where there are no patches or neighbors."""
        beside = neighbors(cameras, index)
        rows, columns, patches = self._patches(index)
        if len(beside) < min(MIN_NEIGHBORS, len(cameras) - 1) or len(patches) == 0:  # nothing agrees with nobody
            return None
        rays, t = self._sweep(cameras, index, beside, rows, columns)
        total, seen = torch.zeros(len(patches), DEPTHS), torch.zeros(len(patches), DEPTHS)
        for other in beside.tolist():
            agreement, visible = self._agreement(cameras, other, int(order[other]), rays, t, patches)
            total += torch.where(visible, agreement, 0.0)
            seen += visible
        enough = seen >= min(MIN_NEIGHBORS, len(beside))
        return _Compared(torch.where(enough, total / seen.clamp(min=1), -1.0), seen, len(beside), rays, t)

    def _sweep(
        self, cameras: Cameras, index: int, beside: Tensor, rows: Tensor, columns: Tensor
    ) -> tuple[Rays, Tensor]:
        """Rays [P*Q] through patches' pixels, and where on them each depth is, [P*Q,D]; a patch faces its camera."""
        stride, middle = self.stride, self.stride // 2
        width, height = cameras.size(index)
        u, v = (columns * stride + middle).clamp(max=width - 1), (rows * stride + middle).clamp(max=height - 1)
        rays = cameras.rays_through((cameras.first_pixel(index) + v * width + u).flatten())
        cosine = cameras.z_along(index, rays.directions).clamp(min=0.1)
        return rays, 1 / (self._inverse_depths(cameras, index, beside, rays) * cosine[:, None])

    def _inverse_depths(self, cameras: Cameras, index: int, beside: Tensor, rays: Rays) -> Tensor:
        """Inverse z [D] (see Cameras.project) at which patches are looked for: evenly from infinity to MAX_DISPARITY.

        Views around an object through a long lens see each other's rays near the object alone: evenly over that.
        """
        baseline = (cameras.centers[beside] - cameras.centers[index]).norm(dim=-1).mean()
        nearest = cameras.intrinsics[index, 0] * baseline / (MAX_DISPARITY * max(cameras.size(index)))
        lower, upper = torch.zeros(()), 1 / nearest
        middles = rays[PATCH * PATCH // 2 :: PATCH * PATCH]
        inverse = upper * torch.logspace(*SCANNED, SCANS)
        cosine = cameras.z_along(index, middles.directions).clamp(min=0.1)
        seen = torch.zeros(len(middles), SCANS)
        for other in beside.tolist():
            x, y, z = cameras.project_along(other, middles, 1 / (inverse * cosine[:, None]))
            width, height = cameras.size(other)
            seen += (x >= 0) & (x <= width) & (y >= 0) & (y <= height) & (z > 0)
        where = (seen >= min(MIN_NEIGHBORS, len(beside))).any(0).nonzero()[:, 0]
        if len(where) and inverse[where[0]] > 0.5 * upper:  # what is farther is seen by none
            lower, upper = inverse[(where[0] - 1).clamp(min=0)], inverse[(where[-1] + 1).clamp(max=SCANS - 1)]
        return lower + (upper - lower) * (torch.arange(DEPTHS) + 0.5) / DEPTHS

    def _agreement(
        self, cameras: Cameras, view: int, shown: int, rays: Rays, t: Tensor, patches: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Correlation [P,D] of patches with what a view shows at t on their rays, and whether it sees all of that."""
        *pixels, z = cameras.project_along(view, rays, t)
        x, y = (2 / size * places - 1 for size, places in zip(cameras.size(view), pixels, strict=True))  # -1 to 1
        inside = (x.abs() <= 1) & (y.abs() <= 1) & (z > 0)
        where = torch.stack([x, y], dim=-1)[None]
        picture = self.picture(shown)[None, :3]
        # A panorama goes on beyond its edges: half a pixel there is not half black.
        padding = "border" if cameras.has_panoramas and cameras.panoramas[view] else "zeros"
        colors = functional.grid_sample(picture, where, padding_mode=padding, align_corners=False)[0]
        of_patches = *patches.shape[:2], t.shape[1]
        return _correlation(patches, colors.view(3, *of_patches)), inside.view(of_patches).all(1)


@dataclass(frozen=True)
class _Compared:
    """P patches of one image at D depths each."""

    agreement: Tensor  # [P,D] in [-1,1]: the mean over the neighbors that see it; -1 where too few do
    seen: Tensor  # [P,D]: by so many neighbors
    neighbors: int
    rays: Rays  # [P*Q] through the patches' pixels
    t: Tensor  # [P*Q,D] where on them the depths are

    def places(self, depths: Tensor) -> Tensor:
        """Where the middle of each patch is, [P,3] world, at one of its depths [P]."""
        middles = PATCH * PATCH * torch.arange(len(depths)) + PATCH * PATCH // 2
        return self.rays.origins[middles] + self.rays.directions[middles] * self.t[middles, depths, None]


def neighbors(cameras: Cameras, index: int) -> Tensor:
    """The views [K] beside one: they look the same way, and stand apart from it and not too near each other in time.

    A panorama looks every way. Of many views, the nearest ones are passed over: between frames of a video nothing
    moves, under any poses.
    """
    distance = (cameras.centers - cameras.centers[index]).norm(dim=-1)
    forward = -functional.normalize(cameras.c2w[:, :, 2], dim=-1)
    aligned = (forward @ forward[index]) > torch.cos(torch.deg2rad(torch.tensor(MAX_ANGLE)))
    aligned |= cameras.panoramas | cameras.panoramas[index]
    apart = distance > 1e-3 * distance.median()
    candidates = (aligned & apart).nonzero()[:, 0]
    candidates = candidates[distance[candidates].argsort()]
    step = max(1, min(len(cameras) // 50, len(candidates) // NEIGHBORS))
    return candidates[step - 1 :: step][:NEIGHBORS]


def shuffled(count: int) -> Tensor:
    """An order [count] of images in which none is where it was, nor next to it if there are enough."""
    return torch.arange(count).roll(max(1, count // 2))


def _reduced(images: PosedImages, index: int, stride: int) -> Tensor:
    """One image to [4,h,w] in [0,1], area averages; what is transparent or does not count is gray."""
    return functional.avg_pool2d(_masked_colors(images.image(index), images.valid_mask(index)), stride, ceil_mode=True)[
        0
    ]


def _thinly_reduced(images: PosedImages, index: int, stride: int) -> Tensor:
    """As _reduced, with means over THINNED pixels along each side of a block."""
    if stride <= THINNED:
        return _reduced(images, index, stride)
    pixels, valid = images.image(index), images.valid_mask(index)
    offsets = (2 * torch.arange(THINNED) + 1) * stride // (2 * THINNED)
    for axis in (0, 1):
        size = pixels.shape[axis]
        chosen = (torch.arange(0, size, stride)[:, None] + offsets).clamp(max=size - 1).flatten()
        pixels = pixels.index_select(axis, chosen)
        valid = None if valid is None else valid.index_select(axis, chosen)
    return functional.avg_pool2d(_masked_colors(pixels, valid), THINNED)[0]


def _masked_colors(pixels: Tensor, valid: Tensor | None) -> Tensor:
    """Colors over gray and opacity, [1,4,H,W] in [0,1], of an image [H,W,3] or [H,W,4] and the pixels that count."""
    pixels = pixels.permute(2, 0, 1).float() / 255
    alpha = pixels[3:] if len(pixels) == 4 else torch.ones_like(pixels[:1])
    if valid is not None:
        alpha = alpha * valid
    return torch.cat([alpha * pixels[:3] + (1 - alpha) * 0.5, alpha])[None]


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
    """Normalized cross-correlation [P,D] of patches [P,Q,3] with colors [3,P,Q,D], over pixels and colors.

    Each color's mean is taken off; 0 where one of the two is flat.
    """
    count = patches.shape[1]
    patches = patches - patches.mean(1, keepdim=True)
    product = torch.einsum("pqc,cpqd->pd", patches, colors)
    energy = (colors.square().sum(2) - colors.sum(2).square() / count).sum(0).clamp(min=0)
    both = patches.square().sum((1, 2))[:, None] * energy
    return torch.where(both > (3 * count * FLAT**2 / 4) ** 2, product / both.clamp(min=1e-12).sqrt(), 0.0)
