"""What a capture, or a user, says of where its scene is."""

from dataclasses import dataclass

from torch import Tensor

KINDS = ("bounded", "forward_facing", "unbounded")


@dataclass(frozen=True)
class SceneDescription:
    """Kind and extent of a scene, with the reasons; what is not known is None."""

    kind: str  # one of KINDS
    aabb: Tensor | None = None  # [2,3] world: the box, or the inner box of an unbounded scene; forward_facing: unused
    near: float | None = None  # world distance from a camera, a margin included: nothing is nearer
    far: float | None = None  # where most of what is seen ends, for pictures of depth
    reasons: tuple[str, ...] = ()
    bare: bool = False  # sparse points are on the object alone: what is seen around it has hardly any texture

    def __repr__(self) -> str:
        """One line without the reasons."""
        parts = [self.kind]
        if self.aabb is not None:
            parts.append("box " + " to ".join(",".join(f"{x:.4g}" for x in corner) for corner in self.aabb.tolist()))
        known = {name: value for name, value in (("near", self.near), ("far", self.far)) if value is not None}
        parts += [f"{name} {value:.4g}" for name, value in known.items()]
        return f"SceneDescription({', '.join(parts)})"
