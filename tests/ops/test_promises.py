"""What cuda_ext/README.md says in its tables of every operation, and promises in that of its section "Promises"."""

import re
from pathlib import Path

import pytest
import torch
from cases import CASES
from proofs import argument_names, operation
from test_contents import INDICES, WALKS, changed, with_offsets
from torch import Tensor

from nerf.ops import native, reference

README = Path(__file__).resolve().parents[2] / "cuda_ext" / "README.md"


def table(section: str = "Promises") -> dict[str, list[str]]:
    """Operation to its columns."""
    section = README.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
    return {name: columns.split(" | ") for name, columns in rows}


def test_the_table_has_every_operation_and_names_what_raises():
    """The tests of these stand in test_contents.py."""
    promises = table()
    assert set(promises) == {name for name in CASES if not name.endswith("_backward")}
    raises = {name: cpu for name, (_, cpu, *_) in promises.items() if "ValueError" in cpu}
    keys = {name: f"`{key}`" for name, key in INDICES.items() if not name.endswith("_backward")}
    keys |= {"composite_rays": "`ray_offsets`", "distortion_loss": "`ray_offsets`"}
    keys |= {"march_rays": "2^20 steps", "march_visible": "march_rays", "render_rays": "march_rays"}
    keys |= {"draw_pixels": "`count`", "carve_points": "`reach`"}
    assert set(raises) == set(keys) and all(keys[name] in said for name, said in raises.items())


def test_the_shapes_of_every_operation_are_in_the_readme():
    assert table("Operations").keys() == {name for name in CASES if not name.endswith("_backward")}


# The last ray, camera, point or row gets a NaN in this argument; only the last of each output may notice.
SPOILED = {
    "camera_rays": ("c2w",),
    "interpolate_trilinear": ("coords",),
    "interpolate_cells": ("feats", "points"),
    "composite_rays": ("density", "values", "t_ends"),
    "contract_basis": ("values",),
    "distortion_loss": ("weights", "t_ends"),
    "pair_ssim": ("rgb", "target"),
    "world_depth": ("depth", "opacity"),
}


@pytest.mark.parametrize("name, key", [(name, key) for name, keys in SPOILED.items() for key in keys])
def test_a_nan_reaches_its_own_row_alone(name, key, device):
    arguments = CASES[name]["typical"](torch.float32, device)
    named = dict(zip(argument_names(name), arguments, strict=False))
    spoiled = named | {key: named[key].clone()}
    spoiled[key][-1] = torch.nan
    pairs = [operation(name)(**x) for x in (named, spoiled)]
    pairs = [(x,) if isinstance(x, Tensor) else x for x in pairs]
    pixels = named["pixel_indices"] // (named["width"] * named["height"]) if name == "camera_rays" else None
    seen = 0
    for clean, other in zip(*pairs, strict=True):
        last = torch.zeros(len(clean), dtype=torch.bool, device=device)
        if pixels is None:
            last[-1] = True
        else:
            last[:] = (pixels == len(named["c2w"]) - 1).repeat_interleave(len(clean) // len(pixels))
        assert torch.equal(clean[~last], other[~last])
        seen += int(other[last].isnan().any())
    assert seen


def test_what_is_infinitely_dense_is_opaque(device):
    """And hides what lies behind it."""
    density, ones = torch.tensor([0.1, torch.inf, 5.0], device=device), torch.ones(3, device=device)
    offsets = torch.tensor([0, 3], device=device)
    for ops in (native, reference):
        _, opacity, _, weights = ops.composite_rays(density, ones[:, None], 0 * ones, ones, offsets, 0.0)
        assert opacity[0].item() == pytest.approx(1) and weights[2] == 0 and weights.isfinite().all()


# On a GPU, where nothing is read back.


@pytest.mark.parametrize("offsets", [[0, 4, 2**62], [0, 6, 3, 8], [-5, 4, 8], [0, -(2**62), 8]], ids=str)
@pytest.mark.parametrize("name", [name for name in CASES if "ray_offsets" in argument_names(name)])
def test_wrong_offsets_are_clamped_on_a_gpu(name, offsets, cuda):
    """No access outside, which would end the process; rays with offsets that are right have their results."""
    wrong, right = (
        [x.to(cuda) if isinstance(x, Tensor) else x for x in with_offsets(name, o)]
        for o in (offsets, [max(0, min(8, x)) for x in offsets])
    )
    for space in (torch.ops.nerf, torch.ops.nerf_plain):
        found, expected = getattr(space, name)(*wrong), getattr(space, name)(*right)
        torch.cuda.synchronize()
        if offsets == sorted(offsets):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_of_too_many_steps_ends_on_a_gpu(name, cuda):
    arguments = changed(name, torch.float64, {"step_size": 1e-12})
    named = {key: x.to(cuda) if isinstance(x, Tensor) else x for key, x in arguments.items()}
    if name != "render_rays":
        named["capacity"] = 1000
    getattr(native, name)(**named)
    torch.cuda.synchronize()
