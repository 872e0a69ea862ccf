"""A comparison of runs as one self-contained HTML page, with a slider between photo and render of each view and run."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

from nerf.evaluation.compare import COLUMNS, Comparison, rows, setting_rows, view_lines
from nerf.images.write import jpeg_data_uri

TEMPLATE = Path(__file__).with_suffix(".html")
SIDE = 400  # pixels on the longer side of a picture
MOST_VIEWS = 24
QUALITY = 88  # of JPEG


def page(compared: Comparison, split: str, photo: Callable[[str], Image.Image | None]) -> str:
    """The whole page. photo: the ground truth of a view; None where it is not to be had."""
    chosen = _spread(compared.views, MOST_VIEWS)
    parts = {
        "TITLE": html.escape(" / ".join(compared.names)),
        "SCORES": _table([COLUMNS, *rows(compared)]),
        "SETTINGS": _table([("setting", *compared.names), *setting_rows(compared)]),
        "CHANGES": "".join(f"<p>{html.escape(line)}</p>" for line in view_lines(compared)),
        "NOTES": "".join(f"<p class=note>{html.escape(note)}</p>" for note in compared.notes),
        "PER_VIEW": _per_view(compared),
        "SHOWN": f"{len(chosen)} of {len(compared.views)} views",
        "VIEWS": "".join(_view(compared, split, view, photo(view)) for view in chosen),
    }
    content = TEMPLATE.read_text(encoding="utf-8")
    for name, value in parts.items():
        content = content.replace(f"<!--{name}-->", value)
    return content


def _spread(names: Sequence[str], most: int) -> list[str]:
    """At most that many of the names, evenly spread."""
    count = min(len(names), most)
    return [names[round(i * (len(names) - 1) / max(1, count - 1))] for i in range(count)]


def _table(table: Sequence[Sequence[str]]) -> str:
    head, *body = table
    lines = [(head, "th"), *((row, "td") for row in body)]
    cells = ("".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) for row, tag in lines)
    return "<table>" + "".join(f"<tr>{row}</tr>\n" for row in cells) + "</table>"


def _per_view(compared: Comparison) -> str:
    names = [name for name, _ in compared.scored]
    columns = [run.scores("psnr", compared.views) for _, run in compared.scored]
    head = ["view", f"{names[0]} dB", *(f"{name} − {names[0]}" for name in names[1:])]  # noqa: RUF001
    body = [
        (view, f"{values[0]:.2f}", *(f"{value - values[0]:+.2f}" for value in values[1:]))
        for view, *values in zip(compared.views, *columns, strict=True)
    ]
    return _table([head, *body])


def _view(compared: Comparison, split: str, view: str, photo: Image.Image | None) -> str:
    """The sliders of a view, one a run; without the photo the renders alone."""
    photo_uri = None if photo is None else jpeg_data_uri(photo, SIDE, QUALITY)
    figures = []
    for name, run in compared.scored:
        path, psnr = run.folder / split / f"{view}.png", run.scores("psnr", [view])[0]
        label = f"<figcaption>{html.escape(name)}: {psnr:.2f} dB</figcaption>"
        if not path.is_file():
            figures.append(f"<figure><p class=note>its render is missing</p>{label}</figure>\n")
            continue
        with Image.open(path) as render:
            picture = f"<img alt='render' src='{jpeg_data_uri(render, SIDE, QUALITY)}'>"
        if photo_uri is None:
            figures.append(f"<figure><div class=pair>{picture}</div>{label}</figure>\n")
            continue
        # The photo stands in the page once a view; the script copies it to every run's slider.
        source = f"src='{photo_uri}'" if not any("class=truth" in done for done in figures) else ""
        truth = f"<img class=truth alt='ground truth' {source}>"
        slider = "<input type=range min=0 max=100 value=50 aria-label='from ground truth to render'>"
        figures.append(f"<figure><div class=pair>{picture}{truth}{slider}</div>{label}</figure>\n")
    return f"<section class=view><h3>{html.escape(view)}</h3>{''.join(figures)}</section>\n"
