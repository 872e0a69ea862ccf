"""A run is opened with its own scene, is called like it, and is not saved over another one."""

import shutil
from pathlib import Path

import pytest
import torch
from capture_files import ring, write_transforms
from fixtures import write_sphere_scene
from omegaconf import OmegaConf
from tiny_runs import tiny_config, write_tiny_scene

import nerf
from nerf.cameras.cameras import Cameras
from nerf.cli.job import build
from nerf.cli.train import TrainScriptConfig
from nerf.errors import UserError
from nerf.export.mesh import extract_mesh
from nerf.export.web.export import _start
from nerf.runs.open_run import lost_poses
from nerf.runs.run import TrainingRun
from nerf.scene.box import SceneBox
from nerf.training.voxel_budget import pixel_size


@pytest.fixture
def run(tmp_path: Path) -> TrainingRun:
    write_tiny_scene(tmp_path / "scene")
    config = tiny_config(steps=3)
    config.device, config.dataset.root = "cpu", str(tmp_path / "scene")
    run = nerf.start(config)
    list(run.train())
    run.save(tmp_path / "run")
    return run


@pytest.mark.usefixtures("run")
def test_views_of_another_scene_are_not_taken_for_the_runs(tmp_path: Path) -> None:
    opened = nerf.load(tmp_path / "run", device="cpu")
    assert len(opened.given_views("test")) == 8
    write_sphere_scene(tmp_path / "other", views=5, size=20)
    opened.config.dataset.root = str(tmp_path / "other")
    for ask in (opened.given_views, opened.evaluate):
        with pytest.raises(
            UserError, match="is not the one that the run was trained on: it lacks the poses of [1-8] of 8"
        ):
            ask("test")
    shutil.copytree(tmp_path / "scene", tmp_path / "copy")  # it has moved
    opened.config.dataset.root = str(tmp_path / "copy")
    assert len(opened.given_views("test")) == 8


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("middle", [0.0, 1e6])
def test_poses_are_told_apart_in_a_world_of_any_size(size: float, middle: float) -> None:
    if middle / size > 1e7:
        pytest.skip("float32 has one position for all cameras")
    rotations = torch.linalg.qr(torch.randn(60, 3, 3, generator=torch.Generator().manual_seed(0)))[0]
    centers = size * torch.randn(60, 3, 1, generator=torch.Generator().manual_seed(1)) + middle
    poses = torch.cat([rotations, centers], dim=2)
    order = torch.arange(59, -1, -1)
    assert lost_poses(poses, poses[order]) == 0
    assert lost_poses(poses, poses[:50]) == 10
    elsewhere, turned = poses.clone(), poses.clone()
    elsewhere[:7, 0, 3] += 0.05 * size + 2e-6 * middle
    turned[:9, :, :3] = turned[:9, :, [1, 2, 0]]
    assert lost_poses(poses, elsewhere) == 7 and lost_poses(poses, turned) == 9


@pytest.mark.usefixtures("run")
def test_a_scene_of_the_same_name_is_not_taken_for_one_that_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scene").rename(tmp_path / "moved")
    write_sphere_scene(tmp_path / "data" / "sphere", views=5, size=20)
    monkeypatch.setenv("NERF_DATA", str(tmp_path / "data"))
    with pytest.raises(UserError, match="is not the one that the run was trained on"):
        nerf.load(tmp_path / "run", device="cpu").given_views("test")


def test_a_run_is_not_saved_over_another(run: TrainingRun, tmp_path: Path) -> None:
    run.save(tmp_path / "run")  # its own
    again = nerf.resume(tmp_path / "run", images=run.images)
    again.save(tmp_path / "run")
    other = nerf.start(run.config, run.images)
    kept = (tmp_path / "run" / "model.pt").read_bytes()
    with pytest.raises(UserError, match="contains another run, which would be overwritten.*overwrite=True"):
        other.save(tmp_path / "run")
    assert (tmp_path / "run" / "model.pt").read_bytes() == kept
    (tmp_path / "run" / "metrics.json").write_text("{}")
    other.save(tmp_path / "run", overwrite=True)
    other.save(tmp_path / "run")
    assert nerf.load(tmp_path / "run", device="cpu") and not (tmp_path / "run" / "metrics.json").exists()


def composed(scene: str | None = "bricks", root: str | None = None, *overrides: str) -> tuple[str, str]:
    """Name and format of the scene of a command whose settings are so composed."""
    dataset = {"scene": "???" if scene is None else scene, "root": root, "format": "blender"}
    found = build(TrainScriptConfig, OmegaConf.create({"dataset": dataset}), list(overrides))
    return found.dataset.scene, found.dataset.format


def test_a_scene_that_is_given_by_its_folder_is_called_like_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    write_transforms(mine, ring(3))
    assert composed("bricks", str(mine), f"dataset.root={mine}") == ("mine", "auto")
    assert composed("bricks", str(mine), f"dataset.root={mine}", "dataset.format=colmap") == ("mine", "blender")
    assert composed("lego", str(mine), f"dataset.root={mine}", "dataset=lego") == ("lego", "blender")
    assert composed("own", str(mine), f"dataset.root={mine}", "dataset.scene=own") == ("own", "blender")
    assert composed(None, str(mine), f"dataset.root={mine}", "dataset=blender") == ("mine", "blender")
    assert composed() == ("bricks", "blender")
    (mine / "bricks").mkdir()  # the folder that holds the scene
    assert composed("bricks", str(mine), f"dataset.root={mine}") == ("bricks", "blender")


def test_a_page_of_cameras_that_look_at_nothing_in_common_begins_at_one_of_them() -> None:
    c2w = torch.eye(4)[:3].repeat(4, 1, 1)
    for index, (x, y) in enumerate(((1, 0), (0, 1), (-1, 0), (0, -1))):  # outwards, on a circle
        back = -torch.tensor([float(x), float(y), 0.0])
        up = torch.tensor([0.0, 0.0, 1.0])
        c2w[index] = torch.stack([torch.linalg.cross(up, back), up, back, -back], dim=1)
    start = _start(Cameras(c2w, torch.tensor([[20.0, 20.0, 8.0, 8.0]]).repeat(4, 1), 16, 16))
    assert start["center"] == pytest.approx([1, 0, 0])
    target = torch.tensor(start["target"])
    assert torch.isfinite(target).all() and target[0] > 1 and target[1:].abs().max() < 1e-6  # ahead of it


def test_cameras_in_the_middle_of_their_box_see_what_is_around_them() -> None:
    c2w = torch.eye(4)[:3].repeat(2, 1, 1)
    cameras = Cameras(c2w, torch.tensor([[20.0, 20.0, 8.0, 8.0]]).repeat(2, 1), 16, 16)
    box = SceneBox(torch.tensor([[-2.0, -2.0, -2.0], [2.0, 2.0, 2.0]]))
    assert pixel_size(cameras, box) == pytest.approx(2 / 20)
    assert box.num_voxels(pixel_size(cameras, box)) > 1


def test_no_part_of_a_mesh_left_is_not_a_scene_without_surface(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = run.open()
    monkeypatch.setattr("nerf.export.mesh.signed_distance", lambda *_: torch.zeros(1))
    faces = torch.tensor([[0, 1, 2], [3, 4, 5]])
    monkeypatch.setattr("nerf.export.mesh.surface_net", lambda _: (torch.zeros(6, 3), faces))
    with pytest.raises(UserError, match="smallest=2 leaves no part of the 2 triangles"):
        extract_mesh(opened.field, opened.sampler, opened.cameras, smallest=2)
