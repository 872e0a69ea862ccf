// Every operation of torch.ops.nerf on one screen. Shapes and units: README.md. Gradients: nerf/ops/native.py.
#include "ops/ops.h"

STABLE_TORCH_LIBRARY(nerf, m) {
  m.def(
      "march_rays(Tensor origins, Tensor directions, Tensor jitter, Tensor occupied, Tensor near, Tensor far, "
      "float step_size, int capacity=0) -> "
      "(Tensor ray_offsets, Tensor ray_indices, Tensor t_starts, Tensor t_ends, Tensor overflow)");
  m.def("interpolate_trilinear(Tensor grid, Tensor coords) -> Tensor");
  m.def(
      "interpolate_trilinear_backward(Tensor grad_out, Tensor grid, Tensor coords, bool needs_grid, "
      "bool needs_coords) -> (Tensor grad_grid, Tensor grad_coords)");
  m.def("interpolate_trilinear_grad(Tensor(a!) grad, Tensor grad_out, Tensor coords) -> ()");
  m.def(
      "composite_rays(Tensor density, Tensor values, Tensor t_starts, Tensor t_ends, Tensor ray_offsets, "
      "float min_transmittance) -> (Tensor values, Tensor opacity, Tensor depth, Tensor weights)");
  m.def(
      "composite_rays_backward(Tensor grad_values, Tensor grad_opacity, Tensor grad_depth, Tensor grad_weights, "
      "Tensor density, Tensor values, Tensor t_starts, Tensor t_ends, Tensor ray_offsets, Tensor weights, "
      "float min_transmittance) -> (Tensor grad_density, Tensor grad_of_values)");
  m.def("contract_basis(Tensor values, Tensor basis, Tensor ray_indices) -> Tensor");
  m.def("contract_basis_backward(Tensor grad_out, Tensor basis, Tensor ray_indices, int channels) -> Tensor");
  m.def("sample_images(Tensor images, Tensor pixel_indices) -> Tensor");
  m.def("total_variation_grad(Tensor(a!) grad, Tensor grid, float weight, bool touched_only) -> ()");
  m.def(
      "adam_step(Tensor(a!) param, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor(d!) grad, Tensor lr, "
      "Tensor step, Tensor? rows, float beta1, float beta2, float eps) -> ()");
  m.def("interpolate_cells(Tensor feats, Tensor points) -> Tensor");
  m.def(
      "interpolate_cells_backward(Tensor grad_out, Tensor feats, Tensor points, bool needs_feats, "
      "bool needs_points) -> (Tensor grad_feats, Tensor grad_points)");
  m.def("index_add(Tensor(a!) dst, int dim, Tensor index, Tensor src, float alpha) -> ()");
  m.def("distortion_loss(Tensor weights, Tensor t_starts, Tensor t_ends, Tensor ray_offsets) -> Tensor");
  m.def(
      "distortion_loss_backward(Tensor grad_loss, Tensor weights, Tensor t_starts, Tensor t_ends, "
      "Tensor ray_offsets) -> Tensor");
}

#define NERF_IMPLEMENT(m)                                                                     \
  m.impl("march_rays", TORCH_BOX(&nerf::march_rays));                                         \
  m.impl("interpolate_trilinear", TORCH_BOX(&nerf::interpolate_trilinear));                   \
  m.impl("interpolate_trilinear_backward", TORCH_BOX(&nerf::interpolate_trilinear_backward)); \
  m.impl("interpolate_trilinear_grad", TORCH_BOX(&nerf::interpolate_trilinear_grad));         \
  m.impl("composite_rays", TORCH_BOX(&nerf::composite_rays));                                 \
  m.impl("composite_rays_backward", TORCH_BOX(&nerf::composite_rays_backward));               \
  m.impl("contract_basis", TORCH_BOX(&nerf::contract_basis));                                 \
  m.impl("contract_basis_backward", TORCH_BOX(&nerf::contract_basis_backward));               \
  m.impl("sample_images", TORCH_BOX(&nerf::sample_images));                                   \
  m.impl("total_variation_grad", TORCH_BOX(&nerf::total_variation_grad));                     \
  m.impl("adam_step", TORCH_BOX(&nerf::adam_step));                                           \
  m.impl("interpolate_cells", TORCH_BOX(&nerf::interpolate_cells));                           \
  m.impl("interpolate_cells_backward", TORCH_BOX(&nerf::interpolate_cells_backward));         \
  m.impl("index_add", TORCH_BOX(&nerf::index_add));                                           \
  m.impl("distortion_loss", TORCH_BOX(&nerf::distortion_loss));                               \
  m.impl("distortion_loss_backward", TORCH_BOX(&nerf::distortion_loss_backward));

STABLE_TORCH_LIBRARY_IMPL(nerf, CPU, m) { NERF_IMPLEMENT(m) }
#ifdef NERF_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(nerf, CUDA, m) { NERF_IMPLEMENT(m) }
#endif

// Read from the file by build.py: which sources this library was made of, and for which GPUs.
extern "C" __attribute__((visibility("default"), used)) const char nerf_build_stamp[] = "nerf-build-stamp:" NERF_BUILD_STAMP;
