// Every operation of torch.ops.nerf on one screen. Shapes and units: README.md. Gradients: nerf/ops/native.py.
//
// torch.ops.nerf_plain has the same operations with the same checks; on CUDA they call the plain kernels, the rung of the
// ladder beneath the fast ones. The benchmark and the tests use it, training does not; it has no derivatives.
#include "ops/ops.h"

using torch::stable::detail::StableLibrary;

static void define(StableLibrary& m) {
  m.def(
      "camera_rays(Tensor c2w, Tensor intrinsics, Tensor pixel_indices, int width, int height, Tensor subpixels) -> "
      "(Tensor origins, Tensor directions)");
  m.def(
      "march_rays(Tensor origins, Tensor directions, Tensor jitter, Tensor occupied, Tensor near, Tensor far, "
      "float step_size, int capacity=0, float contraction=0.0) -> "
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
  m.def("total_variation_grad(Tensor(a!) grad, Tensor grid, float weight, bool touched_only, Tensor? rows=None) -> ()");
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
  m.def(
      "march_visible(Tensor origins, Tensor directions, Tensor jitter, Tensor occupied, Tensor near, Tensor far, "
      "float step_size, Tensor density_grid, float density_shift, float density_scale, float min_transmittance, "
      "float min_weight, int capacity=0, float contraction=0.0) -> (Tensor ray_offsets, Tensor ray_indices, "
      "Tensor t_starts, Tensor t_ends, Tensor coords, Tensor overflow)");
  m.def(
      "render_rays(Tensor origins, Tensor directions, Tensor jitter, Tensor occupied, Tensor near, Tensor far, "
      "float step_size, Tensor density_grid, float density_shift, float density_scale, float min_transmittance, "
      "float min_weight, Tensor values_grid, float contraction=0.0, int rays_per_pixel=1) "
      "-> (Tensor values, Tensor opacity, Tensor depth)");
}

#define NERF_OPERATIONS(implement)                                                                              \
  implement(camera_rays) implement(march_rays) implement(interpolate_trilinear)                                 \
      implement(interpolate_trilinear_backward) implement(interpolate_trilinear_grad) implement(composite_rays) \
          implement(composite_rays_backward) implement(contract_basis) implement(contract_basis_backward)       \
              implement(sample_images) implement(total_variation_grad) implement(adam_step)                     \
                  implement(interpolate_cells) implement(interpolate_cells_backward) implement(index_add)       \
                      implement(distortion_loss) implement(distortion_loss_backward) implement(march_visible)   \
                          implement(render_rays)

#define NERF_FAST(operation) m.impl(#operation, TORCH_BOX(&nerf::operation));
#define NERF_PLAIN(operation) m.impl(#operation, TORCH_BOX(&nerf::Plain<&nerf::operation>::call));

STABLE_TORCH_LIBRARY(nerf, m) { define(m); }
STABLE_TORCH_LIBRARY(nerf_plain, m) { define(m); }
STABLE_TORCH_LIBRARY_IMPL(nerf, CPU, m){NERF_OPERATIONS(NERF_FAST)} STABLE_TORCH_LIBRARY_IMPL(nerf_plain, CPU, m){
    NERF_OPERATIONS(NERF_PLAIN)}
#ifdef NERF_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(nerf, CUDA, m){NERF_OPERATIONS(NERF_FAST)} STABLE_TORCH_LIBRARY_IMPL(nerf_plain, CUDA, m){
    NERF_OPERATIONS(NERF_PLAIN)}

// What the GPU can do at best, for the benchmark: see ops/ceilings.cpp.
STABLE_TORCH_LIBRARY(nerf_ceilings, m) {
  m.def("gather_at_random(Tensor source, int width, int count, Tensor(a!) sums) -> ()");
  m.def("add_at_random(Tensor(a!) target, int width, int count) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(nerf_ceilings, CUDA, m) {
  m.impl("gather_at_random", TORCH_BOX(&nerf::gather_at_random));
  m.impl("add_at_random", TORCH_BOX(&nerf::add_at_random));
}
#endif

// Read from the file by build.py: which sources this library was made of, and for which GPUs.
extern "C" __attribute__((visibility("default"), used)) const char nerf_build_stamp[] =
    "nerf-build-stamp:" NERF_BUILD_STAMP;
