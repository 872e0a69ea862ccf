"""Images: scores of them, masks, false colour, and the files they are written to."""

from nerf.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "nerf.images.visualize": (
            "color_depth",
            "color_error",
            "color_normals",
            "contact_sheet",
            "framed",
            "shrunk",
        ),
        "nerf.images.write": ("save_floats", "save_png", "write_video"),
    },
)
