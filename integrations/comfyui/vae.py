"""ComfyUI's VAE over our operators: the one head of its middle block, norms with their SiLU."""

from __future__ import annotations

import copy
import types
from typing import Any

import rocm_sd_ops
from torch import Tensor, nn


def pixel_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """AttnBlock.optimized_attention: [B,C,H,W], one head."""
    return rocm_sd_ops.vae_attention(q, k, v)


class _Patched:
    """Attributes that are ours during one call of the VAE, so that other nodes on the same weights see nothing of it."""

    def __init__(self, first_stage: nn.Module) -> None:
        self.changes: list[tuple[Any, str, Any]] = []
        for module in first_stage.modules():
            if hasattr(module, "optimized_attention") and hasattr(module, "proj_out"):
                self.changes.append((module, "optimized_attention", pixel_attention))
            elif isinstance(module, nn.GroupNorm):
                self.changes.append((module, "forward", types.MethodType(_group_norm, module)))

    def __enter__(self) -> None:
        self.before = [module.__dict__.get(name) for module, name, _ in self.changes]
        for module, name, value in self.changes:
            module.__dict__[name] = value

    def __exit__(self, *error: Any) -> None:
        for (module, name, _), value in zip(self.changes, self.before):
            if value is None:
                module.__dict__.pop(name, None)
            else:
                module.__dict__[name] = value


def _group_norm(self: nn.GroupNorm, x: Tensor) -> Tensor:
    # ComfyUI may keep the parameters elsewhere and cast them for each call.
    if x.ndim != 4 or self.weight is None or self.weight.device != x.device or getattr(self, "comfy_cast_weights", False):
        return type(self).forward(self, x)
    return rocm_sd_ops.group_norm_silu(x, self.num_groups, self.weight, self.bias, self.eps, silu=False)


def with_operators(vae: Any) -> Any:
    """A copy of a ComfyUI VAE (on the same weights) that decodes and encodes with our operators."""
    clone = copy.copy(vae)
    if getattr(vae, "patcher", None) is not None:
        clone.patcher = vae.patcher.clone()
    for name in ("decode", "encode", "decode_tiled", "encode_tiled"):
        method = getattr(type(vae), name, None)
        if method is None:
            continue

        def call(self: Any, *args: Any, _method: Any = method, **kwargs: Any) -> Any:
            with _Patched(self.first_stage_model):
                return _method(self, *args, **kwargs)

        setattr(clone, name, types.MethodType(call, clone))
    return clone
