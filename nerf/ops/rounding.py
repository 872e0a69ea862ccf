"""Rounding at random to 16 bits: cuda_ext/math/rounding.h in PyTorch, to the same bits.

A number between two neighbors of the narrow type becomes either, such that its mean is the number itself (Gupta et al.
2015, "Deep learning with limited numerical precision"). Many small changes add up then, which rounding to the nearest
would lose one by one. The random bits are a hash of step, row and column: the same on every device and in every run.
"""

import torch
from torch import Tensor

WORD = 0xFFFFFFFF  # 32 bits, which are kept in int64
# Bits that a float32 has more behind the point than a float16, the smallest float16 with all its digits, and the power
# of two that makes whole numbers of those below.
DROPPED, SMALLEST_NORMAL, SUBNORMALS = 13, 2.0**-14, 2.0**24


def hashed(x: Tensor) -> Tensor:
    """A hash of 32 bits (Wellons 2018, "Prospecting for hash functions", lowbias32), in int64."""
    x = (x ^ x >> 16) * 0x7FEB352D & WORD
    x = (x ^ x >> 15) * 0x846CA68B & WORD
    return x ^ x >> 16


def random_bits(step: Tensor, rows: Tensor, columns: int) -> Tensor:
    """32 random bits [T,C] int64 for each column of the rows [T] int64 in a step [1] float32."""
    seed = hashed((hashed(step.view(torch.int32).long() & WORD) + rows) & WORD)
    columns = torch.arange(columns, device=rows.device) * 0x9E3779B9
    return hashed((seed[:, None] + columns) & WORD)


def narrow_at_random(x: Tensor, dtype: torch.dtype, random: Tensor) -> Tensor:
    """x float32 as float16 or bfloat16, by the lower bits of random, int64 of x's shape; in other dtypes x as it is.

    A number that the dtype has stays as it is. What is too large becomes infinite.
    """
    if dtype == torch.bfloat16:
        up = (x.view(torch.int32).long() & WORD) + (random & 0xFFFF) >> 16
        return torch.where(x.isnan(), x.bfloat16().view(torch.int16), up.to(torch.int16)).view(torch.bfloat16)
    if dtype != torch.float16:
        return x
    random = random & (1 << DROPPED) - 1
    up = ((x.abs().view(torch.int32).long() + random) >> DROPPED << DROPPED).to(torch.int32).view(torch.float32)
    small = (x.abs() * SUBNORMALS + random.to(x.dtype) / (1 << DROPPED)).floor() / SUBNORMALS
    rounded = torch.where(x.abs() < SMALLEST_NORMAL, small, up).copysign(x)
    return torch.where(x.isfinite(), rounded, x).half()
