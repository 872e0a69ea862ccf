"""A trained field as a file of Gaussians, PLY or SPZ, which viewers and editors of 3D Gaussian Splatting open.

Points of the surface become flat Gaussians, turned by the field's normals and as large as their spacing; harmonics are
fitted to the colors in which the field's own pictures show them; a short optimization against these pictures settles
sizes, opacities and colors.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from nerf.cameras.cameras import Cameras
from nerf.errors import UserError
from nerf.export.splats.fit import fit
from nerf.export.splats.gaussians import Gaussians, write_ply
from nerf.export.splats.harmonics import fit_harmonics
from nerf.export.splats.pictures import Pictures, render_pictures
from nerf.export.splats.spz import check_spz, write_spz
from nerf.export.splats.surface import surface_points, tangent_frames
from nerf.fields.field import Field
from nerf.rendering.sampler import RaySampler

MOST = 500_000
WIDTH = 0.3  # first standard deviation along the surface, in spacings
FLATNESS = 0.2  # first standard deviation across the surface, in those along it
LEAST_OPAQUE, MOST_OPAQUE = 0.1, 0.95  # first opacities
DROPPED = 1 / 255  # opacity below which renderers leave a Gaussian out


@dataclass(frozen=True)
class SplatFile:
    """What was written."""

    count: int
    psnr: float  # dB beside the field's own pictures; nan where nothing was fitted


def export_splats(
    path: Path,
    field: Field,
    sampler: RaySampler,
    cameras: Cameras,
    most: int = MOST,
    degree: int = 3,
    steps: int | None = None,
) -> SplatFile:
    """Writes at most so many Gaussians with harmonics up to this degree: SPZ where the path ends with .spz, else PLY.

    cameras: those of training, whose pictures are rendered and fitted. steps: of the optimization; None: fit.STEPS.
    Coordinates are the world's. There is no background: what lies at infinity in an unbounded scene becomes a shell.
    Raises UserError where the cameras see no surface, SPZ cannot hold the scene, gsply is missing, or the file cannot
    be written.
    """
    compressed = path.suffix == ".spz"
    if compressed:
        check_spz()
    pictures = render_pictures(field, sampler, cameras)
    gaussians = first_gaussians(field, sampler, pictures, most, degree)
    gaussians, psnr = fit(gaussians, pictures, sampler.backend, steps)
    finite = torch.cat([gaussians.means, gaussians.log_scales, gaussians.rotations, gaussians.harmonics.flatten(1)], 1)
    kept = finite.isfinite().all(1) & (gaussians.logits.sigmoid() >= DROPPED)
    if not kept.any():
        raise UserError("no Gaussian was left after fitting; give fewer splats_steps, or train the run longer.")
    gaussians = gaussians[kept.nonzero()[:, 0]]
    (write_spz if compressed else write_ply)(path, gaussians)
    return SplatFile(len(gaussians), psnr)


@torch.no_grad()
def first_gaussians(field: Field, sampler: RaySampler, pictures: Pictures, most: int, degree: int) -> Gaussians:
    """Flat Gaussians on the surface, before any optimization."""
    surface, spacing = surface_points(field, sampler, pictures, most)
    rotations, lengths = tangent_frames(field, surface, spacing)
    across = FLATNESS * lengths.amin(-1, keepdim=True)
    scales = WIDTH * torch.cat([lengths, across], dim=-1)
    harmonics = fit_harmonics(surface.points, lengths.amax(-1), pictures, degree)
    logits = torch.logit(surface.opacity.clamp(LEAST_OPAQUE, MOST_OPAQUE))
    return Gaussians(surface.points, surface.normals, scales.log(), rotations, logits, harmonics)
