"""memory_efficient_attention, as xformers.ops has it."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops


class LowerTriangularMask:
    """Query i sees keys 0..i. xformers' own class of this name is taken, too."""


def memory_efficient_attention(query: Tensor, key: Tensor, value: Tensor, attn_bias: Any = None, p: float = 0.0,
                               scale: Optional[float] = None, *, op: Any = None) -> Tensor:
    """query [B,M,H,K], key [B,N,H,K], value [B,N,H,Kv], or without H -> [B,M,H,Kv].

    attn_bias: None, a LowerTriangularMask, or a tensor [B,H,M,N] or [B,M,N], added to the scores. p: dropout, which runs
    PyTorch's operator. op is ignored: there is one. Raises NotImplementedError for other biases.
    """
    flat = query.ndim == 3
    if flat:
        query, key, value = (x.unsqueeze(2) for x in (query, key, value))
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))  # [B,H,N,K]
    causal = type(attn_bias).__name__ == "LowerTriangularMask"
    mask: Optional[Tensor] = None
    if isinstance(attn_bias, Tensor):
        mask = attn_bias
        if mask.ndim == 3:  # one for each image, or for each image and head
            per_head = mask.shape[0] == q.shape[0] * q.shape[1] and q.shape[1] > 1
            mask = mask.view(q.shape[0], q.shape[1], *mask.shape[1:]) if per_head else mask.unsqueeze(1)
    elif attn_bias is not None and not causal:
        raise NotImplementedError(f"memory_efficient_attention: attn_bias of type {type(attn_bias).__name__}")
    if p > 0:
        bias = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p, is_causal=causal, scale=scale)
    else:
        y = ops.attention(q, k, v, mask=mask, scale=scale, causal=causal)
    y = y.transpose(1, 2)
    return y.squeeze(2) if flat else y
