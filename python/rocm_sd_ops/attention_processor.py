"""RocmSDAttnProcessor: Diffusers' Attention over our operator."""

from __future__ import annotations

import copy
import operator
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import ops
from ._layers import changes_meaning, is_plain
from ._values import Seen, SeenText


def takes_parameters(attn: Any) -> bool:
    """Whether a Diffusers Attention does nothing but projections and attention, so that RocmSDAttnProcessor.of_parameters computes
    the same."""
    out = getattr(attn, "to_out", None)
    return (type(attn).__name__ == "Attention" and out is not None and len(out) == 2 and type(out[1]) is nn.Dropout
            and out[1].p == 0.0 and all(getattr(attn, name, None) is None for name in _NORMS)
            and not attn.residual_connection and attn.rescale_output_factor == 1.0 and attn.added_kv_proj_dim is None
            and not getattr(attn, "is_causal", False) and attn.inner_kv_dim == attn.inner_dim)


_NORMS = ("group_norm", "spatial_norm", "norm_q", "norm_k", "norm_cross")


class RocmSDAttnProcessor:
    """A Diffusers attention processor: unet.set_attn_processor(RocmSDAttnProcessor()), also for the VAE.

    Calls the layer's own projections, so LoRA and other wrapped layers work. cache_text: keys and values of cross-attention
    are computed once for as long as the caller passes the same text states (the steps of one picture); one processor per
    layer is then needed. It is not used under autograd, under torch.compile, while a graph is recorded, or where a projection is
    wrapped.
    """

    def __init__(self, cache_text: bool = False) -> None:
        self.cache_text = cache_text
        self.replaces: Any = None  # the processor in whose place optimize_sd_model put this one, and how its class calls it
        self._called: Any = None
        self._text: Optional[tuple[SeenText, Seen, Tensor, Tensor]] = None

    @classmethod
    def in_place_of(cls, processor: Any, cache_text: bool) -> "RocmSDAttnProcessor":
        """For optimize_sd_model: a pickle has `processor`, which also runs where another program changed how its class calls it."""
        made = cls(cache_text)
        made.replaces, made._called = processor, type(processor).__call__
        return made

    def forget(self) -> None:
        """Drops the cached keys and values."""
        self._text = None

    def steps_aside(self) -> bool:
        """Whether the processor that this one replaced is to run."""
        return self.replaces is not None and (type(self.replaces).__call__ is not self._called or changes_meaning())

    def __deepcopy__(self, memo: dict) -> "RocmSDAttnProcessor":
        made = type(self)(self.cache_text)
        made.replaces, made._called = copy.deepcopy(self.replaces, memo), self._called
        return made

    def __copy__(self) -> "RocmSDAttnProcessor":
        return self.__deepcopy__({})

    def __reduce__(self) -> Any:
        if self.replaces is not None:
            return operator.itemgetter(0), ((self.replaces,),)  # (of the standard library: read where this package is not)
        return type(self), (self.cache_text,)

    def _kept(self, text: Optional[Tensor], *weights: Tensor) -> Optional[tuple[Tensor, Tensor]]:
        kept = self._text
        if text is None or kept is None or not kept[0].holds(text) or not kept[1].holds(*weights):
            return None
        return kept[2], kept[3]

    def _keep(self, text: Tensor, weights: tuple[Tensor, ...], key: Tensor, value: Tensor) -> None:
        self._text = (SeenText(text), Seen(*weights, content=True), key, value) if SeenText.may_keep(text) else None

    def __call__(self, attn: nn.Module, hidden_states: Tensor, encoder_hidden_states: Optional[Tensor] = None,
                 attention_mask: Optional[Tensor] = None, temb: Optional[Tensor] = None, *args: Any, **kwargs: Any) -> Tensor:
        if self.steps_aside():
            return self.replaces(attn, hidden_states, encoder_hidden_states, attention_mask, temb, *args, **kwargs)
        residual = hidden_states
        if attn.spatial_norm is not None:
            hidden_states = attn.spatial_norm(hidden_states, temb)
        image = hidden_states.shape if hidden_states.ndim == 4 else None
        norm = attn.group_norm
        if image is not None:
            if is_plain(norm, nn.GroupNorm) and hidden_states.dtype == norm.weight.dtype:
                hidden_states = ops.group_norm_silu(hidden_states, norm.num_groups, norm.weight, norm.bias, norm.eps, silu=False)
                norm = None
            hidden_states = hidden_states.flatten(2).transpose(1, 2)  # [B,HW,C]
        text = encoder_hidden_states
        batch, length = (hidden_states if text is None else text).shape[:2]
        if attention_mask is not None:
            attention_mask = attn.prepare_attention_mask(attention_mask, length, batch)
            attention_mask = attention_mask.view(batch, attn.heads, -1, attention_mask.shape[-1])
        if norm is not None:
            hidden_states = norm(hidden_states.transpose(1, 2)).transpose(1, 2)

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

    def of_parameters(self, heads: int, linears: tuple, x: Tensor, text: Optional[Tensor] = None) -> Tensor:
        """The same of x [B,N,C] without a call of the layers: linears: to_q, to_k, to_v and to_out[0] of an attention that
        takes_parameters(). Without gradients."""
        to_q, to_k, to_v, to_out = (layer._parameters for layer in linears)
        batch, length, _ = x.shape
        q = F.linear(x, to_q["weight"], to_q["bias"]).view(batch, length, heads, -1).transpose(1, 2)  # [B,H,N,D]
        kept = self._kept(text, to_k["weight"], to_v["weight"]) if self.cache_text else None
        if kept is not None:
            k, v = kept
        else:
            states = x if text is None else text
            keys = states.shape[1]
            k = F.linear(states, to_k["weight"], to_k["bias"]).view(batch, keys, heads, -1).transpose(1, 2)
            v = F.linear(states, to_v["weight"], to_v["bias"]).view(batch, keys, heads, -1).transpose(1, 2)
            if self.cache_text and text is not None:
                self._keep(text, (to_k["weight"], to_v["weight"]), k, v)
        y = ops.attention(q, k, v)  # its memory is [B,N,H,D]
        return F.linear(y.transpose(1, 2).reshape(batch, length, -1), to_out["weight"], to_out["bias"])

    @staticmethod
    def _heads(attn: nn.Module, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, attn.heads, x.shape[-1] // attn.heads).transpose(1, 2)

    def _project(self, attn: nn.Module, states: Tensor) -> tuple[Tensor, Tensor]:
        key, value = self._heads(attn, attn.to_k(states)), self._heads(attn, attn.to_v(states))
        return (key if attn.norm_k is None else attn.norm_k(key)), value

    def _keys_and_values(self, attn: nn.Module, hidden_states: Tensor, text: Optional[Tensor]) -> tuple[Tensor, Tensor]:
        if text is None:
            return self._project(attn, hidden_states)
        cached = (self.cache_text and not torch.is_grad_enabled() and not torch.compiler.is_compiling() and not changes_meaning()
                  and is_plain(attn.to_k, nn.Linear) and is_plain(attn.to_v, nn.Linear) and attn.norm_cross is None
                  and attn.norm_k is None)
        if cached:
            kept = self._kept(text, attn.to_k.weight, attn.to_v.weight)
            if kept is not None:
                return kept
        states = attn.norm_encoder_hidden_states(text) if attn.norm_cross else text
        key, value = self._project(attn, states)
        if cached:
            self._keep(text, (attn.to_k.weight, attn.to_v.weight), key, value)
        return key, value
