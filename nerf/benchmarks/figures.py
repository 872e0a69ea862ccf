"""Shared types and constants of the benchmarks and the tables of their results."""

from collections.abc import Callable

Figures = dict[str, object]  # a result as it is written to a JSON file; the docstring of its function names the keys
Log = Callable[[str], None]  # shows which measurement is running
GIB = 2**30
# Stages of a training step in the ablation, as ablation.json names them; "look" is the density query.
STAGES = ("march", "look", "interpolate", "composite", "backward", "adam", "rest")
