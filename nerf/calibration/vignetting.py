"""Vignetting: how far a camera's photos darken with the distance from the principal point, learned in training.

A rendering is multiplied by 1 + a1 r^2 + a2 r^4 + a3 r^6 in the opaque part of its photo (Goldman 2010, eq. 3, with the
same function for all color channels). r is the distance to the principal point, 1 at the image's farthest corner. The
factor is 1 at the principal point; so it does not change the brightness of the scene, and needs no mean as exposures
do. Like exposures it works on sRGB values.

Photos of one camera share it: photos of one shape, one lens model and, up to TOLERANCE, the same focal lengths and
principal point. It is learned in a basis that is orthonormal over the disc r <= 1. There, as powers of r are not, the
three numbers are independent of each other, and their squares sum to the mean squared darkening, which the prior is of.

Legend: R rays, I images, V held-out views, G cameras.
"""

import math

import torch
from torch import Tensor, nn

from nerf.calibration.exposure import LR_DECAY, exposed
from nerf.calibration.pose_refinement import take_rows
from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import COEFFICIENTS
from nerf.config.schema import ExposureConfig
from nerf.errors import UserError
from nerf.ops.backend import Backend
from nerf.optim.adam import MaskedAdam, ParameterGroup
from nerf.optim.clock import RunClock

# r^2 times the Jacobi polynomials P_n^(0,2)(2 r^2 - 1), normalized: rows are functions, columns r^2, r^4, r^6.
BASIS = (
    (math.sqrt(3), 0.0, 0.0),
    (-3 * math.sqrt(5), 4 * math.sqrt(5), 0.0),
    (6 * math.sqrt(7), -20 * math.sqrt(7), 15 * math.sqrt(7)),
)
PRIOR = 1e-4  # squared error of color that a mean squared darkening of 1 costs
# Fractions of the run: before START nothing is learned, since a scene that is still fog looks darkened, too; in RISE
# the rate rises.
START, RISE = 0.2, 0.1
RATES = (1.0, 0.3, 0.1)  # learning rates of the three functions, relative: first how much, then in which shape
TOLERANCE = 0.02  # of logarithms of focal lengths, and of principal points in image sizes


class Vignetting(nn.Module):
    """The vignetting of G cameras, which took I images."""

    def __init__(self, cameras: Cameras, config: ExposureConfig, backend: Backend) -> None:
        """cameras: of the I images, on the backend's device. Learned intrinsics move no principal point here.

        Raises UserError for panoramas.
        """
        if cameras.has_panoramas:
            raise UserError(
                "exposure.vignetting=true, but some photos are panoramas (EQUIRECTANGULAR), stitched of several: "
                "they do not darken towards their corners; set exposure.vignetting=false."
            )
        super().__init__()
        self.backend = backend
        self.config = config
        self.given = cameras
        self.middles = middles(cameras)
        self.camera_of = shared_cameras(cameras).to(backend.device)
        self.values = nn.Parameter(torch.zeros(int(self.camera_of.max()) + 1, 3, device=backend.device))
        self.basis = torch.tensor(BASIS, device=backend.device)
        self.optimizer = MaskedAdam(self, 0.9, 0.99, backend)

    def parameter_groups(self) -> list[ParameterGroup]:
        """The one parameter with its learning rate."""
        return [ParameterGroup("values", self.values, tuple(self.config.lr_vignetting * part for part in RATES))]

    def forward(self, rgb: Tensor, alpha: Tensor, pixels: Tensor) -> Tensor:
        """Rendered colors rgb [R,3] as their photos show them; alpha [R,1] of the photos, pixels [R] int64."""
        image, squares = squared_radii(self.given, self.middles, pixels)
        owner = self.camera_of.index_select(0, image)
        return vignetted(rgb, alpha, take_rows(self.values @ self.basis, owner, self.backend), squares)

    @torch.no_grad()
    def add_prior(self) -> None:
        """Adds the gradient of the prior, PRIOR times the cameras' mean squared darkening."""
        self.values.grad.add_(self.values, alpha=2 * PRIOR / len(self.values))

    def set_progress(self, clock: RunClock) -> None:
        """Sets the learning rate for the clock's progress. Call it outside of a CUDA graph."""
        rise = min(1.0, max(0.0, (clock.progress - START) / RISE))
        self.optimizer.decay.fill_(rise * LR_DECAY**clock.progress)

    def step(self, apply: Tensor | None = None) -> None:
        """One Adam step with the current gradients, which are then dropped. apply: see MaskedAdam.step."""
        self.optimizer.step(apply)

    @torch.no_grad()
    def coefficients(self) -> Tensor:
        """a1, a2 and a3 of each image, [I,3] in host memory."""
        return (self.values @ self.basis).index_select(0, self.camera_of).float().cpu()

    def facts(self) -> list[dict[str, float | list[float]]]:
        """Entries for metrics.json: of each camera its number of images, a1 to a3, and what is left at the corners."""
        rows = (self.values.detach() @ self.basis).tolist()
        counts = self.camera_of.bincount().tolist()
        return [{"images": n, "coefficients": a, "corner": 1 + sum(a)} for n, a in zip(counts, rows, strict=True)]


def middles(cameras: Cameras) -> Tensor:
    """cx, cy in pixels, and 1 / the squared distance to the farthest corner of the image, [I,3]."""
    center = cameras.intrinsics[:, 2:]
    corner = torch.maximum(center.abs(), (cameras.image_sizes.to(center) - center).abs())
    return torch.cat([center, 1 / corner.square().sum(-1, keepdim=True)], dim=-1)


def squared_radii(cameras: Cameras, middles_of: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Image [R] int64 and r^2 [R] in [0, 1] of the middle of pixels [R] int64; middles_of [I,3]: see middles."""
    image, column, row = cameras.locate(pixels)
    cx, cy, scale = middles_of.index_select(0, image).unbind(-1)
    return image, ((column + 0.5 - cx).square() + (row + 0.5 - cy).square()) * scale


def vignetted(rgb: Tensor, alpha: Tensor, coefficients: Tensor, squares: Tensor) -> Tensor:
    """rgb [R,3] darkened in its opaque part: alpha [R,1], coefficients [R,3] or [3], squares [R] of radii."""
    a1, a2, a3 = coefficients.unbind(-1)
    factor = 1 + squares * (a1 + squares * (a2 + squares * a3))
    return exposed(rgb, alpha, factor[:, None], torch.zeros_like(alpha))


def vignetted_image(rgb: Tensor, alpha: Tensor, cameras: Cameras, index: int, coefficients: Tensor) -> Tensor:
    """A rendering rgb [H,W,3] of one of the cameras as its photo shows it: alpha [H,W,1], coefficients [I,3]."""
    pixels = torch.arange(cameras.first_pixel(index), cameras.first_pixel(index + 1), device=rgb.device)
    squares = squared_radii(cameras, middles(cameras), pixels)[1]
    flat = vignetted(rgb.flatten(0, 1), alpha.flatten(0, 1), coefficients[index].to(rgb), squares)
    return flat.view_as(rgb)


def shared_cameras(cameras: Cameras) -> Tensor:
    """Which camera took each image, [I] int64 in host memory, counted in the order in which they appear."""
    marks = _marks(cameras)
    owner = torch.full((len(marks),), -1)
    count = 0
    while (left := (owner < 0).nonzero()[:, 0]).numel():
        like_first = (marks[left] - marks[left[0]]).abs().amax(-1) <= TOLERANCE
        owner[left[like_first]] = count
        count += 1
    return owner


def vignetting_of(views: Cameras, given: Cameras, known: Tensor) -> Tensor:
    """The coefficients [V,3] of held-out views: those of the training image whose camera is likest, 0 where none is.

    given: the cameras of the training images, as views from the data; known [I,3]: their coefficients.
    """
    marks, trained = _marks(views), _marks(given)
    found = known.new_zeros(len(views), 3)
    for index, mark in enumerate(marks):
        distance, nearest = (trained - mark).abs().amax(-1).min(0)
        if distance <= TOLERANCE:
            found[index] = known[nearest]
    return found


def _marks(cameras: Cameras) -> Tensor:
    """What tells cameras apart, whatever the size at which their photos are stored: [I,6] float64 in host memory."""
    sizes, intrinsics = cameras.image_sizes.double().cpu(), cameras.intrinsics.double().cpu()
    models = ["perspective"] * len(cameras) if cameras.lenses is None else cameras.lenses.models
    numbers = {model: float(number) for number, model in enumerate(COEFFICIENTS)}
    return torch.cat(
        [
            (intrinsics[:, :2] / sizes).log(),
            intrinsics[:, 2:] / sizes,
            (sizes[:, :1] / sizes[:, 1:]).log(),
            torch.tensor([[numbers[model]] for model in models], dtype=torch.float64),
        ],
        dim=-1,
    )
