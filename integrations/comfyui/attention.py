"""Our attention behind ComfyUI's override: transformer_options["optimized_attention_override"]."""

from __future__ import annotations

from typing import Any, Callable, Optional

import rocm_sd_ops
import torch
from torch import Tensor

OVERRIDE = "optimized_attention_override"


def heads_first(x: Tensor, heads: int, skip_reshape: bool) -> Tensor:
    """ComfyUI's [B,N,H*D] (or [B,H,N,D] with skip_reshape) -> [B,H,N,D]."""
    return x if skip_reshape else x.unflatten(-1, (heads, -1)).transpose(1, 2)


def full_mask(mask: Optional[Tensor]) -> Optional[Tensor]:
    """ComfyUI's masks lack the batch, then the heads: [M,N], [B,M,N] or [B,H,M,N]."""
    if mask is None or mask.ndim == 4 or mask.ndim == 2:
        return mask
    return mask.unsqueeze(1)


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Optional[Tensor] = None, attn_precision: Any = None,
              skip_reshape: bool = False, skip_output_reshape: bool = False, **kwargs: Any) -> Tensor:
    """One of ComfyUI's attention functions. Scores and sums are float whatever attn_precision asks."""
    q, k, v = (heads_first(x, heads, skip_reshape) for x in (q, k, v))
    if k.shape[1] != q.shape[1]:  # enable_gqa
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    y = rocm_sd_ops.attention(q, k.to(q.dtype), v.to(q.dtype), mask=full_mask(mask), scale=kwargs.get("scale"))
    return y if skip_output_reshape else y.transpose(1, 2).flatten(2)


def make_override(previous: Optional[Callable] = None) -> Callable:
    """The override; one that was there before gets what ours leaves alone (tensors that are no float of ours)."""

    def override(func: Callable, q: Tensor, k: Tensor, v: Tensor, heads: int, *args: Any, **kwargs: Any) -> Tensor:
        floats = (torch.float32, torch.bfloat16, torch.float16)
        if q.dtype in floats and q.ndim in (3, 4) and not (kwargs.get("skip_reshape") and q.ndim != 4):
            return attention(q, k, v, heads, *args, **kwargs)
        if previous is not None:
            return previous(func, q, k, v, heads, *args, **kwargs)
        return func(q, k, v, heads, *args, **kwargs)

    override.rocm_sd_override = previous is None  # type: ignore[attr-defined]  # nobody else's is behind it
    return override


def with_attention(model: Any) -> Any:
    """A clone of a ModelPatcher whose attention is ours; the model given stays as it is."""
    clone = model.clone()
    options = dict(clone.model_options)
    transformer = dict(options.get("transformer_options", {}))
    transformer[OVERRIDE] = make_override(transformer.get(OVERRIDE))
    options["transformer_options"] = transformer
    clone.model_options = options
    return clone
