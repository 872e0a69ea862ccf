"""Images: scores, masks, false color, and files."""

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
