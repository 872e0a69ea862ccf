"""A room with balls in it, seen by panoramas or by pinholes at the same places, as a capture in nerfstudio's format.

    python tests/helpers/panorama_scene.py OUT              # 24 panoramas of 256x128 and 12 test views
    python tests/helpers/panorama_scene.py OUT --pinholes   # the faces of their cubes, about as many pixels

The test views are the same pinholes for both, at other places. World: x right, y up. All colors are matt.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run from a checkout, installed or not

from nerf.cameras.cameras import PANORAMA, Cameras
from nerf.cameras.distortion import Lenses
from nerf.cameras.panoramas import cube_faces, full_turn
from nerf.cameras.poses import look_at
from nerf.cameras.rays import Rays
from nerf.export.camera_files import write_transforms

HALF = torch.tensor([3.0, 1.4, 2.2])  # of the room, around the origin
BALLS = (
    ((-1.8, -0.9, -1.2), 0.5),
    ((1.9, -0.7, 1.1), 0.7),
    ((1.6, 0.5, -1.5), 0.35),
    ((-2.0, 0.3, 1.3), 0.4),
)
REACH = torch.tensor([1.1, 0.35, 0.8])  # the cameras stand so far around the origin
UP = torch.tensor([0.0, 1.0, 0.0])
SUPERSAMPLE = 3  # rays per pixel along each axis
FACE = 0.913  # side of a pinhole's picture by that of a cube's face: six have about as many pixels as the panorama


def room(rays: Rays) -> tuple[Tensor, Tensor]:
    """Colors [R,3] and distances [R] of what rays meet from inside."""
    origins, directions = rays.origins, rays.directions
    to_walls = (torch.sign(directions) * HALF - origins) / directions
    distance = torch.where(directions == 0, torch.inf, to_walls).amin(-1)
    colors = _painted(origins + distance[:, None] * directions, 0.0)
    for index, (center, radius) in enumerate(BALLS):
        offset = origins - origins.new_tensor(center)
        along = -(offset * directions).sum(-1)
        root = radius**2 - offset.square().sum(-1) + along.square()
        met = along - root.clamp(min=0).sqrt()
        nearer = (root > 0) & (met > 0) & (met < distance)
        distance = torch.where(nearer, met, distance)
        painted = _painted(origins + met[:, None] * directions, 1.0 + index)
        colors = torch.where(nearer[:, None], painted, colors)
    return colors, distance


def _painted(points: Tensor, phase: float) -> Tensor:
    """Colors [N,3] of a surface: smooth waves, and a checkered pattern in one of two brightnesses."""
    phases = points.new_tensor([[1.0, 0.3, -0.5], [-0.4, 1.0, 0.6], [0.5, -0.7, 1.0]])
    waves = 0.5 + 0.4 * torch.sin(3.0 * points @ phases.T + points.new_tensor([0.0, 1.0, 2.0]) + phase)
    dark = (points / 0.45 + 0.17).floor().sum(-1) % 2
    return waves * (0.65 + 0.35 * dark)[:, None]


def room_panoramas(count: int, height: int, shift: float = 0.0) -> Cameras:
    """Panoramas spread over the room, each turned and tilted in its own way."""
    poses = []
    for index in range(count):
        place = REACH * (2 * ((0.5 + shift + (index + 1) * torch.tensor([0.8192, 0.6710, 0.5497])) % 1) - 1)
        turn, tilt = 2.4 * index + shift, 0.15 * math.sin(1.7 * index)
        poses.append(look_at(place, place + torch.tensor([math.cos(turn), tilt, math.sin(turn)]), UP))
    intrinsics = torch.tensor([full_turn(2 * height, height)]).repeat(count, 1)
    return Cameras(
        torch.stack(poses), intrinsics, 2 * height, height, None, Lenses.of([PANORAMA] * count, [()] * count)
    )


def room_pinholes(panoramas: Cameras) -> Cameras:
    """The faces of the panoramas' cubes with FACE of their pixels along each side."""
    return cube_faces(panoramas).resized(scale=FACE)


def room_tests(count: int, side: int) -> Cameras:
    """Pinholes at other places that look around, 90 degrees wide, a little up and down."""
    ahead = room_panoramas(count, side, shift=0.29)
    intrinsics = torch.tensor([[side / 2] * 4]).repeat(count, 1)
    return Cameras(ahead.c2w, intrinsics, side, side)


def picture(cameras: Cameras, index: int, supersample: int = SUPERSAMPLE) -> Tensor:
    """One camera's picture of the room, [H,W,3] uint8."""
    width, height = cameras.size(index)
    fine = cameras[index].resized(supersample * width, supersample * height)
    colors = room(fine.image_rays(0))[0].view(supersample * height, supersample * width, 3)
    return (255 * avg_pool2d(colors.permute(2, 0, 1), supersample).permute(1, 2, 0)).round().byte()


def write_room(folder: Path, train: Cameras, test: Cameras, supersample: int = SUPERSAMPLE) -> None:
    """transforms.json with the lists of training and test views, and the photos in images/."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    names: dict[str, list[str]] = {}
    entries = []
    for split, cameras in (("train", train), ("test", test)):
        names[split] = [f"images/{split}_{index:03d}.png" for index in range(len(cameras))]
        write_transforms(folder / "transforms.json", cameras, names[split])
        entries += json.loads((folder / "transforms.json").read_text())["frames"]
        for index, name in enumerate(names[split]):
            Image.fromarray(np.asarray(picture(cameras, index, supersample))).save(folder / name)
    lists = {f"{split}_filenames": listed for split, listed in names.items()}
    (folder / "transforms.json").write_text(json.dumps({**lists, "frames": entries}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="A room as a capture of panoramas, or of pinholes at their places.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--pinholes", action="store_true")
    parser.add_argument("--count", type=int, default=24, help="places of the training views")
    parser.add_argument("--height", type=int, default=128, help="of a panorama in pixels, half its width")
    args = parser.parse_args()
    train = room_panoramas(args.count, args.height)
    write_room(args.out, room_pinholes(train) if args.pinholes else train, room_tests(12, args.height))


if __name__ == "__main__":
    main()
