"""A curve as a picture: PSNR over training seconds, ours beside the baselines, drawn with Pillow alone."""

import math
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from nerf.benchmarks.baselines import merged, same_test
from nerf.files import replacing

WIDTH, HEIGHT, SCALE = 1100, 640, 2  # pixels; drawn larger and shrunk, which smooths lines
LEFT, RIGHT, TOP, BOTTOM = 70, 290, 50, 60  # margins; the legend stands on the right
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
DECIBELS_SHOWN = 14.0  # below the best; what is worse lies under the picture
OURS, INK, GRID = "#c0392b", "#202020", "#e0e0e0"
COLORS = ("#4c72b0", "#55a868", "#8172b2", "#dd8452", "#64b5cd", "#937860")

Point = tuple[float, float]  # seconds, dB


class Axes:
    """Seconds on a logarithmic and decibels on a linear axis, in pixels of the large picture."""

    def __init__(self, points: list[Point]) -> None:
        seconds, psnrs = zip(*points)
        self.start, self.end = 0.8 * min(seconds), 1.5 * max(seconds)
        self.top = math.ceil(max(psnrs) + 0.3)
        self.bottom = max(math.floor(min(psnrs)), self.top - DECIBELS_SHOWN)

    def __call__(self, point: Point) -> Point:
        """Where a point lies; what is outside lies on the frame."""
        seconds, psnr = min(max(point[0], self.start), self.end), min(max(point[1], self.bottom), self.top)
        across = math.log(seconds / self.start) / math.log(self.end / self.start)
        down = (self.top - psnr) / (self.top - self.bottom)
        x, y = LEFT + across * (WIDTH - LEFT - RIGHT), TOP + down * (HEIGHT - TOP - BOTTOM)
        return SCALE * x, SCALE * y

    def shows(self, point: Point) -> bool:
        return self.start <= point[0] <= self.end and self.bottom <= point[1] <= self.top


def plot_curve(results: list[dict], baselines: dict | None, path: Path) -> None:
    """Draws one or several curve.json of one scene; baselines only where they were scored on the same test."""
    budgets = merged(results)
    baselines = baselines if baselines is not None and all(same_test(result, baselines) for result in results) else None
    finals = [(b["train_seconds"]["median"], b["psnr"]["median"]) for b in budgets]
    looks = [[(x["seconds"], x["psnr"]) for x in run["looks"]] for b in budgets for run in b["runs"]]
    systems = baselines["systems"] if baselines else []
    curves = {s["name"]: [(t - s["excluded_seconds"], psnr) for t, psnr in s["curve"]] for s in systems}
    papers = [paper for paper in baselines["published"] if paper["seconds"]] if baselines else []
    published = [(paper["seconds"], paper["psnr"]) for paper in papers]
    lines = [*looks, *curves.values()]
    axes = Axes([*finals, *published, *(point for line in lines for point in line)])

    image = Image.new("RGB", (SCALE * WIDTH, SCALE * HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    _frame(draw, axes, results[0])
    legend = [("here: the final models of each budget", OURS), ("small: on the way there", OURS)]
    for color, (name, curve) in zip(COLORS, curves.items()):
        shown = [number for number, point in enumerate(curve) if axes.shows(point)]
        _line(draw, axes, curve[max(0, shown[0] - 1) :] if shown else [], color, 2)
        legend.append((name, color))
    for run in looks:
        for point in run:
            _dot(draw, axes, point, OURS, 2)
    _line(draw, axes, finals, OURS, 3)
    for budget, point in zip(budgets, finals):
        for end in ("low", "high"):
            _line(draw, axes, [point, (point[0], budget["psnr"][end])], OURS, 2)
        _dot(draw, axes, point, OURS, 5)
        x, y = axes(point)
        _text(draw, (x - SCALE * 22, y), f"{point[1]:.2f}", OURS, up=22)
    for paper, point in zip(papers, published):
        _dot(draw, axes, point, INK, 4)
        note = " (black)" if paper["background"] == "black" else ""
        _text(draw, axes(point), paper["name"] + note, INK, up=20)
    if published:
        legend.append(("published, other GPUs", INK))
    _legend(draw, legend)
    with replacing(path) as partial:
        image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS).save(partial, format="PNG")


def _frame(draw: ImageDraw.ImageDraw, axes: Axes, result: dict) -> None:
    corners = [(axes.start, axes.top), (axes.end, axes.top), (axes.end, axes.bottom), (axes.start, axes.bottom)]
    for tick in (tick for tick in TICKS if axes.start <= tick <= axes.end):
        _line(draw, axes, [(tick, axes.bottom), (tick, axes.top)], GRID, 1)
        _text(draw, axes((tick, axes.bottom)), f"{tick:g}", INK, up=-6)
    for psnr in range(math.ceil(axes.bottom), math.floor(axes.top) + 1, 2):
        _line(draw, axes, [(axes.start, psnr), (axes.end, psnr)], GRID, 1)
        x, y = axes((axes.start, psnr))
        _text(draw, (x - SCALE * 20, y), str(psnr), INK, up=8)
    _line(draw, axes, [*corners, corners[0]], INK, 1)
    size = "x".join(map(str, result["image_size"]))
    title = f"{result['scene']} {size}, {result['device']}: PSNR of test views (dB) over training seconds"
    _text(draw, (SCALE * WIDTH / 2, SCALE * 12), title, INK, size=16)
    _text(draw, (SCALE * (WIDTH - RIGHT + LEFT) / 2, SCALE * (HEIGHT - 28)), "training seconds, logarithmic", INK)


def _legend(draw: ImageDraw.ImageDraw, entries: list[tuple[str, str]]) -> None:
    for row, (name, color) in enumerate(entries):
        x, y = SCALE * (WIDTH - RIGHT + 20), SCALE * (TOP + 12 + 24 * row)
        draw.line([(x, y), (x + SCALE * 22, y)], fill=color, width=3 * SCALE)
        draw.text((x + SCALE * 30, y), name, fill=INK, font=_font(13), anchor="lm")


def _line(draw: ImageDraw.ImageDraw, axes: Axes, points: list[Point], color: str, width: int) -> None:
    draw.line([axes(point) for point in points], fill=color, width=width * SCALE, joint="curve")


def _dot(draw: ImageDraw.ImageDraw, axes: Axes, point: Point, color: str, radius: int) -> None:
    if axes.shows(point):
        x, y = axes(point)
        draw.ellipse([x - SCALE * radius, y - SCALE * radius, x + SCALE * radius, y + SCALE * radius], fill=color)


def _text(draw: ImageDraw.ImageDraw, at: Point, text: str, color: str, up: int = 0, size: int = 13) -> None:
    """Centered on at, its upper edge so many pixels above."""
    draw.text((at[0], at[1] - SCALE * up), text, fill=color, font=_font(size), anchor="ma")


def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.load_default(SCALE * size)
