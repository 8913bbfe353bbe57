"""Routing torch.nn.functional.scaled_dot_product_attention to our operator, and back."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any, Iterator, Optional

import torch.nn.functional as F
from torch import Tensor

from . import ops

_lock = threading.RLock()
_depth = 0
_original: Any = None


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> Tensor:
    """PyTorch's function of this name over our operator: [B,H,N,D], also [H,N,D] and [N,D]. Dropout, both a mask and
    is_causal, nested tensors and more than four dimensions go to PyTorch's own."""
    original = _original or F.scaled_dot_product_attention
    alike = query.dtype == key.dtype == value.dtype and query.device == key.device == value.device
    if dropout_p > 0 or query.is_nested or not 2 <= query.ndim <= 4 or (is_causal and attn_mask is not None) or not alike:
        return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    missing = 4 - query.ndim
    q, k, v = (x[(None,) * missing] for x in (query, key, value))
    if enable_gqa and k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    if q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3]:  # PyTorch broadcasts
        return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    y = ops.attention(q, k, v, mask=attn_mask, scale=scale, causal=is_causal)
    return y[(0,) * missing]


@contextmanager
def sdpa(enabled: bool = True) -> Iterator[None]:
    """Within it F.scaled_dot_product_attention is our operator (enabled=False: PyTorch's own again), for every thread.

        with rocm_sd_ops.sdpa():
            image = pipe(prompt).images[0]

    PyTorch's torch.nn.attention.sdpa_kernel goes on to choose among PyTorch's own kernels for what is left to them. Code
    that holds the function itself (`from torch.nn.functional import ...`) is not reached. May be nested.
    """
    global _depth, _original
    with _lock:
        before = F.scaled_dot_product_attention
        if _depth == 0:
            _original = before
        _depth += 1
        F.scaled_dot_product_attention = scaled_dot_product_attention if enabled else _original
    try:
        yield
    finally:
        with _lock:
            F.scaled_dot_product_attention = before
            _depth -= 1
            if _depth == 0:
                _original = None


def register_attention_backend(name: str = "rocm_sd") -> None:
    """Adds our operator to the attention backends of Diffusers' transformer models: model.set_attention_backend("rocm_sd").
    (UNets and VAEs take RocmSDAttnProcessor instead.) Calling it again changes nothing. Raises ImportError without a
    Diffusers that has such backends."""
    from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry

    if name in AttentionBackendName._value2member_map_:
        return
    member = str.__new__(AttentionBackendName, name)
    member._name_, member._value_ = name.upper(), name
    member._sort_order_ = len(AttentionBackendName._member_names_)
    AttentionBackendName._member_names_.append(member._name_)
    AttentionBackendName._member_map_[member._name_] = member
    AttentionBackendName._value2member_map_[name] = member

    @_AttentionBackendRegistry.register(member, constraints=[], supports_context_parallel=False)
    def _rocm_sd_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                           dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                           enable_gqa: bool = False, return_lse: bool = False, _parallel_config: Any = None) -> Tensor:
        if return_lse:
            raise ValueError(f"the attention backend {name!r} does not return the log-sum-exp")
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        return scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa).transpose(1, 2)
