"""RocmSDAttnProcessor: Diffusers' Attention over our operator."""

from __future__ import annotations

import weakref
from typing import Any, Optional

import torch
from torch import Tensor, nn

from . import ops
from ._patching import version


class RocmSDAttnProcessor:
    """A Diffusers attention processor: unet.set_attn_processor(RocmSDAttnProcessor()), also for the VAE.

    Calls the layer's own projections, so LoRA and other wrapped layers work. cache_text: keys and values of cross-attention
    are computed once for as long as the caller passes the same text states (the steps of one picture); one processor per
    layer is then needed. It is not used under autograd, under torch.compile or where a projection is wrapped.
    """

    def __init__(self, cache_text: bool = False) -> None:
        self.cache_text = cache_text
        self._text: Optional[tuple[weakref.ref, tuple, Tensor, Tensor]] = None

    def forget(self) -> None:
        """Drops the cached keys and values."""
        self._text = None

    def __call__(self, attn: nn.Module, hidden_states: Tensor, encoder_hidden_states: Optional[Tensor] = None,
                 attention_mask: Optional[Tensor] = None, temb: Optional[Tensor] = None, *args: Any, **kwargs: Any) -> Tensor:
        residual = hidden_states
        if attn.spatial_norm is not None:
            hidden_states = attn.spatial_norm(hidden_states, temb)
        image = hidden_states.shape if hidden_states.ndim == 4 else None
        if image is not None:
            hidden_states = hidden_states.flatten(2).transpose(1, 2)  # [B,HW,C]
        text = encoder_hidden_states
        batch, length = (hidden_states if text is None else text).shape[:2]
        if attention_mask is not None:
            attention_mask = attn.prepare_attention_mask(attention_mask, length, batch)
            attention_mask = attention_mask.view(batch, attn.heads, -1, attention_mask.shape[-1])
        if attn.group_norm is not None:
            hidden_states = attn.group_norm(hidden_states.transpose(1, 2)).transpose(1, 2)

        query = self._heads(attn, attn.to_q(hidden_states))
        key, value = self._keys_and_values(attn, hidden_states, text)
        if attn.norm_q is not None:
            query = attn.norm_q(query)
        y = ops.attention(query, key.to(query.dtype), value.to(query.dtype), mask=attention_mask)
        y = y.transpose(1, 2).flatten(2)  # [B,N,H*D]
        y = attn.to_out[1](attn.to_out[0](y))

        if image is not None:
            y = y.transpose(1, 2).reshape(image)
        if attn.residual_connection:
            y = y + residual
        return y if attn.rescale_output_factor == 1.0 else y / attn.rescale_output_factor

    @staticmethod
    def _heads(attn: nn.Module, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, attn.heads, x.shape[-1] // attn.heads).transpose(1, 2)

    def _project(self, attn: nn.Module, states: Tensor) -> tuple[Tensor, Tensor]:
        key, value = self._heads(attn, attn.to_k(states)), self._heads(attn, attn.to_v(states))
        return (key if attn.norm_k is None else attn.norm_k(key)), value

    def _keys_and_values(self, attn: nn.Module, hidden_states: Tensor, text: Optional[Tensor]) -> tuple[Tensor, Tensor]:
        if text is None:
            return self._project(attn, hidden_states)
        cached = self.cache_text and not torch.is_grad_enabled() and not torch.compiler.is_compiling()
        cached = cached and type(attn.to_k) is nn.Linear and type(attn.to_v) is nn.Linear
        stamp: tuple = ()
        if cached:
            tensors = (text, attn.to_k.weight, attn.to_v.weight)
            stamp = tuple((t.data_ptr(), version(t), t.shape, t.dtype, t.device) for t in tensors)
            if self._text is not None and self._text[0]() is text and self._text[1] == stamp:
                return self._text[2], self._text[3]
        states = attn.norm_encoder_hidden_states(text) if attn.norm_cross else text
        key, value = self._project(attn, states)
        if cached:
            self._text = (weakref.ref(text), stamp, key, value)
        return key, value
