"""optimize_sd_model and restore: our operators in a live Diffusers model."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional

import torch
from torch import nn

from ._diffusers_blocks import (conv_forward, group_norm_forward, image_transformer_forward, resnet_forward, transformer_forward,
                                upsample_forward)
from ._ldm_blocks import is_ldm, optimize_ldm
from ._patching import STATE, State, below_autograd
from .attention_processor import RocmSDAttnProcessor
from .engine_modules import UNetForward, VaeHalfForward

LEVELS = ("auto", "performance", "memory")
# Methods that write new values into weights behind PyTorch's back.
_REWRITING = ("fuse_lora", "unfuse_lora", "load_lora_weights", "unload_lora_weights", "set_adapters", "delete_adapters",
              "load_ip_adapter", "unload_ip_adapter", "fuse_qkv_projections", "unfuse_qkv_projections", "load_state_dict")


_CONVOLUTIONS = {"ResnetBlock2D": ("conv1", "conv2"), "Upsample2D": ("conv", "Conv2d_0"), "Transformer2DModel": ("proj_in", "proj_out")}


def optimize_sd_model(model: Any, level: str = "auto", engine: Optional[bool] = None) -> Any:
    """Puts our operators into a Diffusers pipeline, UNet, VAE or ControlNet, or into a model of the ldm family (CompVis',
    Stability's, ComfyUI's modules), in place, and returns it.

    level: "performance" keeps weights laid out for the kernels and the text's keys and values per picture; "memory" keeps
    neither; "auto" is "performance" on a GPU and for float32 on the CPU. Changed are attention processors (those of
    IP-Adapter and other special ones stay), norms with their activations, residual and transformer blocks, upsampling, and
    the memory format (channels_last); the results agree with the plain model's within rounding. LoRA, hooks and offloading
    are seen at each call and get the model's own code where they need it. engine: whether the C++ engine's UNet and VAE take
    whole forwards (engine_modules.py), which is what a GPU waits for otherwise; None: on a GPU unless the level is
    "memory". Calls with options that it does not have go layer by layer. Calling it again starts anew. restore(model)
    undoes everything. Raises ValueError for an unknown level, TypeError for a model without a layer that we know.
    """
    if level not in LEVELS:
        raise ValueError(f"level {level!r}: expected one of {', '.join(LEVELS)}")
    restore(model)
    modules = list(_components(model))
    state = State(level)
    try:
        for module in modules:
            _optimize_module(state, module, level, engine)
        if not state.counts:
            raise TypeError(f"{type(model).__name__}: no layer that optimize_sd_model knows; expected a Diffusers pipeline, "
                            "UNet, VAE or ControlNet, or an ldm model")
        for owner in {id(o): o for o in (model, *modules)}.values():
            _watch_rewrites(state, owner)
    except BaseException:
        _undo(state)
        raise
    object.__setattr__(model, STATE, state)
    return model


def restore(model: Any) -> Any:
    """Undoes optimize_sd_model, in place; a model that was not optimised stays as it is."""
    state: Optional[State] = getattr(model, "__dict__", {}).get(STATE)
    if state is not None:
        _undo(state)
        object.__delattr__(model, STATE)
    return model


def take_state(model: Any) -> Any:
    """restore(model), keeping what the forwards that were replaced hold, for a caller who puts them back himself."""
    state: Optional[State] = getattr(model, "__dict__", {}).get(STATE)
    forget = list(state.forget) if state else []
    restore(model)
    return forget


def refresh(model: Any) -> Any:
    """Makes an optimised model look at its weights anew. Needed after code of one's own wrote values into them; Diffusers'
    LoRA and adapter methods do it themselves."""
    state: Optional[State] = getattr(model, "__dict__", {}).get(STATE)
    for forget in state.forget if state else ():
        forget()
    return model


def report(model: Any) -> dict[str, int]:
    """How many layers of which kind run our operators."""
    state: Optional[State] = getattr(model, "__dict__", {}).get(STATE)
    return dict(state.counts) if state else {}


def _undo(state: State) -> None:
    while state.undo:
        state.undo.pop()()
    state.forget.clear()


def _components(model: Any) -> Iterator[nn.Module]:
    if isinstance(model, nn.Module):
        yield model
        return
    components = getattr(model, "components", None)
    if not isinstance(components, dict):
        raise TypeError(f"{type(model).__name__}: expected a Diffusers pipeline or a torch.nn.Module")
    for name in ("unet", "vae", "controlnet"):
        component = components.get(name)
        if isinstance(component, nn.Module):
            yield component
        for net in getattr(component, "nets", ()):
            yield net


def _watch_rewrites(state: State, owner: Any) -> None:
    for name in _REWRITING:
        method = getattr(owner, name, None)
        if not callable(method) or name in getattr(owner, "__dict__", {}):
            continue

        def call(*args: Any, _method: Any = method, **kwargs: Any) -> Any:
            try:
                return _method(*args, **kwargs)
            finally:
                for forget in state.forget:
                    forget()

        object.__setattr__(owner, name, call)
        state.undo.append(lambda owner=owner, name=name: owner.__dict__.pop(name, None))


def engine_reasons(model: Any) -> dict[str, str]:
    """Of each model (or half of a VAE) that the engine was to run: why it left the last call to the layers, "" where it ran."""
    state: Optional[State] = getattr(model, "__dict__", {}).get(STATE)
    return {name: engine.reason for name, engine in state.engines.items()} if state else {}


def _optimize_module(state: State, module: nn.Module, level: str, engine: Optional[bool]) -> None:
    parameter = next(module.parameters(), None)
    on_gpu = parameter is not None and parameter.device.type == "cuda"
    fast = level == "performance" or (level == "auto" and (on_gpu or (parameter is not None
                                                                       and parameter.dtype == torch.float32)))
    before = dict(state.counts)
    if any(is_ldm(m) for m in module.modules()):
        optimize_ldm(state, module, fast)
        return
    _set_processors(state, module, fast)
    followed = {id(m.conv_norm_out) for m in module.modules() if isinstance(getattr(m, "conv_act", None), nn.SiLU)
                and isinstance(getattr(m, "conv_norm_out", None), nn.GroupNorm)}
    inside = {id(n) for m in module.modules() if type(m).__name__ in ("ResnetBlock2D", "Attention")
              for n in m.modules() if isinstance(n, nn.GroupNorm)}
    # Convolutions that their blocks' forwards compute.
    ours = {id(getattr(m, name, None)) for m in module.modules() for name in _CONVOLUTIONS.get(type(m).__name__, ())}
    for child in module.modules():
        kind = type(child).__name__
        if kind == "ResnetBlock2D":
            state.replace_forward(child, resnet_forward(state, child, fast), "residual blocks")
        elif kind == "BasicTransformerBlock":
            state.replace_forward(child, transformer_forward(state, child, fast), "transformer blocks")
        elif kind == "Transformer2DModel" and getattr(child, "is_input_continuous", False):
            state.replace_forward(child, image_transformer_forward(state, child, fast), "transformers")
        elif kind == "Upsample2D":
            state.replace_forward(child, upsample_forward(state, child, fast), "upsamplings")
        elif type(child) is nn.GroupNorm and id(child) not in inside:
            state.replace_forward(child, group_norm_forward(state, id(child) in followed), "group norms")
        elif type(child) is nn.Conv2d and id(child) not in ours:
            state.replace_forward(child, conv_forward(state, fast), "convolutions")
        if id(getattr(child, "conv_norm_out", None)) in followed:
            state.set_attribute(child, "conv_act", nn.Identity())
    if state.counts == before:
        return
    _to_channels_last(state, module)
    if engine if engine is not None else on_gpu and level != "memory":
        _add_engine(state, module, fast)
    state.replace_forward(module, below_autograd, "models")


def _add_engine(state: State, module: nn.Module, cache_text: bool) -> None:
    kind = type(module).__name__
    whole: dict[str, Any] = {}
    if kind == "UNet2DConditionModel":
        whole = {"unet": (module, UNetForward(module, cache_text))}
    elif kind == "AutoencoderKL":
        whole = {half: (getattr(module, half), VaeHalfForward(module, half)) for half in ("decoder", "encoder")}
    for name, (part, engine) in whole.items():
        def forward(self: nn.Module, original: Callable, *args: Any, _engine: Any = engine, _traced: bool = name == "unet",
                    **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # decided before anything that a tracer would have to follow
                return _engine.traced_forward(original, *args, **kwargs) if _traced else original(*args, **kwargs)
            return _engine.try_forward(original, *args, **kwargs)

        state.replace_forward(part, forward, "engine models")
        state.forget.append(engine.forget)
        state.engines[name] = engine


def _set_processors(state: State, module: nn.Module, cache_text: bool) -> None:
    processors = getattr(module, "attn_processors", None)
    if not processors:
        return
    ours = dict(processors)
    for name, processor in processors.items():
        if type(processor).__name__ not in ("AttnProcessor", "AttnProcessor2_0"):
            continue  # IP-Adapter, fused projections and others keep theirs
        ours[name] = RocmSDAttnProcessor(cache_text=cache_text)
        state.forget.append(ours[name].forget)
        state.count("attention layers")

    def undo() -> None:
        now = module.attn_processors
        module.set_attn_processor({n: processors[n] if isinstance(p, RocmSDAttnProcessor) and n in processors else p
                                   for n, p in now.items()})

    module.set_attn_processor(ours)
    state.undo.append(undo)


def _to_channels_last(state: State, module: nn.Module) -> None:
    filters = [p for p in module.parameters() if p.ndim == 4]
    if any(p.device.type == "meta" for p in filters):
        return
    was = [p for p in filters if p.is_contiguous() and not p.is_contiguous(memory_format=torch.channels_last)]
    with torch.no_grad():
        for p in was:
            p.data = p.data.to(memory_format=torch.channels_last)

    def undo() -> None:
        with torch.no_grad():
            for p in was:
                if p.ndim == 4:
                    p.data = p.data.contiguous()

    state.undo.append(undo)
