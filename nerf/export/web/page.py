"""The HTML file: everything that the page needs stands in it, so that it opens from a disk without a server."""

import base64
import gzip
import html
import json
import math
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from nerf.errors import UserError
from nerf.export.web.bake import Baked
from nerf.export.web.network import FREQUENCIES, SmallMlp
from nerf.files import write_text

BRICK = 8  # vertices of a brick along each axis
SCRIPTS = ("unpack.js", "renderer.js", "controls.js", "main.js")


def _asset(name: str) -> str:
    return (resources.files("nerf.export.web") / name).read_text()


def pack(baked: Baked, occupied: Tensor) -> tuple[bytes, dict[str, int]]:
    """What unpack.js reads, and its counts: bricks of vertices, masks, bricks of cells, planes of differences.

    occupied [X-1,Y-1,Z-1] bool: cells that are marched through.
    """
    x, y, z = (part.numpy() for part in torch.unravel_index(baked.rows, baked.resolution))
    across = [-(-size // BRICK) for size in baked.resolution]
    brick = (x // BRICK * across[1] + y // BRICK) * across[2] + z // BRICK
    local = (x % BRICK * BRICK + y % BRICK) * BRICK + z % BRICK
    order = np.lexsort((local, brick))
    numbers, where = np.unique(brick[order], return_inverse=True)
    masks = np.zeros((len(numbers), BRICK**3), np.uint8)
    masks[where, local[order]] = 1
    cells = cell_bricks(occupied).numpy()
    values = torch.cat([baked.density[:, None], baked.features], dim=1).numpy()[order]
    planes = np.diff(values.T.astype(np.int16), axis=1, prepend=np.int16(0)).astype(np.uint8)
    parts = numbers.astype("<u4"), cells.astype("<u4"), np.packbits(masks, axis=1, bitorder="little"), planes
    counts = {
        "vertexBricks": len(numbers),
        "cellBricks": len(cells),
        "vertices": len(baked.rows),
        "channels": values.shape[1],
    }
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts), counts


def cell_bricks(occupied: Tensor) -> Tensor:
    """Numbers of the bricks that have occupied cells, rising, in host memory. occupied [X-1,Y-1,Z-1] bool."""
    some = torch.nn.functional.max_pool3d(occupied[None].float().cpu(), BRICK, ceil_mode=True)
    return some[0].flatten().nonzero()[:, 0]


def texture_bytes(cells: int, channels: int) -> int:
    """Memory that the textures of a page take on a GPU: bricks of cells with their last vertices, as unpack.js lays
    them out.

    cells: number of the bricks; channels: of a vertex, density with them.
    """
    across = max(1, math.ceil(cells ** (1 / 3) - 1e-9))
    deep = max(1, -(-cells // across**2))
    return 4 * -(-channels // 4) * (BRICK + 1) ** 3 * across**2 * deep


def network_weights(network: SmallMlp) -> list[float]:
    """Weights as the shader reads them: for each four outputs their biases, then a 4x4 matrix for each four inputs."""
    numbers: list[Tensor] = []
    for layer in [*network.hidden, network.color]:
        weight, bias = layer.weight.detach().cpu(), layer.bias.detach().cpu()
        rows, columns = (-(-size // 4) * 4 for size in weight.shape)
        weight = nn.functional.pad(weight, (0, columns - weight.shape[1], 0, rows - weight.shape[0]))
        bias = nn.functional.pad(bias, (0, rows - len(bias)))
        for first in range(0, rows, 4):
            numbers.append(bias[first : first + 4])
            numbers += [weight[first : first + 4, i : i + 4].T.flatten() for i in range(0, columns, 4)]
    return [float(f"{value:.7g}") for value in torch.cat(numbers).tolist()]


def shader(network: SmallMlp, max_steps: int) -> str:
    """march.glsl with the sizes of the network and of the walk as constants."""
    kept, width = network.projection.out_features, network.color.in_features
    inputs = -(-network.hidden[0].in_features // 4)
    constants = {
        "KEPT": kept,
        "CHUNKS": 1 + -(-max(0, kept - 3) // 4),
        "FREQUENCIES": FREQUENCIES,
        "INPUTS": inputs,
        "WIDTH": width // 4,
        "WIDEST": max(inputs, width // 4),
        "LAYERS": len(network.hidden),
        "MAX_STEPS": max_steps,
        "DIFFUSE": int(network.diffuse),
    }
    version, rest = _asset("march.glsl").split("\n", 1)
    return "\n".join([version, *(f"#define {name} {value}" for name, value in constants.items()), rest])


def feature_limits(baked: Baked) -> tuple[list[float], list[float]]:
    """Lowest value and range of the features, chunk by chunk of four as the shader's textures hold them."""
    low, high = baked.feature_range.tolist()
    ranges = [b - a for a, b in zip(low, high, strict=True)]

    def chunked(values: list[float]) -> list[float]:
        result = values[:3] + [0.0] * (3 - len(values[:3])) + [0.0]
        rest = values[3:]
        return result + rest + [0.0] * (-len(rest) % 4)

    return chunked(low), chunked(ranges)


def write_page(path: Path, title: str, header: dict, source: str, data: bytes) -> int:
    """Writes the page; returns its size in bytes.

    Raises UserError where it cannot be written, and for a header with numbers that are not finite, which JSON lacks.
    """
    try:
        numbers = json.dumps(header, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise UserError(
            f"{path} is not written: its scene or its network has numbers that are not finite, and no browser could "
            "show it; export again with fewer web_steps, or another run, if this one's own pictures are not right."
        ) from error
    fields = {
        "title": html.escape(title),
        "header": numbers.replace("</", "<\\/"),
        "shader": source,
        "data": base64.b64encode(gzip.compress(data, 9, mtime=0)).decode(),
        "script": "\n".join(_asset(name) for name in SCRIPTS),
    }
    text = _asset("page.html")
    for name, value in fields.items():
        text = text.replace("{{" + name + "}}", value)
    write_text(path, text)
    return path.stat().st_size
