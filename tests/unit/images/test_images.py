"""Pictures are written as they are described: levels, colors, geometry, and whole files only."""

import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
import torch

from nerf.errors import UserError
from nerf.images.visualize import color_depth, color_error, color_normals, contact_sheet, shrunk
from nerf.images.write import save_floats, save_png, write_video

DARK_BLUE = torch.tensor([0.13, 0.11, 0.36])
TEAL = torch.tensor([0.244, 0.556, 0.554])
YELLOW = torch.tensor([0.99, 0.90, 0.30])
WHITE = torch.ones(3)


def luminance(colors: torch.Tensor) -> torch.Tensor:
    return colors @ torch.tensor([0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("shape", [(16, 16), (4, 8, 3)])
def test_png_keeps_every_level(tmp_path, shape):
    levels = (torch.arange(math.prod(shape)) * 37 % 256).reshape(shape)
    path = tmp_path / "new folder" / "levels.png"
    save_png(path, levels / 255)
    assert np.array_equal(imageio.imread(path), levels.numpy())


def test_png_rounds_and_clamps(tmp_path):
    path = tmp_path / "values.png"
    save_png(path, torch.tensor([[-0.5, 0.49 / 255, 0.51 / 255, 1.5, math.nan]]))
    assert imageio.imread(path).tolist() == [[0, 0, 1, 255, 0]]


def test_a_failed_png_leaves_the_older_file(tmp_path, monkeypatch):
    path = tmp_path / "image.png"
    save_png(path, torch.ones(2, 2))

    def fail(self, content):
        with self.open("wb") as file:
            file.write(content[:10])
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    with pytest.raises(UserError, match=r"image.png cannot be written \(disk full\); free some space"):
        save_png(path, torch.zeros(2, 2))
    assert list(tmp_path.iterdir()) == [path]
    assert imageio.imread(path).min() == 255


def test_an_encoder_without_memory_is_no_full_disk(tmp_path, monkeypatch):
    def fail(self, target, format):
        raise OSError("codec configuration error when writing image file")  # Pillow's words for it

    monkeypatch.setattr("PIL.Image.Image.save", fail)
    with pytest.raises(MemoryError, match="out of memory while .*image.png was encoded"):
        save_png(tmp_path / "image.png", torch.ones(2, 2))
    assert not list(tmp_path.iterdir())


def test_save_png_refuses_other_shapes_and_dtypes(tmp_path):
    with pytest.raises(ValueError, match=r"image: found .* \[2, 2, 4\], expected float \[any, any, 3\]"):
        save_png(tmp_path / "a.png", torch.zeros(2, 2, 4))
    with pytest.raises(ValueError, match="image: found torch.uint8"):
        save_png(tmp_path / "a.png", torch.zeros(2, 2, dtype=torch.uint8))


def test_depth_runs_from_dark_blue_to_yellow_over_white():
    distance = torch.tensor([[2.0, 4.0, 6.0, 9.0, 2.0, 5.0]])
    opacity = torch.tensor([[1.0, 0.5, 1.0, 1.0, 0.25, 0.0]])
    colors = color_depth(distance * opacity, opacity, near=2.0, far=6.0)
    quarter_blue = 0.25 * DARK_BLUE + 0.75 * WHITE
    expected = torch.stack([DARK_BLUE, 0.5 * (TEAL + WHITE), YELLOW, YELLOW, quarter_blue, WHITE])[None]
    torch.testing.assert_close(colors, expected)


def test_farther_is_lighter():
    distance = torch.linspace(2, 6, 101)[None]
    colors = color_depth(distance, torch.ones_like(distance), near=2.0, far=6.0)
    assert (luminance(colors).diff() > 0).all()


def test_color_depth_refuses_an_empty_range():
    depth = torch.ones(2, 2)
    with pytest.raises(ValueError, match="near, far: found 3.0, 3.0, expected near < far"):
        color_depth(depth, depth, near=3.0, far=3.0)


def test_error_colors():
    truth = torch.full((1, 4, 3), 0.5)
    image = truth.clone()
    image[0, 1] -= torch.tensor([0.0, 0.1, 0.2])  # mean 0.1, half of the scale
    image[0, 2] += 0.4
    image[0, 3, 0] = math.nan
    colors = color_error(image, truth, full_scale=0.2)
    torch.testing.assert_close(colors[0], torch.stack([DARK_BLUE, TEAL, YELLOW, YELLOW]), atol=1e-5, rtol=0)
    valid = torch.tensor([[True, False, True, False]])
    colors = color_error(image, truth, valid=valid)
    torch.testing.assert_close(colors[0, [0, 2]], torch.stack([DARK_BLUE, YELLOW]), atol=1e-5, rtol=0)
    assert (colors[~valid] == 0.5).all()
    with pytest.raises(ValueError, match=r"valid: found torch.bool \[4, 1\], expected torch.bool \[1, 4\]"):
        color_error(image, truth, valid=valid.T)


def test_contact_sheet_geometry():
    levels = torch.arange(8).reshape(2, 4) / 16
    rows = [[torch.full((30, 40, 3), level) for level in row] for row in levels.tolist()]
    sheet = contact_sheet(rows)
    assert sheet.shape == (16 + 2 * 30 + 4, 4 * 40 + 3 * 4, 3)
    for row in range(2):
        for column in range(4):
            top, left = 16 + row * 34, column * 44
            assert (sheet[top : top + 30, left : left + 40] == levels[row, column]).all()
    assert (sheet[46:50] == 1).all()
    for left in (40, 84, 128):
        assert (sheet[:, left : left + 4] == 1).all()


def test_contact_sheet_writes_the_name_of_each_view_above_its_row():
    rows = [[torch.full((30, 40, 3), level)] * 4 for level in (0.25, 0.5)]
    sheet = contact_sheet(rows, names=["r_0", "r_7"])
    assert sheet.shape == (16 + 2 * (16 + 30) + 4, 4 * 40 + 3 * 4, 3)
    first, second = sheet[16:32], sheet[16 + 46 + 4 :][:16]
    assert first.min() < 0.5 and second.min() < 0.5 and not torch.equal(first, second)
    assert (sheet[32:62, :40] == 0.25).all() and (sheet[82:112, :40] == 0.5).all()
    with pytest.raises(ValueError, match="names: found 1, expected one for each of 2 rows"):
        contact_sheet(rows, names=["r_0"])


def test_a_shrunken_image_holds_the_means_of_its_pixels():
    image = torch.rand(7, 10, 3)
    assert shrunk(image, 10) is image
    small = shrunk(image, 5)
    assert small.shape == (4, 5, 3)
    torch.testing.assert_close(small[1, 2], image[2:4, 4:6].mean((0, 1)))
    torch.testing.assert_close(small[3, 4], image[6:, 8:].mean((0, 1)))  # a block that the edge cuts
    assert shrunk(image, 4).shape == (3, 4, 3)


def test_every_column_has_its_caption():
    black = torch.zeros(20, 50, 3)
    sheet = contact_sheet([[black, black, black]], captions=("truth", "", "truth"))
    first, empty, last = (sheet[:16, left : left + 50] for left in (0, 54, 108))
    assert first.min() < 0.5
    assert (empty == 1).all()
    assert torch.equal(first, last)


def test_normals_are_colored_by_their_axes_over_white():
    normals = torch.tensor([[[1.0, 0.0, -1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.6, -0.8, 0.0]]])
    found = color_normals(normals, torch.tensor([[1.0, 1.0, 0.0, 0.5]]))
    expected = torch.tensor([[[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [1.0, 1.0, 1.0], [0.9, 0.55, 0.75]]])
    torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match="opacity: found"):
        color_normals(normals, torch.ones(4))


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 3)])
def test_floats_are_kept_as_they_are(tmp_path, shape):
    path = tmp_path / "new folder" / "depth.npy"
    values = torch.randn(*shape) * 1e3
    save_floats(path, values.double())
    found = np.load(path, allow_pickle=False)
    assert found.dtype == np.float32 and found.shape == shape
    assert np.array_equal(found, values.numpy()) and list(path.parent.iterdir()) == [path]
    with pytest.raises(ValueError, match="values: found torch.int64"):
        save_floats(path, torch.zeros(2, dtype=torch.int64))


def test_contact_sheet_refuses_ragged_rows_and_sizes():
    image = torch.zeros(4, 4, 3)
    with pytest.raises(ValueError, match="row 1: found 1 images, expected 2"):
        contact_sheet([[image, image], [image]], captions=("a", "b"))
    with pytest.raises(ValueError, match=r"b of row 0: found .* \[4, 5, 3\], expected float \[4, 4, 3\]"):
        contact_sheet([[image, torch.zeros(4, 5, 3)]], captions=("a", "b"))
    with pytest.raises(ValueError, match="rows, captions: found 0 and 4"):
        contact_sheet([])


def test_video_of_odd_size_reads_back(tmp_path):
    """Gray frames survive compression; the padding repeats the edge and nothing is rescaled."""
    path = tmp_path / "new folder" / "video.mp4"
    levels = [0.2, 0.5, 0.8]
    write_video(path, (torch.full((33, 47, 3), level) for level in levels), fps=10)
    with imageio.get_reader(path) as reader:
        metadata = reader.get_meta_data()
        frames = [np.asarray(frame) for frame in reader]
    assert metadata["fps"] == 10
    assert metadata["codec"] == "h264"
    assert metadata["pix_fmt"].startswith("yuv420p")
    assert [frame.shape for frame in frames] == [(34, 48, 3)] * 3
    for frame, level in zip(frames, levels):
        assert np.abs(frame / 255 - level).max() < 0.03
    assert list(path.parent.iterdir()) == [path]


def test_video_refuses_no_frames_and_changing_sizes(tmp_path):
    with pytest.raises(ValueError, match="frames: found none"):
        write_video(tmp_path / "video.mp4", [])
    with pytest.raises(ValueError, match=r"frame 1: found .* \[16, 18, 3\], expected float \[16, 16, 3\]"):
        write_video(tmp_path / "video.mp4", [torch.zeros(16, 16, 3), torch.zeros(16, 18, 3)])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_encoder_is_named_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    frames = iter([torch.zeros(16, 16, 3)])
    with pytest.raises(UserError, match="pip install imageio-ffmpeg"):
        write_video(tmp_path / "video.mp4", frames)
    monkeypatch.undo()

    def no_program() -> None:
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", no_program)
    with pytest.raises(UserError, match="IMAGEIO_FFMPEG_EXE"):
        write_video(tmp_path / "video.mp4", frames)
    assert next(frames, None) is not None and list(tmp_path.iterdir()) == []  # nothing was rendered in vain


def test_a_video_in_a_folder_of_any_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("-a: b%02d, [1]='ü'") / "video.mp4"
    write_video(path, [torch.zeros(16, 16, 3)] * 2)
    assert imageio.get_reader(path.absolute()).count_frames() == 2
    assert list(Path().iterdir()) == [path.parent]


@pytest.mark.parametrize("at", [1, 30])
def test_an_encoder_that_is_killed_leaves_no_video(tmp_path: Path, at: int) -> None:
    """As where memory runs out: the program ffmpeg goes, ours stays."""

    def frames() -> Iterator[torch.Tensor]:
        for index in range(60):
            if index == at:
                for children in Path("/proc/self/task").glob("*/children"):
                    for child in children.read_text().split():
                        if "ffmpeg" in Path(f"/proc/{child}/comm").read_text():  # the server of forks is one too
                            os.kill(int(child), signal.SIGKILL)
            yield torch.rand(64, 64, 3)

    (tmp_path / "a.mp4").write_text("the video before")
    with pytest.raises(UserError, match="a.mp4 cannot be written .the encoder ffmpeg ended early"):
        write_video(tmp_path / "a.mp4", frames())
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]
    assert (tmp_path / "a.mp4").read_text() == "the video before"
