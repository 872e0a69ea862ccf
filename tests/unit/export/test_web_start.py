"""No web page is written that no browser could read."""

import math
from pathlib import Path

import pytest

from nerf.errors import UserError
from nerf.export.web.page import write_page


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_page_without_finite_numbers_is_refused(value: float, tmp_path: Path) -> None:
    path = tmp_path / "scene.html"
    with pytest.raises(UserError, match=r"not finite.*web_steps"):
        write_page(path, "scene", {"network": {"weights": [0.0, value]}}, "", b"")
    assert not path.exists()
