"""The axes of the smallest box around an object: those of the world rarely are.

Poses from structure from motion have any axes. A box along them is then about twice as large as one that is turned with
the object, and of as many voxels each is a quarter wider.

The volume has many local minima over rotations, so many are tried and the best are refined. O'Rourke 1985 ("Finding
minimal enclosing boxes") has the exact algorithm.
"""

import math

import torch
from torch import Tensor

from nerf.cameras.se3 import exponential
from nerf.scene.box import SceneBox
from nerf.scene.space import WorldSpace

ROTATIONS, SEED = 1024, 0  # tried at first, uniform at random, the same for every scene
KEPT, ROUNDS, NEIGHBORS = 8, 10, 48  # how many are refined, how often, by how many rotations near each
FIRST_ANGLE = 0.3  # radians, of these; halved in each round: about the distance between the first ones
DIRECTIONS = 400  # in which the outermost points are kept


def oriented_box(occupied: Tensor, box: SceneBox) -> SceneBox:
    """The box of the least volume around the occupied cells [X,Y,Z] bool, at least one, of a box in the world.

    Of all names of its axes it has those that turn the world's least.
    """
    cell = box.size.double() / torch.tensor(occupied.shape, device=box.size.device)
    ends = box.aabb[0] + (_ends_of_columns(occupied) + 0.5) * cell
    points = _outermost(ends)
    axes = _rotations(ROTATIONS).to(points.device)
    for round_ in range(ROUNDS):
        best = axes[_volumes(points, cell, axes).argsort()[:KEPT]]
        turns = _turns(FIRST_ANGLE / 2**round_ * _unit_vectors(NEIGHBORS, SEED + 1 + round_)).to(points.device)
        axes = torch.cat([best, (best[:, None] @ turns).flatten(0, 1)])
    best = _nearest_to_identity(axes[_volumes(points, cell, axes).argmin()])
    along, half = ends @ best, 0.5 * (cell[:, None] * best.abs()).sum(0)
    bounds = torch.stack([along.amin(0) - half, along.amax(0) + half])
    return SceneBox(bounds.float(), WorldSpace(axes=best.float()))


def _ends_of_columns(occupied: Tensor) -> Tensor:
    """The first and the last occupied cell of each column along z, [N,3] int64; the hull of all cells is theirs."""
    filled = occupied.any(-1)
    x, y = filled.nonzero().unbind(-1)
    columns = occupied[filled].byte()
    first, last = columns.argmax(-1), columns.shape[1] - 1 - columns.flip(-1).argmax(-1)
    return torch.cat([torch.stack([x, y, z], dim=-1) for z in (first, last)])


def _outermost(points: Tensor) -> Tensor:
    """The points [N,3] that lie farthest in one of many directions."""
    directions = _unit_vectors(DIRECTIONS, SEED).to(points.device)
    return points[(points @ directions.T).argmax(0).unique()]


def _volumes(points: Tensor, cell: Tensor, axes: Tensor) -> Tensor:
    """Volumes [K] of boxes with axes [K,3,3] around cells of this size [3] with centers [N,3]."""
    along = points @ axes
    edges = along.amax(1) - along.amin(1) + (cell[:, None] * axes.abs()).sum(1)
    return edges.prod(-1)


def _unit_vectors(count: int, seed: int, size: int = 3) -> Tensor:
    """Uniform at random, [count,size] float64."""
    drawn = torch.randn(count, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(drawn, dim=-1)


def _rotations(count: int) -> Tensor:
    """No rotation, and others uniform at random (of unit quaternions, Shoemake 1992), [count,3,3] float64."""
    quaternions = _unit_vectors(count, SEED, 4)
    angles = 2 * torch.acos(quaternions[:, 0].clamp(-1, 1))
    angles[0] = 0
    return _turns(torch.nn.functional.normalize(quaternions[:, 1:], dim=-1) * angles[:, None])


def _turns(vectors: Tensor) -> Tensor:
    """Rotations by vectors [N,3], axis times angle in radians, [N,3,3]."""
    return exponential(torch.nn.functional.pad(vectors, (0, 3)))[0]


def _nearest_to_identity(axes: Tensor) -> Tensor:
    """The same axes [3,3] in the order, and with the signs, that come closest to x, y, z; right-handed."""
    ways = [
        torch.eye(3, dtype=axes.dtype)[:, list(order)] * torch.tensor(signs, dtype=axes.dtype)
        for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
        for signs in ((s, t, u) for s in (1, -1) for t in (1, -1) for u in (1, -1))
    ]
    turned = axes.cpu() @ torch.stack([way for way in ways if math.isclose(torch.det(way).item(), 1)])
    return turned[turned.diagonal(dim1=-2, dim2=-1).sum(-1).argmax()].to(axes.device)
