"""Surface normals of a radiance field: the direction in which density falls.

Legend: R rays, M samples.
"""

import torch
from torch import Tensor
from torch.nn import functional

from nerf.fields.field import Field
from nerf.rendering.samples import RaySamples

# Composited slopes shorter than this, in raw density per length of the scene (Space.unit), point nowhere.
MIN_SLOPE = 1e-6
SHORTEST = 1e-30  # slope that is made unit; in large world units all are short


@torch.enable_grad()
def falling_density(field: Field, samples: RaySamples) -> Tensor:
    """Minus the gradient of raw density with respect to the world position at every sample, [M,3].

    Its direction is the normal (Verbin et al. 2022, section 3). The activation rises strictly, so density itself falls
    in the same direction; but the slope of density vanishes with density in front of a surface, where that of raw
    density still tells where the surface points. It is the coordinate gradient of interpolate_trilinear. Detached: no
    gradient flows back into the field.
    """
    positions = samples.world_positions().detach().requires_grad_()
    coords = field.grid_map.to_grid(field.box.space.to_scene(positions))
    return -field.density_slopes(coords, positions)


def facing_normals(slopes: Tensor, ray_directions: Tensor, unit: Tensor | float = 1.0) -> Tensor:
    """Unit normals [R,3] in world axes from composited slopes [R,3], turned to the camera's side of the surface.

    Slopes are composited as they are and made unit here: a sample where density is flat has little to say about where
    the surface points. A surface that is seen faces the camera; thin parts, where front and back cancel, are turned to.
    ray_directions: [R,3] unit. unit: the length by which slopes are judged, [] in world units. Zero where a ray meets
    nothing.
    """
    steep = slopes.norm(dim=-1, keepdim=True) * unit > MIN_SLOPE
    normals = torch.where(steep, functional.normalize(slopes, dim=-1, eps=SHORTEST), 0.0)
    away = (normals * ray_directions).sum(-1, keepdim=True) > 0
    return torch.where(away, -normals, normals)
