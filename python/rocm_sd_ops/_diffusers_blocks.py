"""Forwards of Diffusers' layers made of our operators. Each computes what the layer's own does and leaves the call to it
where an option that they do not know is in use, or where a child was wrapped or hooked (LoRA, offloading)."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

from . import ops
from ._patching import Parameters, State, is_plain


def _idle(dropout: nn.Module) -> bool:
    return not isinstance(dropout, nn.Dropout) or dropout.p == 0.0 or not dropout.training


def _group_norm(p: Parameters, norm: nn.GroupNorm, x: Tensor, silu: bool) -> Tensor:
    return ops.group_norm_silu(x, norm.num_groups, p.f32(norm, "weight"), p.f32(norm, "bias"), norm.eps, silu=silu)


def _is_square(conv: nn.Module) -> bool:
    """A convolution that conv2d_epilogue takes, whoever calls it."""
    return (is_plain(conv, nn.Conv2d) and conv.groups == 1 and conv.dilation == (1, 1) and conv.padding_mode == "zeros"
            and not isinstance(conv.padding, str) and conv.stride[0] == conv.stride[1])


def _conv(p: Parameters, conv: nn.Conv2d, x: Tensor, **epilogue: Any) -> Tensor:
    return ops.conv2d_epilogue(x, conv.weight, p.f32(conv, "bias"), stride=conv.stride[0], padding=conv.padding,
                               pack=p.pack, **epilogue)


def resnet_forward(state: State, block: nn.Module, packs: bool) -> Callable:
    """ResnetBlock2D: each norm with its SiLU, the time shift and the shortcut in the convolutions' tails."""
    norm1, norm2, conv1, conv2 = (Parameters(state, packs and i >= 2) for i in range(4))
    fits = (block.time_embedding_norm == "default" and block.upsample is None and block.downsample is None
            and isinstance(block.nonlinearity, nn.SiLU) and block.output_scale_factor == 1.0)

    def forward(self: nn.Module, original: Callable, input_tensor: Tensor, temb: Optional[Tensor] = None, *args: Any,
                **kwargs: Any) -> Tensor:
        if not (fits and not args and _idle(self.dropout) and _is_square(self.conv1) and _is_square(self.conv2)
                and is_plain(self.norm1, nn.GroupNorm) and is_plain(self.norm2, nn.GroupNorm)
                and input_tensor.dtype == self.conv1.weight.dtype):
            return original(input_tensor, temb, *args, **kwargs)
        shift = None
        if self.time_emb_proj is not None:
            shift = self.time_emb_proj(temb if self.skip_time_act else self.nonlinearity(temb))
        elif temb is not None:
            return original(input_tensor, temb, **kwargs)
        y = _group_norm(norm1, self.norm1, input_tensor, True)
        y = _conv(conv1, self.conv1, y, channel_shift=shift)
        y = _group_norm(norm2, self.norm2, y, True)
        shortcut = input_tensor if self.conv_shortcut is None else self.conv_shortcut(input_tensor)
        return _conv(conv2, self.conv2, y, residual=shortcut)

    return forward


def upsample_forward(state: State, block: nn.Module, packs: bool) -> Callable:
    """Upsample2D: the doubling in the convolution's gather."""
    p = Parameters(state, packs)

    def forward(self: nn.Module, original: Callable, hidden_states: Tensor, output_size: Optional[int] = None, *args: Any,
                **kwargs: Any) -> Tensor:
        conv = getattr(self, "conv", None) if self.name == "conv" else getattr(self, "Conv2d_0", None)
        doubled = output_size is None or tuple(output_size) == tuple(2 * n for n in hidden_states.shape[-2:])
        if not (doubled and not args and self.norm is None and self.use_conv and not self.use_conv_transpose
                and self.interpolate and _is_square(conv) and conv.stride == (1, 1) and conv.padding[0] == conv.padding[1]
                and hidden_states.dtype == conv.weight.dtype):
            return original(hidden_states, output_size, *args, **kwargs)
        return ops.upsample2x_conv(hidden_states, conv.weight, p.f32(conv, "bias"), padding=conv.padding[0], pack=p.pack)

    return forward


def group_norm_forward(state: State, silu: bool) -> Callable:
    """nn.GroupNorm on pictures; with silu, of the activation that follows it."""
    p = Parameters(state, False)

    def forward(self: nn.GroupNorm, original: Callable, x: Tensor) -> Tensor:
        if x.ndim != 4 or self.weight is None or hasattr(self, "_hf_hook") or x.dtype not in (self.weight.dtype, torch.float32):
            y = original(x)
            return nn.functional.silu(y) if silu else y
        return _group_norm(p, self, x, silu)

    return forward


def transformer_forward(state: State, block: nn.Module, packs: bool) -> Callable:
    """BasicTransformerBlock with layer norms: sums inside the norms, GEGLU and the last sum in the linear layers."""
    norms = [Parameters(state, False) for _ in range(3)]
    first, second = Parameters(state, packs), Parameters(state, packs)

    def fits(self: nn.Module, x: Tensor) -> bool:
        feed = self.ff.net
        return (self.norm_type == "layer_norm" and self.pos_embed is None and self.attn2 is not None and x.ndim == 3
                and self._chunk_size is None and all(is_plain(n, nn.LayerNorm) for n in (self.norm1, self.norm2, self.norm3))
                and len(feed) == 3 and type(feed[0]).__name__ == "GEGLU" and is_plain(feed[0].proj, nn.Linear)
                and is_plain(feed[2], nn.Linear) and _idle(feed[1]) and x.dtype == feed[2].weight.dtype)

    def norm(i: int, layer: nn.LayerNorm) -> tuple:
        return norms[i].f32(layer, "weight"), norms[i].f32(layer, "bias"), layer.eps

    def forward(self: nn.Module, original: Callable, hidden_states: Tensor, attention_mask: Optional[Tensor] = None,
                encoder_hidden_states: Optional[Tensor] = None, encoder_attention_mask: Optional[Tensor] = None,
                timestep: Any = None, cross_attention_kwargs: Optional[dict] = None, class_labels: Any = None,
                added_cond_kwargs: Optional[dict] = None) -> Tensor:
        if not fits(self, hidden_states) or (cross_attention_kwargs or {}).get("gligen") is not None:
            return original(hidden_states, attention_mask, encoder_hidden_states, encoder_attention_mask, timestep,
                            cross_attention_kwargs, class_labels, added_cond_kwargs)
        extra = {k: v for k, v in (cross_attention_kwargs or {}).items() if k != "gligen"}
        x = hidden_states
        y = self.attn1(ops.layer_norm(x, *norm(0, self.norm1)), attention_mask=attention_mask,
                       encoder_hidden_states=encoder_hidden_states if self.only_cross_attention else None, **extra)
        y, x = ops.layer_norm_residual(y, x, *norm(1, self.norm2))
        y = self.attn2(y, encoder_hidden_states=encoder_hidden_states, attention_mask=encoder_attention_mask, **extra)
        y, x = ops.layer_norm_residual(y, x, *norm(2, self.norm3))
        up, down = self.ff.net[0].proj, self.ff.net[2]
        y = ops.linear_epilogue(y, up.weight, first.f32(up, "bias"), geglu=True, pack=first.pack)
        return ops.linear_epilogue(y, down.weight, second.f32(down, "bias"), residual=x, pack=second.pack)

    return forward
