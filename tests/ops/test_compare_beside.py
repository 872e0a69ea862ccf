"""compare_beside: photos of a plane agree at its depth, what says nothing is left out, native against the reference."""

import math

import pytest
import torch
from case_tools import Operation, as_case, cotangent, numbers, with_gaps
from proofs import BOTH, FLOATS, assert_finite, assert_rejected, outcome

from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import Lenses
from nerf.ops import native, reference

NAME = "compare_beside"
HEIGHT, STEP = 3.0, 0.2  # of the cameras above the plane, and from one to the next; world units
SIZES = [(26, 20), (24, 22), (26, 20)]
LENSES = {
    "pinholes": None,
    "perspective": [("perspective", [0.1, -0.02, 0.01, 0.005, 0.01])] * 3,
    "fisheye": [("fisheye", [0.05, -0.01])] * 3,
    "panoramas": [("equirectangular", [])] * 3,
    "mixed": [("fisheye", [0.05]), ("perspective", [0.1]), ("equirectangular", [])],
}


def _cameras(lens: str = "pinholes") -> Cameras:
    """Three cameras that look straight down at waves on a plane, each beside the one before and turned a little."""
    turns = [
        torch.tensor([[math.cos(a), -math.sin(a), 0], [math.sin(a), math.cos(a), 0], [0, 0, 1]]) for a in (0, 0.2, -0.1)
    ]
    centers = torch.tensor([[STEP * i, 0.05 * i, HEIGHT] for i in range(3)])
    c2w = torch.stack([torch.cat([turn, center[:, None]], dim=1) for turn, center in zip(turns, centers, strict=True)])
    intrinsics = torch.tensor([[30.0, 31.0, width / 2, height / 2] for width, height in SIZES])
    lenses = LENSES[lens]
    lenses = None if lenses is None else Lenses.of(*zip(*lenses, strict=True))
    return Cameras.of_sizes(c2w.double(), intrinsics.double(), SIZES, lenses)


def _photos(cameras: Cameras, channels: int = 3) -> tuple:
    """The pixels of all photos, how far away the plane is along their rays, and these rays."""
    rays = cameras.rays_through(torch.arange(cameras.first_pixel(3)))
    distance = HEIGHT / -rays.directions[:, 2].clamp(max=-0.1)
    x, y, _ = (rays.origins + distance[:, None] * rays.directions).unbind(-1)
    waves = torch.sin(7 * x + 3 * y) + torch.sin(5 * y - 2 * x + 1) + torch.sin(9 * x + 4)
    color = (127 + 38 * waves).round().byte()[:, None].repeat(1, channels)
    if channels == 4:
        color[:, 3] = 255
    return color, distance, rays


def _scene(
    count: int = 40, lens: str = "pinholes", channels: int = 3, stride: int = 1, near: float = 0.9, far: float = 1.1
) -> tuple:
    """Pixels at near to far times their true distance."""
    cameras = _cameras(lens)
    images, distance, rays = _photos(cameras, channels)
    pixels = (len(images) * numbers(count, seed=71)).long()
    opacity = numbers(count, low=0.45, seed=72)
    depth = opacity * distance[pixels] * numbers(count, low=near, high=far, seed=73)
    lenses, sizes = cameras.lenses, torch.tensor(SIZES)
    own = (None,) * 3 if lenses is None else (lenses.numbers, lenses.coefficients.double(), lenses.reach.double())
    first_pixels = torch.nn.functional.pad(sizes.prod(1).cumsum(0), (1, 0))
    views = torch.tensor([[1, 2], [0, 2], [1, -1]])
    seen = depth, opacity, rays.origins[pixels], rays.directions[pixels], pixels
    return *seen, images, sizes, first_pixels, views, cameras.c2w, cameras.intrinsics, *own, stride


def _changed(others: dict[int, object], **options: object) -> tuple:
    """The scene with other arguments at some places."""
    return tuple(others.get(place, value) for place, value in enumerate(_scene(**options)))


def _half_transparent() -> tuple:
    images = _scene(channels=4)[5].clone()
    images[::7, 3] = 0
    return _changed({5: images}, channels=4)


def _narrow() -> tuple:
    """Photos of one column and of one row, in which no patch lies."""
    sizes = torch.tensor([[520, 1], [1, 528], [26, 20]])
    return _changed({6: sizes})


def backward(*arguments: object) -> tuple:
    return cotangent(reference.compare_beside(*arguments)), *arguments


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_scene),
            "empty": as_case(_scene, count=0),
            "non_contiguous": with_gaps(as_case(_scene)),
            **{lens: as_case(_scene, lens=lens) for lens in LENSES if lens != "pinholes"},
            "wide_patches": as_case(_scene, stride=2),
            "alpha": as_case(_half_transparent),
            "narrow": as_case(_narrow),
            "true_depth": as_case(_scene, near=1.0, far=1.0),
            "anywhere": as_case(_scene, near=-1.0, far=5.0),
            "many": as_case(_scene, count=2001),
        },
        gradcheck=("typical", "perspective", "fisheye", "panoramas", "wide_patches"),
        sizes=("depth", "sizes"),
        opcheck=("typical", "empty", "non_contiguous", "mixed"),
        own_rule=True,
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward, sizes=("depth", "sizes"), own_rule=True)
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
@pytest.mark.parametrize("lens", LENSES)
def test_photos_agree_at_the_true_depth_alone(ops, lens, device):
    known = {
        far: as_case(_scene, lens=lens, count=400, near=far, far=far)(torch.float64, device)
        for far in (0.93, 1.0, 1.07)
    }
    errors = {far: ops.compare_beside(*arguments) for far, arguments in known.items()}
    told = errors[1.0] > 0
    assert told.sum() > 60 and errors[1.0][told].mean() < 0.02
    assert all(errors[far].mean() > 2 * errors[1.0].mean() for far in (0.93, 1.07))


@BOTH
def test_it_is_a_correlation_of_patches(ops, device):
    """Of one pixel, by torch.corrcoef, from the pixels of two photos that were taken in one place."""
    arguments = list(_scene(count=1))
    arguments[1] = torch.ones(1).double()
    dice = torch.Generator().manual_seed(0)
    photos = torch.randint(90, 120, (1568, 1), generator=dice).byte().repeat(1, 3)  # so faint that noise counts
    photos[1048:] = (1.5 * photos[:520].float() - 30 + 12 * torch.rand(520, 1, generator=dice)).byte()
    c2w = arguments[9].clone()
    c2w[2] = c2w[0]  # one place, one direction
    pixel = torch.tensor([10 * 26 + 12])
    arguments[4], arguments[5], arguments[8], arguments[9] = pixel, photos, torch.tensor([[2], [0], [0]]), c2w
    arguments[2], arguments[3] = c2w[0, None, :, 3], torch.tensor([[-0.5 / 30, -0.5 / 31, -1.0]]).double()
    arguments[3] = arguments[3] / arguments[3].norm()
    arguments = [x.to(device) if isinstance(x, torch.Tensor) else x for x in arguments]
    around = torch.tensor([[row * 26 + column for column in (11, 12, 13)] for row in (9, 10, 11)]).flatten()
    here, there = (photos[start + around].double().sum(1) / 765 for start in (0, 1048))
    variance = here.var(correction=0)
    expected = (1 - torch.corrcoef(torch.stack([here, there]))[0, 1]) * variance / (variance + 1e-4)
    assert 0.001 < expected < 0.5 and variance < 0.002
    assert ops.compare_beside(*arguments).item() == pytest.approx(expected.item(), rel=0.03)


# Of the scene's pixels none is compared: by which argument, its new value, and why.
LEFT_OUT = {
    "fog": {1: 0.5 * torch.ones(40).double()},
    "no_photo_beside": {8: torch.full((3, 2), -1)},
    "flat": {5: torch.full((1568, 3), 99).byte()},
    "noise": {5: torch.randint(0, 256, (1568, 3), generator=torch.Generator().manual_seed(3)).byte()},
    "a_patch_beyond_its_photo": {14: 11},
    "another_direction": {0: 0.2 * torch.ones(40).double()},
    "behind": {0: -torch.ones(40).double()},
}


@BOTH
@pytest.mark.parametrize("reason", LEFT_OUT)
def test_what_says_nothing_is_left_out(ops, reason, device):
    arguments = as_case(_changed, others=LEFT_OUT[reason])(torch.float64, device)
    found = outcome(NAME, ops, arguments)
    seen = 0.2 if reason == "noise" else 0.0  # a few patches of noise are alike by chance
    for x in found.values():
        assert (x != 0).double().mean() <= seen
    assert (ops.compare_beside(*CASES[NAME]["typical"](torch.float64, device)) > 0).double().mean() > 0.2


@BOTH
def test_what_is_transparent_is_left_out(ops, device):
    """Here or there: every patch has a transparent pixel, but where it would have no room in a row of 26."""
    arguments = list(CASES[NAME]["alpha"](torch.float64, device))
    whole = ops.compare_beside(*as_case(_scene, channels=4)(torch.float64, device))
    assert (ops.compare_beside(*arguments) > 0).sum() < 0.3 * (whole > 0).sum()
    arguments[5] = arguments[5].clone()
    arguments[5][:, 3] = 127
    assert not ops.compare_beside(*arguments).any()
    arguments[5][:, 3] = 128
    torch.testing.assert_close(ops.compare_beside(*arguments), whole)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES[NAME])
def test_native_is_the_reference(case, dtype, device):
    """Up to rounding, which places in photos that are hundreds of pixels wide make larger."""
    arguments = CASES[NAME][case](dtype, device)
    expected, tolerance = outcome(NAME, reference, arguments), 2e-5 if dtype == torch.float32 else 1e-12
    for key, found in outcome(NAME, native, arguments).items():
        largest = max(0.1, expected[key].abs().max().item() if len(found) else 0)
        torch.testing.assert_close(found / largest, expected[key] / largest, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("changed", [0, 1, 2, 3, 9, 10])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_says_nothing(value, changed, dtype, device):
    arguments = CASES[NAME]["typical"](dtype, device)
    arguments[changed][:] = value
    for x in outcome(NAME, native, arguments).values():
        assert not x.any()


@pytest.mark.parametrize("depth", [math.nan, math.inf, -math.inf, 1e20, 3e38])
def test_the_reference_has_no_gradient_where_a_distance_is_none(depth):
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    arguments[0][:3] = depth
    for key, found in outcome(NAME, reference, arguments).items():
        assert found.isfinite().all() and not found[:3].any(), key


@pytest.mark.parametrize("reach", [1e-30, 1e-6, 1e6, 1e30])
def test_extremes_stay_finite(reach, device):
    assert_finite(NAME, as_case(_scene, near=reach, far=reach)(torch.float32, device))


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    bad = {
        "opacity": (arguments[1][1:], r"expected \[40\]"),
        "images": (arguments[5][:, :2], r"expected \[\*,3\] or \[\*,4\]"),
        "beside": (arguments[8][:, :0], "expected a view beside each image"),
        "first_pixels": (arguments[7] + 1, "expected 0"),
        "pixels": (arguments[4] + 1568, "expected 0 to 1567"),
        "stride": (0, "expected 1 to 1048576"),
    }
    for key, (value, said) in bad.items():
        assert_rejected(NAME, arguments, key, value, said)
    assert_rejected(NAME, arguments, "images", arguments[5][1:], r"expected \[1568,3\]")
    with_lenses = CASES[NAME]["mixed"](torch.float32, "cpu")
    assert_rejected(NAME, with_lenses, "lens_models", torch.tensor([0, 1, 3]), "expected 0 to 2")
    assert_rejected(NAME, with_lenses, "lens_reach", None, "expected that of the lenses")
    derived = CASES[f"{NAME}_backward"]["typical"](torch.float32, "cpu")
    assert_rejected(f"{NAME}_backward", derived, "grad_error", torch.ones(39), r"expected \[40\]")
