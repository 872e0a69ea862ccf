"""Scores of views that were not trained on."""

from nerf.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "nerf.evaluation.scores": (
            "SCORES",
            "Scores",
            "evaluate",
        ),
    },
)
