"""Helpers of the tests of rocm_sd_ops: the package against the tested build, random operands, distances."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[2]
# What one rounding costs, relative to the value.
ROUNDING = {torch.float32: 2.0 ** -24, torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}


def load_package(build_dir: Path):
    """rocm_sd_ops from this repository over the library of the tested build. Fails, not skips, where there is none."""
    library = build_dir / "lib" / "librocm_sd_torch.so"
    if not library.is_file():
        pytest.fail(f"no {library}: run `make torch-ops`", pytrace=False)
    os.environ["ROCM_SD_TORCH_LIBRARY"] = str(library)
    folder = str(REPOSITORY / "python")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("rocm_sd_ops")


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 7919 + sum(shape))
    return (torch.randn(*shape, generator=generator) * scale).to(dtype)


def assert_near(got: torch.Tensor, want: torch.Tensor, *, terms: int = 1, scale: float = 1.0) -> None:
    """got, of a storage type, against want in float64.

    One rounding of the result and one of each operand, and the float sums of `terms` products: their errors grow as the
    square root of the number (random signs), 8 of those deviations are allowed; scale: the size of the summed values
    where it exceeds the result's.
    """
    assert got.shape == want.shape
    assert not got.isnan().any()
    size = max(want.abs().max().item(), scale)
    bound = size * (8 * ROUNDING[got.dtype] + 8 * terms ** 0.5 * ROUNDING[torch.float32])
    assert (got.double() - want).abs().max().item() <= bound


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def packed_heads(b: int, h: int, n: int, d: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """[B,H,N,D] as a projection leaves it."""
    return randn(b, n, h * d, dtype=dtype, seed=seed).view(b, n, h, d).transpose(1, 2)


def attention_double(q, k, v, mask=None, scale=None, causal=False):
    scores = q.double() @ k.double().transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask.double()
    return scores.softmax(-1).nan_to_num(0) @ v.double()
