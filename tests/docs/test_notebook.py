"""docs/notebook.ipynb: committed without outputs, linted, and run from top to bottom at a tiny size."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
TIMEOUT = 600  # seconds of a cell; none takes a twentieth of it, on a busy machine too


def test_it_is_committed_without_outputs() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


def test_it_has_no_lint() -> None:
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed: pip install ruff")
    for arguments in (["check"], ["format", "--check"]):
        found = subprocess.run([ruff, *arguments, str(NOTEBOOK)], cwd=ROOT, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout + found.stderr


def test_it_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")
    nbformat = pytest.importorskip("nbformat")
    run = tmp_path / "run"
    settings = {"NERF_QUICK": "1", "NERF_FOLDER": run, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    for name, value in (settings | {"CUDA_VISIBLE_DEVICES": "", "IPYTHONDIR": tmp_path}).items():
        monkeypatch.setenv(name, str(value))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", resources=where).execute()  # raises
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output.data for output in outputs if "data" in output]
    texts = [output.text for output in outputs if "text" in output]
    assert any(data.get("text/markdown", "").startswith("100%, step 40: ") for data in shown)
    assert sum("image/png" in data for data in shown) == 3  # while it learned, color, depth
    assert any("<video" in data.get("text/html", "") for data in shown)
    assert any("<iframe srcdoc=" in data.get("text/html", "") for data in shown)
    assert any(" dB, SSIM " in text for text in texts)
    assert {"model.pt", "orbit.mp4", "web"} <= {path.name for path in run.iterdir()}
