"""pixel_directions: the middle of a pixel's rays."""

import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import BOTH, assert_rejected

from nerf.cameras.rays import Rays

NAME = "pixel_directions"


def _rays(pixels: int = 9, rays_per_pixel: int = 4) -> tuple:
    rows = numbers(pixels * rays_per_pixel, 3, low=-1, seed=81)
    return torch.nn.functional.normalize(rows, dim=-1), rays_per_pixel


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_rays),
            "empty": as_case(_rays, pixels=0),
            "non_contiguous": with_gaps(as_case(_rays)),
            "one_ray": as_case(_rays, rays_per_pixel=1),
            "two_rays": as_case(_rays, rays_per_pixel=2),
            "many": as_case(_rays, pixels=3000),
        },
        no_derivative="colors do not move cameras through the view direction",
    ),
}
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
def test_the_first_ray_and_the_middle_one_decide(ops, device):
    directions = torch.tensor([[0.6, 0.8, 0], [0, 0, 1], [0.6, -0.8, 0], [0, 1.0, 0]], device=device)
    torch.testing.assert_close(ops.pixel_directions(directions, 4).cpu(), torch.tensor([[1.0, 0, 0]]))
    torch.testing.assert_close(
        ops.pixel_directions(directions[2:], 2).cpu(), Rays(directions, directions, 2).pixel_directions()[1:].cpu()
    )


@BOTH
def test_opposite_rays_have_no_middle_and_stay_finite(ops, device):
    directions = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]], device=device)
    assert ops.pixel_directions(directions, 2).tolist() == [[0, 0, 0]]


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    for count in (0, 5):
        assert_rejected(NAME, arguments, "rays_per_pixel", count, "expected a divisor of 36, the number of rays")
