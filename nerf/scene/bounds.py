"""The kind of a scene, bounded, forward-facing or unbounded, and the box it lives in.

What the capture's description leaves open is read off the cameras. Legend: I cameras.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from nerf.cameras.cameras import Cameras
from nerf.cameras.limits import FARTHEST, SMALLEST_SHARE, is_box
from nerf.cameras.panoramas import common_target
from nerf.cameras.rays import Rays
from nerf.config.schema import DatasetConfig
from nerf.errors import UserError
from nerf.scene import visual_hull
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace
from nerf.scene.description import SceneDescription
from nerf.scene.ndc import NdcSpace
from nerf.scene.silhouettes import Silhouettes

# Unbounded: thickness of the shell in halves of the inner box. The box gets 1 / (1 + this) of each axis.
SHELL = 0.6
# Of the median distance to what the cameras look at, where nothing else is known.
INNER_FRACTION = 1.0
NEAR_FRACTION = 0.1
# Forward-facing: cells in depth that a cell's width of parallax between the outermost cameras is divided into.
DEPTH_CELLS_PER_PARALLAX = 0.5
FARTHEST_CAMERA = 1e4  # widths of the box
# Unbounded, of all cameras on average: their rays walk from there to the box in steps of its voxels, so that what each
# takes grows with it. Captures have less than 1.
FARTHEST_OF_UNBOUNDED = 30.0
MIN_THICKNESS = 0.05  # for cameras that hardly move; tangents of the view angle


def describe(dataset: DatasetConfig, known: SceneDescription | None, has_alpha: bool) -> SceneDescription:
    """Kind, extent and reasons: the settings first, then the capture's own description, then the images.

    known: what the capture says (PosedImages.scene). has_alpha: whether its images store transparency.
    """
    known = known or SceneDescription("bounded", reasons=(_why_box(has_alpha),))
    if dataset.kind != "auto":
        known = replace(known, kind=dataset.kind, reasons=("as asked",))
    if dataset.aabb is not None:
        known = replace(known, aabb=given_box("dataset.aabb", dataset.aabb))
    return known


def _why_box(has_alpha: bool) -> str:
    if has_alpha:
        return "the images have alpha, which shows where the scene ends"
    return "the format holds scenes of one object, and nothing says otherwise"


def given_box(name: str, box: list[float]) -> Tensor:
    """The box [2,3] that a setting of this name gives. Raises UserError if its numbers are none."""
    if len(box) != 6 or not is_box(box[:3], box[3:]):
        raise UserError(
            f"{name}={box} is no box, expected x0,y0,z0,x1,y1,z1 with x0 < x1, y0 < y1, z0 < z1, numbers up to "
            f"{FARTHEST:g} and edges of at least {SMALLEST_SHARE:g} of them."
        )
    return torch.tensor(box, dtype=torch.float32).view(2, 3)


def make_box(
    described: SceneDescription, cameras: Cameras, silhouettes: Silhouettes | None, near: float, device: torch.device
) -> SceneBox:
    """The box of a scene in its space, on the device.

    near: world distance from a camera, the user's; 0: the description's, or what the cameras suggest.
    Raises UserError where the cameras do not suit the kind.
    """
    box = _box_of_kind(described, cameras, silhouettes, near, device)
    low, high = box.aabb.tolist()
    if not is_box(low, high):
        raise UserError(
            f"the scene's box from {_listed(low)} to {_listed(high)} cannot be used: in float32 no voxels can be told "
            "apart in it. Set dataset.aabb, or move and scale the poses."
        )
    if described.kind != "forward_facing":
        widths = (cameras.centers.cpu() - box.center.cpu()).norm(dim=-1) / box.size.max().cpu()
        if widths.max() > FARTHEST_CAMERA:
            raise UserError(
                f"training camera {int(widths.argmax())} is {widths.max():.3g} times as far from the scene's box as "
                f"that is wide, expected at most {FARTHEST_CAMERA:g}: in float32 nothing in it can be told apart from "
                "there. Drop its frame, or set dataset.aabb to a larger box."
            )
        if described.kind == "unbounded" and widths.mean() > FARTHEST_OF_UNBOUNDED:
            raise UserError(
                f"the training cameras are {widths.mean():.3g} times as far from the scene's box as that is wide, "
                f"expected at most {FARTHEST_OF_UNBOUNDED:g} on average: rays of an unbounded scene walk from there in "
                "steps of its voxels. Check the focal lengths and the unit of the poses, or set dataset.aabb to a "
                "larger box."
            )
    return box


def why_turned(box: SceneBox) -> tuple[str, ...]:
    """What to tell of a box that does not lie along the axes of the world; empty for others."""
    if box.space.axes is None:
        return ()
    return ("its box is turned to the axes along which the object is smallest",)


def _listed(corner: list[float]) -> str:
    return ",".join(f"{x:g}" for x in corner)


def _box_of_kind(
    described: SceneDescription, cameras: Cameras, silhouettes: Silhouettes | None, near: float, device: torch.device
) -> SceneBox:
    if described.kind == "forward_facing":
        return _forward_box(described, cameras, near).to(device)
    if described.kind == "unbounded":
        return _unbounded_box(described, cameras, near).to(device)
    if described.aabb is not None:
        return SceneBox(described.aabb.to(device))
    if len(cameras) < 2 and not cameras.has_panoramas:
        raise UserError(
            f"the scene box cannot be found from {len(cameras)} camera: one view alone does not tell how far away the "
            "scene is, expected at least two from different places. Take more photos, or set dataset.aabb."
        )
    return visual_hull.find_box(cameras, silhouettes, device)


def _forward_box(described: SceneDescription, cameras: Cameras, near: float) -> SceneBox:
    """All that the cameras see behind the near plane."""
    if cameras.has_panoramas:
        raise UserError(
            "dataset.kind=forward_facing, but some cameras are panoramas, which see what lies behind them too; "
            "expected perspective or fisheye cameras that all look one way. Use dataset.kind=unbounded."
        )
    reference = mean_pose(cameras)
    offsets = (cameras.centers - reference[:, 3]) @ reference[:, :3]
    axes = -(cameras.c2w[:, :, 2] @ reference[:, :3])
    if (axes[:, 2] > -0.5).any():  # more than 60 degrees off
        raise UserError(
            "dataset.kind=forward_facing, but some cameras look more than 60 degrees away from the mean direction; "
            "expected cameras that all look one way. Use dataset.kind=unbounded."
        )
    nearest = near or described.near or NEAR_FRACTION * _median_distance(cameras, "near")
    plane = nearest - offsets[:, 2].max().item()  # in front of the camera that stands farthest back
    if plane <= 0:
        raise UserError(
            f"the nearest thing is {nearest:g} from a camera, but the cameras of a forward-facing scene stand "
            f"{offsets[:, 2].max().item():g} apart in depth: they move into the scene. Use dataset.kind=unbounded."
        )
    parallax = 2 * offsets[:, :2].norm(dim=-1).max().item() / plane
    thickness = max(MIN_THICKNESS, DEPTH_CELLS_PER_PARALLAX * parallax)
    space = NdcSpace(reference, plane, thickness, near)
    rays = [ray for index in range(len(cameras)) for ray in _corner_rays(cameras, index)]
    origins, directions = (torch.cat([getattr(ray, name) for ray in rays]) for name in ("origins", "directions"))
    path = space.path(origins, directions, torch.zeros(len(rays)), torch.zeros(len(rays)))
    ends = torch.cat([path.origins, path.origins + path.length[:, None] * path.directions])
    lower, upper = ends.amin(0), ends.amax(0)
    lower[2], upper[2] = 0.0, thickness
    return SceneBox(torch.stack([lower, upper]), space)


def _corner_rays(cameras: Cameras, index: int) -> list[Rays]:
    width, height = cameras.size(index)
    pixels = (0, width - 1, (height - 1) * width, height * width - 1)
    return [cameras.pixel_range_rays(index, pixel, pixel + 1) for pixel in pixels]


def mean_pose(cameras: Cameras) -> Tensor:
    """A pose [3,4] in the middle of the cameras that looks where they look on average."""
    backward = normalize(cameras.c2w[:, :, 2].mean(0), dim=0)
    right = normalize(torch.linalg.cross(cameras.c2w[:, :, 1].mean(0), backward), dim=0)
    return torch.stack([right, torch.linalg.cross(backward, right), backward, cameras.centers.mean(0)], dim=1)


def _unbounded_box(described: SceneDescription, cameras: Cameras, near: float) -> SceneBox:
    """The inner box and the shell around it."""
    if described.aabb is not None:
        inner = described.aabb
    else:
        target, reach = _target(cameras, "aabb"), INNER_FRACTION * _median_distance(cameras, "aabb")
        inner = torch.stack([target - reach, target + reach])
    center, half = inner.mean(0), 0.5 * (inner[1] - inner[0])
    nearest = near or described.near or NEAR_FRACTION * half.min().item()
    space = ContractedSpace(center, half, SHELL, nearest)
    whole = (1 + SHELL) * half
    return SceneBox(torch.stack([center - whole, center + whole]), space)


def _target(cameras: Cameras, missing: str) -> Tensor:
    try:
        return common_target(cameras).float()
    except ValueError as error:
        name = {"near": "sampler.near", "aabb": "dataset.aabb"}[missing]
        raise UserError(f"the scene's extent cannot be found from the cameras: {error}; set {name}.") from error


def _median_distance(cameras: Cameras, missing: str) -> float:
    return (cameras.centers - _target(cameras, missing)).norm(dim=-1).median().item()
