"""Surface normals of a radiance field: the direction in which density decreases.

Legend: R rays, M samples.
"""

import torch
from torch import Tensor
from torch.nn import functional

from nerf.fields.field import Field
from nerf.rendering.samples import RaySamples

# Composited slopes shorter than this have no direction; in raw density per length of the scene (SceneBox.unit).
MIN_SLOPE = 1e-6
SHORTEST = 1e-30  # lower bound of the length in the normalization; slopes per large world units are short


@torch.enable_grad()
def falling_density(field: Field, samples: RaySamples) -> Tensor:
    """Minus the gradient of raw density with respect to the world position at every sample, [M,3].

    Its direction is the normal (Verbin et al. 2022, section 3). The activation is strictly increasing, so density has
    the same direction of decrease. Raw density is used because the gradient of density vanishes together with density
    in front of a surface. Detached: no gradient flows back into the field.
    """
    positions = samples.world_positions().detach().requires_grad_()
    coords = field.grid_map.to_grid(field.box.space.to_scene(positions))
    return -field.density_slopes(coords, positions)


def facing_normals(slopes: Tensor, ray_directions: Tensor, unit: Tensor | float = 1.0) -> Tensor:
    """Unit normals [R,3] in world axes from composited slopes [R,3], flipped to face the camera. Zero for empty rays.

    Slopes are composited first and normalized here, so that samples in flat density have little influence. A visible
    surface faces the camera; the flip matters for thin parts, where front and back nearly cancel.

    ray_directions [R,3]: unit. unit []: the length for the comparison with MIN_SLOPE, world units.
    """
    steep = slopes.norm(dim=-1, keepdim=True) * unit > MIN_SLOPE
    normals = torch.where(steep, functional.normalize(slopes, dim=-1, eps=SHORTEST), 0.0)
    away = (normals * ray_directions).sum(-1, keepdim=True) > 0
    return torch.where(away, -normals, normals)
