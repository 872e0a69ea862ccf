"""The distance from which the gradients of samples are not scaled (composite_rays, full_gradient_from)."""

from nerf.config.schema import LossConfig
from nerf.errors import UserError
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace


def full_gradient_distance(loss: LossConfig, box: SceneBox) -> float:
    """The distance from which gradients are not scaled, in scene space; 0: no scaling. Reads from the device.

    Raises UserError for a forward-facing scene, where this distance is not defined.
    """
    if loss.grad_scaling_distance == 0:
        return 0.0
    if box.space.kind == "forward_facing":
        raise UserError(
            f"loss.grad_scaling_distance={loss.grad_scaling_distance:g} has no meaning in a forward-facing "
            "scene, whose cameras stand before all of it; expected 0."
        )
    half = box.space.half if isinstance(box.space, ContractedSpace) else 0.5 * box.size
    return loss.grad_scaling_distance * half.min().item()
