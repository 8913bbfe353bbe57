"""sageattn, as the package sageattention has it, in full precision."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from .. import ops


def sageattn(q: Tensor, k: Tensor, v: Tensor, tensor_layout: str = "HND", is_causal: bool = False,
             sm_scale: Optional[float] = None, return_lse: bool = False, attn_mask: Optional[Tensor] = None,
             **kwargs: Any) -> Tensor:
    """q, k, v [B,H,N,D] ("HND") or [B,N,H,D] ("NHD") -> the same layout. Keys' and values' heads may be a divisor of q's.

    Nothing is quantised, so options of the quantisation (smooth_k, ...) are accepted and change nothing. Raises ValueError
    for another layout, NotImplementedError for return_lse.
    """
    if return_lse:
        raise NotImplementedError("sageattn: return_lse is not taken")
    if tensor_layout not in ("HND", "NHD"):
        raise ValueError(f"sageattn: tensor_layout {tensor_layout!r}: expected HND or NHD")
    if tensor_layout == "NHD":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    y = ops.attention(q, k, v, mask=attn_mask, scale=sm_scale, causal=is_causal)
    return y.transpose(1, 2) if tensor_layout == "NHD" else y
