"""Real spherical harmonics up to degree 3, the color basis of the explicit field.

Order and signs of the coefficients are the common ones (Yu et al. 2021, PlenOctrees): for each degree l the orders
m = -l..l, without the Condon-Shortley phase.
"""

import torch
from torch import Tensor

MAX_DEGREE = 3


def num_coefficients(sh_degree: int) -> int:
    """Number of basis functions up to and including this degree: (sh_degree + 1)^2."""
    return (sh_degree + 1) ** 2


def sh_basis(directions: Tensor, sh_degree: int) -> Tensor:
    """Basis functions at unit directions [N,3]: [N, (sh_degree + 1)^2]. Orthonormal over the sphere.

    Raises ValueError for a degree outside 0..3.
    """
    if not 0 <= sh_degree <= MAX_DEGREE:
        raise ValueError(f"sh_degree is {sh_degree}, expected 0 to {MAX_DEGREE}")
    x, y, z = directions.unbind(-1)
    xx, yy, zz = x * x, y * y, z * z
    basis = [torch.full_like(x, 0.28209479177387814)]
    if sh_degree >= 1:
        basis += [-0.4886025119029199 * y, 0.4886025119029199 * z, -0.4886025119029199 * x]
    if sh_degree >= 2:
        basis += [
            1.0925484305920792 * x * y,
            -1.0925484305920792 * y * z,
            0.31539156525252005 * (2 * zz - xx - yy),
            -1.0925484305920792 * x * z,
            0.5462742152960396 * (xx - yy),
        ]
    if sh_degree >= 3:
        basis += [
            -0.5900435899266435 * y * (3 * xx - yy),
            2.890611442640554 * x * y * z,
            -0.4570457994644658 * y * (4 * zz - xx - yy),
            0.3731763325901154 * z * (2 * zz - 3 * xx - 3 * yy),
            -0.4570457994644658 * x * (4 * zz - xx - yy),
            1.445305721320277 * z * (xx - yy),
            -0.5900435899266435 * x * (xx - 3 * yy),
        ]
    return torch.stack(basis, dim=-1)
