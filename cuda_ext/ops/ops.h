// The torch side of every operation: check, allocate, call the device. library.cpp registers them.
#pragma once

#include <optional>
#include <tuple>

#include "../checks.h"

namespace nerf {

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> march_rays(const Tensor& origins, const Tensor& directions,
                                                              const Tensor& jitter, const Tensor& occupied,
                                                              const Tensor& near, const Tensor& far, double step_size,
                                                              int64_t capacity, double contraction);

Tensor interpolate_trilinear(const Tensor& grid, const Tensor& coords);
std::tuple<Tensor, Tensor> interpolate_trilinear_backward(const Tensor& grad_out, const Tensor& grid,
                                                          const Tensor& coords, bool needs_grid, bool needs_coords);
void interpolate_trilinear_grad(const Tensor& grad, const Tensor& grad_out, const Tensor& coords);

std::tuple<Tensor, Tensor, Tensor, Tensor> composite_rays(const Tensor& density, const Tensor& values,
                                                          const Tensor& t_starts, const Tensor& t_ends,
                                                          const Tensor& ray_offsets, double min_transmittance);
std::tuple<Tensor, Tensor> composite_rays_backward(const Tensor& grad_values, const Tensor& grad_opacity,
                                                   const Tensor& grad_depth, const Tensor& grad_weights,
                                                   const Tensor& density, const Tensor& values, const Tensor& t_starts,
                                                   const Tensor& t_ends, const Tensor& ray_offsets,
                                                   const Tensor& weights, double min_transmittance);

Tensor contract_basis(const Tensor& values, const Tensor& basis, const Tensor& ray_indices);
Tensor contract_basis_backward(const Tensor& grad_out, const Tensor& basis, const Tensor& ray_indices,
                               int64_t channels);

std::tuple<Tensor, Tensor> camera_rays(const Tensor& c2w, const Tensor& intrinsics, const Tensor& pixel_indices,
                                       int64_t width, int64_t height, const Tensor& subpixels);

Tensor sample_images(const Tensor& images, const Tensor& pixel_indices);

void total_variation_grad(const Tensor& grad, const Tensor& grid, double weight, bool touched_only,
                          const std::optional<Tensor>& rows);

void adam_step(const Tensor& param, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& grad,
               const Tensor& lr, const Tensor& step, const std::optional<Tensor>& rows, double beta1, double beta2,
               double eps);

// torch.ops.nerf_ceilings
void gather_at_random(const Tensor& source, int64_t width, int64_t count, const Tensor& sums);
void add_at_random(const Tensor& target, int64_t width, int64_t count);

Tensor interpolate_cells(const Tensor& feats, const Tensor& points);
std::tuple<Tensor, Tensor> interpolate_cells_backward(const Tensor& grad_out, const Tensor& feats, const Tensor& points,
                                                      bool needs_feats, bool needs_points);

void index_add(const Tensor& dst, int64_t dim, const Tensor& index, const Tensor& src, double alpha);

Tensor distortion_loss(const Tensor& weights, const Tensor& t_starts, const Tensor& t_ends, const Tensor& ray_offsets);
Tensor distortion_loss_backward(const Tensor& grad_loss, const Tensor& weights, const Tensor& t_starts,
                                const Tensor& t_ends, const Tensor& ray_offsets);

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> march_visible(
    const Tensor& origins, const Tensor& directions, const Tensor& jitter, const Tensor& occupied, const Tensor& near,
    const Tensor& far, double step_size, const Tensor& density_grid, double density_shift, double density_scale,
    double min_transmittance, double min_weight, int64_t capacity, double contraction);

std::tuple<Tensor, Tensor, Tensor> render_rays(const Tensor& origins, const Tensor& directions, const Tensor& jitter,
                                               const Tensor& occupied, const Tensor& near, const Tensor& far,
                                               double step_size, const Tensor& density_grid, double density_shift,
                                               double density_scale, double min_transmittance, double min_weight,
                                               const Tensor& values_grid, double contraction, int64_t rays_per_pixel);

}  // namespace nerf
