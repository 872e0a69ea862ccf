"""What a client wants to see: the camera, the kind of picture and what is cut away.

Legend: H W height and width.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch

from nerf.cameras.cameras import Cameras, focal_from_fov
from nerf.cameras.panoramas import views_ahead
from nerf.cameras.poses import OPENCV_SIGNS
from nerf.cameras.se3 import quaternion_from_rotation, rotation_from_quaternion
from nerf.rendering.sampler import RaySampler
from nerf.scene.occupancy import OccupancyGrid


@dataclass(frozen=True)
class ViewCamera:
    """A pinhole in the page: its pose, vertical angle of view in radians, and the size of its picture."""

    c2w: torch.Tensor  # [3,4]
    fov: float
    width: int
    height: int

    @classmethod
    def of_page(
        cls, wxyz: np.ndarray, position: np.ndarray, fov: float, width: int, height: int, largest: int
    ) -> "ViewCamera":
        """From the page's quaternion and position; no side of the picture is longer than largest."""
        rotation = rotation_from_quaternion(torch.as_tensor(wxyz, dtype=torch.float64)[None])[0]
        rotation = rotation * rotation.new_tensor(OPENCV_SIGNS)  # the page's axes: x right, y down, z forward
        center = torch.as_tensor(position, dtype=torch.float64)[:, None]
        scale = min(1.0, largest / max(width, height, 1))
        size = (max(1, round(side * scale)) for side in (width, height))
        return cls(torch.cat([rotation, center], dim=1).float(), fov, *size)

    def cameras(self, width: int, height: int) -> Cameras:
        """One camera of this view with a picture of another size."""
        focal = focal_from_fov(height, self.fov)
        return Cameras(self.c2w[None], torch.tensor([[focal, focal, width / 2, height / 2]]), width, height)


def page_pose(c2w: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Quaternion and position in the page's axes of a camera [3,4]."""
    rotation = c2w[:, :3].double().cpu()
    rotation = rotation * rotation.new_tensor(OPENCV_SIGNS)
    return quaternion_from_rotation(rotation[None])[0].numpy(), c2w[:, 3].double().cpu().numpy()


def vertical_fov(cameras: Cameras, index: int) -> float:
    """Vertical angle of view in radians; of a panorama that of the pinhole in its place (views_ahead)."""
    if cameras.has_panoramas:
        cameras, index = views_ahead(cameras[index]), 0
    return 2 * math.atan(0.5 * cameras.size(index)[1] / cameras.intrinsics[index, 1].item())


@dataclass(frozen=True)
class Look:
    """The settings of a picture."""

    mode: str = "color"  # a name in nerf/viewer/modes.py
    background: tuple[float, float, float] | None = None  # sRGB in [0,1]; None: the run's
    near: float = 0.0  # nothing nearer to the camera is shown, world units
    far: float = math.inf
    crop_lower: tuple[float, float, float] = (0.0, 0.0, 0.0)  # box of what is shown, as fractions of the grid
    crop_upper: tuple[float, float, float] = (1.0, 1.0, 1.0)
    exposure: float = 0.0  # stops, of color only: each doubles its linear light

    def limit(self, sampler: RaySampler) -> RaySampler:
        """The sampler between the clipping planes and inside of the box."""
        config = sampler.config
        far = self.far if config.far is None else min(self.far, config.far)
        config = dataclasses.replace(
            config, near=max(self.near, config.near), far=None if math.isinf(far) else max(far, self.near + 1e-6)
        )
        return dataclasses.replace(sampler, config=config, occupancy=self._cropped(sampler.occupancy))

    def _cropped(self, occupancy: OccupancyGrid) -> OccupancyGrid:
        if not any(self.crop_lower) and min(self.crop_upper) >= 1:
            return occupancy
        inside = torch.zeros_like(occupancy.occupied)
        limits = zip(self.crop_lower, self.crop_upper, inside.shape)
        span = tuple(slice(math.floor(low * n), math.ceil(high * n)) for low, high, n in limits)
        inside[span] = occupancy.occupied[span]
        return OccupancyGrid(inside)
