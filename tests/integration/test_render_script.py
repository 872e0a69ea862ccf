"""render.py as a user meets it: every kind of path, sizes, float files, and mistakes, on a tiny run."""

import json
from collections.abc import Callable
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
import torch
from fixtures import look_at_origin, sphere_depth
from PIL import Image
from script_runs import run_script, script_caller
from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state

from nerf.cameras.path_file import read_camera_path
from nerf.runs import checkpoint

VIEWS, SIZE = 8, 20  # of the tiny scene


@pytest.fixture
def call_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    return script_caller(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("run")
    config, state = tiny_state(tiny_config())
    run_to(config, state, STEPS)
    checkpoint.save(folder, config, state, tiny_images().cameras)
    return folder


def write_path(path: Path, **changes: object) -> Path:
    """A path of three cameras around the tiny scene's sphere, 24x16."""
    poses = [look_at_origin(0.5 * index, 0.3).flatten().tolist() for index in range(3)]
    entries = [{"camera_to_world": pose, "fov": 40, "aspect": 1.5} for pose in poses]
    content = {"camera_type": "perspective", "render_width": 24, "render_height": 16, "fps": 7, "camera_path": entries}
    path.write_text(json.dumps(content | changes))
    return path


@pytest.mark.parametrize("path", ["orbit", "spiral", "interpolate"])
def test_every_path_renders_in_a_process_of_its_own(run: Path, tmp_path: Path, path: str) -> None:
    out = tmp_path / "out"
    found = run_script("render", f"run={run}", f"path={path}", "frames=5", f"hydra.run.dir={out}", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert {p.name for p in out.iterdir()} == {"rgb", "depth", "opacity", "normals", "camera_path.json", f"{path}.mp4"}
    for kind in ("rgb", "depth", "opacity", "normals"):
        frames = sorted((out / kind).iterdir())
        assert [p.name for p in frames] == [f"{index:04d}.png" for index in range(5)]
        assert all(Image.open(p).size == (SIZE, SIZE) for p in frames)
    for index in range(5):  # the sphere is in the middle of each frame
        opacity = np.asarray(Image.open(out / "opacity" / f"{index:04d}.png"))
        assert opacity[8:12, 8:12].min() > 150 and opacity[[0, 0, -1, -1], [0, -1, 0, -1]].mean() < 60
    with imageio.get_reader(out / f"{path}.mp4") as video:
        assert video.count_frames() == 5 and video.get_meta_data()["fps"] == 30
        assert video.get_meta_data()["size"] == (2 * SIZE, SIZE)
    assert str(out / f"{path}.mp4") in found.stdout and f"5 frames {SIZE}x{SIZE}" in found.stdout


def test_a_path_file_renders_with_its_own_size_and_rate(run: Path, tmp_path: Path) -> None:
    source, out = write_path(tmp_path / "flight.json"), tmp_path / "out"
    settings = ("floats=true", "video=[normals]", f"hydra.run.dir={out}")
    found = run_script("render", f"run={run}", f"path={source}", *settings, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    with imageio.get_reader(out / "flight.mp4") as video:
        assert video.count_frames() == 3 and video.get_meta_data()["fps"] == 7
        assert video.get_meta_data()["size"] == (24, 16)

    cameras = read_camera_path(source).cameras
    again = read_camera_path(out / "camera_path.json")
    torch.testing.assert_close(again.cameras.c2w, cameras.c2w)
    torch.testing.assert_close(again.cameras.intrinsics, cameras.intrinsics)
    assert again.fps == 7
    shapes = {"depth": (16, 24), "opacity": (16, 24), "normals": (16, 24, 3)}
    for index in range(3):
        exact = {kind: np.load(out / kind / f"{index:04d}.npy", allow_pickle=False) for kind in shapes}
        assert {kind: values.shape for kind, values in exact.items()} == shapes
        assert all(values.dtype == np.float32 and np.isfinite(values).all() for values in exact.values())
        rays = cameras.image_rays(index)
        truth = sphere_depth(rays).view(16, 24)
        inner = (truth[5:11, 8:16] > 0).numpy()
        assert inner.all(), "the sphere is there"
        assert np.abs(exact["depth"] - truth.numpy())[5:11, 8:16].max() < 0.5  # of a grid of 12 voxels along an edge
        edge = (exact["opacity"] > 0.02) & (exact["opacity"] < 0.6)
        assert edge.any() and exact["depth"][edge].min() > 1.5, "what half covers a pixel is as far away as the rest"
        normals = (rays.origins + truth.view(-1, 1) * rays.directions).view(16, 24, 3).numpy()
        cosines = (exact["normals"] * normals).sum(-1)[5:11, 8:16]
        assert np.median(cosines) > 0.8
        picture = np.asarray(Image.open(out / "normals" / f"{index:04d}.png"))[5:11, 8:16] / 255
        coverage = exact["opacity"][5:11, 8:16, None].clip(0, 1)
        shown = coverage * (0.5 * exact["normals"][5:11, 8:16] + 0.5) + 1 - coverage
        assert np.abs(picture - shown).max() < 0.5 / 255 + 1e-5


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        (["width=40"], (40, 40)),
        (["height=13"], (13, 13)),
        (["width=31", "height=17"], (31, 17)),
        (["scale=1.5"], (30, 30)),
    ],
)
def test_frames_take_any_size(run: Path, call_script: Callable[..., int], settings: list[str], size: tuple) -> None:
    assert call_script("render", f"run={run}", "frames=1", *settings, "hydra.run.dir=out") == 0
    assert Image.open("out/rgb/0000.png").size == Image.open("out/normals/0000.png").size == size


def test_a_path_file_takes_another_size_too(run: Path, call_script: Callable[..., int]) -> None:
    """The sphere's height in the picture follows the height of the picture: nothing is stretched."""
    source = write_path(Path("flight.json"))
    heights = {}
    for width, height in ((24, 16), (64, 64), (48, 32)):
        settings = (f"width={width}", f"height={height}", "floats=true", f"hydra.run.dir=out{width}")
        assert call_script("render", f"run={run}", f"path={source}", *settings) == 0
        opacity = np.load(f"out{width}/opacity/0001.npy")
        assert opacity.shape == (height, width)
        across, up = (opacity > 0.5).any(0).sum(), (opacity > 0.5).any(1).sum()
        assert abs(across - up) <= 2 + 0.1 * up
        heights[height] = up / height
    assert max(heights.values()) - min(heights.values()) < 0.15


def test_interpolation_passes_through_the_chosen_cameras(run: Path, call_script: Callable[..., int]) -> None:
    settings = ("path=interpolate", "cameras=[2,0,5]", "frames=9", "fps=12", "hydra.run.dir=out")
    assert call_script("render", f"run={run}", *settings) == 0
    found, trained = read_camera_path(Path("out/camera_path.json")), tiny_images().cameras
    assert found.fps == 12
    torch.testing.assert_close(found.cameras.c2w[[0, -1]], trained.c2w[[2, 5]])


def test_a_run_whose_cameras_share_no_target_says_so(
    run: Path, call_script: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    content = torch.load(run / checkpoint.MODEL_FILE, weights_only=True)
    poses = content["cameras"]["c2w"][:1].repeat(VIEWS, 1, 1)
    poses[:, 0, 3] += 0.1 * torch.arange(VIEWS)  # side by side, all looking the same way
    content["cameras"]["c2w"] = poses
    Path("run").mkdir()
    torch.save(content, f"run/{checkpoint.MODEL_FILE}")
    for path in ("orbit", "spiral"):
        assert call_script("render", "run=run", f"path={path}", "hydra.run.dir=out") == 2
        message = capsys.readouterr().err
        assert f"error: path={path} cannot be read off the training cameras: found 8 with optical axes" in message
        assert message.endswith("path=interpolate and path=turn need no common target.\n")
    assert call_script("render", "run=run", "path=interpolate", "frames=2", "hydra.run.dir=out") == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["path=orbti"], "path=orbti is unknown; choose one of orbit, spiral, turn, interpolate, test, or a file"),
        (["path=none.json"], "none.json: no such file, expected a camera path in nerfstudio's JSON format"),
        (["path=bad.json"], 'camera_type is "orthographic", but only pinhole cameras and panoramas can be rendered'),
        (["path=interpolate", "cameras=[0,8]"], "cameras=[0, 8] are not at least two numbers from 0 to 7"),
        (["path=interpolate", "cameras=[3]"], "cameras=[3] are not at least two numbers from 0 to 7"),
        (["path=interpolate", "frames=1"], "frames=1 is too few for path=interpolate"),
        (["cameras=[0,1]"], "cameras= is for path=interpolate, but path is auto"),
        (["scale=0.5", "height=20"], "scale= and width= or height= both choose the size of the frames"),
        (["video=[rgb,color]"], "video=['rgb', 'color'] is no choice of pictures"),
        (["video=[]"], "name some of rgb, depth, opacity, normals"),
        (["fps=0"], "fps=0.0 is out of range, expected 0.1 to 1000"),
        (["width=9000", "height=16"], "2 pictures of 9000x16 pixels side by side, 18000 pixels wide, expected at most"),
        (["width=8193", "height=8"], "give width=8192 or less, or name fewer of them, as video=[rgb]"),
        (["width=100000"], "width=100000 is out of range, expected 8 to 16384"),
    ],
)
def test_mistakes_are_answered(
    run: Path,
    call_script: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    write_path(Path("bad.json"), camera_type="orthographic")
    assert call_script("render", f"run={run}", *arguments, "hydra.run.dir=out") == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ") and expected in message and message.count("\n") == 1
    assert [path.name for path in Path.cwd().iterdir()] == ["bad.json"]
