"""A dry run: its checks, each on a scene where it has to speak, and its page from the command line."""

import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_files import HEIGHT, WIDTH, ring, write_transforms
from conventions import BRICKS, misread
from fake_time import FakeTime
from fixtures import look_at_origin, write_split
from PIL import Image
from script_runs import run_script
from tiny_runs import tiny_config, tiny_images

import nerf
from nerf.cameras.cameras import Cameras, focal_from_fov
from nerf.config.recipes import resolve_config
from nerf.config.schema import SamplerConfig
from nerf.datasets.blender import load_blender
from nerf.datasets.plane_sweep import PlaneSweep
from nerf.datasets.posed_images import PosedImages
from nerf.diagnostics import dry_run_checks as checks
from nerf.diagnostics import dry_run_page
from nerf.diagnostics import step_time as run_plan
from nerf.diagnostics.conventions import CONVENTIONS
from nerf.diagnostics.dry_run import inspect
from nerf.diagnostics.step_time import free_bytes, measure_step
from nerf.ops.backend import select
from nerf.runs.run import start
from nerf.scene.bounds import describe, make_box
from nerf.scene.box import SceneBox
from nerf.scene.description import SceneDescription
from nerf.scene.space import WorldSpace
from nerf.training.memory import MemoryPlan

BROWSER = """
const drawn = { rectangles: 0, lines: 0, outside: 0 };
const at = (x, y) => { if (!(x > -50 && x < 1050 && y > -50 && y < 550)) drawn.outside++; };
const brush = { fillRect: (x, y) => { drawn.rectangles++; at(x, y); }, beginPath() {}, moveTo: at, lineTo: at,
                  stroke() { drawn.lines++; } };
const view = { getContext: () => brush, clientWidth: 1000, clientHeight: 500, addEventListener() {} };
const document = { getElementById: () => view, querySelectorAll: () => [] };
const devicePixelRatio = 1, addEventListener = () => {};
"""
UNIT_BOX = SceneBox(torch.tensor([[-1.0, -1, -1], [1, 1, 1]]))
NAMES = tuple(f"r_{index}" for index in range(60))


def cameras_around(count: int = 8, radius: float = 4.0, size: int = 32) -> Cameras:
    poses = np.stack([look_at_origin(math.tau * i / count, 0.3, radius)[:3] for i in range(count)])
    focal = focal_from_fov(size, 0.8)
    intrinsics = torch.tensor([[focal, focal, size / 2, size / 2]]).expand(count, 4)
    return Cameras(torch.tensor(poses, dtype=torch.float32), intrinsics, size, size)


def scene(folder: Path, pictures: np.ndarray, poses: list[np.ndarray]) -> PosedImages:
    write_split(folder, "train", pictures, poses)
    return load_blender(folder, "train")


def noise(count: int, size: int = 32) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


# Pictures


def test_frames_that_show_the_same_picture_are_named(tmp_path: Path) -> None:
    pictures = noise(6)
    poses = [look_at_origin(0.5 * i, 0.3) for i in range(6)]
    images = scene(tmp_path / "fine", pictures, poses)
    assert checks.check_duplicates(PlaneSweep(images), images).verdict == "green"
    pictures[4] = np.clip(pictures[1].astype(int) + np.random.default_rng(0).integers(-1, 2, pictures[1].shape), 0, 255)
    images = scene(tmp_path / "moved", pictures, poses)
    check = checks.check_duplicates(PlaneSweep(images), images)
    assert check.verdict == "red" and "from different places: r_1 and r_4" in check.found
    poses[4] = poses[1]
    images = scene(tmp_path / "twice", pictures, poses)
    check = checks.check_duplicates(PlaneSweep(images), images)
    assert check.verdict == "yellow" and "r_1 and r_4" in check.found and "leave one of each pair out" in check.remedy


def test_views_from_nearly_the_same_place_are_no_duplicates() -> None:
    """Two of lego's views are 0.9% of their distance apart; here the bricks against themselves, moved by a pixel."""
    images = load_blender(BRICKS, "train")
    picture = images.image(0)
    moved = replace(images, pixels=torch.cat([images.pixels, picture.roll(1, 1).reshape(-1, picture.shape[-1])]))
    moved = replace(moved, names=[*images.names, "moved"])
    poses = torch.cat([images.cameras.c2w, images.cameras.c2w[:1]])
    intrinsics = torch.cat([images.cameras.intrinsics, images.cameras.intrinsics[:1]])
    moved = replace(moved, cameras=replace(images.cameras, c2w=poses, intrinsics=intrinsics))
    assert checks.check_duplicates(PlaneSweep(moved), moved).verdict == "green"


def test_images_that_show_one_color_are_named(tmp_path: Path) -> None:
    pictures = noise(5)
    pictures[2:4] = 200
    images = scene(tmp_path, pictures, [look_at_origin(0.5 * i, 0.3) for i in range(5)])
    check = checks.check_blank(PlaneSweep(images), images.names)
    assert check.verdict == "yellow" and "2 of 5 images show one color: r_2, r_3" in check.found
    assert checks.check_duplicates(PlaneSweep(images), images).verdict == "green"


# Box, near and far


def test_a_box_that_the_cameras_look_past() -> None:
    far_away = SceneBox(UNIT_BOX.aabb + 50)
    check = checks.check_box(far_away, cameras_around(), NAMES, torch.zeros(0, 3))
    assert check.verdict == "red" and "8 of 8 cameras look past it" in check.found and "dataset.aabb" in check.remedy


def test_cameras_that_alone_look_past_the_box_are_named() -> None:
    cameras = cameras_around()
    turned = cameras.c2w.clone()
    turned[[2, 5], :, :3] *= torch.tensor([-1.0, 1.0, -1.0])  # half a turn about their own y axis
    check = checks.check_box(UNIT_BOX, replace(cameras, c2w=turned), NAMES, torch.zeros(0, 3))
    assert check.verdict == "yellow" and check.found.endswith("2 of 8 cameras look past it: r_2, r_5")
    assert check.remedy.startswith("leave them out")


@pytest.mark.parametrize(("spread", "verdict"), [(0.9, "green"), (2.0, "yellow"), (0.05, "yellow"), (30.0, "red")])
def test_the_box_against_the_points(spread: float, verdict: str) -> None:
    points = spread * (2 * torch.rand(1000, 3) - 1)
    check = checks.check_box(UNIT_BOX, cameras_around(), NAMES, points)
    assert check.verdict == verdict
    if verdict != "green":  # the remedy is a setting that holds the points
        found = re.search(r"dataset.aabb=\[([^\]]*)\]", check.remedy)
        box = torch.tensor([float(x) for x in found[1].split(",")]).view(2, 3)
        inside = ((points >= box[0]) & (points <= box[1])).all(-1).float().mean()
        assert inside > 0.93 and checks.check_box(SceneBox(box), cameras_around(), NAMES, points).verdict == "green"


def test_cameras_inside_the_box_that_near_clips() -> None:
    cameras = cameras_around(radius=0.5)
    distances = torch.linspace(0.3, 1.4, 200)
    check = checks.check_near_far(SamplerConfig(near=0.6), UNIT_BOX, cameras, distances)
    assert check.verdict == "red" and "8 of 8 cameras stand inside the box" in check.found
    assert "near clips 28% of it" in check.found and check.remedy == "set sampler.near=0.153"
    check = checks.check_near_far(SamplerConfig(near=0.0), UNIT_BOX, cameras, distances)
    assert check.verdict == "yellow" and "density can grow before the lens" in check.found
    check = checks.check_near_far(SamplerConfig(near=0.153), UNIT_BOX, cameras, distances)
    assert check.verdict == "green"


def test_a_capture_of_many_points_is_checked() -> None:
    """PyTorch's quantile takes no more than 2^24 numbers; a point counts once for each camera that sees it."""
    many = torch.linspace(2, 6, 2**24 + 1)
    check = checks.check_near_far(SamplerConfig(), UNIT_BOX, cameras_around(), many)
    assert check.verdict == "green" and "the surface is seen at 2.02 to 5.98" in check.found


def test_near_and_far_against_the_surface() -> None:
    distances = torch.linspace(3, 5, 200)
    assert checks.check_near_far(SamplerConfig(), UNIT_BOX, cameras_around(), distances).verdict == "green"
    check = checks.check_near_far(SamplerConfig(far=4.5), UNIT_BOX, cameras_around(), distances)
    assert check.verdict == "red" and "far clips 25% of it" in check.found and "sampler.far=7.4" in check.remedy
    check = checks.check_near_far(SamplerConfig(near=3, far=2), UNIT_BOX, cameras_around(), None)
    assert check.verdict == "red" and "nothing lies between" in check.found


def test_few_clipped_matches_are_no_reason_to_stop() -> None:
    """A few patches match at a wrong depth by chance."""
    distances = torch.cat([torch.linspace(3, 5, 196), torch.full((4,), 0.1)])
    check = checks.check_near_far(SamplerConfig(near=0.5), UNIT_BOX, cameras_around(), distances)
    assert check.verdict == "yellow" and "near clips 2% of it" in check.found


def test_near_and_far_are_those_that_hold() -> None:
    """Not the settings, which are 0 and none unless somebody sets them."""
    cameras = cameras_around()  # at 4 from the middle of a box of half edge 1, above its edges
    check = checks.check_near_far(SamplerConfig(), UNIT_BOX, cameras, None)
    assert re.match(r"near 2\.\d\d, far 5\.\d\d;", check.found), check.found
    check = checks.check_near_far(SamplerConfig(near=3.5, far=4.5), UNIT_BOX, cameras, None)
    assert check.found.startswith("near 3.5, far 4.5;")
    poses = torch.eye(4)[:3].repeat(4, 1, 1)
    poses[:, 0, 3], poses[:, 2, 3] = torch.linspace(-0.1, 0.1, 4), torch.tensor([0.0, 0.2, 0.0, 0.0])
    ahead = replace(cameras_around(4), c2w=poses)
    box = make_box(SceneDescription("forward_facing", near=1.0), ahead, None, 0.0, torch.device("cpu"))
    assert checks.check_near_far(SamplerConfig(), box, ahead, None).found.startswith("near 0.8, far without end")


def test_a_turned_box_is_told_by_the_one_around_it() -> None:
    half = 0.5**0.5
    space = WorldSpace(axes=torch.tensor([[half, -half, 0.0], [half, half, 0.0], [0.0, 0.0, 1.0]]))
    box, around = SceneBox(UNIT_BOX.aabb, space), torch.tensor([2**0.5, 2**0.5, 1.0])
    torch.testing.assert_close(checks.world_box(box), torch.stack([-around, around]))
    cameras, points = cameras_around(radius=4.0), 2 * torch.rand(1000, 3) - 1
    assert "turned to the object" in checks.check_box(box, cameras, NAMES, space.to_world(points)).found
    assert "turned" not in checks.check_box(UNIT_BOX, cameras, NAMES, points).found


def test_the_inner_box_of_an_unbounded_scene() -> None:
    """What lies outside is kept too, so only a box that holds next to nothing is worth a word."""
    cameras, points = cameras_around(radius=4.0), 2 * torch.rand(1000, 3) - 1
    box = make_box(SceneDescription("unbounded", UNIT_BOX.aabb), cameras, None, 0.0, torch.device("cpu"))
    torch.testing.assert_close(checks.world_box(box), UNIT_BOX.aabb)
    check = checks.check_box(box, cameras, NAMES, 2 * points)
    assert check.verdict == "green" and "inner box -1,-1,-1 to 1,1,1" in check.found and "shell" in check.found
    check = checks.check_box(box, cameras, NAMES, 4 * points)
    assert check.verdict == "yellow" and "dataset.aabb" in check.remedy
    assert checks.check_box(box, replace(cameras, c2w=cameras.c2w + 50), NAMES, points).verdict == "red"
    distances = torch.linspace(0.01, 0.09, 100)  # all nearer than the near that the box suggests
    check = checks.check_near_far(SamplerConfig(), box, cameras, distances)
    assert check.verdict == "red" and "near 0.1," in check.found and "near clips 100%" in check.found


@pytest.mark.parametrize("kind", ["unbounded", "forward_facing"])
def test_rays_that_begin_long_before_the_surface(kind: str) -> None:
    """Where a capture has no depths, near is a guess."""
    poses = torch.eye(4)[:3].repeat(4, 1, 1)
    poses[:, 0, 3] = torch.linspace(-0.01, 0.01, 4)
    cameras = replace(cameras_around(4), c2w=poses) if kind == "forward_facing" else cameras_around()
    distances = torch.linspace(2.35, 5.3, 200)
    for near, setting, verdict in ((0.2, 0.0, "yellow"), (0.5, 0.0, "green"), (0.2, 0.1, "green")):
        described = SceneDescription(kind, UNIT_BOX.aabb, near)
        box = make_box(described, cameras, None, setting, torch.device("cpu"))
        check = checks.check_near_far(SamplerConfig(near=setting), box, cameras, distances)
        assert check.verdict == verdict and ("Rays begin long before it" in check.found) == (verdict == "yellow")
        assert check.remedy.startswith("set sampler.near=1.18,") == (verdict == "yellow")


def test_the_near_plane_of_a_forward_facing_scene() -> None:
    poses = torch.eye(4)[:3].repeat(4, 1, 1)
    poses[:, 0, 3] = torch.linspace(-0.1, 0.1, 4)
    cameras = replace(cameras_around(4), c2w=poses)
    box = make_box(SceneDescription("forward_facing", near=1.0), cameras, None, 0.0, torch.device("cpu"))
    assert checks.world_box(box) is None
    points = torch.rand(1000, 3) + torch.tensor([-0.5, -0.5, -5.0])
    assert checks.check_box(box, cameras, NAMES, points).verdict == "green"
    check = checks.check_box(
        box, cameras, NAMES, points + torch.tensor([0, 0, 3.5])
    )  # half of them nearer than the plane
    assert check.verdict == "red" and check.remedy == "set sampler.near=0.251"
    assert checks.check_near_far(SamplerConfig(), box, cameras, torch.linspace(3, 5, 100)).verdict == "green"


def test_distances_of_the_points_that_a_camera_sees() -> None:
    points = torch.tensor([[0.0, 0, 0], [0, 0, 100]])
    torch.testing.assert_close(checks.seen_distances(cameras_around(3), points), torch.full((3,), 4.0))


# The plan


@pytest.mark.parametrize(("needed", "verdict"), [(6, "green"), (8, "yellow"), (12, "red")])
def test_memory(needed: int, verdict: str) -> None:
    plan = MemoryPlan(values=needed * 2**30, moments=0, gradients=0, images=0, samples=0, libraries=0)
    check = checks.check_memory(plan, 10 * 2**30, "a GPU")
    assert check.verdict == verdict and f"{needed}.00 GiB of 10.00 GiB" in check.found
    assert ("lower field.num_voxels" in check.remedy) == (verdict != "green")


def test_the_plan_is_the_one_that_training_keeps_to() -> None:
    images, backend = tiny_images(), select("torch", "cpu")
    run = start(tiny_config(steps=None, max_seconds=5000.0), images, backend)
    found = inspect(run.config, images, backend, describe(run.config.dataset, images.scene, images.has_alpha))
    assert found.memory == run.memory_plan()
    assert free_bytes(backend.device, images) > images.pixels.nbytes


def test_a_run_by_steps_is_timed_and_a_run_by_seconds_is_not(fake_time: FakeTime) -> None:
    fake_time.rule(run_plan)
    fake_time.every_step_takes(0.25)
    images, backend = tiny_images(), select("torch", "cpu")
    config = resolve_config(tiny_config(steps=1000), backend.device.type)
    described = describe(config.dataset, images.scene, images.has_alpha)
    assert measure_step(config, images, backend, described) == pytest.approx(0.25)
    found = inspect(config, images, backend, described)
    assert found.seconds == pytest.approx(250) and found.seconds_from.startswith("1000 steps as long as the first ones")
    config = resolve_config(tiny_config(steps=None, max_seconds=7.0), backend.device.type)
    assert inspect(config, images, backend, described).seconds == 7


def test_sparse_points_are_shown_and_decide_about_the_box() -> None:
    images, backend = tiny_images(), select("torch", "cpu")
    config = resolve_config(tiny_config(steps=None, max_seconds=1.0), backend.device.type)
    points, described = (
        torch.nn.functional.normalize(torch.randn(500, 3), dim=-1),
        describe(config.dataset, images.scene, images.has_alpha),
    )
    found = inspect(config, images, backend, described, points)
    assert torch.equal(found.points, points)
    box = next(check for check in found.checks if check.name == "box")
    assert box.verdict == "green" and "100% of 500 surface points" in box.found


def test_a_box_that_cannot_be_found_is_a_verdict() -> None:
    images, backend = tiny_images(), select("torch", "cpu")
    config = resolve_config(tiny_config(steps=None, max_seconds=1.0), backend.device.type)
    wrong = replace(images, cameras=replace(images.cameras, c2w=misread(images.cameras.c2w, CONVENTIONS[0])))
    found = inspect(config, wrong, backend, describe(config.dataset, wrong.scene, wrong.has_alpha))
    assert found.box is None and found.memory is None and found.seconds is None
    assert [check.verdict for check in found.checks if check.name == "box"] == ["red"]


# The page


def read_page(path: Path) -> tuple[str, dict]:
    """The page and the scene that it draws, after a look whether it needs anything else."""
    page = path.read_text(encoding="utf-8")
    assert "<!--" not in page and "http" not in page.replace("http-equiv", "")
    assert all(source.startswith("data:image/jpeg;base64,") for source in re.findall(r"src='([^']*)'", page))
    return page, json.loads(re.search(r"const scene = (.*);\n", page)[1])


def test_what_the_loader_says_is_printed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    views = ring(6)
    write_transforms(tmp_path, views)
    half = np.zeros((HEIGHT, WIDTH, 4), np.uint8)
    half[: HEIGHT // 2] = 255
    Image.fromarray(half).save(tmp_path / "images" / views.names[0])

    def look(*checked: object) -> None:
        assert "what is transparent" in capsys.readouterr().out
        raise KeyboardInterrupt

    monkeypatch.setattr(dry_run_page, "inspect", look)
    config = {"dataset.format": "transforms", "dataset.root": str(tmp_path), "dataset.masks": "leave_out"}
    with pytest.raises(KeyboardInterrupt):
        dry_run_page.write_dry_run(nerf.settings({**config, "dataset.test_every": 0, "device": "cpu"}), tmp_path)


@pytest.mark.slow
def test_the_page_of_a_right_scene(tmp_path: Path) -> None:
    settings = ("dataset.downscale=2", "device=cpu", f"hydra.run.dir={tmp_path}/run")
    result = run_script("train", "dry_run=true", *settings, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    page, drawn = read_page(tmp_path / "run" / "dry_run.html")
    assert "<span class=red>" not in page and page.count("<span class=green>") >= 6
    assert len(drawn["frusta"]) == 100 and len(drawn["points"]) > 100 and np.shape(drawn["box"]) == (2, 3)
    assert page.count("<figure") == 60 and "photos are taken as they are" in page
    assert str(tmp_path / "run" / "dry_run.html") in result.stdout and "green  poses" in result.stdout
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["dry_run.html"]  # nothing was trained
    node = shutil.which("node")
    if node is not None:  # stands for a browser that counts what is drawn
        script = re.search(r"<script>(.*)</script>", page, re.DOTALL)[1]
        (tmp_path / "page.js").write_text(BROWSER + script + "\nconsole.log(JSON.stringify(drawn))", encoding="utf-8")
        result = subprocess.run([node, tmp_path / "page.js"], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        drawn = json.loads(result.stdout)
        assert drawn["rectangles"] > 100 and drawn["lines"] == 12 + 100 * 6 and drawn["outside"] == 0


@pytest.mark.slow
def test_the_page_of_a_scene_in_a_wrong_convention(tmp_path: Path) -> None:
    """Names that would end the script or a tag are text there."""
    transforms = json.loads((BRICKS / "transforms_train.json").read_text())
    transforms["frames"] = transforms["frames"][::2]
    poses = torch.tensor([frame["transform_matrix"] for frame in transforms["frames"]])
    wrong = misread(poses[:, :3], CONVENTIONS[0])
    folder = tmp_path / "a <b> scene"
    (folder / "train").mkdir(parents=True)
    for index, (frame, pose) in enumerate(zip(transforms["frames"], wrong)):
        name = f"train/<i>ä{index}"
        Image.open(BRICKS / f"{frame['file_path']}.png").reduce(2).save(folder / f"{name}.png")
        frame["file_path"], frame["transform_matrix"] = name, [*pose.tolist(), [0, 0, 0, 1]]
    (folder / "transforms_train.json").write_text(json.dumps(transforms))
    settings = ("dataset=blender", f"dataset.root='{folder}'", "device=cpu", "hydra.run.dir=run")
    result = run_script(
        "train", "dry_run=true", "dataset.test_every=0", "evaluation.split=train", *settings, cwd=tmp_path
    )
    assert result.returncode == 1, result.stderr
    assert "OpenCV axes" in result.stdout and "negate the second and the third column" in result.stdout
    assert "red: poses" in result.stderr and "Traceback" not in result.stderr
    page, drawn = read_page(tmp_path / "run" / "dry_run.html")
    assert "<span class=red>" in page and "OpenCV axes" in page
    assert "<i>" not in page and drawn["names"][0] == "<i>ä0"


@pytest.mark.slow
def test_a_dry_run_goes_on_with_nothing(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    result = run_script("train", "dry_run=true", "resume=run", cwd=tmp_path)
    assert result.returncode == 2 and "drop one of the two" in result.stderr and "Traceback" not in result.stderr
