"""The file of `export format=splats`: its layout, its meaning to programs that are not ours, and its mistakes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from script_runs import script_caller
from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state

from nerf.benchmarks.splat_renderer import PinholeCamera, colors, project, read_splats, render
from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import look_at
from nerf.cameras.se3 import rotation_from_quaternion
from nerf.errors import UserError
from nerf.export.splats.export import export_splats
from nerf.export.splats.gaussians import Gaussians, turned_towards, write_ply
from nerf.export.splats.rasterize import Lattice, rasterize
from nerf.ops.backend import select
from nerf.runs import checkpoint
from nerf.runs.open_run import LoadedRun
from nerf.scene.contraction import ContractedSpace
from nerf.scene.ndc import NdcSpace
from nerf.training.state import make_sampler

plyfile = pytest.importorskip("plyfile", reason="reads the files: pip install plyfile")


def some_gaussians(count: int = 40, degree: int = 3) -> Gaussians:
    """Elongated, turned, half transparent ones around the origin."""
    return Gaussians(
        torch.randn(count, 3) * 0.5,
        torch.nn.functional.normalize(torch.randn(count, 3), dim=-1),
        -2.5 + 0.7 * torch.randn(count, 3),
        torch.randn(count, 4),
        torch.randn(count),
        0.4 * torch.randn(count, (degree + 1) ** 2, 3),
    )


def two_cameras(cx: float = 21.0, cy: float = 17.0) -> Cameras:
    up = torch.tensor([0.0, 0.0, 1.0])
    poses = torch.stack([look_at(torch.tensor(at), torch.zeros(3), up) for at in ([3.0, 1.0, 1.0], [-1.0, 3.0, 0.5])])
    return Cameras(poses, torch.tensor([[60.0, 62.0, cx, cy]]).expand(2, 4), 44, 36)


def as_pinhole(cameras: Cameras, index: int) -> PinholeCamera:
    pose = cameras.c2w[index].double().numpy()
    return PinholeCamera.of_opengl(pose, cameras.intrinsics[index].tolist(), *cameras.size(index))


def trained(name: str = "voxel_deferred") -> LoadedRun:
    config, state = tiny_state(tiny_config(name))
    run_to(config, state, STEPS)
    cameras = tiny_images().cameras
    return LoadedRun(None, config, state.field, make_sampler(config, state), cameras, cameras)


@pytest.fixture(scope="module")
def run() -> LoadedRun:
    """A trained run that no test changes."""
    return trained()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trained run."""
    config, state = tiny_state(tiny_config("voxel_deferred"))
    run_to(config, state, STEPS)
    folder = tmp_path_factory.mktemp("saved")
    checkpoint.save(folder, config, state, tiny_images().cameras)
    return folder


def export(path: Path, run: LoadedRun, **settings: int) -> int:
    return export_splats(path, run.field, run.sampler, run.cameras, **settings).count


def psnr_of_file(path: Path, run: LoadedRun, cameras: Cameras) -> float:
    """The least PSNR in dB of the independent renderer's pictures beside ours, over the run's white."""
    splats, found = read_splats(path), []
    for index in range(len(cameras)):
        expected = run.render(cameras, index).rgb.clamp(0, 1).double().numpy()
        error = render(splats, as_pinhole(cameras, index), run.background[0].item()) - expected
        found.append(-10 * np.log10(np.square(error).mean()))
    return min(found)


@pytest.mark.parametrize("degree", [0, 1, 3])
def test_the_file_has_the_layout_of_3dgs(tmp_path: Path, degree: int) -> None:
    given = some_gaussians(degree=degree)
    write_ply(tmp_path / "splats.ply", given)
    content = plyfile.PlyData.read(tmp_path / "splats.ply")
    names = [*"xyz", "nx", "ny", "nz", *(f"f_dc_{i}" for i in range(3)), *(f"f_rest_{i}" for i in range(45)), "opacity"]
    names += [*(f"scale_{i}" for i in range(3)), *(f"rot_{i}" for i in range(4))]
    assert [p.name for p in content["vertex"].properties] == names
    assert content.byte_order == "<" and not content.text and len(content["vertex"]) == len(given)
    found = read_splats(tmp_path / "splats.ply")
    np.testing.assert_array_equal(found.means, given.means)
    np.testing.assert_allclose(found.scales, given.log_scales.double().exp(), rtol=1e-6)
    np.testing.assert_allclose(found.opacities, given.logits.double().sigmoid(), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found.rotations, axis=1), 1, atol=1e-6)
    kept = (degree + 1) ** 2
    np.testing.assert_array_equal(found.harmonics[:, :kept], given.harmonics)
    assert not found.harmonics[:, kept:].any()


@pytest.mark.parametrize("principal", [(21.0, 17.0), (0.0, 36.0)], ids=["middle", "corner"])
def test_an_independent_renderer_draws_what_ours_draws(
    tmp_path: Path, principal: tuple[float, float], device: str
) -> None:
    given, cameras, ops = some_gaussians(), two_cameras(*principal), select("auto", device).ops
    given.means *= 2  # beyond the edges
    write_ply(tmp_path / "splats.ply", given)
    splats = read_splats(tmp_path / "splats.ply")
    for index in range(2):
        light, opacity = rasterize(given.to(device), cameras.to(device), index, ops)
        ours = (light + 0.3 * (1 - opacity)[:, None]).clamp(0, 1).view(36, 44, 3).cpu()
        theirs = render(splats, as_pinhole(cameras, index), 0.3)
        # It cuts ellipses at three standard deviations, we at an opacity of 1/255.
        np.testing.assert_allclose(ours, theirs, atol=0.02)
        assert np.abs(ours.numpy() - theirs).mean() < 5e-4


def test_gsplat_projects_and_colors_them_alike(tmp_path: Path) -> None:
    gsplat = pytest.importorskip("gsplat.cuda._torch_impl", reason="an independent projection: pip install gsplat")
    write_ply(tmp_path / "splats.ply", some_gaussians())
    splats, camera = read_splats(tmp_path / "splats.ply"), as_pinhole(two_cameras(), 0)
    means, rotations, scales = (torch.from_numpy(x) for x in (splats.means, splats.rotations, splats.scales))
    covariances = gsplat._quat_scale_to_covar_preci(rotations, scales, compute_preci=False)[0]
    fx, fy, cx, cy = camera.intrinsics
    lens = torch.tensor([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], dtype=torch.float64)[None]
    view = torch.from_numpy(camera.world_to_camera)[None]
    _, centers, depths, inverses, _ = gsplat._fully_fused_projection(means, covariances, view, lens, 44, 36)
    ours = project(splats, camera)
    np.testing.assert_allclose(centers[0], ours[0], rtol=1e-6)
    np.testing.assert_allclose(depths[0], ours[2], rtol=1e-6)
    inside = ((ours[0] > 0) & (ours[0] < (44, 36))).all(1)  # elsewhere gsplat cuts the slopes of the projection
    assert inside.sum() > 10
    found, expected = inverses[0].numpy()[inside], np.linalg.inv(ours[1])[inside]
    np.testing.assert_allclose(found, expected.reshape(-1, 4)[:, [0, 1, 3]], rtol=1e-5)
    center = torch.from_numpy(np.linalg.inv(camera.world_to_camera)[:3, 3])
    light = gsplat._spherical_harmonics(3, means - center, torch.from_numpy(splats.harmonics))
    np.testing.assert_allclose((light + 0.5).clamp(min=0), colors(splats, center.numpy()), atol=1e-5)


def test_gradients_are_those_of_finite_differences() -> None:
    given, cameras, ops = some_gaussians(6, degree=1), two_cameras(), select("torch", "cpu").ops
    parts = [given.means, given.log_scales, given.rotations, given.logits, given.harmonics]
    parts = [part.double().requires_grad_() for part in parts]
    cameras = Cameras(cameras.c2w.double(), cameras.intrinsics.double(), 44, 36)
    target = torch.rand(36 * 44, 3).double()

    def loss(*parts: torch.Tensor) -> torch.Tensor:
        means, scales, rotations, logits, harmonics = parts
        light, opacity = rasterize(Gaussians(means, means, scales, rotations, logits, harmonics), cameras, 0, ops)
        return ((light - target) ** 2).mean() + (opacity**2).mean()

    # The direction of a color's view is a constant for the gradient, and an ellipse ends where it is faint.
    gradients, step = torch.autograd.grad(loss(*parts), parts), 1e-6
    for number, (part, gradient) in enumerate(zip(parts, gradients, strict=True)):
        if number == 0:
            continue
        way = torch.randn_like(part)
        ahead, back = (loss(*(p + sign * step * way if p is part else p for p in parts)) for sign in (1, -1))
        assert ((ahead - back) / (2 * step)).item() == pytest.approx((gradient * way).sum().item(), rel=0.05, abs=1e-7)


def test_a_lattice_of_pixels_is_a_part_of_the_picture() -> None:
    given, cameras, ops = some_gaussians(), two_cameras(), select("torch", "cpu").ops
    whole, _ = rasterize(given, cameras, 0, ops)
    lattice = Lattice(3, 1, 2)
    part, _ = rasterize(given, cameras, 0, ops, lattice)
    torch.testing.assert_close(part, lattice.of(whole.view(36, 44, 3)))


def test_the_third_axis_is_the_normal() -> None:
    normals = torch.nn.functional.normalize(torch.randn(50, 3), dim=-1)
    axis = rotation_from_quaternion(turned_towards(normals))[..., 2]
    torch.testing.assert_close((axis * normals).sum(-1).abs(), torch.ones(50))


def test_a_trained_scene_is_drawn_by_the_independent_renderer(tmp_path: Path, run: LoadedRun) -> None:
    count = export(tmp_path / "splats.ply", run, most=3000, steps=60)
    assert 300 < count <= 3000
    assert psnr_of_file(tmp_path / "splats.ply", run, run.cameras[:3]) >= 28


def test_fields_of_other_colors_are_taken_too(tmp_path: Path) -> None:
    run = trained("voxel_sh")
    export(tmp_path / "splats.ply", run, most=3000, degree=2, steps=40)
    assert psnr_of_file(tmp_path / "splats.ply", run, run.cameras[:1]) >= 26


def test_fitting_helps(tmp_path: Path, run: LoadedRun) -> None:
    found = []
    for steps in (0, 40):
        export(tmp_path / "splats.ply", run, most=3000, degree=1, steps=steps)
        found.append(psnr_of_file(tmp_path / "splats.ply", run, run.cameras[:2]))
    assert found[1] > found[0] + 3


def test_splats_are_at_most_as_many_as_asked_for(tmp_path: Path, run: LoadedRun) -> None:
    assert 50 < export(tmp_path / "splats.ply", run, most=200, degree=0, steps=0) <= 200


@pytest.mark.parametrize("kind", ["forward_facing", "unbounded"])
def test_warped_scenes_have_splats_in_the_world(tmp_path: Path, kind: str) -> None:
    """The same values at the vertices, in another space: the splats are drawn where that scene is."""
    run, center = trained(), torch.tensor([0.0, 0.0, 4.0])
    pose = look_at(center, torch.zeros(3), torch.tensor([0.0, 1.0, 0.0]))
    box = run.field.box
    if kind == "forward_facing":
        space = NdcSpace(pose, near_plane=2.0, thickness=1.0, near=0.1)
        box = replace(box, space=space, aabb=torch.tensor([[-0.5, -0.5, 0.0], [0.5, 0.5, 1.0]]))
    else:
        box = replace(box, space=ContractedSpace(torch.zeros(3), torch.full((3,), 0.5), contraction=1.0, near=0.1))
    run.field.box = box
    run.field.set_resolution(run.field.resolution)
    step = run.config.sampler.step_size_voxels * run.field.voxel_size
    sampler = replace(run.sampler, grid_map=run.field.grid_map, step_size=step)
    poses = torch.stack([look_at(center + shift, torch.zeros(3), pose[:, 1]) for shift in 0.4 * torch.randn(8, 3)])
    seen = Cameras(poses, torch.tensor([[40.0, 40.0, 24.0, 24.0]]).expand(8, 4), 48, 48)
    run = replace(run, sampler=sampler, cameras=seen, given_cameras=seen)
    assert run.render(seen, 0).opacity.mean() > 0.05
    export(tmp_path / "splats.ply", run, most=4000, degree=1, steps=80)
    assert psnr_of_file(tmp_path / "splats.ply", run, seen[:2]) >= 26


def test_an_empty_scene_is_refused(tmp_path: Path) -> None:
    run = trained()
    with torch.no_grad():
        run.field.density_grid.fill_(-50.0)
    with pytest.raises(UserError, match="no surface"):
        export(tmp_path / "splats.ply", run, most=100, steps=0)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    return script_caller(monkeypatch, tmp_path)


def test_the_command_writes_the_file(call: Callable[..., int], saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("format=splats", "max_splats=500", "splats_steps=3", "hydra.run.dir=out")
    assert call("export", str(saved), *settings) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == str(Path("out/splats.ply").resolve()) and "splats" in printed[-2] and "dB" in printed[-2]
    assert len(read_splats(Path("out/splats.ply")).means) <= 500


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("max_splats=0",), "max_splats"),
        (("splats_degree=4",), "splats_degree"),
        (("splats_steps=-1",), "splats_steps"),
        (("file=scene.splat",), ".ply"),
    ],
)
def test_mistakes_are_answered(
    call: Callable[..., int], saved: Path, capsys: pytest.CaptureFixture[str], settings: tuple[str, ...], expected: str
) -> None:
    assert call("export", str(saved), "format=splats", *settings, "hydra.run.dir=out") == 2
    message = capsys.readouterr().err
    assert expected in message and "Traceback" not in message and not list(Path("out").glob("*.ply"))


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(UserError, match="No space left"):
        write_ply(tmp_path / "splats.ply", some_gaussians())
    assert not list(tmp_path.iterdir())
