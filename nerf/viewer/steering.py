"""Moves the camera of a browser."""

import torch
import viser

from nerf.viewer.look import page_pose


def move_client(client: viser.ClientHandle, c2w: torch.Tensor, fov: float) -> None:
    """Puts the client's camera at a pose [3,4] with a vertical angle of view in radians.

    It goes on turning around a point as far ahead as before, and around the same axis unless the pose leans to a side.
    """
    wxyz, position = page_pose(c2w)
    with client.atomic():
        client.camera.position = position
        client.camera.wxyz = wxyz
        client.camera.fov = fov
