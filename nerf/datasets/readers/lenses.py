"""The camera models of COLMAP and nerfstudio in terms of OpenCV's two lenses, perspective and fisheye, and panoramas.

Sources: COLMAP, src/colmap/sensor/models.h (order of the parameters); OpenCV, calib3d (both distortions). COLMAP's
pixel centers lie at +0.5, as ours do, so a principal point is taken as it stands.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nerf.cameras.cameras import PANORAMA
from nerf.cameras.distortion import COEFFICIENTS
from nerf.cameras.limits import LARGEST_COEFFICIENT, LARGEST_SIDE, unusable_intrinsics
from nerf.cameras.panoramas import full_turn
from nerf.errors import UserError

# Model: its lens, its parameters in COLMAP's order. f stands for fx = fy.
COLMAP_MODELS = {
    "SIMPLE_PINHOLE": ("perspective", "f cx cy"),
    "PINHOLE": ("perspective", "fx fy cx cy"),
    "SIMPLE_RADIAL": ("perspective", "f cx cy k1"),
    "RADIAL": ("perspective", "f cx cy k1 k2"),
    "OPENCV": ("perspective", "fx fy cx cy k1 k2 p1 p2"),
    "OPENCV_FISHEYE": ("fisheye", "fx fy cx cy k1 k2 k3 k4"),
    "SIMPLE_RADIAL_FISHEYE": ("fisheye", "f cx cy k1"),
    "RADIAL_FISHEYE": ("fisheye", "f cx cy k1 k2"),
}
PANORAMA_MODEL = "EQUIRECTANGULAR"  # of nerfstudio; COLMAP has none
# Sides may be rounded to whole pixels when photos are made smaller, no more.
SHAPE_TOLERANCE = 0.01


@dataclass(frozen=True)
class Lens:
    """How a camera maps directions to pixels, for images of one size."""

    width: int  # pixels
    height: int
    intrinsics: tuple[float, float, float, float]  # fx, fy, cx, cy in pixels
    model: str = "perspective"  # as COEFFICIENTS of nerf/cameras/distortion.py names them
    distortion: tuple[float, ...] = ()  # in their order; empty: none

    def fitted(self, width: int, height: int, where: str) -> "Lens":
        """The lens for the same picture stored at another size. Raises UserError where the shape differs."""
        if (width, height) == (self.width, self.height):
            return self
        across, down = width / self.width, height / self.height
        if abs(across / down - 1) > SHAPE_TOLERANCE:
            turned = abs(width * self.width / (height * self.height) - 1) <= SHAPE_TOLERANCE
            remedy = "Turn the image back to how it was when the poses were made" if turned else "Restore the image"
            raise UserError(
                f"{where} is {width}x{height} but its camera is for {self.width}x{self.height}, which is no other size "
                f"of the same picture. {remedy}, or make the poses again."
            )
        fx, fy, cx, cy = self.intrinsics
        return Lens(width, height, (fx * across, fy * down, cx * across, cy * down), self.model, self.distortion)


def make_lens(
    width: float,
    height: float,
    intrinsics: Sequence[float],
    model: str,
    coefficients: dict[str, float],
    where: str,
) -> Lens:
    """A lens from named coefficients, absent ones being 0. where begins the messages.

    width, height: pixels; intrinsics: fx, fy, cx, cy. Raises UserError for numbers out of the ranges of
    cameras/limits.py, and for coefficients that the model does not have, unless they are 0.
    """
    for name, value in (("width", width), ("height", height)):
        if not 0.5 < value <= LARGEST_SIDE:
            raise UserError(f"{where}: {name} is {value:g}, expected 1 to {LARGEST_SIDE} pixels; correct it.")
    problem = unusable_intrinsics(*intrinsics)
    if problem is not None:
        raise UserError(f"{where}: {problem}; correct it.")
    for name, value in coefficients.items():
        if not abs(value) <= LARGEST_COEFFICIENT:
            raise UserError(f"{where}: {name} is {value:g}, expected at most {LARGEST_COEFFICIENT:g}; correct it.")
    alien = [name for name, value in coefficients.items() if value and name not in COEFFICIENTS[model]]
    if alien:
        raise UserError(
            f"{where}: {', '.join(alien)} are no coefficients of the {model} lens, expected "
            f"{', '.join(COEFFICIENTS[model]) or 'none'}; correct camera_model, or remove them."
        )
    distortion = [float(coefficients.get(name, 0.0)) for name in COEFFICIENTS[model]]
    while distortion and distortion[-1] == 0:
        distortion.pop()
    return Lens(round(width), round(height), tuple(map(float, intrinsics)), model, tuple(distortion))


def panorama_lens(
    width: float, height: float, focal: Sequence[float | None], center: Sequence[float | None], where: str
) -> Lens:
    """The lens of a panorama of the whole sphere, which its size determines.

    focal: fl_x and fl_y, which nerfstudio writes as width / 2 and height; center: cx and cy; None: not given. Raises
    UserError for pictures that are not twice as wide as high, and for values that name another part of the sphere.
    """
    if not abs(width - 2 * height) <= SHAPE_TOLERANCE * 2 * height:
        raise UserError(
            f"{where}: a panorama of {width:g}x{height:g} pixels, expected one twice as wide as high: {PANORAMA_MODEL} "
            "is the whole sphere, 360 by 180 degrees. Fill up what was cut off and mask it (docs/data.md), or cut "
            "perspective views out of it."
        )
    whole = {"fl_x": width / 2, "fl_y": height, "cx": width / 2, "cy": height / 2}
    for (name, expected), value in zip(whole.items(), (*focal, *center), strict=True):
        if value is not None and not abs(value - expected) <= SHAPE_TOLERANCE * height:
            raise UserError(
                f"{where}: {name} is {value:g}, but {PANORAMA_MODEL} is the whole sphere, whose {name} at "
                f"{width:g}x{height:g} pixels is {expected:g}; correct it, or remove it."
            )
    return make_lens(width, height, full_turn(width, height), PANORAMA, {}, where)


def colmap_lens(model: str, parameters: Sequence[float], width: int, height: int, where: str) -> Lens:
    """The lens of one of COLMAP's cameras. Raises UserError for other models and another number of parameters."""
    if model not in COLMAP_MODELS:
        raise UserError(
            f"{where} has the model {model}, expected one of {', '.join(COLMAP_MODELS)}. Undistort the images with "
            "'colmap image_undistorter', or reconstruct again with --ImageReader.camera_model OPENCV."
        )
    kind, order = COLMAP_MODELS[model]
    names = order.split()
    if len(parameters) != len(names):
        raise UserError(
            f"{where}: {model} with {len(parameters)} parameters, expected {order}; export the model again."
        )
    values = dict(zip(names, map(float, parameters)))
    fx = values.get("f", values.get("fx"))
    coefficients = {name: value for name, value in values.items() if name[0] in "kp"}
    intrinsics = (fx, values.get("fy", fx), values["cx"], values["cy"])
    return make_lens(width, height, intrinsics, kind, coefficients, where)
