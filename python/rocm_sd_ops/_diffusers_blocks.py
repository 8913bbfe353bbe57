"""Forwards of Diffusers' layers made of our operators. Each computes what the layer's own does and leaves the call to it
where an option that they do not know is in use, or where a child was wrapped or hooked (LoRA, offloading).

On a fast GPU the host is what such a model waits for: what is looked at in each call is little (PlainChildren, Seen), where
nothing special is asked for, a transformer block calls its layers' parameters, not the layers, and children and parameters are taken
from the dictionaries that hold them, since a module's own attribute look-up finds those only after everything else.

Each function here makes the forward of one module for its Patch (_patching.py): (patch, module, packs) -> function(module, original,
*arguments). What it keeps is made of that module alone.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import ops
from ._layers import PlainChildren, is_overridden, is_plain, is_watched
from ._patching import PATCH, Parameters, Patch
from .attention_processor import RocmSDAttnProcessor, takes_parameters


def _idle(dropout: Optional[nn.Module]) -> bool:
    return not isinstance(dropout, nn.Dropout) or dropout.p == 0.0 or not dropout.training


def _group_norm(p: Parameters, norm: nn.GroupNorm, x: Tensor, silu: bool) -> Tensor:
    return ops.group_norm_silu(x, norm.num_groups, p.f32(norm, "weight"), p.f32(norm, "bias"), norm.eps, silu=silu)


def _linear(parameters: dict[str, Any], x: Tensor) -> Tensor:
    return F.linear(x, parameters["weight"], parameters["bias"])


def _is_square(conv: nn.Module) -> bool:
    """A convolution that conv2d_epilogue takes, whoever calls it."""
    return (conv.groups == 1 and conv.dilation == (1, 1) and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
            and conv.stride[0] == conv.stride[1])


def _conv(p: Parameters, conv: nn.Conv2d, x: Tensor, **epilogue: Any) -> Tensor:
    weight = conv._parameters.get("weight", None)
    if weight is None:  # computed (parametrizations)
        weight = conv.weight
    return ops.conv2d_epilogue(x, weight, p.f32(conv, "bias"), stride=conv.stride[0], padding=conv.padding, pack=p.pack(weight),
                               **epilogue)


_SILU = "_rocm_sd_silu"  # attribute of a tensor: silu of it, and its count of writes then; or that it has been through silu


def _silu_once(temb: Tensor) -> Tensor:
    """silu(temb), which every residual block of a forward asks for: kept on the tensor while writes to it are counted."""
    if (torch.is_grad_enabled() or torch.compiler.is_compiling() or temb.is_inference() or torch.is_inference_mode_enabled()):
        return F.silu(temb)
    kept = getattr(temb, _SILU, None)
    if kept is None or kept[0] != temb._version:
        kept = (temb._version, F.silu(temb))
        setattr(temb, _SILU, kept)
    return kept[1]


def resnet_forward(patch: Patch, block: nn.Module, packs: bool) -> Callable:
    """ResnetBlock2D: each norm with its SiLU, the time shift and the shortcut in the convolutions' tails."""
    norm1, norm2, conv1, conv2 = (Parameters(patch, packs and i >= 2) for i in range(4))
    children = PlainChildren(block, {"norm1": nn.GroupNorm, "conv1": nn.Conv2d, "norm2": nn.GroupNorm, "conv2": nn.Conv2d,
                                     "nonlinearity": nn.SiLU})
    projection = PlainChildren(block, {"time_emb_proj": nn.Linear})

    def fits(of: dict[str, Any], modules: dict[str, Any]) -> bool:
        # A block without a time embedding does nothing for it, whatever the name of its kind ("group" in the VAE's decoder).
        shifted = of["time_embedding_norm"] == "default" or (of["time_embedding_norm"] != "scale_shift"
                                                             and modules.get("time_emb_proj") is None)
        return (shifted and of.get("upsample") is None and modules.get("upsample") is None and of.get("downsample") is None
                and modules.get("downsample") is None and of["output_scale_factor"] == 1.0)

    def forward(self: nn.Module, original: Callable, input_tensor: Tensor, temb: Optional[Tensor] = None, *args: Any,
                **kwargs: Any) -> Tensor:
        modules = self._modules
        layers = children.of(self) if not args and fits(self.__dict__, modules) else None
        if not (layers and _idle(modules.get("dropout")) and _is_square(layers[1]) and _is_square(layers[3])
                and input_tensor.dtype == layers[1]._parameters["weight"].dtype):
            return original(input_tensor, temb, *args, **kwargs)
        shift = None
        project = modules.get("time_emb_proj")
        if project is not None:
            shift = temb if self.skip_time_act else _silu_once(temb)
            shift = _linear(project._parameters, shift) if projection.of(self) else project(shift)
        elif temb is not None:
            return original(input_tensor, temb, **kwargs)
        y = _group_norm(norm1, layers[0], input_tensor, True)
        y = _conv(conv1, layers[1], y, channel_shift=shift)
        y = _group_norm(norm2, layers[2], y, True)
        shorten = modules.get("conv_shortcut")
        shortcut = input_tensor if shorten is None else shorten(input_tensor)
        return _conv(conv2, layers[3], y, residual=shortcut)

    return forward


def upsample_forward(patch: Patch, block: nn.Module, packs: bool) -> Callable:
    """Upsample2D: the doubling in the convolution's gather."""
    p = Parameters(patch, packs)

    def forward(self: nn.Module, original: Callable, hidden_states: Tensor, output_size: Optional[int] = None, *args: Any,
                **kwargs: Any) -> Tensor:
        conv = getattr(self, "conv", None) if self.name == "conv" else getattr(self, "Conv2d_0", None)
        doubled = output_size is None or tuple(output_size) == tuple(2 * n for n in hidden_states.shape[-2:])
        if not (doubled and not args and self.norm is None and self.use_conv and not self.use_conv_transpose
                and self.interpolate and is_plain(conv, nn.Conv2d) and _is_square(conv) and conv.stride == (1, 1)
                and conv.padding[0] == conv.padding[1] and hidden_states.dtype == conv.weight.dtype):
            return original(hidden_states, output_size, *args, **kwargs)
        return ops.upsample2x_conv(hidden_states, conv.weight, p.f32(conv, "bias"), padding=conv.padding[0],
                                   pack=p.pack(conv.weight))

    return forward


def conv_forward(patch: Patch, conv: nn.Module, packs: bool) -> Callable:
    """nn.Conv2d on pictures: first and last convolutions (of 3 or 4 channels, which cuDNN likes least), shortcuts, downsamplers."""
    # Few weights are laid out anew in each call: then nothing of them is kept.
    p = Parameters(patch, packs and (conv.weight is None or conv.weight.numel() > 1024))

    def forward(self: nn.Conv2d, original: Callable, x: Tensor) -> Tensor:
        if (x.ndim != 4 or not _is_square(self) or is_overridden(self) or x.dtype != self.weight.dtype
                or x.device != self.weight.device):
            return original(x)
        return _conv(p, self, x)

    return forward


def group_norm_forward(patch: Patch, layer: nn.Module, packs: bool) -> Callable:
    """nn.GroupNorm on pictures; with a partner in the patch, also of the SiLU that follows it, which is told by a mark on the result
    (activation_forward)."""
    p = Parameters(patch, False)

    def followed() -> bool:
        act, owner = patch.partner, None if patch.owner is None else patch.owner()
        return (act is not None and owner is not None and not torch.compiler.is_compiling() and not torch.is_grad_enabled()
                and owner._modules.get("conv_act") is act and not is_watched(act.__dict__) and PATCH in act.__dict__)

    def forward(self: nn.GroupNorm, original: Callable, x: Tensor) -> Tensor:
        if (x.ndim != 4 or self.weight is None or is_overridden(self) or x.dtype not in (self.weight.dtype, torch.float32)
                or x.device != self.weight.device):
            return original(x)
        silu = followed() and not is_watched(self.__dict__)
        y = _group_norm(p, self, x, silu)
        if silu:
            setattr(y, _SILU, True)
        return y

    return forward


def activation_forward(patch: Patch, layer: nn.Module, packs: bool) -> Callable:
    """nn.SiLU behind a norm that has done it."""

    def forward(self: nn.SiLU, original: Callable, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or getattr(x, _SILU, None) is not True:
            return original(x)
        delattr(x, _SILU)
        return x

    return forward


_BLOCK = {"norm1": nn.LayerNorm, "norm2": nn.LayerNorm, "norm3": nn.LayerNorm, "ff.net.0.proj": nn.Linear, "ff.net.2": nn.Linear}
_ATTENTION = {f"{attn}.{name}": nn.Linear for attn in ("attn1", "attn2") for name in ("to_q", "to_k", "to_v", "to_out.0")}


def transformer_forward(patch: Patch, block: nn.Module, packs: bool) -> Callable:
    """BasicTransformerBlock with layer norms: sums inside the norms, GEGLU and the last sum in the linear layers."""
    norms = [Parameters(patch, False) for _ in range(3)]
    first, second = Parameters(patch, packs), Parameters(patch, packs)
    children, projections = PlainChildren(block, _BLOCK), PlainChildren(block, _ATTENTION)
    known = (block.norm_type == "layer_norm" and block.pos_embed is None and block.attn2 is not None and len(block.ff.net) == 3
             and type(block.ff.net[0]).__name__ == "GEGLU")
    bare = known and takes_parameters(block.attn1) and takes_parameters(block.attn2) and not block.only_cross_attention

    def norm(i: int, layer: nn.LayerNorm) -> tuple:
        return norms[i].f32(layer, "weight"), norms[i].f32(layer, "bias"), layer.eps

    def forward(self: nn.Module, original: Callable, hidden_states: Tensor, attention_mask: Optional[Tensor] = None,
                encoder_hidden_states: Optional[Tensor] = None, encoder_attention_mask: Optional[Tensor] = None,
                timestep: Any = None, cross_attention_kwargs: Optional[dict] = None, class_labels: Any = None,
                added_cond_kwargs: Optional[dict] = None) -> Tensor:
        layers = children.of(self) if known and hidden_states.ndim == 3 and self._chunk_size is None else None
        modules = self._modules
        if (layers is None or hidden_states.dtype != layers[4]._parameters["weight"].dtype
                or not _idle(modules["ff"]._modules["net"]._modules["1"])
                or (cross_attention_kwargs or {}).get("gligen") is not None):
            return original(hidden_states, attention_mask, encoder_hidden_states, encoder_attention_mask, timestep,
                            cross_attention_kwargs, class_labels, added_cond_kwargs)
        norm1, norm2, norm3, up, down = layers
        x = hidden_states
        linears = None
        if (bare and attention_mask is None and encoder_attention_mask is None and not cross_attention_kwargs
                and encoder_hidden_states is not None and not torch.is_grad_enabled() and not torch.compiler.is_compiling()):
            linears = projections.of(self)
            attn1, attn2 = modules["attn1"], modules["attn2"]
            processors = attn1.processor, attn2.processor
            for processor in processors:
                if type(processor) is not RocmSDAttnProcessor or processor.steps_aside():
                    linears = None
        y = ops.layer_norm(x, *norm(0, norm1))
        if linears is not None:
            y = processors[0].of_parameters(attn1.heads, linears[:4], y)
            y, x = ops.layer_norm_residual(y, x, *norm(1, norm2))
            y = processors[1].of_parameters(attn2.heads, linears[4:], y, encoder_hidden_states)
        else:
            extra = {k: v for k, v in (cross_attention_kwargs or {}).items() if k != "gligen"}
            y = self.attn1(y, attention_mask=attention_mask,
                           encoder_hidden_states=encoder_hidden_states if self.only_cross_attention else None, **extra)
            y, x = ops.layer_norm_residual(y, x, *norm(1, norm2))
            y = self.attn2(y, encoder_hidden_states=encoder_hidden_states, attention_mask=encoder_attention_mask, **extra)
        y, x = ops.layer_norm_residual(y, x, *norm(2, norm3))
        weight, last = up._parameters["weight"], down._parameters["weight"]
        y = ops.linear_epilogue(y, weight, first.f32(up, "bias"), geglu=True, pack=first.pack(weight))
        return ops.linear_epilogue(y, last, second.f32(down, "bias"), residual=x, pack=second.pack(last))

    return forward


def image_transformer_forward(patch: Patch, block: nn.Module, packs: bool) -> Callable:
    """Transformer2DModel of pictures: pixels as rows from the norm to the last sum, which the last projection does."""
    norm, last = Parameters(patch, False), Parameters(patch, packs)
    kind = nn.Linear if block.use_linear_projection else nn.Conv2d
    children = PlainChildren(block, {"norm": nn.GroupNorm, "proj_in": kind, "proj_out": kind})

    def forward(self: nn.Module, original: Callable, hidden_states: Tensor, encoder_hidden_states: Optional[Tensor] = None,
                timestep: Any = None, added_cond_kwargs: Optional[dict] = None, class_labels: Any = None,
                cross_attention_kwargs: Optional[dict] = None, attention_mask: Optional[Tensor] = None,
                encoder_attention_mask: Optional[Tensor] = None, return_dict: bool = True) -> Any:
        plain = (not return_dict and attention_mask is None and encoder_attention_mask is None and not cross_attention_kwargs
                 and not torch.is_grad_enabled() and not torch.compiler.is_compiling())
        layers = children.of(self) if plain and self.is_input_continuous and hidden_states.ndim == 4 else None
        if layers is None or hidden_states.dtype != layers[1]._parameters["weight"].dtype:
            return original(hidden_states, encoder_hidden_states, timestep, added_cond_kwargs, class_labels, cross_attention_kwargs,
                            attention_mask, encoder_attention_mask, return_dict)
        n, c, h, w = hidden_states.shape
        x = hidden_states.permute(0, 2, 3, 1).reshape(n, h * w, c)  # [N,HW,C]
        y = _group_norm(norm, layers[0], hidden_states, False).permute(0, 2, 3, 1).reshape(n, h * w, c)
        first = layers[1]._parameters
        y = F.linear(y, first["weight"].flatten(1), first["bias"])
        for child in self._modules["transformer_blocks"]._modules.values():
            y = child(y, encoder_hidden_states=encoder_hidden_states, timestep=timestep, class_labels=class_labels)
        weight = layers[2]._parameters["weight"]
        y = ops.linear_epilogue(y, weight.flatten(1), last.f32(layers[2], "bias"), residual=x, pack=last.pack(weight))
        return (y.view(n, h, w, c).permute(0, 3, 1, 2),)

    return forward
