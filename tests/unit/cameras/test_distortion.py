"""Lenses: OpenCV's two models forwards and, by iteration, backwards."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_cameras import SEVERAL, assert_rays_pass_where_they_should
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import COEFFICIENTS, MIN_SLOPE, Lenses, doubtful_lenses

# From weak to strong; the last of each bends the corner of a wide picture by a third.
LENSES = {
    "fox": ("perspective", (0.0578421, -0.0805099, -0.000980296, 0.00015575)),
    "barrel": ("perspective", (-0.28, 0.08, 0.001, -0.002, 0.0, 0.0)),
    "all six": ("perspective", (0.1, -0.05, 0.003, -0.002, 0.02, -0.004)),
    "cushion": ("perspective", (0.35, 0.1)),
    "fisheye": ("fisheye", (-0.02, 0.005, -0.003, 0.0004)),
    "strong fisheye": ("fisheye", (0.2, -0.1, 0.03, -0.005)),
}
WIDEST = {"perspective": math.tan(math.radians(40)), "fisheye": math.radians(85)}  # of a picture's corner, undistorted


def lens(name: str) -> Lenses:
    model, values = LENSES[name]
    return Lenses.of([model], [values])


def points(name: str, dtype: torch.dtype = torch.float64, count: int = 500) -> Tensor:
    """Points [N,3] before the lens, z forward, over the whole picture; the first in its middle, at any distance."""
    generator = torch.Generator().manual_seed(1)
    model, _ = LENSES[name]
    angle = 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    radius = WIDEST[model] * torch.linspace(0, 1, count, dtype=torch.float64)
    if model == "fisheye":
        sine, z = radius.sin(), radius.cos()
    else:
        sine, z = radius, torch.ones_like(radius)
    distance = 1 + torch.rand(count, generator=generator, dtype=torch.float64)
    return (torch.stack([sine * angle.cos(), sine * angle.sin(), z], dim=-1) * distance[:, None]).to(dtype)


def owner(points: Tensor) -> Tensor:
    return torch.zeros(len(points), dtype=torch.int64)


def angle_between(one: Tensor, other: Tensor) -> Tensor:
    one, other = (torch.nn.functional.normalize(x.double(), dim=-1) for x in (one, other))
    return torch.linalg.cross(one, other).norm(dim=-1)


def by_the_formula(name: str, x: float, y: float) -> tuple[float, float]:
    """OpenCV's documentation, term by term."""
    model, values = LENSES[name]
    k = dict.fromkeys(COEFFICIENTS[model], 0.0) | dict(zip(COEFFICIENTS[model], values))
    r = math.hypot(x, y)
    if model == "fisheye":
        theta = math.atan(r)
        bent = theta * (1 + k["k1"] * theta**2 + k["k2"] * theta**4 + k["k3"] * theta**6 + k["k4"] * theta**8)
        return (x * bent / r, y * bent / r) if r > 0 else (0.0, 0.0)
    radial = 1 + k["k1"] * r**2 + k["k2"] * r**4 + k["k3"] * r**6 + k["k4"] * r**8
    return (
        x * radial + 2 * k["p1"] * x * y + k["p2"] * (r**2 + 2 * x**2),
        y * radial + k["p1"] * (r**2 + 2 * y**2) + 2 * k["p2"] * x * y,
    )


@pytest.mark.parametrize("name", LENSES)
def test_distortion_is_the_formula(name: str) -> None:
    before = points(name)
    expected = [by_the_formula(name, (x / z).item(), (y / z).item()) for x, y, z in before]
    found = lens(name).distort(owner(before), before)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-7)  # float32 k


@pytest.mark.parametrize("name", LENSES)
def test_distortion_is_opencvs(name: str) -> None:
    cv2 = pytest.importorskip("cv2", reason="opencv is not installed")
    model, values = LENSES[name]
    if len(values) == 6 and values[5] != 0:
        values = (*values[:5], 0.0)  # OpenCV has no r^8; its k4 divides
    before = points(name)
    nothing, camera = np.zeros(3), np.eye(3)
    if model == "fisheye":
        expected, _ = cv2.fisheye.projectPoints(before.numpy()[:, None], nothing, nothing, camera, np.array(values))
    else:
        five = np.zeros(5)
        five[: len(values[:5])] = values[:5]
        expected, _ = cv2.projectPoints(before.numpy()[:, None], nothing, nothing, camera, five)
    found = Lenses.of([model], [values]).distort(owner(before), before)
    torch.testing.assert_close(found, torch.from_numpy(expected[:, 0]), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", LENSES)
def test_undistortion_goes_back_to_the_ray(name: str, device: str) -> None:
    """In float32, to two thousandths of a pixel of a picture 4000 pixels wide; and in float64 to far less."""
    for dtype, largest in ((torch.float32, 5e-7), (torch.float64, 1e-13)):
        before = points(name, dtype).to(device)
        lenses, image = lens(name).to(device), owner(before).to(device)
        after = lenses.undistort(image, lenses.distort(image, before))
        assert angle_between(before, after).max() < largest


@pytest.mark.parametrize("name", LENSES)
def test_every_pixel_has_a_ray_however_far_out(name: str) -> None:
    """Where a polynomial turns back it goes on straight, so that there is one ray for each point of the plane."""
    lenses = lens(name)
    angle, radius = torch.linspace(0, 99, 2000, dtype=torch.float64), torch.logspace(-6, 0.3, 2000, dtype=torch.float64)
    bent = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1)
    rays = lenses.undistort(owner(bent), bent)
    assert rays.isfinite().all()
    if name not in ("fisheye", "strong fisheye"):  # whose circle ends
        within = 1e-9 if len(LENSES[name][1]) == 2 else 0.1  # the tangential part shifts the rim to one side
        inside = bent.norm(dim=-1) < 0.98 * lenses.rim
        torch.testing.assert_close(lenses.distort(owner(bent), rays), bent, rtol=within, atol=within)
        back = lenses.distort(owner(bent), rays)[inside]
        torch.testing.assert_close(back, bent[inside], rtol=1e-9, atol=1e-12)


def test_what_lies_far_to_the_side_never_comes_back_into_the_picture() -> None:
    """r - 0.28 r^3 + 0.02 r^5 turns back at r = 1.2 and is 0 again at 2.3."""
    lenses = Lenses.of(["perspective"], [(-0.28, 0.02)])
    radius = torch.linspace(0, 5, 1000, dtype=torch.float64)
    before = torch.stack([radius, torch.zeros_like(radius), torch.ones_like(radius)], dim=-1)
    bent = lenses.distort(owner(before), before)[:, 0]
    assert (bent.diff() >= 0.99 * MIN_SLOPE * radius[1]).all() and bent[-1] > 2


@pytest.mark.parametrize(
    ("model", "values", "corner"),
    [
        ("perspective", (0.4, -0.225), 1.4),
        ("fisheye", (0.0864, 0.036, 0.00834, -0.00247), 2.35),
        ("perspective", (-0.3, 0.1), 0.8),
    ],
)
def test_every_pixel_of_the_picture_finds_its_way_back(model: str, values: tuple[float, ...], corner: float) -> None:
    """Of the first two, Newton's method overshot at a few pixels before the rim: directions jumped by ten degrees."""
    lenses = Lenses.of([model] * 2, [values, (0.01,)], [corner, 0.1])
    angle = torch.linspace(0, 6, 7, dtype=torch.float64)[:, None]
    radius = torch.linspace(0.01, corner, 3000, dtype=torch.float64)
    bent = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1).view(-1, 2)
    back = lenses.distort(owner(bent), lenses.undistort(owner(bent), bent))
    torch.testing.assert_close(back, bent, rtol=0, atol=5e-6)


@pytest.mark.parametrize(("name", "most"), [("fox", 3), ("barrel", 5), ("fisheye", 4)])
def test_as_many_iterations_as_the_picture_takes(name: str, most: int) -> None:
    model, values = LENSES[name]
    corner = WIDEST[model]
    few = Lenses.of([model] * 2, [values, (0.01,)], [corner, 0.1])
    assert 1 < few.iterations <= most
    bent = torch.rand(1000, 2, dtype=torch.float64) * corner / 2**0.5
    expected = lens(name).undistort(owner(bent), bent)
    torch.testing.assert_close(few.undistort(owner(bent), bent), expected, rtol=0, atol=1e-7)


def test_a_fisheye_sees_behind_itself() -> None:
    lenses = Lenses.of(["fisheye"], [()])
    before = torch.tensor([[math.sin(2.0), 0.0, math.cos(2.0)]])
    bent = lenses.distort(owner(before), before)
    torch.testing.assert_close(bent, torch.tensor([[2.0, 0.0]]))
    torch.testing.assert_close(lenses.undistort(owner(bent), bent), before)


def test_each_image_has_its_own_lens() -> None:
    names = list(LENSES)
    lenses = Lenses.of([LENSES[n][0] for n in names], [LENSES[n][1] for n in names])
    bent = 0.4 * torch.randn(len(names) * 50, 2)
    image = torch.arange(len(names)).repeat(50)
    together = lenses.undistort(image, bent)
    for index, name in enumerate(names):
        mine = image == index
        alone = lens(name).undistort(owner(bent[mine]), bent[mine])
        torch.testing.assert_close(together[mine], alone)
        assert lenses[index : index + 1].models == [LENSES[name][0]]


def test_nothing_distorts_where_every_coefficient_is_zero() -> None:
    assert Lenses.of(["perspective"] * 2, [(), (0.0, 0.0, 0.0, 0.0)]) is None
    assert Lenses.of(["perspective", "fisheye"], [(), ()]) is not None


@pytest.mark.parametrize("name", ["barrel", "all six", "strong fisheye"])
def test_gradients_reach_pixels_and_coefficients(name: str) -> None:
    """What learns poses, focal lengths or lenses differentiates the inverse."""
    bent = (0.5 * torch.rand(7, 2, dtype=torch.float64) + 0.05).requires_grad_()
    whole = lens(name)
    coefficients = whole.coefficients.double().requires_grad_()

    def rays(bent: Tensor, coefficients: Tensor) -> Tensor:
        return replace(whole, coefficients=coefficients).undistort(owner(bent), bent)

    assert torch.autograd.gradcheck(rays, (bent, coefficients))


@pytest.mark.parametrize(
    ("model", "values", "problem"),
    [
        ("perspective", (0.1,) * 7, "expected at most 6 finite numbers: k1, k2, p1, p2, k3, k4"),
        ("fisheye", (0.1,) * 5, "expected at most 4 finite numbers: k1, k2, k3, k4"),
        ("fisheye", (math.nan,), "found .nan. of a fisheye lens"),
        ("thin prism", (0.1,), "found 'thin prism', expected one of perspective, fisheye"),
    ],
)
def test_bad_lenses_are_named(model: str, values: tuple[float, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Lenses.of([model], [values])


# Cameras with lenses


def distorted_cameras() -> Cameras:
    """One of each lens, in poses and with focal lengths of their own, all sizes different."""
    torch.manual_seed(3)
    names = list(LENSES)
    rotations = torch.linalg.qr(torch.randn(len(names), 3, 3, dtype=torch.float64)).Q
    rotations = rotations * torch.linalg.det(rotations)[:, None, None]
    c2w = torch.cat([rotations, torch.randn(len(names), 3, 1, dtype=torch.float64)], dim=-1)
    sizes = [(20 + 3 * index, 30 - 2 * index) for index in range(len(names))]
    intrinsics = torch.tensor([[22.0, 24.0, 0.48 * w, 0.53 * h] for w, h in sizes], dtype=torch.float64)
    lenses = Lenses.of([LENSES[n][0] for n in names], [LENSES[n][1] for n in names])
    return Cameras.of_sizes(c2w, intrinsics, sizes, lenses)


@pytest.mark.parametrize(
    ("model", "values", "beyond"),
    [
        ("perspective", (46.6, -3690.0, 0.4, 2.4), 100),  # of a calibration that failed
        ("perspective", (0.0, -0.7), 0),  # turns back a little before the corners, as a lens that is fitted loosely
        ("perspective", (0.06, -0.08, -0.001, 0.0002), 0),  # fox
        ("fisheye", (0.5, -2.0, 0.0, 0.0), 0),  # its picture may be round
    ],
)
def test_a_lens_that_cannot_be_right_is_told(model: str, values: tuple[float, ...], beyond: int) -> None:
    """A calibration that failed made nonsense of every photo, and training took it without a word."""
    intrinsics = torch.tensor([[100.0, 100.0, 60.0, 40.0]]).repeat(3, 1)
    sizes = torch.tensor([[120, 80]]).repeat(3, 1)
    pinhole_first = ["perspective", model, model], [(), values, values]
    said = doubtful_lenses(Lenses.of(*pinhole_first), intrinsics, sizes)
    if beyond:
        assert f"of 2 photos cannot be right: by k1 46.6, k2 -3690, p1 0.4, p2 2.4, {beyond}% of" in said[0]
    else:
        assert said == ()
    assert doubtful_lenses(None, intrinsics, sizes) == ()


def test_projecting_a_point_on_a_ray_gives_its_pixel_center() -> None:
    cameras = distorted_cameras()
    for index in range(len(cameras)):
        width, height = cameras.size(index)
        rays = cameras.image_rays(index)
        distance = 0.5 + 4 * torch.rand(len(rays), 1, dtype=torch.float64)
        pixels, z = cameras.project(index, rays.origins + distance * rays.directions)
        row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        torch.testing.assert_close(pixels, torch.stack([column, row], dim=-1).reshape(-1, 2).double() + 0.5)
        assert (z > 0).all()
        torch.testing.assert_close(rays.directions.norm(dim=-1), torch.ones(len(rays)).double())


@SEVERAL
def test_rays_of_a_pixel_pass_it_where_subpixels_says(per_pixel: int) -> None:
    cameras = distorted_cameras()
    pixels = torch.randint(cameras.first_pixel(len(cameras)), (200,))
    assert_rays_pass_where_they_should(cameras.rays_through(pixels, per_pixel), cameras, pixels, per_pixel)
    for index in range(len(cameras)):
        first, end = cameras.first_pixel(index), cameras.first_pixel(index + 1)
        for start, number in ((0, 50), (50, 10**6)):
            rays = cameras.pixel_range_rays(index, start, start + number, per_pixel)
            pixels = torch.arange(first + start, min(first + start + number, end))
            assert_rays_pass_where_they_should(rays, cameras, pixels, per_pixel)


def test_projecting_into_several_images_is_projecting_into_each() -> None:
    """Each through its own lens."""
    cameras, points = distorted_cameras(), 3 * torch.randn(50, 3, dtype=torch.float64)
    pixels, z = cameras.project_into(range(1, 5), points)
    for number, image in enumerate((1, 2, 3, 4)):
        torch.testing.assert_close((pixels[number], z[number]), cameras.project(image, points))


def test_a_lens_goes_with_its_camera(device: str) -> None:
    cameras = distorted_cameras()
    for index in range(len(cameras)):
        alone, moved = cameras[index].image_rays(0), cameras.to(device).image_rays(index)
        among = cameras.image_rays(index)
        torch.testing.assert_close(alone.directions, among.directions)
        torch.testing.assert_close(moved.directions.cpu(), among.directions)
    half = cameras.resized(scale=0.5)
    assert half.lenses is cameras.lenses and half.size(1) == (12, 14)


def test_a_pinhole_pays_nothing() -> None:
    """Not one operation more than without lenses: the pinhole's rays are the same bits."""
    c2w, intrinsics = torch.eye(4)[:3][None], torch.tensor([[10.0, 20.0, 4.5, 2.5]])
    pinhole = Cameras(c2w, intrinsics, 8, 6, lenses=Lenses.of(["perspective"], [(0.0,) * 6]))
    assert pinhole.lenses is None


@pytest.mark.cuda
def test_undistortion_is_recorded_in_a_cuda_graph(cuda: str) -> None:
    cameras = distorted_cameras().to(cuda)
    pixels = torch.randint(cameras.first_pixel(len(cameras)), (512,), device=cuda)
    expected = cameras.rays_through(pixels)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        cameras.rays_through(pixels)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = cameras.rays_through(pixels)
    graph.replay()
    assert torch.equal(found.directions, expected.directions)
