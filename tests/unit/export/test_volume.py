"""The volume as VTK's image data: where density lies, in which order, and its unit."""

import io
from pathlib import Path

import numpy as np
import pytest

from nerf.export.volume import vti_bytes, write_npz

SHAPE = (3, 4, 5)


def arrays() -> dict[str, np.ndarray]:
    return {
        "density": np.arange(60, dtype=np.float32).reshape(SHAPE),
        "aabb": np.array([[-1.0, 0.0, 2.0], [1.0, 6.0, 4.0]]),
        "axes": np.eye(3),
        "occupied": np.arange(24).reshape(2, 3, 4) % 5 == 0,
        "unit": np.array("1/world unit"),
    }


def test_the_file_says_where_its_values_are() -> None:
    content = vti_bytes(arrays())
    header, _, data = content.partition(b'<AppendedData encoding="raw">_')
    assert b'WholeExtent="0 2 0 3 0 4"' in header
    assert b'Origin="-1.0 0.0 2.0" Spacing="1.0 2.0 0.5" Direction="1.0 0.0 0.0 0.0 1.0 0.0 0.0 0.0 1.0"' in header
    assert int.from_bytes(data[:8], "little") == 240
    density = np.frombuffer(data[8:248], "<f4").reshape(SHAPE, order="F")
    assert np.array_equal(density, arrays()["density"])
    assert b'offset="248"' in header and int.from_bytes(data[248:256], "little") == 24
    occupied = np.frombuffer(data[256:280], "u1").reshape((2, 3, 4), order="F")
    assert np.array_equal(occupied, arrays()["occupied"])


def test_an_archive_is_read_back_and_its_large_arrays_have_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    values = {**arrays(), "large": np.arange(1 << 19, dtype=np.float32).reshape(64, 64, 128)}
    file = io.BytesIO()
    write_npz(file, values)
    found = np.load(io.BytesIO(file.getvalue()))
    assert set(found) == set(values) and all(np.array_equal(found[name], values[name]) for name in values)
    assert all(found[name].dtype == values[name].dtype for name in values)
    said = capsys.readouterr().err
    assert "large:" in said and "density:" not in said


def test_a_turned_box_lies_where_it_is_in_the_world() -> None:
    turned = {**arrays(), "axes": np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])}
    header = vti_bytes(turned).partition(b"<Piece")[0]
    assert b'Origin="0.0 -1.0 2.0"' in header and b'Direction="0.0 -1.0 0.0 1.0 0.0 0.0 0.0 0.0 1.0"' in header


def test_vtk_reads_it(tmp_path: Path) -> None:
    vtk = pytest.importorskip("vtk")
    (tmp_path / "volume.vti").write_bytes(vti_bytes(arrays()))
    reader = vtk.vtkXMLImageDataReader()
    reader.SetFileName(str(tmp_path / "volume.vti"))
    reader.Update()
    image = reader.GetOutput()
    assert image.GetBounds() == (-1, 1, 0, 6, 2, 4)
    for x, y, z in np.ndindex(SHAPE):
        assert image.GetScalarComponentAsDouble(x, y, z, 0) == arrays()["density"][x, y, z]
    assert image.GetCellData().GetArray("occupied").GetNumberOfTuples() == 24
    assert image.GetFieldData().GetAbstractArray("unit").GetValue(0) == "1/world unit"
