"""The operations in pure PyTorch: the specification, the oracle of every test, and the backend `torch`.

Each stands in a file of its own, with its docstring; the native ones (native.py) have the same names and arguments.
Derivatives come from autograd. Legend: R rays, M samples, N points, C channels, X Y Z grid vertices.
"""

from nerf.ops.activate_density import activate_density as activate_density
from nerf.ops.adam import adam_step as adam_step
from nerf.ops.adam_rows import adam_rows as adam_rows
from nerf.ops.all_finite import all_finite as all_finite
from nerf.ops.bring_rows import bring_rows as bring_rows
from nerf.ops.camera_rays import camera_rays as camera_rays
from nerf.ops.carve_points import carve_points as carve_points
from nerf.ops.cells import interpolate_cells as interpolate_cells
from nerf.ops.compare_beside import compare_beside as compare_beside
from nerf.ops.composite import composite_rays as composite_rays
from nerf.ops.contract_basis import contract_basis as contract_basis
from nerf.ops.distortion import distortion_loss as distortion_loss
from nerf.ops.draw_pixels import draw_pixels as draw_pixels
from nerf.ops.index_add import index_add as index_add
from nerf.ops.march import march_rays as march_rays
from nerf.ops.march_visible import march_visible as march_visible
from nerf.ops.mark_vertices import mark_vertices as mark_vertices
from nerf.ops.mlp import mlp as mlp
from nerf.ops.pair_ssim import pair_ssim as pair_ssim
from nerf.ops.pixel_colors import pixel_colors as pixel_colors
from nerf.ops.pixel_directions import pixel_directions as pixel_directions
from nerf.ops.render_rays import render_rays as render_rays
from nerf.ops.sample_images import sample_images as sample_images
from nerf.ops.shading_inputs import shading_inputs as shading_inputs
from nerf.ops.shift_pixels import shift_pixels as shift_pixels
from nerf.ops.total_variation import total_variation as total_variation
from nerf.ops.total_variation import total_variation_grad as total_variation_grad
from nerf.ops.trilinear import interpolate_trilinear as interpolate_trilinear
from nerf.ops.trilinear import interpolate_trilinear_grad as interpolate_trilinear_grad
from nerf.ops.world_depth import world_depth as world_depth
