"""What the measuring programs and the tables of their results share."""

from collections.abc import Callable

Figures = dict[str, object]  # a result as it is written: names and numbers, as JSON has them
Say = Callable[[str], None]  # tells what is being measured
GIB = 2**30
# Of a training step, in the ablation.
STAGES = ("march", "look", "interpolate", "composite", "backward", "adam", "rest")
