"""Render the bundled scene "bricks", or one of its variants, to a folder of images, poses and depths.

    python data/make_bricks.py data/bricks

writes the copy that comes with the repository, the same in every pixel; other sizes and numbers of views make
it easier or harder. The variants measure what bricks do not: `--variant glossy` how well highlights and reflections
are learned, `--variant thin` what is finer than voxels in a wide, empty box, `--variant smoke` what has no surface.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run from a checkout, installed or not

from _bricks import render_bricks, write_scene
from _glossy import render_glossy
from _smoke import render_smoke
from _thin import render_thin

VARIANTS = {"bricks": render_bricks, "glossy": render_glossy, "thin": render_thin, "smoke": render_smoke}


def positive(text: str) -> int:
    """An integer of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def main() -> None:
    parser = argparse.ArgumentParser(
        description='Render the analytic toy scene "bricks" or a variant in the layout of Blender synthetic scenes: '
        "transforms_train.json, transforms_test.json, RGBA images, and 16-bit depths for the test views.",
        epilog="Time grows with (train + test) * (size * supersample)^2; the defaults take minutes on a CPU.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write; its files are overwritten")
    parser.add_argument(
        "--variant",
        choices=VARIANTS,
        default="bricks",
        help="glossy: mirrors, metal and varnish of many roughnesses; thin: wires, nets and ropes in a wide box; "
        "smoke: balls from a breath to nearly opaque",
    )
    parser.add_argument("--size", type=positive, default=200, help="width and height of the images in pixels")
    parser.add_argument("--train", type=positive, default=100, help="training views, all over the hemisphere")
    parser.add_argument("--test", type=positive, default=20, help="test views, on an orbit up and down")
    parser.add_argument("--supersample", type=positive, default=6, help="rays per pixel along each axis")
    parser.add_argument("--seed", type=int, default=0, help="turns the cameras about the vertical axis")
    args = parser.parse_args()
    write_scene(args.out, args.size, args.train, args.test, args.supersample, args.seed, VARIANTS[args.variant])


if __name__ == "__main__":
    main()
