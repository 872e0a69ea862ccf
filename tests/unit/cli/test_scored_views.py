"""The pictures that are written as a split is scored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tiny_runs import tiny_config, tiny_images, tiny_state

from nerf.cli.scored_views import score_views
from nerf.images.pixel_runs import PixelRuns
from nerf.images.visualize import CAPTION_HEIGHT, SHEET_GAP, UNSEEN
from nerf.training.state import make_sampler


def test_the_contact_sheet_has_no_error_where_a_mask_leaves_pixels_out(tmp_path: Path) -> None:
    images = tiny_images()
    size = images.cameras.height
    counted = torch.ones(len(images), size, size, dtype=torch.bool)
    counted[:, size // 2 :] = False
    images = replace(images, valid_pixels=PixelRuns.of_mask(counted.flatten()))
    config, state = tiny_state(tiny_config())
    _, path = score_views(state.field, make_sampler(config, state), images, config, tmp_path)
    sheet = torch.from_numpy(np.array(Image.open(path))).float() / 255
    error = sheet[2 * CAPTION_HEIGHT :][:size, 3 * (size + SHEET_GAP) :]
    gray = (error - UNSEEN).abs().amax(-1) < 0.01
    assert gray[size // 2 :].all() and not gray[: size // 2].any()
