"""Moves the camera of a browser."""

from dataclasses import dataclass

import numpy as np
import torch
import viser

LEANING = 0.05  # cosine between a pose's up and the axis of turning below which the pose's own is taken


@dataclass(frozen=True)
class Orbit:
    """How a client turns its camera: around an axis, and around a point so far ahead."""

    up: np.ndarray  # [3]
    distance: float

    @classmethod
    def of(cls, client: viser.ClientHandle) -> "Orbit":
        """As it is now."""
        camera = client.camera
        return cls(camera.up_direction, max(1e-6, float(np.linalg.norm(camera.look_at - camera.position))))


def move_client(client: viser.ClientHandle, orbit: Orbit, c2w: torch.Tensor, fov: float) -> None:
    """Puts the client's camera at a pose [3,4] with a vertical angle of view in radians.

    It goes on turning as before, except where the pose leans to a side. Nothing is read from the client's camera, which
    its browser changes at any time: between two moves that are near each other in time, it would tell of an older one.
    """
    right, up, backward, center = c2w.double().cpu().numpy().T
    axis = orbit.up - (orbit.up @ right) * right
    with client.atomic():
        client.camera.position = center
        client.camera.look_at = center - orbit.distance * backward
        client.camera.up_direction = axis if axis @ up > LEANING else up
        client.camera.fov = fov
