"""Render novel views of a trained run: PNG frames, a video, depth and opacity as pictures.

    python scripts/render.py                        an orbit around the newest run's scene
    python scripts/render.py run=outputs/RUN path=test
    python scripts/render.py frames=120 width=400
"""

from dataclasses import dataclass
from pathlib import Path

from _hydra import run  # before torch

import torch
from _runs import OpenRun, RunConfig, open_run
from tqdm import tqdm

from nerf import images as pictures
from nerf.camera_paths import orbit
from nerf.cameras import Cameras
from nerf.config import setting
from nerf.rendering import render_image
from nerf.runs import background, depth_range, load_split


@dataclass
class RenderConfig(RunConfig):
    path: str = setting("orbit", "which cameras: an orbit, or those of the test views", choices=("orbit", "test"))
    frames: int = setting(60, "views of an orbit", low=1)
    fps: int = setting(30, "frames per second of the video", low=1)
    width: int | None = setting(None, "width of the frames in pixels; none = as in training", low=8)
    height: int | None = setting(None, "height of the frames in pixels; none = in proportion", low=8)


def main(config: RenderConfig, folder: Path, overrides: list[str]) -> None:
    opened = open_run(config)
    device = opened.sampler.backend.device
    cameras = _cameras(config, opened).to(device)
    near, far = depth_range(opened.sampler, opened.cameras)
    color = background(opened.config, device)

    def frames():
        for index in tqdm(range(len(cameras)), desc="rendering", unit="frame"):
            rendering = render_image(opened.field, opened.sampler, cameras, index, color)
            depth = pictures.color_depth(rendering.depth, rendering.opacity, near, far)
            named = (("rgb", rendering.rgb), ("depth", depth), ("opacity", rendering.opacity))
            for kind, picture in named:
                pictures.save_png(folder / kind / f"{index:04d}.png", picture.cpu())
            yield torch.cat([rendering.rgb, depth.to(device)], dim=1).cpu()

    video = folder / "video.mp4"
    pictures.write_video(video, frames(), config.fps)
    print(f"{len(cameras)} frames of {opened.folder} in {folder}: rgb/, depth/, opacity/\n{video}")


def _cameras(config: RenderConfig, opened: OpenRun) -> Cameras:
    if config.path == "test":
        return load_split(opened.config.dataset, "test").cameras
    return orbit(opened.cameras, config.frames, config.width, config.height)


if __name__ == "__main__":
    run("render", RenderConfig, main, __doc__)
