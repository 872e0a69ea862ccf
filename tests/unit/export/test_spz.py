"""Splats as SPZ: what a reader that is not ours finds in the file, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from spz_file import read_spz
from test_splats import as_pinhole, export, some_gaussians, trained

from nerf.benchmarks.splat_renderer import read_splats, render
from nerf.cameras.se3 import rotation_from_quaternion
from nerf.errors import UserError
from nerf.export.splats.export import export_splats
from nerf.export.splats.spz import fractional_bits, write_spz

pytest.importorskip("gsply", reason="writes SPZ: pip install gsply")


@pytest.mark.parametrize("degree", [0, 1, 3])
def test_an_independent_reader_finds_what_was_written(tmp_path: Path, degree: int) -> None:
    given = some_gaussians(degree=degree)
    write_spz(tmp_path / "splats.spz", given)
    found, kept = read_spz(tmp_path / "splats.spz"), (degree + 1) ** 2
    np.testing.assert_allclose(found.means, given.means, atol=2.0 ** -fractional_bits(given.means))
    np.testing.assert_allclose(np.log(found.scales), given.log_scales, atol=1 / 32 + 1e-6)
    np.testing.assert_allclose(found.opacities, given.logits.sigmoid(), atol=0.5 / 255 + 1e-6)
    np.testing.assert_allclose(
        found.harmonics[:, 0], given.harmonics[:, 0].clamp(-1 / 0.3, 1 / 0.3), atol=0.5 / 255 / 0.15 + 1e-6
    )
    rest = given.harmonics[:, 1:].clamp(-1, 127 / 128)
    np.testing.assert_allclose(found.harmonics[:, 1:kept], rest, atol=0.5 / 128 + 1e-6)
    axes = rotation_from_quaternion(torch.from_numpy(found.rotations))
    torch.testing.assert_close(axes, rotation_from_quaternion(given.rotations).double(), atol=0.01, rtol=0)


@pytest.mark.parametrize("extent", [1e-4, 1.0, 3000.0, 4e6])
def test_positions_are_as_fine_as_their_extent_allows(tmp_path: Path, extent: float) -> None:
    given = some_gaussians()
    given.means = given.means / given.means.abs().max() * extent
    write_spz(tmp_path / "splats.spz", given)
    error = np.abs(read_spz(tmp_path / "splats.spz").means - given.means.numpy()).max()
    assert error <= max(2e-7 * extent, 2.0**-20)


@pytest.mark.slow
def test_a_trained_scene_looks_as_its_ply_does_in_a_fifth_of_the_bytes(tmp_path: Path) -> None:
    run = trained()
    for name in ("splats.ply", "splats.spz"):
        torch.manual_seed(0)
        export(tmp_path / name, run, most=2000, degree=2, steps=20)
    sizes = [(tmp_path / name).stat().st_size for name in ("splats.ply", "splats.spz")]
    assert sizes[1] < 0.2 * sizes[0]
    camera = as_pinhole(run.cameras, 0)
    pictures = [
        render(read(tmp_path / name), camera, 1.0)
        for read, name in ((read_splats, "splats.ply"), (read_spz, "splats.spz"))
    ]
    assert -10 * np.log10(np.square(pictures[0] - pictures[1]).mean()) > 38


@pytest.mark.parametrize(("log_scale", "position"), [(-12.0, 1.0), (7.0, 1.0), (0.0, 1e8)])
def test_what_the_format_cannot_hold_is_refused(tmp_path: Path, log_scale: float, position: float) -> None:
    given = some_gaussians()
    given.log_scales = torch.full_like(given.log_scales, log_scale)
    given.means = given.means * position
    with pytest.raises(UserError, match=r"splats\.spz.*\.ply"):
        write_spz(tmp_path / "splats.spz", given)
    assert not list(tmp_path.iterdir())


def test_without_the_package_nothing_is_rendered_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match="gsply"):
        export_splats(tmp_path / "splats.spz", None, None, None)
