"""Readers of capture formats, a file for each. They read poses, lenses and points with NumPy, and decode no pixel."""

from nerf.datasets.readers.formats import FORMATS, read_capture
from nerf.datasets.readers.frames import missing_images

__all__ = ["FORMATS", "missing_images", "read_capture"]
