"""Cameras and their rays: lenses, poses, and paths of cameras."""

from nerf.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "nerf.cameras.cameras": (
            "Cameras",
            "SUBPIXELS",
            "corner_radii",
            "focal_from_fov",
            "posed_rays",
            "subpixels",
        ),
        "nerf.cameras.paths": ("orbit",),
        "nerf.cameras.poses": ("look_at",),
    },
)
