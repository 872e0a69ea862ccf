"""The deferred field: features are composited along the ray, and a small MLP computes color from the composited
features and the view direction, once per pixel (Hedman et al. 2021, "Baking Neural Radiance Fields", section 4)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.config.fields import FieldSettings, Recipe
from nerf.config.settings import setting
from nerf.fields.view_encoding import annealed_weights
from nerf.fields.voxel_mlp import LR_MUON, VoxelMlp, VoxelMlpConfig
from nerf.ops.backend import Backend
from nerf.scene.box import Resolution, SceneBox

SINE_FREQUENCIES = (0.316, 10.0)  # of the first and the last feature, radians per unit; in equal ratios between
ANNEALING_STEPS = 100  # in which the weights of frequencies rise
SMALLEST_OPACITY = 1e-3  # lower bound in the division by opacity; such rays have hardly any color


@dataclass
class VoxelDeferredConfig(VoxelMlpConfig):
    name: str = setting("voxel_deferred", "which field")
    feature_channels: int | None = setting(None, "features per vertex; a multiple of 4 is fastest", low=3, high=64)
    hidden_width: int | None = setting(None, "neurons per hidden layer of the color MLP", low=1, high=1024)
    hidden_layers: int | None = setting(None, "hidden layers of the color MLP", low=0, high=8)
    view_frequencies: int | None = setting(
        None, "frequencies of the positional encoding of the view direction", low=0, high=8
    )
    view_annealing: float | None = setting(
        None,
        "fraction of the run over which the frequencies of the view direction come in, the lowest first; 0 = all are "
        "there from the start",
        low=0,
        high=1,
    )
    feature_sines: bool | None = setting(
        None, "the MLP sees each feature plus a sine of it, of one frequency per feature: finer detail"
    )
    diffuse: bool | None = setting(None, "the first three features are also a color, added to the MLP's")
    feature_noise: float | None = setting(
        None, "standard deviation of the noise added to each pixel's features in training", low=0
    )
    lr_features: float | None = setting(None, "learning rate of the features", low=0)
    lr_mlp: float | None = setting(None, "learning rate of the MLP", low=0)
    lr_muon: float | None = setting(None, LR_MUON, low=0)


_SETTINGS = {
    "loss.opacity_entropy": 0.0,
    "field.lr_features": 0.03,
    "field.view_frequencies": 4,
    "field.view_annealing": 0.0,
    "field.diffuse": False,
    "field.feature_sines": False,  # sharper, but a browser's small network learns its colors badly (nerf/export/web)
    "field.hidden_layers": 2,
}
_CUDA = {
    **_SETTINGS,
    "train.rays_per_step": 16384,  # rays are cheap with deferred shading
    "field.feature_channels": 16,
    "field.hidden_width": 256,
    "field.lr_mlp": 5e-4,  # where poses are learned, and in short runs of forward-facing scenes
    # A GPU makes so many steps that those of Adam learn as much, and in less time.
    "field.lr_muon": 0.0,
    "field.feature_noise": 0.1,  # against overfitting: a GPU makes many passes over the pixels
    "train.moments": "bfloat16",  # a tenth of the memory less and more steps, at the same score
}
_CPU = {
    **_SETTINGS,
    "field.num_voxels": 80**3,
    "train.rays_per_step": 4096,
    "field.feature_channels": 12,
    "field.hidden_width": 128,
    "field.lr_mlp": 1e-3,
    "field.lr_muon": 0.02,  # at equal steps up to 1.2 dB more than Adam's; of higher rates surfaces suffer
    "field.feature_noise": 0.0,  # a CPU makes few passes
}
# Rare occupancy updates: one costs as much as two dozen steps.
_UP_TO_8_SECONDS = {**_CUDA, "field.lr_features": 0.05, "occupancy.update_interval": 0.1}
_FROM_8_SECONDS = {
    **_CUDA,
    "loss.distortion": 0.003,  # fewer samples in empty space, without loss of quality
    "loss.tv_until": 1.0,  # smoothing to the end reduces overfitting
    # Antialiasing: a pixel is an area. It also makes voxels of less than two pixels useful.
    "sampler.rays_per_pixel": 4,
}
# Fewer, larger steps and a deeper MLP generalize better, but need more time at the start.
_FROM_20_SECONDS = {
    **_FROM_8_SECONDS,
    "field.num_voxels": 304**3,
    "field.sparse": True,  # shorter runs need the memory less than the steps
    "loss.tv_color": 1e-6,
    "train.rays_per_step": 32768,
    "field.hidden_layers": 3,
    "train.lr_decay": 0.02,
}
# Nothing is carved from photos. Where a run begins with fine voxels, density comes to stand before the cameras, and
# stays. After coarse ones 448^3 gain 0.4 dB on room over 320^3, and SSIM on fox; and less regularization is best.
_COARSE_FIRST = {"field.initial_num_voxels": 100_000}
_REGULARIZED_LESS = {"field.feature_noise": 0.05, "loss.distortion": 0.005}
# Rays are drawn at random. Where they are few, a cell in sight of few pixels meets none and is pruned with the surface
# in it; three times as many find it. They find fog too, which is in sight of all but never weighs much: in a box a
# sample has to weigh more. Photos lose by that, cup .3 dB.
_MORE_RAYS = {"occupancy.rays_per_surface_cell": 24}
_PRUNED_BY_MORE_RAYS = {**_MORE_RAYS, "occupancy.min_weight": 0.015}
# Gradient scaling also makes the photos that are nearest to a surface, which see most of it, count least. In runs that
# long half of its distance keeps floaters away as well.
_SCALED_NEARER = {"loss.grad_scaling_distance": 1.0}
# What an object's colors do within a few degrees is learned by heart: without the fourth frequency chair gains .1 dB in
# a minute, glossy bricks .3. Runs of 5 seconds lose .2, and photos all around .2 to .5.
_SLOWER_IN_DIRECTION = {"field.view_frequencies": 3}
# Photos beside each other tell depth directly (nerf/training/multi_view.py): on a GPU cup gains .2 dB and .012 in SSIM
# in 5 seconds, .3 and .005 in a minute; on a CPU room gains .6 dB in a minute, fox .3.
_AS_PHOTOS_BESIDE = {"loss.multi_view": 0.01}
# Stochastic weight averaging: rates that stay high until the end, and means of what they move about. In 2 seconds on a
# GPU room gains 1.6 dB, cup .7, lego .3, in 15 seconds .8, .2 and .2; on a CPU room .5. The shortest runs of a GPU and
# long ones of photos gain more by more of it.
_AVERAGED = {"train.average_from": 0.8, "train.average_lr": 0.4}
_AVERAGED_LONGER = {"train.average_from": 0.6, "train.average_lr": 0.6}
# Where poses are given, the MLP learns up to sixteen times as fast, after a warm-up (mlp_lr_rise): 0.9 dB more in 2
# seconds, 0.5 in 5 and 0.1 in 60. Learned ones, far off at first, lose by it.
_OBJECT = {**_PRUNED_BY_MORE_RAYS, **_SLOWER_IN_DIRECTION, "field.lr_mlp": 4e-3}
_CPU_OF_KIND = {
    "bounded": {**_OBJECT, **_AVERAGED},
    # In short runs .08 has half a decibel more than .02. Colors that first change slowly with the direction leave it to
    # depth to explain what moves between photos: .1 to .4 dB. On a GPU, with twenty times the steps, cup loses by it.
    "unbounded": {
        **_AS_PHOTOS_BESIDE,
        **_AVERAGED,
        "field.lr_mlp": 4e-3,
        "field.lr_muon": 0.08,
        "field.view_annealing": 0.5,
    },
    "forward_facing": {"field.lr_mlp": 4e-3},
}
_UP_TO_8_SECONDS_OF_KIND = {
    "bounded": {**_AVERAGED_LONGER, "field.lr_mlp": 8e-3},
    "unbounded": {**_COARSE_FIRST, **_AS_PHOTOS_BESIDE, **_AVERAGED_LONGER, "field.lr_mlp": 4e-3},
    "forward_facing": _COARSE_FIRST,
}
_FROM_8_SECONDS_OF_KIND = {
    "bounded": {**_OBJECT, **_AVERAGED},
    "unbounded": {**_COARSE_FIRST, **_REGULARIZED_LESS, **_AS_PHOTOS_BESIDE, **_AVERAGED, "field.lr_mlp": 4e-3},
    "forward_facing": {**_COARSE_FIRST, "field.lr_mlp": 4e-3},
}
_FROM_20_SECONDS_OF_KIND = {
    "bounded": _FROM_8_SECONDS_OF_KIND["bounded"],
    "unbounded": {
        **_AVERAGED_LONGER,
        **_MORE_RAYS,
        **_SCALED_NEARER,
        **_AS_PHOTOS_BESIDE,
        **_COARSE_FIRST,
        **_REGULARIZED_LESS,
        "field.lr_mlp": 2e-3,
        "field.num_voxels": 448**3,
    },
    "forward_facing": {**_MORE_RAYS, **_COARSE_FIRST, "field.lr_mlp": 4e-3},
}
# In a box finer voxels and twice the smoothing gain .1 dB together, and nothing alone. That a sample has to weigh twice
# as much keeps a frame at 2 ms.
_FROM_45_SECONDS_OF_KIND = {
    **_FROM_20_SECONDS_OF_KIND,
    "bounded": {
        **_FROM_8_SECONDS_OF_KIND["bounded"],
        "field.num_voxels": 352**3,
        "loss.tv_color": 2e-6,
        "occupancy.rays_per_surface_cell": 48,
        "occupancy.min_weight": 0.03,
    },
}
# Photos all around gain by still finer voxels, and SSIM by more smoothing and more of its loss. A box gains nothing by
# them, nor by more time.
_FROM_150_SECONDS_OF_KIND = {
    **_FROM_45_SECONDS_OF_KIND,
    "unbounded": {
        **_FROM_20_SECONDS_OF_KIND["unbounded"],
        "field.num_voxels": 576**3,
        "loss.tv_color": 2e-5,
        "loss.tv_global": 3e-4,
        "loss.pair_ssim": 0.008,
    },
}
SETTINGS = FieldSettings(
    VoxelDeferredConfig,
    (
        Recipe(
            "cuda",
            "voxel_deferred",
            3.0,
            {**_UP_TO_8_SECONDS, "field.num_voxels": 176**3, "field.lr_density": 0.3},
            _UP_TO_8_SECONDS_OF_KIND,
        ),
        Recipe(
            "cuda",
            "voxel_deferred",
            8.0,
            {**_UP_TO_8_SECONDS, "field.num_voxels": 224**3},
            _UP_TO_8_SECONDS_OF_KIND,
        ),
        Recipe(
            "cuda",
            "voxel_deferred",
            20.0,
            {**_FROM_8_SECONDS, "field.num_voxels": 288**3, "loss.tv_color": 3e-7},
            _FROM_8_SECONDS_OF_KIND,
        ),
        Recipe("cuda", "voxel_deferred", 45.0, _FROM_20_SECONDS, _FROM_20_SECONDS_OF_KIND),
        Recipe("cuda", "voxel_deferred", 150.0, _FROM_20_SECONDS, _FROM_45_SECONDS_OF_KIND),
        Recipe("cuda", "voxel_deferred", math.inf, _FROM_20_SECONDS, _FROM_150_SECONDS_OF_KIND),
        Recipe("cpu", "voxel_deferred", math.inf, _CPU, _CPU_OF_KIND),
    ),
    of_kind={"forward_facing": _AVERAGED},
    many_passes={
        "bounded": {name: _FROM_8_SECONDS[name] for name in ("sampler.rays_per_pixel", "loss.distortion")},
        # Cup gains .012 in SSIM, fox .002, both .06 dB. A run that sees each pixel less often can lose by it.
        "unbounded": {"loss.pair_ssim": 0.003},
    },
)


class VoxelDeferred(VoxelMlp):
    """Voxel grids of density and features; an MLP computes the color of each pixel.

    With feature_sines the MLP's inputs are f + sin(w f) for the mean features f of a pixel, each with a frequency w of
    its own (after Chen et al. 2023, "NeuRBF", who do so before a linear layer). A smooth change of a feature between
    two vertices then makes a fine change of color, which the MLP alone learns slowly.
    """

    # Adam's first steps have the size of the learning rate at every weight. At a high rate hundreds of them together
    # saturate a wide MLP before features tell anything, and it does not recover. After a warm-up it bears ten times as
    # high a rate.
    mlp_lr_rise = 5e-5

    def __init__(
        self, config: VoxelDeferredConfig, box: SceneBox, resolution: Resolution, finest_voxel: float, backend: Backend
    ) -> None:
        super().__init__(config, box, resolution, finest_voxel, backend)
        self.sine_frequencies: Tensor | None = None  # [C]
        if config.feature_sines:
            first, last = (math.log10(frequency) for frequency in SINE_FREQUENCIES)
            self.sine_frequencies = torch.logspace(first, last, config.feature_channels, device=backend.device)
        self._annealed = 1.0
        self._view_columns = torch.ones(self.input_width - config.feature_channels, device=backend.device)

    def set_progress(self, progress: float) -> None:
        end = self.config.view_annealing
        self.anneal(min(1.0, progress / end) if end else 1.0)

    @property
    def annealed(self) -> float:
        return self._annealed

    def anneal(self, fraction: float) -> None:
        fraction = math.floor(fraction * ANNEALING_STEPS) / ANNEALING_STEPS
        if fraction == self._annealed:
            return
        # In place: a CUDA graph that was captured meanwhile reads it, also when all frequencies are there.
        width = len(self._view_columns)
        self._view_columns.copy_(annealed_weights(self.config.view_frequencies, fraction, width))
        self._annealed = fraction

    def forward(self, coords: Tensor, ray_directions: Tensor, ray_indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.density(coords), self.interpolate(self.feature_grid, coords)

    @property
    def deferred_grid(self) -> Tensor | None:
        return self.feature_grid if self.reads_in_place(self.feature_grid) else None

    @property
    def shading(self) -> str:
        return "random" if self.config.feature_noise > 0 else "alone"

    def shade(self, values: Tensor, opacity: Tensor, ray_directions: Tensor) -> Tensor:
        return self.colors(values, opacity, ray_directions, background=values.new_zeros(3))

    def colors(self, values: Tensor, opacity: Tensor, ray_directions: Tensor, background: Tensor) -> Tensor:
        noise, channels = None, self.config.feature_channels
        learning = self.feature_grid.requires_grad and torch.is_grad_enabled()
        if self.config.feature_noise > 0 and self.noise_generator is not None and learning:
            # Regularization: similar features must give similar colors, else the MLP overfits the training views.
            noise = torch.randn(values.shape, generator=self.noise_generator, device=values.device)
        how = self.config.feature_noise, SMALLEST_OPACITY, self.config.view_frequencies, self.input_width
        # The network's own kernel leaves out pixels without opacity, so that nobody reads their inputs.
        write_empty = learning or not self.fused
        inputs = self.backend.ops.shading_inputs(values, opacity, ray_directions, noise, *how, write_empty)
        if self.sine_frequencies is not None or self.view_weight is not None or self._annealed < 1:
            features, view = inputs[:, :channels], inputs[:, channels:]
            if self.sine_frequencies is not None:
                features = features + torch.sin(self.sine_frequencies * features)
            if self.view_weight is not None:
                view = view * self.view_weight
            if self._annealed < 1:
                view = view * self._view_columns
            inputs = torch.cat([features, view], dim=-1)
        logits = self.network(inputs, None if learning else opacity)
        # Composited colors blend correctly where several surfaces meet in a pixel; features do not.
        diffuse = values if self.config.diffuse else None
        return self.backend.ops.pixel_colors(logits, opacity, background, diffuse)
