"""Pictures of a mesh beside those of its field, for the eye."""

from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.panoramas import views_ahead
from nerf.export.mesh import Mesh
from nerf.export.mesh_files import textured
from nerf.export.raster import first_surfaces
from nerf.fields.field import Field
from nerf.images.visualize import contact_sheet, framed
from nerf.rendering.render import render_image
from nerf.rendering.sampler import RaySampler

VIEWS, SIDE = 4, 400  # rows of the sheet, and the longer side of a picture in pixels


def draw_mesh(mesh: Mesh, cameras: Cameras, index: int, background: Tensor) -> Tensor:
    """The mesh as a camera sees it, unlit, in its texture or else its vertex colors: [H,W,3] in host memory."""
    width, height = cameras.size(index)
    vertices, faces = (mesh.vertices, mesh.faces) if mesh.texture is None else textured(mesh)
    shown, weights = first_surfaces(vertices, faces, cameras, index)
    hit = shown >= 0
    corners, weights = faces[shown[hit]], weights[hit][..., None]
    image = background.expand(height * width, 3).clone()
    if mesh.texture is None:
        image[hit] = (mesh.colors[corners] * weights).sum(1)
    else:
        rows, columns = mesh.texture.image.shape[:2]
        u, v = (mesh.texture.uv[corners] * weights).sum(1).unbind(-1)
        row, column = (v * rows).long().clamp(0, rows - 1), (u * columns).long().clamp(0, columns - 1)
        image[hit] = mesh.texture.image[row, column].float() / 255
    return image.view(height, width, 3)


def mesh_sheet(mesh: Mesh, field: Field, sampler: RaySampler, cameras: Cameras, background: Tensor) -> Tensor:
    """A contact sheet of VIEWS cameras, spread over all: the picture of the field beside the mesh.

    In place of panoramas stand pinholes that look ahead. background [3]: on the device of the field.
    """
    cameras = views_ahead(cameras[:: max(1, len(cameras) // VIEWS)][:VIEWS]).within(SIDE)
    rows = []
    for index in range(len(cameras)):
        render = render_image(field, sampler, cameras.to(background.device), index, background).rgb.cpu()
        drawn = draw_mesh(mesh, cameras, index, background.cpu())
        rows.append([framed(picture, SIDE, SIDE) for picture in (render, drawn)])
    return contact_sheet(rows, captions=("render", "mesh"))
