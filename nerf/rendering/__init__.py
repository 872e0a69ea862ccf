"""From rays to colors: samples along rays, compositing, normals."""

from nerf.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "nerf.rendering.background": ("Background",),
        "nerf.rendering.image_renderer": ("ImageRenderer",),
        "nerf.rendering.render": (
            "Rendering",
            "render_image",
            "render_rays",
            "render_samples",
            "sample_weights",
            "select_visible",
            "visible_samples",
        ),
        "nerf.rendering.sampler": ("RaySampler",),
    },
)
