"""ComfyUI's VAE by rocm-sd: the C++ engine's decoder and encoder where they take the model, else its layers by our operators.
Changes hold for one call, so that other nodes on the same weights see nothing of them."""

from __future__ import annotations

import copy
import types
import weakref
from typing import Any, Optional

import rocm_sd_ops
from rocm_sd_ops.ldm import VaeHalfForward
from torch import Tensor, nn


def pixel_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """AttnBlock.optimized_attention: [B,C,H,W], one head."""
    return rocm_sd_ops.vae_attention(q, k, v)


def _group_norm(self: nn.GroupNorm, x: Tensor) -> Tensor:
    # ComfyUI may keep the parameters elsewhere and cast them for each call.
    if x.ndim != 4 or self.weight is None or self.weight.device != x.device or getattr(self, "comfy_cast_weights", False):
        return type(self).forward(self, x)
    return rocm_sd_ops.group_norm_silu(x, self.num_groups, self.weight, self.bias, self.eps, silu=False)


class _Patched:
    """Attributes of the first stage that are ours within a with block."""

    def __init__(self, first_stage: nn.Module, engines: dict[str, VaeHalfForward], bands: int) -> None:
        self.changes: list[tuple[Any, str, Any]] = []
        for module in first_stage.modules():
            if hasattr(module, "optimized_attention") and hasattr(module, "proj_out"):
                self.changes.append((module, "optimized_attention", pixel_attention))
            elif isinstance(module, nn.GroupNorm):
                forward = types.MethodType(_group_norm, module)
                forward.__func__.rocm_sd_forward = True
                self.changes.append((module, "forward", forward))
        for half, engine in engines.items():
            module = getattr(first_stage, half)
            self.changes.append((module, "forward", _engine_first(engine, module.forward, bands if half == "decoder" else 1)))

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


def _engine_first(engine: VaeHalfForward, original: Any, bands: int) -> Any:
    def forward(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args or kwargs:
            return original(x, *args, **kwargs)
        return engine.try_forward(original, x, bands=min(bands, max(1, x.shape[2])) if x.ndim == 4 else 1)

    return forward


# By first stage: every copy on the same weights shares one engine.
_known: "weakref.WeakKeyDictionary[nn.Module, dict[str, VaeHalfForward]]" = weakref.WeakKeyDictionary()


def _engines(first_stage: nn.Module) -> dict[str, VaeHalfForward]:
    if first_stage not in _known:
        _known[first_stage] = {half: VaeHalfForward(first_stage, half) for half in ("decoder", "encoder")
                               if hasattr(first_stage, half)}
    return _known[first_stage]


def with_operators(vae: Any, bands: int = 1) -> Any:
    """A copy of a ComfyUI VAE (on the same weights) that decodes and encodes with rocm-sd. bands: of rows in decode();
    decode_tiled() takes as many as its tile's height asks for, and gives decode()'s picture."""
    clone = copy.copy(vae)
    if getattr(vae, "patcher", None) is not None:
        clone.patcher = vae.patcher.clone()
    for name in ("decode", "encode", "encode_tiled"):
        method = getattr(type(vae), name, None)
        if method is None:
            continue

        def call(self: Any, *args: Any, _method: Any = method, **kwargs: Any) -> Any:
            stage = self.first_stage_model
            with _Patched(stage, _engines(stage), bands):
                return _method(self, *args, **kwargs)

        setattr(clone, name, types.MethodType(call, clone))
    if hasattr(type(vae), "decode_tiled"):
        clone.decode_tiled = types.MethodType(_decode_tiled, clone)
    return clone


def _decode_tiled(self: Any, samples: Tensor, tile_x: Optional[int] = None, tile_y: Optional[int] = None, *args: Any,
                  **kwargs: Any) -> Any:
    """Exact where the engine has the decoder: bands of tile_y rows of latents; otherwise ComfyUI's own tiles."""
    stage, method = self.first_stage_model, type(self).decode_tiled
    engines = _engines(stage)
    if samples.ndim == 4 and "decoder" in engines and engines["decoder"].takes():
        rows = tile_y or tile_x or 64
        with _Patched(stage, engines, -(-samples.shape[2] // max(1, rows))):
            return type(self).decode(self, samples)
    with _Patched(stage, {}, 1):
        return method(self, samples, tile_x, tile_y, *args, **kwargs)
