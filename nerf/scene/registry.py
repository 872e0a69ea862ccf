"""The spaces by kind, and what a checkpoint keeps of one."""

from dataclasses import fields

import torch

from nerf.config import renamed
from nerf.scene.contraction import ContractedSpace
from nerf.scene.ndc import NdcSpace
from nerf.scene.space import Space, WorldSpace

SPACES: dict[str, type[Space]] = {c.kind: c for c in (WorldSpace, NdcSpace, ContractedSpace)}


def space_state(space: Space) -> dict[str, object]:
    """Tensors and plain numbers from which restore_space makes the space again; what is None is left out."""
    values = {f.name: getattr(space, f.name) for f in fields(space)}
    return {"kind": space.kind, **{name: value for name, value in values.items() if value is not None}}


def restore_space(state: dict[str, object], device: torch.device) -> Space:
    """The space of a state, on the device."""
    values = {name: value for name, value in state.items() if name != "kind"}
    kind = renamed.value_of("dataset.kind", state["kind"])  # earlier checkpoints have the old words
    return SPACES[kind](**values).to(device)
