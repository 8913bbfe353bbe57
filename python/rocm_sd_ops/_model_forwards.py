"""Forwards of whole models: the C++ engine's where it takes the call, else the model's layers, below autograd where nothing is
differentiated. As _diffusers_blocks.py, each makes the forward of one module for its Patch."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

from ._patching import Patch, below_autograd, forget_processors, patches
from ._values import Fingerprint, is_capturing
from .engine_modules import UNetForward, VaeHalfForward


class _Watch:
    """On a GPU: looks at samples of the weights when a new text (or picture) comes, which makes the host wait once per picture. The
    layers themselves see writes that PyTorch counts, and on the CPU all."""

    def __init__(self) -> None:
        self._fingerprint = Fingerprint()
        self._text: Any = None

    def look(self, module: nn.Module, text: Optional[Tensor]) -> None:
        parameter = next(module.parameters(), None)
        if (parameter is None or not parameter.is_cuda or torch.is_grad_enabled() or torch.compiler.is_compiling()
                or is_capturing(parameter)):
            return
        if text is not None and self._text is not None and self._text() is text:
            return
        self._text = None if text is None else weakref.ref(text)
        if self._fingerprint.changed(module):
            for _, patch in patches(module):
                patch.forget()
            forget_processors(module)


def _text_of(args: tuple, kwargs: dict) -> Optional[Tensor]:
    text = kwargs.get("encoder_hidden_states", args[2] if len(args) > 2 else None)
    return text if isinstance(text, Tensor) else None


def model_forward(engine: bool) -> Callable:
    """Of a UNet, a ControlNet or a whole VAE."""
    return _model_with_engine if engine else _model_by_layers


def _model_by_layers(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    watch, is_vae = _Watch(), type(module).__name__ == "AutoencoderKL"

    def forward(self: nn.Module, original: Callable, *args: Any, **kwargs: Any) -> Any:
        if not is_vae:  # whose halves are watched
            watch.look(self, _text_of(args, kwargs))
        return below_autograd(original, *args, **kwargs)

    return forward


def _model_with_engine(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    if type(module).__name__ != "UNet2DConditionModel":
        return _model_by_layers(patch, module, packs)
    by_layers = _model_by_layers(patch, module, packs)
    engine = UNetForward(module, packs)
    patch.engine, patch.engine_name = engine, "unet"
    patch.forgets.append(engine.forget)

    def forward(self: nn.Module, original: Callable, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # decided before anything that a tracer would have to follow
            return engine.traced_forward(original, *args, **kwargs)
        return engine.try_forward(lambda *a, **k: by_layers(self, original, *a, **k), *args, **kwargs)

    return forward


def vae_half_forward(half: str, engine: bool) -> Callable:
    """Of a VAE's decoder or encoder; the patch's owner is the VAE."""
    return {("decoder", True): _decoder, ("encoder", True): _encoder}.get((half, engine), _half_by_layers)


def _half_by_layers(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    watch = _Watch()

    def forward(self: nn.Module, original: Callable, *args: Any, **kwargs: Any) -> Any:
        watch.look(self, None)
        return below_autograd(original, *args, **kwargs)

    return forward


def _decoder(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    return _half_with_engine(patch, module, packs, "decoder")


def _encoder(patch: Patch, module: nn.Module, packs: bool) -> Callable:
    return _half_with_engine(patch, module, packs, "encoder")


def _half_with_engine(patch: Patch, module: nn.Module, packs: bool, half: str) -> Callable:
    by_layers = _half_by_layers(patch, module, packs)
    vae = None if patch.owner is None else patch.owner()
    if vae is None or vae._modules.get(half) is not module:  # a copy of the half alone: it does not know its configuration
        return by_layers
    engine = VaeHalfForward(vae, half)
    patch.engine, patch.engine_name = engine, half
    patch.forgets.append(engine.forget)

    def forward(self: nn.Module, original: Callable, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        return engine.try_forward(lambda *a, **k: by_layers(self, original, *a, **k), *args, **kwargs)

    return forward
