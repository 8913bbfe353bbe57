"""Forwards of the layers of CompVis' and Stability's code (ldm, sgm, ComfyUI's comfy.ldm) made of our operators, as
_diffusers_blocks.py does it for Diffusers'. A layer whose weights somebody changes on the way (LoRA hooks, weights cast or
patched at each call) runs its own code."""

from __future__ import annotations

from typing import Any, Callable, Optional

from torch import Tensor, nn

from . import ops
from ._layers import base_of, layers_are_pytorchs
from ._patching import Parameters, Patch, put_on


def usable(layer: Any, kind: type) -> bool:
    """A `kind` (or a front end's subclass of its name) whose weights are what its forward uses."""
    return (isinstance(layer, kind) and type(layer).__name__ == kind.__name__ and "forward" not in layer.__dict__
            and "_conv_forward" not in layer.__dict__ and layers_are_pytorchs()
            and kind.forward.__module__ == kind.__module__  # else a front end patched PyTorch's class (LoRA)
            and not layer._forward_hooks and not layer._forward_pre_hooks
            and not getattr(layer, "comfy_cast_weights", False) and not getattr(layer, "weight_function", None)
            and not getattr(layer, "bias_function", None) and layer.weight is not None
            and layer.weight.device.type != "meta")


def _convolves(conv: Any, x: Tensor) -> bool:
    return (usable(conv, nn.Conv2d) and conv.groups == 1 and conv.dilation == (1, 1) and conv.padding_mode == "zeros"
            and not isinstance(conv.padding, str) and conv.stride[0] == conv.stride[1] and x.dtype == conv.weight.dtype
            and x.device == conv.weight.device)


def _norm(p: Parameters, norm: nn.GroupNorm, x: Tensor, silu: bool = True) -> Tensor:
    return ops.group_norm_silu(x, norm.num_groups, p.f32(norm, "weight"), p.f32(norm, "bias"), norm.eps, silu=silu)


def _conv(p: Parameters, conv: nn.Conv2d, x: Tensor, **epilogue: Any) -> Tensor:
    return ops.conv2d_epilogue(x, conv.weight, p.f32(conv, "bias"), stride=conv.stride[0], padding=conv.padding,
                               pack=p.pack(conv.weight), **epilogue)


def _idle(dropout: Any) -> bool:
    return not isinstance(dropout, nn.Dropout) or dropout.p == 0.0 or not dropout.training


class _Block:
    def __init__(self, patch: Patch, packs: bool) -> None:
        self.norm1, self.norm2 = Parameters(patch, False), Parameters(patch, False)
        self.conv1, self.conv2 = Parameters(patch, packs), Parameters(patch, packs)

    def run(self, x: Tensor, norm1: Any, conv1: Any, shift: Optional[Tensor], norm2: Any, conv2: Any, shortcut: Tensor) -> Tensor:
        y = _conv(self.conv1, conv1, _norm(self.norm1, norm1, x), channel_shift=shift)
        return _conv(self.conv2, conv2, _norm(self.norm2, norm2, y), residual=shortcut)

    @staticmethod
    def fits(x: Tensor, norm1: Any, conv1: Any, norm2: Any, conv2: Any) -> bool:
        return (x.ndim == 4 and usable(norm1, nn.GroupNorm) and usable(norm2, nn.GroupNorm) and _convolves(conv1, x)
                and _convolves(conv2, x))


def _res_block(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    """The UNet's ResBlock: in_layers, emb_layers, out_layers, skip_connection."""
    block = _Block(patch, packs)

    def forward(self: nn.Module, original: Callable, x: Tensor, emb: Optional[Tensor] = None, *args: Any, **kwargs: Any) -> Tensor:
        first, last = self.in_layers, self.out_layers
        special = (getattr(self, "updown", False) or getattr(self, "use_scale_shift_norm", False) or args or kwargs
                   or getattr(self, "skip_t_emb", False) or getattr(self, "exchange_temb_dims", False))
        if (special or emb is None or len(first) != 3 or len(last) != 4 or type(first[1]) is not nn.SiLU
                or type(last[1]) is not nn.SiLU or not _idle(last[2])
                or not block.fits(x, first[0], first[2], last[0], last[3])):
            return original(x, emb, *args, **kwargs)
        shift = self.emb_layers(emb).type(x.dtype)
        return block.run(x, first[0], first[2], shift, last[0], last[3], self.skip_connection(x))

    return forward


def _resnet_block(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    """The VAE's ResnetBlock."""
    block = _Block(patch, packs)

    def forward(self: nn.Module, original: Callable, x: Tensor, temb: Optional[Tensor] = None, *args: Any, **kwargs: Any) -> Tensor:
        if (args or kwargs or temb is not None or not _idle(self.dropout)
                or not block.fits(x, self.norm1, self.conv1, self.norm2, self.conv2)):
            return original(x, temb, *args, **kwargs)
        shortcut = x
        if self.in_channels != self.out_channels:
            shortcut = (self.conv_shortcut if self.use_conv_shortcut else self.nin_shortcut)(x)
        return block.run(x, self.norm1, self.conv1, None, self.norm2, self.conv2, shortcut)

    return forward


def _attn_block(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    """The VAE's attention over pixels."""
    norm = Parameters(patch, False)

    def forward(self: nn.Module, original: Callable, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args or kwargs or x.ndim != 4 or not usable(self.norm, nn.GroupNorm):
            return original(x, *args, **kwargs)
        y = _norm(norm, self.norm, x, silu=False)
        return x + self.proj_out(ops.vae_attention(self.q(y), self.k(y), self.v(y)))

    return forward


def _cross_attention(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    """CrossAttention without a mask and without another's override. args: third is ComfyUI's value, the others' mask."""

    def forward(self: nn.Module, original: Callable, x: Tensor, context: Optional[Tensor] = None, *args: Any,
                value: Optional[Tensor] = None, mask: Optional[Tensor] = None, transformer_options: Optional[dict] = None,
                **kwargs: Any) -> Tensor:
        if args or mask is not None or kwargs or (transformer_options or {}).get("optimized_attention_override") is not None:
            given = {"value": value, "mask": mask, "transformer_options": transformer_options}
            return original(x, context, *args, **{k: v for k, v in given.items() if v is not None}, **kwargs)
        states = x if context is None else context
        q, k, v = self.to_q(x), self.to_k(states), self.to_v(states if value is None else value)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))  # [B,H,N,D]
        return self.to_out(ops.attention(q, k.to(q.dtype), v.to(q.dtype)).transpose(1, 2).flatten(2))

    return forward


def _geglu(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    p = Parameters(patch, packs)

    def forward(self: nn.Module, original: Callable, x: Tensor) -> Tensor:
        if not usable(self.proj, nn.Linear) or x.dtype != self.proj.weight.dtype or x.device != self.proj.weight.device:
            return original(x)
        return ops.linear_epilogue(x, self.proj.weight, p.f32(self.proj, "bias"), geglu=True, pack=p.pack(self.proj.weight))

    return forward


def _upsample(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    p = Parameters(patch, packs)

    def forward(self: nn.Module, original: Callable, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        shape = kwargs.get("output_shape", args[0] if args else None)
        doubled = x.ndim == 4 and (shape is None or tuple(shape[2:]) == tuple(2 * n for n in x.shape[2:]))
        conv = getattr(self, "conv", None)
        if not (doubled and getattr(self, "scale_factor", 2.0) == 2.0 and getattr(self, "dims", 2) == 2 and _convolves(conv, x)
                and conv.stride == (1, 1) and conv.padding[0] == conv.padding[1]):
            return original(x, *args, **kwargs)
        return ops.upsample2x_conv(x, conv.weight, p.f32(conv, "bias"), padding=conv.padding[0],
                                   pack=p.pack(conv.weight))

    return forward


_FORWARDS = {"ResBlock": (_res_block, "residual blocks"), "ResnetBlock": (_resnet_block, "residual blocks"),
             "AttnBlock": (_attn_block, "attention layers"), "CrossAttention": (_cross_attention, "attention layers"),
             "GEGLU": (_geglu, "gated layers"), "Upsample": (_upsample, "upsamplings")}


def is_ldm(module: nn.Module) -> bool:
    """A module of the ldm family: it lives in a package of that name."""
    parts = type(module).__module__.split(".")
    return "ldm" in parts or "sgm" in parts


def optimize_ldm(module: nn.Module, packs: bool, level: str) -> int:
    """Replaces the forwards of the layers that are known by their names; how many."""
    count = 0
    for child in list(module.modules()):
        cls = base_of(type(child))
        own = cls.forward.__module__ == cls.__module__  # else a front end has put its forward there
        if cls.__name__ in _FORWARDS and is_ldm(child) and own:
            make, what = _FORWARDS[cls.__name__]
            put_on(child, Patch(make, what, packs, level))
            count += 1
    return count
