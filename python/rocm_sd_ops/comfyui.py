"""Our attention and models in a ComfyUI ModelPatcher, for the nodes (integrations/comfyui) and for optimize_sd_model(patcher).

Attention goes through transformer_options["optimized_attention_override"], the rest through the DIFFUSION_MODEL wrapper: changes hold
for one call of the model and of the clone that asked for them, so that other clones on the same weights see nothing."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

from . import ops
from ._patching import Switched
from .engine_modules import LdmUNetForward

OVERRIDE = "optimized_attention_override"
KEY = "rocm_sd"
DIFFUSION_MODEL = "diffusion_model"  # comfy.patcher_extension.WrappersMP.DIFFUSION_MODEL
ON_LOAD = "on_load_after"  # comfy.patcher_extension.CallbacksMP.ON_LOAD


def heads_first(x: Tensor, heads: int, skip_reshape: bool) -> Tensor:
    """ComfyUI's [B,N,H*D] (or [B,H,N,D] with skip_reshape) -> [B,H,N,D]."""
    return x if skip_reshape else x.unflatten(-1, (heads, -1)).transpose(1, 2)


def full_mask(mask: Optional[Tensor]) -> Optional[Tensor]:
    """ComfyUI's masks lack the batch, then the heads: [M,N], [B,M,N] or [B,H,M,N]."""
    if mask is None or mask.ndim == 4 or mask.ndim == 2:
        return mask
    return mask.unsqueeze(1)


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Optional[Tensor] = None, attn_precision: Any = None,
              skip_reshape: bool = False, skip_output_reshape: bool = False, **kwargs: Any) -> Tensor:
    """One of ComfyUI's attention functions. Scores and sums are float whatever attn_precision asks."""
    q, k, v = (heads_first(x, heads, skip_reshape) for x in (q, k, v))
    if k.shape[1] != q.shape[1]:  # enable_gqa
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    y = ops.attention(q, k.to(q.dtype), v.to(q.dtype), mask=full_mask(mask), scale=kwargs.get("scale"))
    return y if skip_output_reshape else y.transpose(1, 2).flatten(2)


def make_override(previous: Optional[Callable] = None) -> Callable:
    """The override; one that was there before gets what ours leaves alone (tensors that are no float of ours)."""

    def override(func: Callable, q: Tensor, k: Tensor, v: Tensor, heads: int, *args: Any, **kwargs: Any) -> Tensor:
        floats = (torch.float32, torch.bfloat16, torch.float16)
        if q.dtype in floats and q.ndim in (3, 4) and not (kwargs.get("skip_reshape") and q.ndim != 4):
            return attention(q, k, v, heads, *args, **kwargs)
        if previous is not None:
            return previous(func, q, k, v, heads, *args, **kwargs)
        return func(q, k, v, heads, *args, **kwargs)

    override.rocm_sd_override = previous is None or is_ours(previous)  # type: ignore[attr-defined]  # nobody else's is behind it
    return override


def is_ours(override: Any) -> bool:
    """An attention override that the engine may leave out, because it computes the same."""
    return getattr(override, "rocm_sd_override", False)


def with_attention(model: Any) -> Any:
    """A clone of a ModelPatcher whose attention is ours; the model given stays as it is."""
    clone = model.clone()
    options = dict(clone.model_options)
    transformer = dict(options.get("transformer_options", {}))
    transformer[OVERRIDE] = make_override(transformer.get(OVERRIDE))
    options["transformer_options"] = transformer
    clone.model_options = options
    return clone


class ModelWrapper:
    """ComfyUI's wrapper(executor, x, timesteps, context, y, control, transformer_options): the engine where it takes the
    call, else the model layer by layer with our operators (level), else the model itself (level None)."""

    def __init__(self, level: Optional[str], engine: bool) -> None:
        self.level, self.use_engine = level, engine
        self.declined = ""
        self._made: dict[int, tuple] = {}  # by module: a clone may be given other weights

    def forget(self, *_: Any, **__: Any) -> None:
        """Called when ComfyUI has put weights into the model, LoRAs merged or taken out: it writes where PyTorch counts nothing."""
        for _, engine, switched in self._made.values():
            for held in (engine, switched):
                if held is not None:
                    held.forget()

    def _of(self, module: nn.Module) -> tuple:
        from .optimize import optimize_sd_model

        made = self._made.get(id(module))
        if made is None or made[0] is not module:
            engine = LdmUNetForward(module) if self.use_engine else None
            layers = None
            if self.level:
                try:
                    layers = Switched(optimize_sd_model(module, self.level, engine=False))
                except TypeError:  # a model of another family: its attention alone is ours
                    pass
            made = (module, engine, layers)
            self._made = {id(module): made}
        return made

    def __call__(self, executor: Any, *args: Any, **kwargs: Any) -> Any:
        module, engine, switched = self._of(executor.class_obj)

        def by_layers() -> Any:
            if switched is None:
                return executor(*args, **kwargs)
            with switched:
                return executor(*args, **kwargs)

        if engine is None:
            return by_layers()
        y = engine.try_forward(by_layers, *args, ours=is_ours, **kwargs)
        self.declined = engine.reason
        return y


def with_wrapper(model: Any, wrapper: ModelWrapper) -> Any:
    """A clone of a ModelPatcher with the wrapper innermost among those of its kind, in place of one that an earlier node of ours put
    there: two would keep two engines on the same weights."""
    clone = model.clone()
    clone.remove_wrappers_with_key(DIFFUSION_MODEL, KEY)
    clone.add_wrapper_with_key(DIFFUSION_MODEL, KEY, wrapper)
    if hasattr(clone, "add_callback_with_key"):
        clone.remove_callbacks_with_key(_on_load(), KEY)
        clone.add_callback_with_key(_on_load(), KEY, wrapper.forget)
    return clone


def _on_load() -> str:
    try:
        from comfy.patcher_extension import CallbacksMP
    except ImportError:
        return ON_LOAD
    return CallbacksMP.ON_LOAD


def optimized(model: Any, level: str, engine: str) -> Any:
    """A clone whose attention, and whose UNet by layers or as a whole, are ours. level "off": the clone alone. engine: auto, on, off."""
    if level == "off":
        return model.clone()
    module: nn.Module = model.model.diffusion_model
    parameter = next(module.parameters(), None)
    on_gpu = parameter is not None and parameter.device.type == "cuda"
    use_engine = engine == "on" or (engine == "auto" and on_gpu and level != "memory")
    return with_wrapper(with_attention(model), ModelWrapper(level, use_engine))
