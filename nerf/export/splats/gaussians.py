"""Gaussians that stand for a surface, and their file: the PLY of 3D Gaussian Splatting (Kerbl et al. 2023).

Legend: N Gaussians, K coefficients of spherical harmonics per color.
"""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nerf.fields.spherical_harmonics import sh_basis
from nerf.files import replacing

# Programs that read these files expect the harmonics of degree 3; those of a lower degree are padded with zeros.
FILE_COEFFICIENTS = 16


@dataclass
class Gaussians:
    """N Gaussians in world coordinates, as the file has them: logarithms of sizes, logits of opacities."""

    means: Tensor  # [N,3] world
    normals: Tensor  # [N,3] unit, outwards; for programs that read the file as a point cloud
    log_scales: Tensor  # [N,3] of the standard deviations along the axes
    rotations: Tensor  # [N,4] quaternions w x y z, of any length; their columns are the axes
    logits: Tensor  # [N] of the opacities
    harmonics: Tensor  # [N,K,3]; color = 0.5 + basis(direction) @ harmonics

    def __len__(self) -> int:
        return len(self.means)

    def __getitem__(self, rows: Tensor) -> "Gaussians":
        return Gaussians(*(getattr(self, field.name)[rows] for field in fields(self)))

    def to(self, device: torch.device | str) -> "Gaussians":
        return Gaussians(*(getattr(self, field.name).to(device) for field in fields(self)))

    def detach(self) -> "Gaussians":
        return Gaussians(*(getattr(self, field.name).detach() for field in fields(self)))

    def colors(self, center: Tensor) -> Tensor:
        """Colors [N,3], at least 0, as seen from a camera's center [3]."""
        degree = round(self.harmonics.shape[1] ** 0.5) - 1
        basis = sh_basis(functional.normalize(self.means.detach() - center, dim=-1), degree)
        return (0.5 + torch.einsum("nk,nkc->nc", basis, self.harmonics)).clamp(min=0)


def turned_towards(normals: Tensor) -> Tensor:
    """Quaternions [N,4] that turn the z axis to unit vectors [N,3] or their opposites: the shorter way."""
    x, y, z = torch.where(normals[:, 2:] < 0, -normals, normals).unbind(-1)
    return functional.normalize(torch.stack([1 + z, -y, x, torch.zeros_like(z)], dim=-1), dim=-1)


def write_ply(path: Path, gaussians: Gaussians) -> None:
    """Binary PLY, little-endian: position, normal, harmonics of degree 0, the others color by color, logit of opacity,
    logarithms of sizes, unit quaternion.

    Raises UserError where it cannot be written.
    """
    count = len(gaussians)
    rest = gaussians.harmonics.new_zeros(count, FILE_COEFFICIENTS - 1, 3)
    rest[:, : gaussians.harmonics.shape[1] - 1] = gaussians.harmonics[:, 1:]
    columns = {
        ("x", "y", "z"): gaussians.means,
        ("nx", "ny", "nz"): gaussians.normals,
        _numbered("f_dc", 3): gaussians.harmonics[:, 0],
        _numbered("f_rest", 3 * (FILE_COEFFICIENTS - 1)): rest.transpose(1, 2).flatten(1),
        ("opacity",): gaussians.logits[:, None],
        _numbered("scale", 3): gaussians.log_scales,
        _numbered("rot", 4): functional.normalize(gaussians.rotations, dim=-1),
    }
    table = torch.cat([*columns.values()], dim=1).cpu().numpy().astype("<f4")
    header = [
        "ply",
        "format binary_little_endian 1.0",
        f"element vertex {count}",
        *(f"property float {name}" for names in columns for name in names),
        "end_header\n",
    ]
    with replacing(path) as partial, partial.open("wb") as file:
        file.write("\n".join(header).encode())
        file.write(np.ascontiguousarray(table).data)


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}_{index}" for index in range(count))
