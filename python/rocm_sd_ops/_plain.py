"""The operators composed of PyTorch's own: what runs where our kernels decline, what gradients are taken of, and what
the tests compare with. Arguments are those of torch.ops.rocm_sd, without `pack`."""

from __future__ import annotations

from typing import Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "silu": F.silu,
    "gelu": F.gelu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
}


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def float_mask(mask: Tensor, keys: int) -> Tensor:
    """A mask as PyTorch takes it -> additive f32 whose last dimension is `keys` long and contiguous."""
    if mask.dtype == torch.bool:
        zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
        mask = zeros.masked_fill(mask.logical_not(), float("-inf"))
    mask = mask.float()
    return mask.expand(*mask.shape[:-1], keys).contiguous() if mask.dim() else mask.expand(keys).contiguous()


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor] = None, scale: Optional[float] = None,
              causal: bool = False) -> Tensor:
    if mask is not None:
        if mask.dtype != torch.bool:
            mask = mask.to(q.dtype)
        if causal:
            seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
            mask = mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, float("-inf"))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal and mask is None, scale=scale)
    return y.transpose(1, 2).contiguous().transpose(1, 2)


def vae_attention(q: Tensor, k: Tensor, v: Tensor, scale: Optional[float] = None) -> Tensor:
    def tokens(x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2).unsqueeze(1)  # [B,1,HW,C]

    y = F.scaled_dot_product_attention(tokens(q), tokens(k), tokens(v), scale=scale)
    return _channels_last(y.squeeze(1).transpose(1, 2).reshape(q.shape))


def group_norm_silu(x: Tensor, groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                    eps: float = 1e-5, silu: bool = True, x2: Optional[Tensor] = None) -> Tensor:
    if x2 is not None:
        x = torch.cat([x, x2], dim=1)
    y = F.group_norm(x, groups, _as(weight, x), _as(bias, x), eps)
    return _channels_last(F.silu(y) if silu else y)


def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-5) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], _as(weight, x), _as(bias, x), eps).contiguous()


def layer_norm_residual(x: Tensor, residual: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                        eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    total = (x + residual).contiguous()
    return layer_norm(total, weight, bias, eps), total


def geglu(x: Tensor) -> Tensor:
    value, gate = x.chunk(2, dim=-1)
    return (value * F.gelu(gate)).contiguous()


def linear_epilogue(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, residual: Optional[Tensor] = None,
                    act: str = "none", gated: bool = False) -> Tensor:
    y = F.linear(x, weight, _as(bias, x))
    if gated:
        return geglu(y)
    if residual is not None:
        y = y + residual
    return ACTIVATIONS[act](y).contiguous()


def conv2d_epilogue(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: int = 1,
                    padding: list[int] = [0, 0, 0, 0], channel_shift: Optional[Tensor] = None,  # noqa: B006
                    residual: Optional[Tensor] = None, act: str = "none", x2: Optional[Tensor] = None) -> Tensor:
    if x2 is not None:
        x = torch.cat([x, x2], dim=1)
    top, left, bottom, right = padding
    if top == bottom and left == right:
        y = F.conv2d(x, weight, _as(bias, x), stride, (top, left))
    else:
        y = F.conv2d(F.pad(x, (left, right, top, bottom)), weight, _as(bias, x), stride)
    if channel_shift is not None:
        y = y + channel_shift[:, :, None, None]
    if residual is not None:
        y = y + residual
    return _channels_last(ACTIVATIONS[act](y))


def upsample2x_conv(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, padding: int = 1) -> Tensor:
    doubled = F.interpolate(x, scale_factor=2.0, mode="nearest")
    return _channels_last(F.conv2d(doubled, weight, _as(bias, x), padding=padding))


def scheduler_step(sample: Tensor, model_output: Tensor, sample_scale: float, output_scale: float,
                   guidance: float = 1.0, noise: Optional[Tensor] = None, noise_scale: float = 0.0,
                   previous: Optional[Tensor] = None, previous_scale: float = 0.0) -> Tensor:
    wide = torch.promote_types(sample.dtype, torch.float32)
    output = model_output.to(wide)
    if model_output.shape[0] != sample.shape[0]:
        uncond, cond = output.chunk(2)
        output = uncond + guidance * (cond - uncond)
    y = sample_scale * sample.to(wide) + output_scale * output
    if noise is not None:
        y = y + noise_scale * noise.to(wide)
    if previous is not None:
        y = y + previous_scale * previous.to(wide)
    return y.to(sample.dtype).contiguous()


def _as(parameter: Optional[Tensor], x: Tensor) -> Optional[Tensor]:
    """Norms and biases may be held in float beside 16-bit activations."""
    return None if parameter is None else parameter.to(x.dtype)


# Schemas of the private operators through which the library reaches these functions.
SCHEMAS: dict[str, tuple[str, Callable]] = {
    "_float_mask": ("(Tensor mask, int keys) -> Tensor", float_mask),
    "_attention_plain": ("(Tensor q, Tensor k, Tensor v, Tensor? mask, float? scale, bool causal) -> Tensor", attention),
    "_vae_attention_plain": ("(Tensor q, Tensor k, Tensor v, float? scale) -> Tensor", vae_attention),
    "_group_norm_silu_plain": ("(Tensor x, int groups, Tensor? weight, Tensor? bias, float eps, bool silu, Tensor? x2)"
                               " -> Tensor", group_norm_silu),
    "_layer_norm_plain": ("(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor", layer_norm),
    "_layer_norm_residual_plain": ("(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float eps)"
                                   " -> (Tensor, Tensor)", layer_norm_residual),
    "_geglu_plain": ("(Tensor x) -> Tensor", geglu),
    "_linear_epilogue_plain": ("(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, str act, bool gated)"
                               " -> Tensor", linear_epilogue),
    "_conv2d_epilogue_plain": ("(Tensor x, Tensor weight, Tensor? bias, int stride, int[] padding, Tensor? channel_shift,"
                               " Tensor? residual, str act, Tensor? x2) -> Tensor", conv2d_epilogue),
    "_upsample2x_conv_plain": ("(Tensor x, Tensor weight, Tensor? bias, int padding) -> Tensor", upsample2x_conv),
    "_scheduler_step_plain": ("(Tensor sample, Tensor model_output, float sample_scale, float output_scale,"
                              " float guidance, Tensor? noise, float noise_scale, Tensor? previous, float previous_scale)"
                              " -> Tensor", scheduler_step),
}
