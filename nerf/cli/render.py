"""Render a trained run along a camera path: color, depth, opacity and normals, as pictures and as a video.

    python scripts/render.py                                      an orbit around the newest run's scene
    python scripts/render.py run=outputs/RUN path=spiral          swings around the mean training camera, in and out
    python scripts/render.py path=interpolate 'cameras=[0,5,9]'   flies through these training cameras
    python scripts/render.py path=test scale=0.5                  the test views, at half their size
    python scripts/render.py path=camera_path.json floats=true    a path file (nerfstudio's format), exact numbers
    python scripts/render.py run=outputs/A ensemble=outputs/B     the mean of the pictures of two runs

The last lines printed name the folder of the result. It holds one file per frame in each of rgb/, depth/, opacity/ and
normals/, the video PATH.mp4, and camera_path.json: the path itself, to edit and to give as path= again.

  rgb/0000.png      color, over the background of training
  depth/0000.png    distance in false color, near is blue and far is yellow
  opacity/0000.png  white where the scene is, black where the background shows
  normals/0000.png  the direction a surface faces; red, green, blue are world x, y, z from -1 to 1
  spread/0000.png   of an ensemble: where its runs disagree on the color, from dark blue (not at all) to yellow

The runs of an ensemble are seen from the same cameras; where they learned poses, a path is in the world of run=.

floats=true adds the numbers themselves beside the pictures, as NumPy files, float32, rows from top to bottom:

  depth/0000.npy    [height,width] distance along the ray through the pixel in world units, 0 for empty pixels
  opacity/0000.npy  [height,width] from 0 to 1
  normals/0000.npy  [height,width,3] unit, or zero for empty pixels; world axes, facing the camera
  spread/0000.npy   [height,width] standard deviation of the colors of an ensemble's runs

In a path file, camera_to_world is in the world of the run, which is that of the dataset unless poses were learned; axes
as in OpenGL (x right, y up, looking along -z).
nerfstudio moves and scales a scene before training: a path from its viewer fits only if that was switched off.
"""

import difflib
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.cameras.path_file import MAX_SIZE, CameraPath, is_simplified, read_camera_path, write_camera_path
from nerf.cameras.paths import orbit, spiral, tour, turn
from nerf.cameras.splines import interpolate
from nerf.cli.hydra_app import run
from nerf.cli.open_run import EnsembleConfig, LoadedRun, open_runs
from nerf.config.settings import setting
from nerf.errors import NoViews, UserError
from nerf.images import visualize
from nerf.images import write as pictures
from nerf.rendering.ensemble import render_mean
from nerf.rendering.sampler import depth_range
from nerf.runs.ensemble import along_path

PATHS = ("orbit", "spiral", "turn", "interpolate", "test")
SHOWN = ("rgb", "depth", "opacity", "normals")
OF_AN_ENSEMBLE = (*SHOWN, "spread")
KEY_CAMERAS = 8  # of path=interpolate, where none are chosen
DEFAULT_FPS = 30.0


@dataclass
class RenderConfig(EnsembleConfig):
    path: str = setting(
        "auto",
        f"which cameras: {', '.join(PATHS)}, or FILE.json with a camera path; auto = spiral before a forward-facing "
        "scene, turn (on the spot) where there are panoramas, else orbit",
        path=True,
    )
    cameras: list[int] | None = setting(
        None, f"path=interpolate: numbers of training cameras to pass through; none = {KEY_CAMERAS} around the scene"
    )
    frames: int = setting(60, "views of path=orbit, spiral, turn and interpolate; others have their own number", low=1)
    fps: float | None = setting(
        None, "frames per second of the video; none = 30, or what FILE.json says", low=0.1, high=1000
    )
    width: int | None = setting(None, "width of the frames in pixels; none = in proportion", low=8, high=MAX_SIZE)
    height: int | None = setting(None, "height of the frames in pixels; none = in proportion", low=8, high=MAX_SIZE)
    scale: float | None = setting(None, "factor on width and height, instead of naming them", low=0.01, high=32)
    video: list[str] = field(
        default_factory=lambda: ["rgb", "depth"],
        metadata={"doc": f"pictures side by side in the video, some of {', '.join(OF_AN_ENSEMBLE)}"},
    )
    floats: bool = setting(False, "also write depth, opacity, normals and spread as .npy files of float32")


def main(config: RenderConfig, folder: Path, overrides: list[str]) -> None:
    _check(config)
    runs = open_runs(config)
    loaded = runs[0]
    if config.path == "auto":
        config.path = "spiral" if loaded.config.dataset.kind == "forward_facing" else "orbit"
        config.path = "turn" if loaded.cameras.has_panoramas else config.path
    path = _camera_path(config, loaded)
    cameras = path.cameras.resized(config.width, config.height, config.scale)
    _check_video(config, cameras)
    fps = config.fps or path.fps or DEFAULT_FPS
    near, far = depth_range(loaded.sampler, cameras)
    members = along_path(runs, cameras)
    digits = max(4, len(str(len(cameras) - 1)))

    def frames():
        for index in tqdm(range(len(cameras)), desc="rendering", unit="frame"):
            rendering = render_mean(members, index, with_normals=True)
            images = {
                "rgb": rendering.rgb,
                "depth": visualize.color_depth(rendering.depth, rendering.opacity, near, far),
                "opacity": rendering.opacity,
                "normals": visualize.color_normals(rendering.normals, rendering.opacity),
            }
            exact = {"depth": rendering.distance(), "opacity": rendering.opacity, "normals": rendering.normals}
            if rendering.spread is not None:
                images["spread"], exact["spread"] = visualize.color_spread(rendering.spread), rendering.spread
            for kind, picture in images.items():
                pictures.save_png(folder / kind / f"{index:0{digits}d}.png", picture.cpu())
            for kind, values in exact.items() if config.floats else ():
                pictures.save_floats(folder / kind / f"{index:0{digits}d}.npy", values)
            side_by_side = [_in_color(images[kind]).cpu() for kind in config.video]
            yield torch.cat([visualize.framed(p, cameras.width, cameras.height) for p in side_by_side], dim=1)

    write_camera_path(folder / "camera_path.json", cameras, fps)
    if is_simplified(cameras):
        lost = "pictures made from it have one size, square pixels, the principal point in the middle and no lens"
        print(f"note: camera_path.json keeps poses and vertical angles of view: {lost}.", file=sys.stderr)
    video = folder / f"{Path(config.path).stem}.mp4"
    pictures.write_video(video, frames(), fps)
    size, of = cameras.described_size, " and ".join(str(one.folder) for one in runs)
    print(f"{len(cameras)} frames {size} of {of} in {folder}: {', '.join(f'{kind}/' for kind in _shown(config))}")
    print(folder / "camera_path.json", video, sep="\n")


def _shown(config: RenderConfig) -> tuple[str, ...]:
    """The kinds of pictures that are written."""
    return SHOWN if config.ensemble is None else OF_AN_ENSEMBLE


def _in_color(picture: Tensor) -> Tensor:
    """An image for the video, [H,W,3], from a color image or a gray one [H,W]."""
    return picture if picture.dim() == 3 else picture[:, :, None].expand(-1, -1, 3)


def _check(config: RenderConfig) -> None:
    """Checks settings that depend on each other, before anything is loaded. Raises UserError."""
    if config.path not in ("auto", *PATHS) and not config.path.endswith(".json"):
        near = difflib.get_close_matches(config.path, PATHS, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise UserError(f"path={config.path} is unknown; choose one of {', '.join(PATHS)}, or a file: FILE.json.{hint}")
    if config.path == "interpolate" and config.frames < 2:
        raise UserError(f"frames={config.frames} is too few for path=interpolate, which needs at least 2.")
    if config.scale is not None and (config.width is not None or config.height is not None):
        raise UserError("scale= and width= or height= both choose the size of the frames; give one of them.")
    if not config.video or not set(config.video) <= set(_shown(config)):
        known = ", ".join(_shown(config))
        raise UserError(f"video={config.video} is no choice of pictures; name some of {known}: video=[rgb].")
    if config.cameras is not None and config.path != "interpolate":
        raise UserError(f"cameras= is for path=interpolate, but path is {config.path}; give path=interpolate too.")


def _check_video(config: RenderConfig, cameras: Cameras) -> None:
    """Raises UserError for a video that the encoder would refuse once all frames are rendered."""
    count = len(config.video)
    if count > 1 and count * cameras.width > MAX_SIZE:  # a single one too large is no frame of a path
        raise UserError(
            f"video={config.video} sets {count} pictures of {cameras.described_size} pixels side by side, "
            f"{count * cameras.width} pixels wide, expected at most {MAX_SIZE}; give width={MAX_SIZE // count} or "
            "less, or name fewer of them, as video=[rgb]."
        )


def _camera_path(config: RenderConfig, loaded: LoadedRun) -> CameraPath:
    if config.path.endswith(".json"):
        return read_camera_path(Path(config.path))
    if config.path == "test":
        try:
            return CameraPath(loaded.views("test").cameras, None)  # as they are scored, also where poses were learned
        except NoViews as error:
            raise UserError(f"path=test: {error.found}; take path=interpolate, along training cameras.") from error
    if config.path == "interpolate":
        return CameraPath(interpolate(_key_cameras(config, loaded.cameras), config.frames), None)
    try:
        return CameraPath(
            {"orbit": orbit, "spiral": spiral, "turn": turn}[config.path](loaded.cameras, config.frames), None
        )
    except ValueError as error:
        remedy = "path=interpolate and path=turn need no common target"
        raise UserError(f"path={config.path} cannot be read off the training {error}; {remedy}.") from error


def _key_cameras(config: RenderConfig, cameras: Cameras) -> Cameras:
    """The training cameras that an interpolated path passes through."""
    chosen = tour(cameras, KEY_CAMERAS) if config.cameras is None else config.cameras
    if len(chosen) < 2 or not all(0 <= index < len(cameras) for index in chosen):
        raise UserError(
            f"cameras={chosen} are not at least two numbers from 0 to {len(cameras) - 1}, the training cameras of this "
            "run; choose others, for example cameras=[0,1]."
        )
    return cameras[chosen]


def command() -> None:
    run("render", RenderConfig, main, __doc__)
