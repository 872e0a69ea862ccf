"""Every public function of cameras, lenses, paths, spaces, boxes and losses, called with float32 extremes.

The functions are found by walking the packages (tests/helpers/extreme_calls.py), so a new one is called too. It answers
in finite numbers, or with an error that says what is expected, or its name stands here beside the reason.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from extreme_calls import NOT_FINITE, Unknown, calls, problem, public

from nerf.scene import visual_hull

PLACES = ("nerf.cameras", "nerf.scene", "nerf.training.losses", "nerf.ops.contraction", "nerf.ops.distortion")
FOUND = {name: (function, owner) for name, function, owner in public(PLACES)}

# Why an answer may not be finite. Each of these is arithmetic on the rows that it is given, most of them on a GPU,
# where a look at the numbers would wait for it. Files and settings are held to nerf/cameras/limits.py as they are read.
ARITHMETIC = "not finite"  # NaN or infinity in, NaN or infinity out
BEYOND = "huge"  # squares and products of numbers of 1e30 and more are infinite in float32
DIVIDES = "zero"  # by a focal length, an edge, a length or a scale of which zero and 1e-45 are none
MEAN = "no rows"  # of nothing: NaN, as torch.mean has it
REASONS: dict[tuple[str, ...], str] = {
    (ARITHMETIC,): """
        Cameras.centers Cameras.directions_through Cameras.of_sizes Cameras.refined Cameras.resized Cameras.to
        Cameras.within ContractedSpace.inner_box ContractedSpace.path ContractedSpace.thickness ContractedSpace.to
        KeyFrame.timed KeyFramePath.at KeyFramePath.inserted KeyFramePath.moved KeyFramePath.stretched
        KeyFramePath.timed Lenses.to NdcRays.positions NdcSpace.depth_range NdcSpace.to NdcSpace.unit
        Rays.pixel_directions Rays.pixel_means SceneBox.size SceneBox.to SceneBox.voxel_size SceneRays.distances
        SceneRays.positions SceneRays.world_depth WarpedRays.distances WarpedRays.positions WorldSpace.path
        WorldSpace.to WorldSpace.to_scene WorldSpace.to_world angle_between cube_faces distance_to_contracted full_turn
        interpolate matrix_entry orbit parameters_at rotation_angle rotation_from_quaternion rows_of_rays
        space_state spiral squash turn views_ahead
    """,
    (ARITHMETIC, BEYOND): """
        Cameras.project Cameras.project_along Cameras.project_into Cameras.z_along
        ContractedSpace.unit GridMap.to_grid NdcSpace.to_world SceneBox.center SceneBox.unit WarpedRays.world_depth
        WorldSpace.unit contracted_to_distance depth_error distortion_loss exponential in_axes interpolate_poses
        oriented_box pair_ssim posed_rays slerp unsquash
    """,
    (ARITHMETIC, DIVIDES): "Cameras.plane_points NdcSpace.pixel_sizes contract corner_radii",
    (ARITHMETIC, BEYOND, DIVIDES): """
        Cameras.image_rays Cameras.pixel_range_rays Cameras.rays_through ContractedRays.distances
        ContractedRays.positions ContractedRays.world_depth ContractedSpace.pixel_sizes ContractedSpace.to_scene
        ContractedSpace.to_world GridMap.to_scene Lenses.distort Lenses.undistort NdcRays.distances
        NdcRays.world_depth NdcSpace.path NdcSpace.to_scene SceneBox.grid_map WorldSpace.pixel_sizes expand
        Silhouettes.rays leave_box
    """,
    (ARITHMETIC, MEAN): "opacity_entropy",
    (ARITHMETIC, BEYOND, MEAN): """
        ContractedSpace.depth_range WorldSpace.depth_range distances_of_ball mean_pose of_colors of_geometry
        photometric
    """,
    (ARITHMETIC, BEYOND, DIVIDES, MEAN): "distortion",
}
ALLOWED = {name: kinds for kinds, names in REASONS.items() for name in names.split()}
# An image, a view or a group of them that is not there: an IndexError, as of a list.
OF_AN_IMAGE = ("Cameras.image_rays", "Cameras.pixel_range_rays", "Cameras.project", "Cameras.project_along")
NO_IMAGE = (*OF_AN_IMAGE, "Cameras.z_along", "Silhouettes.in_doubt", "pixels_of_hull")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(visual_hull, "SEARCH_CELLS", 5**3)


def answers(name: str, function: Callable, owner: type | None) -> dict[tuple[str, str], str]:
    """What is wrong with the answers of a function, by the kind of extreme and the call."""
    try:
        made = calls(name, function, owner)
    except Unknown as unknown:
        pytest.fail(f"{name} of {inspect.getsourcefile(function)}: {unknown} of tests/helpers/extreme_calls.py")
    with torch.no_grad():
        found = {(call.kind, call.words): problem(call) for call in made}
    return {call: words for call, words in found.items() if words is not None}


@pytest.mark.parametrize("name", FOUND)
def test_extremes_are_answered(name: str) -> None:
    wrong = answers(name, *FOUND[name])
    if name in NO_IMAGE:
        wrong = {call: words for call, words in wrong.items() if call[0] != "no rows"}
    for kind in ALLOWED.get(name, ()):
        assert any(call[0] == kind for call in wrong), f"{name}: {kind} no longer, take it off ALLOWED"
    wrong = {
        call: words for call, words in wrong.items() if words != NOT_FINITE or call[0] not in ALLOWED.get(name, ())
    }
    assert not wrong, f"{name}: answer in finite numbers or with a sentence that says what is expected, or name it here"


def test_what_is_named_here_is_there() -> None:
    assert set(ALLOWED) | set(NO_IMAGE) <= set(FOUND) and len(FOUND) > 150
    called = [name for name, (function, owner) in FOUND.items() if calls(name, function, owner)]
    assert len(called) > 120


def test_a_new_function_is_found_and_what_it_takes_is_asked_for() -> None:
    module = ModuleType("new")
    exec("from torch import Tensor\ndef root(points: Tensor): return points.sqrt()", vars(module))
    assert NOT_FINITE in answers("root", module.root, None).values()
    exec("from torch import Tensor\ndef half(unheard: Tensor): return unheard / 2", vars(module))
    with pytest.raises(Unknown, match="tensor 'unheard' has no shape: add one to SHAPES"):
        calls("half", module.half, None)
    exec("def inverse(focals: float): return 1 / focals", vars(module))
    assert "ZeroDivisionError: float division by zero" in answers("inverse", module.inverse, None).values()
