"""camera_rays: geometry by hand, how pixels are counted, pixels that do not exist, native against the reference."""

import math
from types import SimpleNamespace

import pytest
import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import (
    BOTH,
    FLOATS,
    assert_rejected,
)
from torch import Tensor

from nerf.cameras.cameras import SUBPIXELS, Cameras, posed_rays
from nerf.cameras.distortion import Lenses
from nerf.ops import native, reference

NAME = "camera_rays"


def _views(pixels: int = 20, cameras: int = 3, width: int = 7, height: int = 5, rays_per_pixel: int = 4) -> tuple:
    """Cameras in any pose, and pixels of their images, the first and the last of all among them."""
    axes, centers = torch.linalg.qr(numbers(cameras, 3, 3, low=-1, seed=37)).Q, numbers(cameras, 3, 1, low=-4, seed=38)
    size, count = torch.tensor([width, height]).double(), cameras * width * height
    focal, middle = numbers(cameras, 2, low=0.7, high=1.4, seed=39), numbers(cameras, 2, low=0.4, high=0.6, seed=40)
    indices = (count * numbers(pixels, seed=41)).long()
    indices[:2] = torch.tensor([0, count - 1])[:pixels]
    intrinsics, shifts = torch.cat([width * focal, size * middle], dim=-1), torch.tensor(SUBPIXELS[rays_per_pixel])
    return torch.cat([axes, centers], dim=-1), intrinsics, indices, width, height, shifts.double()


MODELS = {
    "perspective": [0.12, -0.03, 0.004, -0.006, 0.01, 0.002],
    "fisheye": [0.06, -0.02, 0.004, -0.001],
    "equirectangular": [],
}


def _several_sizes(pixels: int = 20) -> tuple:
    """Three images of different sizes, one of a single column; the first and the last pixel of all among them."""
    c2w, intrinsics, _, *_, shifts = _views()
    sizes = torch.tensor([[7, 5], [1, 11], [40, 3]])
    first_pixels = torch.nn.functional.pad(sizes.prod(1).cumsum(0), (1, 0))
    count = int(first_pixels[-1])
    indices = (count * numbers(pixels, seed=42)).long()
    indices[:4] = torch.tensor([0, count - 1, 35, 45])
    return c2w, intrinsics, indices, 40, 11, shifts, sizes, first_pixels


def _lenses(models: tuple[str, ...] = tuple(MODELS), reach: float = 0.8, pixels: int = 40) -> tuple:
    """Lenses whose pictures, of several sizes, go as far as reach from their middles, in focal lengths."""
    c2w, _, indices, *rest, sizes, first_pixels = _several_sizes(pixels)
    lenses = Lenses.of(models, [MODELS[model] for model in models], [reach * math.sqrt(2)] * len(models))
    intrinsics = torch.cat([sizes / 2 / reach, sizes / 2], dim=-1).double()
    ends = (x.double() for x in (lenses.coefficients, lenses.reach, lenses.rim))
    return c2w, intrinsics, indices, *rest, sizes, first_pixels, lenses.numbers, *ends, 6


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_views),
            "empty": as_case(_views, pixels=0),
            "one_camera": as_case(_views, cameras=1),
            "one_ray": as_case(_views, rays_per_pixel=1),
            "two_rays": as_case(_views, rays_per_pixel=2),
            "four_rays": as_case(_views, pixels=5000),
            "one_pixel_images": as_case(_views, width=1, height=1),
            "wide_images": as_case(_views, width=40_000, height=2),
            "non_contiguous": with_gaps(as_case(_views)),
            "several_sizes": as_case(_several_sizes),
            "lenses": as_case(_lenses),
            "perspective": as_case(_lenses, models=("perspective",) * 3),
            "fisheye": as_case(_lenses, models=("fisheye",) * 3),
            "panorama": as_case(_lenses, models=("equirectangular",) * 3),
            "beyond": as_case(_lenses, reach=3.0),
        },
        no_derivative="raises: cameras that are learned make their rays of operations of PyTorch's",
        sizes=("c2w", "pixel_indices", "subpixels"),
        opcheck=("typical", "empty", "non_contiguous", "one_ray", "lenses"),
    ),
}
CASES = {name: known.cases for name, known in OPERATIONS.items()}
WIDTH, HEIGHT = 8, 6
MIDDLE = 2 * WIDTH + 4  # the pixel in column 4 of row 2, whose center is the principal point
AT_ORIGIN = [[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
TURNED = [[0.0, 0, 1, 5], [1, 0, 0, 6], [0, 1, 0, 7]]  # right is y, up is z, backward is x
ARGUMENTS = ("c2w", "intrinsics", "pixel_indices", "width", "height", "subpixels")
OUTSIDE = (-1, 105, 2**40, -(2**62))  # of the 3 * 5 * 7 pixels of the typical case


def rays_of(ops, device: str, pixels: list[int], pose: list = AT_ORIGIN, shifts: object = ((0.0, 0.0),)) -> tuple:
    """Origins and directions through pixels of one camera of focal length 4."""
    c2w, intrinsics = torch.tensor([pose], device=device), torch.tensor([[4.0, 4.0, 4.5, 2.5]], device=device)
    arguments = torch.tensor(pixels, device=device), WIDTH, HEIGHT, torch.tensor(shifts, device=device)
    return ops.camera_rays(c2w, intrinsics, *arguments)


def slopes(directions: Tensor) -> Tensor:
    """How far right and down of a camera at AT_ORIGIN rays go on their way of 1 forwards, [R,2]."""
    return directions[:, :2] * directions.new_tensor([1, -1]) / -directions[:, 2:]


def some_cameras(dtype: torch.dtype, device: str) -> Cameras:
    c2w, intrinsics, _, width, height, _ = CASES[NAME]["typical"](dtype, device)
    return Cameras(c2w, intrinsics, width, height)


# The geometry


@BOTH
def test_the_ray_through_the_principal_point_looks_along_minus_z(ops, device):
    origins, directions = rays_of(ops, device, [MIDDLE])
    assert origins.tolist() == [[0, 0, 0]] and directions.tolist() == [[0, 0, -1]]


@BOTH
def test_columns_run_right_and_rows_run_down(ops, device):
    """Three pixels aside at a focal length of four: a right triangle of sides 3, 4 and 5."""
    _, directions = rays_of(ops, device, [MIDDLE + 3, MIDDLE - 3, MIDDLE + 3 * WIDTH])
    expected = torch.tensor([[0.6, 0, -0.8], [-0.6, 0, -0.8], [0, -0.6, -0.8]], device=device)
    torch.testing.assert_close(directions, expected)


@BOTH
def test_rays_turn_and_move_with_their_camera(ops, device):
    origins, directions = rays_of(ops, device, [MIDDLE, MIDDLE + 3, MIDDLE + 3 * WIDTH], TURNED)
    assert origins.tolist() == [[5, 6, 7]] * 3
    expected = torch.tensor([[-1, 0, 0], [-0.8, 0.6, 0], [-0.8, 0, -0.6]], device=device)
    torch.testing.assert_close(directions, expected)


@BOTH
def test_a_ray_passes_the_center_of_its_pixel(ops, device):
    """Each axis has a focal length and a principal point of its own; the latter is a corner of pixels here."""
    c2w, pixels = torch.tensor([AT_ORIGIN], device=device), torch.tensor([0, WIDTH * HEIGHT - 1], device=device)
    intrinsics, shifts = torch.tensor([[2.0, 10.0, 3.0, 1.0]], device=device), torch.zeros(1, 2, device=device)
    _, directions = ops.camera_rays(c2w, intrinsics, pixels, WIDTH, HEIGHT, shifts)
    expected = torch.tensor([[-2.5 / 2, -0.5 / 10], [4.5 / 2, 4.5 / 10]], device=device)
    torch.testing.assert_close(slopes(directions), expected)


@BOTH
def test_rays_of_a_pixel_stand_beside_each_other_where_subpixels_says(ops, device):
    """Right and down of the center, in pixels."""
    shifts = ((0.0, 0.0), (3.0, 0.0), (0.25, -2.0))
    origins, directions = rays_of(ops, device, [MIDDLE, MIDDLE - 1 + WIDTH], shifts=shifts)
    expected = [[0, 0], [3, 0], [0.25, -2], [-1, 1], [2, 1], [-0.75, -1]]
    assert origins.shape == (6, 3)
    torch.testing.assert_close(4 * slopes(directions), torch.tensor(expected, device=device))


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES[NAME])
def test_directions_have_length_one(ops, dtype, case, device):
    origins, directions = getattr(ops, NAME)(*CASES[NAME][case](dtype, device))
    assert origins.shape == directions.shape
    torch.testing.assert_close(directions.norm(dim=-1), torch.ones_like(directions[:, 0]))


# Which pixel


@BOTH
def test_pixels_are_counted_image_by_image_row_by_row(ops, device):
    """Each origin says the image, each direction column and row."""
    count, height, width = 2, 3, 5
    image, row, column = torch.meshgrid(*map(torch.arange, (count, height, width)), indexing="ij")
    c2w = torch.tensor([AT_ORIGIN, AT_ORIGIN], device=device)
    c2w[1, :, 3] = 1
    intrinsics = torch.tensor([[1.0, 1.0, 0.5, 0.5]], device=device).expand(2, 4)
    pixels, shifts = torch.arange(count * height * width, device=device), torch.zeros(1, 2, device=device)
    origins, directions = ops.camera_rays(c2w, intrinsics, pixels, width, height, shifts)
    assert torch.equal(origins.cpu(), image.flatten()[:, None].expand(-1, 3).float())
    expected = torch.stack([column, row], dim=-1).view(-1, 2).float()
    torch.testing.assert_close(slopes(directions).cpu(), expected)


@BOTH
def test_pixels_may_repeat_in_any_order(ops, device):
    c2w, intrinsics, _, *rest = CASES[NAME]["one_ray"](torch.float32, device)
    picked = torch.tensor([104, 0, 104, 12], device=device)
    everything = ops.camera_rays(c2w, intrinsics, torch.arange(105, device=device), *rest)
    for found, all_rays in zip(ops.camera_rays(c2w, intrinsics, picked, *rest), everything, strict=True):
        assert torch.equal(found, all_rays[picked])


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_pixel_outside_the_images_has_rays_of_not_a_number_on_a_gpu(dtype, cuda):
    """Which cannot raise without a wait, so a wrong index has to show in the loss."""
    c2w, intrinsics, _, width, height, shifts = CASES[NAME]["typical"](dtype, cuda)
    pixels = torch.tensor([0, *OUTSIDE[:2], 104, *OUTSIDE[2:]], device=cuda)
    expected = torch.tensor([x in OUTSIDE for x in pixels.tolist()]).repeat_interleave(len(shifts))
    for rays in native.camera_rays(c2w, intrinsics, pixels, width, height, shifts):
        assert torch.equal(rays.isnan().all(-1).cpu(), expected)
        assert torch.equal(rays.isnan().any(-1).cpu(), expected)


@BOTH
@pytest.mark.parametrize(
    ("width", "height"),
    [(50_000, 40_000), (70_000, 40_000), (100_000, 50_000), (300, 8_000_000), (46_340, 46_340), (46_337, 46_349)],
    ids=["below", "beyond", "beyond_2_32", "narrow", "just_below", "just_beyond"],
)
def test_pixels_beyond_2_31(ops, width, height, device):
    """In three images of fewer pixels each and in larger ones; column and row by Python's integers."""
    size, edge = width * height, 1 << 31
    numbers = [0, 1, size - 1, size, size + 1, 2 * size - 1, 2 * size, 3 * size - 1, 3 * size - width]
    numbers += [edge + k * width + shift for k in (-1, 0, 1) for shift in (-1, 0, 1)] + [2 * edge - 1, 2 * edge]
    c2w = torch.tensor([AT_ORIGIN] * 3, device=device).double()
    c2w[:, :, 3] = torch.arange(3, device=device)[:, None].double()
    intrinsics = torch.tensor([[1.0, 1.0, 0.5, 0.5]] * 3, device=device).double()
    pixels, shifts = torch.tensor(numbers, device=device), torch.zeros(1, 2, device=device).double()
    origins, directions = ops.camera_rays(c2w, intrinsics, pixels, width, height, shifts)
    assert origins[:, 0].tolist() == [pixel // size for pixel in numbers]
    expected = [[pixel % size % width, pixel % size // width] for pixel in numbers]
    torch.testing.assert_close(slopes(directions).cpu(), torch.tensor(expected).double(), rtol=1e-9, atol=1e-6)


@BOTH
def test_images_of_several_sizes_are_counted_one_after_the_other(ops, device):
    """Each origin says the image, each direction column and row."""
    sizes = [(3, 2), (1, 4), (5, 1)]
    places = [(image, x, y) for image, (width, height) in enumerate(sizes) for y in range(height) for x in range(width)]
    counted = torch.tensor(sizes, device=device)
    first_pixels = torch.nn.functional.pad(counted.prod(1).cumsum(0), (1, 0))
    c2w = torch.tensor([AT_ORIGIN] * 3, device=device)
    c2w[:, :, 3] = torch.arange(3, device=device)[:, None].float()
    intrinsics = torch.tensor([[1.0, 1.0, 0.5, 0.5]], device=device).expand(3, 4)
    pixels, shifts = torch.arange(len(places), device=device), torch.zeros(1, 2, device=device)
    origins, directions = ops.camera_rays(c2w, intrinsics, pixels, 5, 4, shifts, counted, first_pixels)
    expected = torch.tensor(places, device=device).float()
    assert torch.equal(origins[:, 0], expected[:, 0])
    torch.testing.assert_close(slopes(directions), expected[:, 1:])


# Lenses


@BOTH
@pytest.mark.parametrize("model", MODELS)
def test_what_a_ray_sees_is_distorted_to_its_pixel(ops, model, device):
    """There and back: the point far along the ray is projected into the picture that the ray came from."""
    lenses = Lenses.of([model] * 2, [MODELS[model]] * 2, [0.9] * 2).to(device)
    intrinsics = torch.tensor([[8.0, 7, 5, 4]] * 2, device=device)
    c2w = torch.tensor([AT_ORIGIN, TURNED], device=device)
    cameras = Cameras.of_sizes(c2w, intrinsics, [(10, 8), (9, 8)], lenses)
    for image in range(2):
        width, height = cameras.size(image)
        rays = cameras.rays_through(torch.arange(width * height, device=device) + cameras.first_pixel(image), 1, ops)
        found, _ = cameras.project(image, rays.origins + 3 * rays.directions)
        v, u = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        expected = torch.stack([u, v], dim=-1).view(-1, 2).to(found) + 0.5
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_pixel_outside_of_images_of_several_sizes_has_rays_of_not_a_number_on_a_gpu(dtype, cuda):
    c2w, intrinsics, pixels, width, height, shifts, *images = CASES[NAME]["lenses"](dtype, cuda)
    wrong = pixels.clone()
    wrong[::5], wrong[1::7] = -1, int(images[1][-1])
    expected = (wrong != pixels).repeat_interleave(len(shifts))
    for rays in native.camera_rays(c2w, intrinsics, wrong, width, height, shifts, *images):
        assert torch.equal(rays.isnan().any(-1), expected)


# Native and the reference


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES[NAME])
def test_native_is_the_reference(case, dtype, device):
    """Up to rounding, which steep lenses make larger."""
    arguments = CASES[NAME][case](dtype, device)
    tolerance = 2e-5 if dtype == torch.float32 else 1e-12
    for found, expected in zip(native.camera_rays(*arguments), reference.camera_rays(*arguments), strict=True):
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@BOTH
@pytest.mark.parametrize("case", ["several_sizes", "lenses"])
def test_other_cameras_have_the_rays_that_a_composition_makes(ops, case, device):
    c2w, intrinsics, pixels, width, height, _, sizes, _, *numbered = CASES[NAME][case](torch.float32, device)
    models = tuple(MODELS)
    lenses = Lenses(*numbered[1:4], numbered[0], models, numbered[4]) if numbered else None
    cameras = Cameras(c2w, intrinsics, width, height, sizes, lenses)
    rays = cameras.rays_through(pixels, 4, ops)
    points, image = cameras.plane_points(pixels, 4)
    expected = posed_rays(cameras.directions_through(points, image), cameras.c2w[image], 4)
    assert torch.equal(rays.origins, expected.origins)
    torch.testing.assert_close(rays.directions, expected.directions, rtol=2e-5, atol=2e-5)


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("per_pixel", SUBPIXELS)
def test_cameras_have_the_rays_that_a_composition_makes(ops, dtype, per_pixel, device):
    """Which is how rays of learned cameras are made."""
    cameras = some_cameras(dtype, device)
    pixels = torch.randint(cameras.first_pixel(len(cameras)), (200,)).to(device)
    rays = cameras.rays_through(pixels, per_pixel, ops)
    points, image = cameras.plane_points(pixels, per_pixel)
    expected = posed_rays(cameras.directions_through(points, image), cameras.c2w[image], per_pixel)
    assert rays.per_pixel == per_pixel and len(rays.origins) == 200 * per_pixel
    assert torch.equal(rays.origins, expected.origins)
    torch.testing.assert_close(rays.directions, expected.directions)


@BOTH
@pytest.mark.parametrize("per_pixel", SUBPIXELS)
def test_ranges_of_pixels_have_the_same_rays(ops, per_pixel, device):
    cameras = some_cameras(torch.float32, device)
    for index in range(len(cameras)):
        first, end = cameras.first_pixel(index), cameras.first_pixel(index + 1)
        for start in range(0, end - first, 10):  # the last one goes on beyond the end
            rays = cameras.pixel_range_rays(index, start, start + 10, per_pixel, ops)
            pixels = torch.arange(first + start, min(first + start + 10, end), device=device)
            expected = cameras.rays_through(pixels, per_pixel, ops)
            torch.testing.assert_close(rays.origins, expected.origins, rtol=0, atol=0)
            torch.testing.assert_close(rays.directions, expected.directions, rtol=1e-6, atol=1e-6)


def test_cameras_take_the_operation_that_they_are_given():
    cameras, calls = some_cameras(torch.float32, "cpu"), []

    def camera_rays(*arguments: object) -> tuple[Tensor, Tensor]:
        calls.append(arguments)
        return native.camera_rays(*arguments)

    ops = SimpleNamespace(camera_rays=camera_rays)
    cameras.rays_through(torch.arange(3), 2, ops)
    cameras.pixel_range_rays(1, 0, 3, 2, ops)
    assert len(calls) == 2


@pytest.mark.parametrize("key", ["c2w", "intrinsics", "subpixels"])
@pytest.mark.parametrize("output", [0, 1])
def test_derivative_raises(output, key, device):
    """Instead of leaving cameras that are learned where they are; without a loss they may ask for gradients."""
    arguments = dict(zip(ARGUMENTS, CASES[NAME]["typical"](torch.float32, device), strict=True))
    expected = native.camera_rays(**arguments)[output]
    arguments[key].requires_grad_()
    rays = native.camera_rays(**arguments)[output]
    assert torch.equal(rays.detach(), expected)
    with pytest.raises(RuntimeError, match="^camera_rays has no derivative; use backend=torch .*poses=refine"):
        rays.sum().backward()


def test_gradcheck_of_the_reference(device):
    """Which native's message promises."""
    c2w, intrinsics, pixels, width, height, shifts = CASES[NAME]["typical"](torch.float64, device)

    def rays(c2w: Tensor, intrinsics: Tensor) -> tuple[Tensor, Tensor]:
        return reference.camera_rays(c2w, intrinsics, pixels, width, height, shifts)

    leaves = c2w.requires_grad_(), intrinsics.requires_grad_()
    assert torch.autograd.gradcheck(rays, leaves, nondet_tol=1e-12)


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "c2w", arguments[0][:, :2], r"expected \[.*,3,4\]")
    assert_rejected(NAME, arguments, "intrinsics", arguments[1][:2], r"expected \[3,4\]")
    assert_rejected(NAME, arguments, "intrinsics", arguments[1].double(), "expected float32")
    assert_rejected(NAME, arguments, "subpixels", arguments[5][:, :1], r"expected \[.*,2\]")
    for key in ("width", "height"):
        for bad in (0, -1):
            assert_rejected(NAME, arguments, key, bad, "expected at least 1")
    arguments = CASES[NAME]["lenses"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "first_pixels", None, "expected that of the images")
    assert_rejected(NAME, arguments, "first_pixels", arguments[7] + 1, "value 1 at 0, expected 0")
    assert_rejected(NAME, arguments, "pixel_indices", arguments[2] + 166, "expected 0 to 165")
    assert_rejected(NAME, arguments, "lens_rim", None, "expected that of the lenses")
    assert_rejected(NAME, arguments, "lens_rim", arguments[11].double(), "expected float32")
    assert_rejected(NAME, arguments, "lens_models", arguments[8] + 1, "expected 0 to 2")
    assert_rejected(NAME, arguments, "lens_coefficients", arguments[9][:, :4], r"expected \[3,6\]")
    for iterations in (0, 1001):
        assert_rejected(NAME, arguments, "iterations", iterations, "expected 1 to 1000")
