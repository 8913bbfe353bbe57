"""flash_attn_func, as the package flash_attn has it."""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                    causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                    alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> Tensor:
    """q [B,Nq,H,D], k and v [B,Nk,Hk,D], Hk a divisor of H -> [B,Nq,H,D].

    causal aligns the last query with the last key, as flash_attn does. window_size (left, right) and alibi_slopes ([H] or
    [B,H]) become masks; dropout runs PyTorch's operator. Gradients flow; deterministic changes nothing. Raises
    NotImplementedError for softcap and return_attn_probs, ValueError where the heads do not fit.
    """
    if softcap or return_attn_probs:
        raise NotImplementedError("flash_attn_func: softcap and return_attn_probs are not taken")
    if q.shape[2] % k.shape[2]:
        raise ValueError(f"flash_attn_func: {q.shape[2]} heads of q are no multiple of {k.shape[2]} of k")
    queries, keys = q.shape[1], k.shape[1]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # [B,H,N,D]
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    left, right = window_size
    if causal:
        right = 0
    aligned = queries == keys or queries == 0
    mask: Optional[Tensor] = None
    if left >= 0 or right > 0 or (right == 0 and not (causal and aligned)) or alibi_slopes is not None:
        distance = (torch.arange(keys, device=q.device)[None] - torch.arange(queries, device=q.device)[:, None]
                    - (keys - queries))  # of a key from its query; 0 on the diagonal that ends at the last of both
        seen = torch.ones_like(distance, dtype=torch.bool)
        if left >= 0:
            seen &= distance >= -left
        if right >= 0:
            seen &= distance <= right
        mask = seen
        if alibi_slopes is not None:
            slopes = alibi_slopes.float().reshape(-1, q.shape[1], 1, 1)
            mask = (-slopes * distance.abs().float()).masked_fill(~seen, float("-inf"))
        causal = False
    if dropout_p > 0:
        bias = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout_p, is_causal=causal,
                                           scale=softmax_scale)
    else:
        y = ops.attention(q, k, v, mask=mask, scale=softmax_scale, causal=causal)
    return y.transpose(1, 2)
