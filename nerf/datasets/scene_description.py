"""What a capture, or a user, says of where its scene is."""

from dataclasses import dataclass

from torch import Tensor

KINDS = ("box", "forward", "unbounded")


@dataclass(frozen=True)
class SceneDescription:
    """Kind and extent of a scene, with the reasons; what is not known is None."""

    kind: str  # one of KINDS
    aabb: Tensor | None = None  # [2,3] world: the box, or the inner box of an unbounded scene; forward: unused
    near: float | None = None  # world distance from a camera, a margin included: nothing is nearer
    far: float | None = None  # where most of what is seen ends, for pictures of depth
    reasons: tuple[str, ...] = ()
