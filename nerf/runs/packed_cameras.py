"""Cameras in the files of a run, as plain containers and tensors."""

from typing import Any

from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import COEFFICIENTS, Lenses


def restore_cameras(content: dict[str, Any], name: str = "cameras") -> Cameras:
    """The training cameras. name: "cameras" for those with learned poses, "given_cameras" for those of the dataset."""
    saved = content[name] if name in content else content["cameras"]  # older files have only one set of cameras
    lenses = None
    if saved["lenses"] is not None:
        lenses = Lenses.of(saved["lenses"]["models"], saved["lenses"]["coefficients"])
    return Cameras.of_sizes(saved["c2w"], saved["intrinsics"], saved["sizes"], lenses)


def packed_cameras(cameras: Cameras) -> dict[str, Any]:
    """Cameras as plain containers and tensors in host memory."""
    lenses = None
    if cameras.lenses is not None:
        models = cameras.lenses.models
        rows = zip(models, cameras.lenses.coefficients.tolist())
        lenses = {"models": models, "coefficients": [row[: len(COEFFICIENTS[model])] for model, row in rows]}
    tensors = {"c2w": cameras.c2w, "intrinsics": cameras.intrinsics, "sizes": cameras.image_sizes.contiguous()}
    return {name: tensor.cpu() for name, tensor in tensors.items()} | {"lenses": lenses}
