"""An object in a world with other axes: its box is turned with it, and all that is made of the run is in that world."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from turning import turned

import nerf
from nerf.cameras.se3 import exponential
from nerf.config.schema import DatasetConfig
from nerf.datasets.load import load_split
from nerf.datasets.posed_images import PosedImages
from nerf.export.mesh import extract_mesh
from nerf.export.volume import write_volume
from nerf.images.metrics import psnr
from nerf.ops.backend import select
from nerf.rendering.render import Rendering, render_image
from nerf.runs import open_run
from nerf.runs.run import TrainingRun, start
from nerf.scene.bounds import why_turned

ROTATION = exponential(torch.tensor([[-0.3, 0.6, 0.0, 0.0, 0.0, 0.0]]))[0][0]
SETTINGS = {
    "device": "cpu",
    "train.steps": 60,
    "field": "voxel_sh",
    "train.rays_per_step": 1024,
    "field.num_voxels": 9000,
    "field.min_level_steps": 5,
    "occupancy.min_steps": 20,
    "occupancy.update_interval": 0.3,
}


def bricks(split: str) -> PosedImages:
    images = load_split(DatasetConfig(scene="bricks", downscale=4), split)
    return images.chosen(range(min(60, len(images))))


@cache
def run(is_turned: bool) -> TrainingRun:
    images = bricks("train")
    made = start(nerf.settings(SETTINGS), turned(images, ROTATION) if is_turned else images, select("native", "cpu"))
    for _ in made.train():
        pass
    return made


def seen(trained: open_run.LoadedRun, views: PosedImages) -> Rendering:
    return render_image(trained.field, trained.sampler, views.cameras, 0, torch.ones(3), with_normals=True)


def test_it_looks_the_same() -> None:
    """The voxels lie elsewhere in the object, so pictures differ by little; normals are those of the turned world."""
    views, box = bricks("test"), run(True).open().field.box
    assert box.space.axes is not None and len(why_turned(box)) == 1 and why_turned(run(False).open().field.box) == ()
    straight, other = seen(run(False).open(), views), seen(run(True).open(), turned(views, ROTATION))
    photo = views.image(0).float() / 255
    photo = photo[..., :3] * photo[..., 3:] + 1 - photo[..., 3:]
    assert psnr(other.rgb, photo) > psnr(straight.rgb, photo) - 1 > 12
    solid = (straight.opacity > 0.9) & (other.opacity > 0.9)
    assert solid.sum() > 20
    alike = ((straight.normals @ ROTATION.T) * other.normals).sum(-1)[solid]
    assert alike.median() > 0.8
    torch.testing.assert_close(straight.depth[solid].mean(), other.depth[solid].mean(), rtol=0.05, atol=0)


def test_what_is_saved_shows_the_same_picture(tmp_path: Path) -> None:
    made, view = run(True), turned(bricks("test"), ROTATION)
    made.save(tmp_path)
    loaded = open_run.load(tmp_path, "native", "cpu")
    torch.testing.assert_close(loaded.field.box.space.axes, made.open().field.box.space.axes, rtol=0, atol=0)
    torch.testing.assert_close(seen(loaded, view).rgb, seen(made.open(), view).rgb, rtol=0, atol=0.02)


def extent(points: Tensor) -> Tensor:
    return torch.stack([points.amin(0), points.amax(0)])


def test_a_mesh_is_in_the_world_of_the_cameras() -> None:
    straight, other = (extract_mesh(r.field, r.sampler, r.cameras) for r in (run(False).open(), run(True).open()))
    back = torch.as_tensor(other.vertices).float() @ ROTATION
    size = run(False).open().field.box.size.max().item()
    torch.testing.assert_close(extent(back), extent(torch.as_tensor(straight.vertices).float()), rtol=0, atol=size / 8)


def test_a_volume_says_its_axes(tmp_path: Path) -> None:
    trained = run(True).open()
    write_volume(tmp_path / "volume.npz", trained.field, trained.sampler)
    volume = np.load(tmp_path / "volume.npz")
    assert np.abs(volume["axes"].T @ volume["axes"] - np.eye(3)).max() < 1e-5
    x, y, z = np.array(np.unravel_index(volume["density"].argmax(), volume["density"].shape))
    low, high = volume["aabb"]
    place = volume["axes"] @ (low + (high - low) * (x, y, z) / (np.array(volume["density"].shape) - 1))
    coords = trained.field.grid_map.to_grid(trained.field.box.space.to_scene(torch.tensor(place[None]).float()))
    torch.testing.assert_close(coords, torch.tensor([[x, y, z]]).float(), rtol=0, atol=1e-3)
