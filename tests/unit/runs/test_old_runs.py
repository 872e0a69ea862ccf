"""Runs whose files have settings and kinds of scenes under their old names: they load, render and go on."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures import KIND_SCENES
from state_facts import differing, facts
from tiny_runs import STEPS, run_to, tiny_config, tiny_images

import nerf
from nerf.config import renamed
from nerf.config.schema import LossConfig, PosesConfig
from nerf.ops.backend import select
from nerf.runs import checkpoint
from nerf.runs.run import start

FILES = (checkpoint.MODEL_FILE, checkpoint.RESUME_FILE)
SCENES = {"bounded": tiny_images, **KIND_SCENES}
MIDDLE = 14  # between a doubling and a pruning


def in_old_words(content: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint as the last version with the old names wrote it."""
    saved = content["config"]
    for old, new in renamed.NAMES.items():
        (group, before), leaf = old.split("."), new.split(".")[1]
        saved[group][before] = saved[group].pop(leaf)
    for name, known in renamed.VALUES.items():
        group, leaf = name.split(".")
        words = {new: old for old, new in known.items()}
        saved[group][leaf] = words.get(saved[group][leaf], saved[group][leaf])
    kinds = {new: old for old, new in renamed.VALUES.get("dataset.kind", {}).items()}
    content["space"]["kind"] = kinds.get(content["space"]["kind"], content["space"]["kind"])
    return content | {"version": 5}


@pytest.mark.parametrize("kind", SCENES)
def test_a_run_in_old_words_loads_renders_and_goes_on_bit_for_bit(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    images, backend = SCENES[kind]("train"), select("native", "cpu")
    config = tiny_config()
    config = replace(
        config,
        field=replace(config.field, upsample_at=None),
        poses=PosesConfig(
            mode="refine",
            start=0.1,
            initial_num_voxels=500,
            coarse_to_fine_end=0.6,
            view_dependence_start=0.5,
            mask_dilation_degrees=2.0,
        ),
        loss=LossConfig(pair_ssim=0.01, alpha=0.01, tv_global=1e-4, tv_color=1e-6, tv_until=0.2),
    )
    run = start(config, images, backend)
    assert run.config.dataset.kind == kind
    run_to(run.config, run.state, MIDDLE)
    run.save(tmp_path)
    expected = nerf.load(tmp_path, device="cpu").render(images.cameras)
    for name in FILES:
        content = in_old_words(torch.load(tmp_path / name, weights_only=True))
        assert content["config"]["dataset"]["hold_out"] == 8 and "test_every" not in content["config"]["dataset"]
        torch.save(content, tmp_path / name)

    opened = nerf.load(tmp_path, device="cpu")
    assert asdict(opened.config) == asdict(run.config)
    assert torch.equal(opened.render(images.cameras).rgb, expected.rgb)
    content = checkpoint.load_resume(tmp_path)
    old = checkpoint.restore_config(content)
    again = checkpoint.restore_run(content, old, images, backend)
    assert differing(facts(run.state), facts(again)) == []
    run_to(run.config, run.state, STEPS), run_to(old, again, STEPS)
    assert differing(facts(run.state), facts(again)) == []
    assert "is now" not in capsys.readouterr().err  # nobody typed a word
