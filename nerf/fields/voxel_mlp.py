"""The hybrid field: a grid of raw density, a grid of features, and a small MLP from features and view direction to
color (as DirectVoxGO, Sun et al. 2022)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from nerf.config.fields import FieldConfig, FieldSettings, Recipe
from nerf.config.settings import setting
from nerf.fields.bf16_mlp import Bf16Mlp, bf16_mlp_without_gradient, has_bf16_tensor_cores, round_up
from nerf.fields.view_encoding import encode_view, encoding_width
from nerf.fields.voxel_field import VoxelField
from nerf.ops.activations import sigmoid
from nerf.ops.backend import Backend
from nerf.ops.mlp import has_fused_code, has_fused_kernel
from nerf.optim.adam import ParameterGroup
from nerf.scene.box import Resolution, SceneBox

LR_MUON = "learning rate of the MLP's matrices but the last, in steps of Muon; 0: Adam, at field.lr_mlp"


@dataclass
class VoxelMlpConfig(FieldConfig):
    name: str = setting("voxel_mlp", "which field")
    feature_channels: int = setting(12, "features per vertex; a multiple of 4 is fastest", low=1, high=64)
    hidden_width: int = setting(128, "neurons per hidden layer of the color MLP", low=1, high=1024)
    hidden_layers: int = setting(2, "hidden layers of the color MLP", low=0, high=8)
    view_frequencies: int = setting(4, "frequencies of the positional encoding of the view direction", low=0, high=8)
    lr_features: float | None = setting(None, "learning rate of the features", low=0)
    lr_mlp: float = setting(1e-3, "learning rate of the MLP", low=0)
    lr_muon: float = setting(0.0, LR_MUON, low=0)


_SETTINGS = {"loss.opacity_entropy": 0.001, "field.lr_features": 0.1}
SETTINGS = FieldSettings(
    VoxelMlpConfig,
    (
        Recipe("cuda", "voxel_mlp", math.inf, {**_SETTINGS, "field.num_voxels": 256**3, "train.rays_per_step": 8192}),
        Recipe("cpu", "voxel_mlp", math.inf, {**_SETTINGS, "field.num_voxels": 80**3, "train.rays_per_step": 4096}),
    ),
    {"unbounded": {"field.lr_features": 0.1}},  # not lowered, unlike that of deferred features
)


class VoxelMlp(VoxelField):
    """Voxel grids of density and features; an MLP computes the color of each sample."""

    appearance_name = "feature_grid"
    mlp_lr_rise: ClassVar[float] = math.inf  # warm-up of the MLP's learning rate, per step
    muon_lr_rise: ClassVar[float] = 1e-3  # and of its matrices', where their steps are Muon's

    def __init__(
        self, config: VoxelMlpConfig, box: SceneBox, resolution: Resolution, finest_voxel: float, backend: Backend
    ) -> None:
        super().__init__(box, resolution, finest_voxel, config.initial_alpha, backend)
        self.config = config
        self.feature_grid = nn.Parameter(torch.zeros(*resolution, config.feature_channels, device=backend.device))
        inputs = config.feature_channels + encoding_width(config.view_frequencies)
        widths = [-(-inputs // 4) * 4]  # rows of a multiple of 16 bytes
        widths += [config.hidden_width] * config.hidden_layers
        layers: list[nn.Module] = []
        for fan_in, fan_out in zip(widths, widths[1:], strict=False):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU(inplace=True)]
        self.mlp = nn.Sequential(*layers, nn.Linear(widths[-1], 3))
        nn.init.zeros_(self.mlp[-1].bias)
        self.mlp.to(backend.device)
        self.use_bf16 = has_bf16_tensor_cores(backend.device)
        sizes = (widths[0], config.hidden_width, config.hidden_layers, 3)
        self.fused = self.use_bf16 and backend.name == "native" and has_fused_kernel(*sizes) and has_fused_code()

    def forward(self, coords: Tensor, ray_directions: Tensor, ray_indices: Tensor) -> tuple[Tensor, Tensor]:
        view = self.encode_view(ray_directions).index_select(0, ray_indices)
        features = self.interpolate(self.feature_grid, coords)
        rgb = sigmoid(self.network(self.concat_inputs(features, view)))
        return self.density(coords), rgb

    def concat_inputs(self, features: Tensor, view: Tensor) -> Tensor:
        """The MLP's inputs [N,I] from features [N,C] and the result of encode_view, in the latter's dtype."""
        return torch.cat([features.to(view.dtype), view], dim=-1)

    def network(self, inputs: Tensor, needed: Tensor | None = None) -> Tensor:
        """The MLP's outputs [N,3] for inputs [N,I]. needed [N]: where it is 0, outputs may be anything finite."""
        if self.fused:
            params = torch.cat([parameter.flatten() for parameter in self.mlp.parameters()])
            sizes = self.config.hidden_width, self.config.hidden_layers, 3
            return self.backend.ops.mlp(inputs, params, *sizes, rounded=True, needed=needed)
        if self.use_bf16:
            compute = Bf16Mlp.apply if torch.is_grad_enabled() else bf16_mlp_without_gradient
            return compute(inputs, *self.mlp.parameters())
        if torch.is_grad_enabled():
            return self.mlp(inputs)
        for layer in list(self.mlp)[:-1:2]:  # product, bias and ReLU in one kernel, without gradient
            inputs = torch._addmm_activation(layer.bias, inputs, layer.weight.t())
        return self.mlp[-1](inputs)

    def encode_view(self, directions: Tensor) -> Tensor:
        """The MLP's inputs after the features, [R,I - C], for unit directions [R,3]."""
        width = self.input_width - self.config.feature_channels
        rounded = torch.bfloat16 if self.use_bf16 and not self.fused and not torch.is_grad_enabled() else None
        view = encode_view(directions, self.config.view_frequencies, width, rounded)
        return view if self.view_weight is None else view * self.view_weight

    @property
    def input_width(self) -> int:
        """Columns of the MLP's inputs, with padding."""
        inputs = self.mlp[0].in_features
        return round_up(inputs) if self.use_bf16 and not self.fused else inputs

    def parameter_groups(self) -> list[ParameterGroup]:
        grids = [
            ParameterGroup(
                "density_grid", self.density_grid, (self.config.lr_density,), on_vertices=True, rows=self.rows
            ),
            ParameterGroup(
                "feature_grid",
                self.feature_grid,
                (self.config.lr_features,),
                on_vertices=True,
                rows=self.rows,
                host=self.host_rows,
            ),
        ]
        return grids + self._mlp_groups() + self.background_groups()

    def _mlp_groups(self) -> list[ParameterGroup]:
        """Biases, the last layer and, without lr_muon, all others take steps of Adam."""
        by_adam, by_muon = (self.config.lr_mlp,), (self.config.lr_muon,)
        last = self.mlp[-1].weight
        groups = []
        for name, parameter in self.mlp.named_parameters():
            if self.config.lr_muon > 0 and parameter.ndim == 2 and parameter is not last:
                group = ParameterGroup(f"mlp.{name}", parameter, by_muon, lr_rise=self.muon_lr_rise, muon=True)
            else:
                group = ParameterGroup(f"mlp.{name}", parameter, by_adam, lr_rise=self.mlp_lr_rise)
            groups.append(group)
        return groups
