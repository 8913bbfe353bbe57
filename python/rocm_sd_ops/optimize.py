"""optimize_sd_model and restore: our operators in a live Diffusers model."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Iterator, Optional

import torch
from torch import nn

from ._diffusers_blocks import (activation_forward, conv_forward, group_norm_forward, image_transformer_forward, resnet_forward,
                                transformer_forward, upsample_forward)
from ._layers import base_of, is_original, layers_are_pytorchs
from ._ldm_blocks import is_ldm, optimize_ldm
from ._model_forwards import model_forward, vae_half_forward
from ._patching import PATCH, Patch, all_modules, forget_processors, patches, put_on, take_off
from .attention_processor import RocmSDAttnProcessor

LEVELS = ("auto", "performance", "memory")

_CONVOLUTIONS = {"ResnetBlock2D": ("conv1", "conv2"), "Upsample2D": ("conv", "Conv2d_0"), "Transformer2DModel": ("proj_in", "proj_out")}
_BLOCKS: dict[str, tuple[Callable, str]] = {
    "ResnetBlock2D": (resnet_forward, "residual blocks"), "BasicTransformerBlock": (transformer_forward, "transformer blocks"),
    "Transformer2DModel": (image_transformer_forward, "transformers"), "Upsample2D": (upsample_forward, "upsamplings")}


def level_named(level: Any) -> str:
    """The level, in whatever case it is written. Raises ValueError for another one."""
    known = str(level).lower()
    if known not in LEVELS:
        raise ValueError(f"level {level!r}: expected one of {', '.join(LEVELS)}")
    return known


def optimize_sd_model(model: Any, level: str = "auto", engine: Optional[bool] = None) -> Any:
    """Puts our operators into a Diffusers pipeline, UNet, VAE or ControlNet, or into a model of the ldm family (CompVis',
    Stability's, ComfyUI's modules), in place, and returns it. Of a ComfyUI ModelPatcher a clone is returned, whose model runs them.

    level: "performance" keeps weights laid out for the kernels and the text's keys and values per picture; "memory" keeps
    neither; "auto" is "performance" on a GPU and for float32 on the CPU; upper case is taken, too. Changed are attention processors
    (those of IP-Adapter and other special ones stay), norms with their activations, residual and transformer blocks, and upsampling;
    the results agree with the plain model's within rounding. LoRA, hooks and offloading are seen at each call and get the model's own
    code where they need it; so do torch.autocast, forward-mode derivatives and torch.func. engine: whether the C++ engine's UNet
    and VAE take whole forwards (engine_modules.py), which is what a GPU waits for otherwise; None: on a GPU unless the level is
    "memory". Calls with options that it does not have go layer by layer. What is changed is the modules: whoever has them sees it,
    a deep copy is optimised by itself, a pickle is the plain model. Calling it again starts anew. restore(model)
    undoes everything. Raises ValueError for an unknown level, TypeError for a model without a layer that we know.
    """
    level = level_named(level)
    if _is_model_patcher(model):
        return _optimize_patcher(model, level, engine)
    modules = list(_components(model))
    restore(model)
    try:
        for module in modules:
            _optimize_module(module, level, engine)
        if not report(model):
            raise TypeError(f"{type(model).__name__}: no layer that optimize_sd_model knows; expected a Diffusers pipeline, "
                            "UNet, VAE or ControlNet, or an ldm model")
    except BaseException:
        restore(model)
        raise
    return model


def restore(model: Any) -> Any:
    """Undoes optimize_sd_model, in place, whoever called it on these modules; a model that was not optimised stays as it is."""
    for module in all_modules(_components(model, strict=False)):
        take_off(module)
        processor = module.__dict__.get("processor")
        if isinstance(processor, RocmSDAttnProcessor) and processor.replaces is not None:
            module.__dict__["processor"] = processor.replaces
    return model


def refresh(model: Any) -> Any:
    """Makes an optimised model look at its weights anew. Needed on a GPU after code of one's own wrote values into them through
    `.data` or within torch.inference_mode() while the text stays the same tensor; all else is seen."""
    for component in _components(model, strict=False):
        for _, patch in patches(component):
            patch.forget()
        forget_processors(component)
    return model


def report(model: Any) -> dict[str, int]:
    """How many layers of which kind run our operators."""
    counts: Counter = Counter()
    for module in all_modules(_components(model, strict=False)):
        patch: Optional[Patch] = module.__dict__.get(PATCH)
        if patch is not None and patch.belongs_to(module):
            patch.made(module)
            counts.update([patch.what] if patch.what else [])
            counts.update(["engine models"] if patch.engine is not None else [])
        processor = module.__dict__.get("processor")
        if isinstance(processor, RocmSDAttnProcessor) and processor.replaces is not None:
            counts["attention layers"] += 1
    return dict(counts)


def optimize_rest(model: Any, level: str) -> Any:
    """optimize_sd_model for those models of a pipeline that are not optimised yet, not even in parts; others stay as they are."""
    for component in _components(model):
        if next(patches(component), None) is None:
            try:
                optimize_sd_model(component, level)
            except TypeError:  # nothing that we know in this one
                continue
    return model


def engine_reasons(model: Any) -> dict[str, str]:
    """Of each model (or half of a VAE) that the engine was to run: why it left the last call to the layers, "" where it ran."""
    return {patch.engine_name: patch.engine.reason for component in _components(model, strict=False)
            for _, patch in patches(component) if patch.engine is not None}


def _components(model: Any, strict: bool = True) -> Iterator[nn.Module]:
    if isinstance(model, nn.Module):
        yield model
        return
    components = getattr(model, "components", None)
    if not isinstance(components, dict):
        if strict:
            raise TypeError(f"{type(model).__name__}: expected a Diffusers pipeline or a torch.nn.Module")
        return
    for name in ("unet", "vae", "controlnet"):
        component = components.get(name)
        if isinstance(component, nn.Module):
            yield component


def _is_model_patcher(model: Any) -> bool:
    """ComfyUI's holder of a model and of what is to be changed in it."""
    return (not isinstance(model, nn.Module) and hasattr(model, "add_wrapper_with_key") and hasattr(model, "model_options")
            and hasattr(getattr(model, "model", None), "diffusion_model"))


def _optimize_patcher(model: Any, level: str, engine: Optional[bool]) -> Any:
    from .comfyui import optimized

    return optimized(model, level, "auto" if engine is None else "on" if engine else "off")


def _optimize_module(module: nn.Module, level: str, engine: Optional[bool]) -> None:
    for net in getattr(module, "nets", ()):  # several ControlNets
        _optimize_module(net, level, engine)
    parameter = next(module.parameters(), None)
    on_gpu = parameter is not None and parameter.device.type == "cuda"
    fast = level == "performance" or (level == "auto" and (on_gpu or (parameter is not None
                                                                       and parameter.dtype == torch.float32)))
    if any(is_ldm(m) for m in module.modules()):
        optimize_ldm(module, fast, level)
        return
    count = _set_processors(module, fast) + _patch_layers(module, fast, level)
    if count == 0 or not is_original(type(module)):
        return
    engine = engine if engine is not None else on_gpu and level != "memory"
    if type(module).__name__ == "AutoencoderKL":
        for half in ("decoder", "encoder"):
            put_on(getattr(module, half), Patch(vae_half_forward(half, engine), "", fast, level, owner=module))
    put_on(module, Patch(model_forward(engine), "models", fast, level))


def _patch_layers(module: nn.Module, fast: bool, level: str) -> int:
    followed = {id(m.conv_norm_out): m for m in module.modules() if type(getattr(m, "conv_act", None)) is nn.SiLU
                and type(getattr(m, "conv_norm_out", None)) is nn.GroupNorm}
    inside = {id(n) for m in module.modules() if type(m).__name__ in ("ResnetBlock2D", "Attention")
              for n in m.modules() if isinstance(n, nn.GroupNorm)}
    # Convolutions that their blocks' forwards compute.
    ours = {id(getattr(m, name, None)) for m in module.modules() for name in _CONVOLUTIONS.get(type(m).__name__, ())}
    plain_layers, count = layers_are_pytorchs(), 0
    for child in list(module.modules()):
        kind = type(child).__name__
        if PATCH in child.__dict__:  # shared with a model that came before
            count += 1
        elif kind in _BLOCKS:
            if base_of(type(child)).__module__.startswith("diffusers.") and is_original(type(child)) and (
                    kind != "Transformer2DModel" or getattr(child, "is_input_continuous", False)):
                make, what = _BLOCKS[kind]
                put_on(child, Patch(make, what, fast, level))
                count += 1
        elif not plain_layers:
            continue
        elif type(child) is nn.GroupNorm and id(child) not in inside:
            owner = followed.get(id(child))
            act = None if owner is None else owner.conv_act
            put_on(child, Patch(group_norm_forward, "group norms", fast, level, partner=act, owner=owner))
            if act is not None:
                put_on(act, Patch(activation_forward, "", fast, level))
            count += 1
        elif type(child) is nn.Conv2d and id(child) not in ours:
            put_on(child, Patch(conv_forward, "convolutions", fast, level))
            count += 1
    return count


def _set_processors(module: nn.Module, cache_text: bool) -> int:
    count = 0
    for child in module.modules():
        processor = child.__dict__.get("processor")
        if type(processor).__name__ not in ("AttnProcessor", "AttnProcessor2_0") or not _is_diffusers(type(processor)):
            continue  # IP-Adapter, fused projections and others keep theirs
        child.__dict__["processor"] = RocmSDAttnProcessor.in_place_of(processor, cache_text)
        count += 1
    return count


def _is_diffusers(cls: type) -> bool:
    call = getattr(cls, "__call__", None)  # noqa: B004 (its module, not whether it can be called)
    return cls.__module__.startswith("diffusers.") and getattr(call, "__module__", "").startswith("diffusers.")
