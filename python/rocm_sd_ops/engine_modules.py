"""The C++ engine's UNet and VAE in place of PyTorch modules: one operator call a forward, on the same weights.

    pipe.unet = rocm_sd_ops.EngineUNet(pipe.unet)     # or optimize_sd_model(pipe), which does it where it pays

Every call looks at what the module is now: LoRA layers, hooks, replaced forwards, other attention processors, gradients and
options that the engine does not have get the module's own code.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

from ._engine_forward import EngineForward, Model, module_config, new_unet, refuse
from ._patching import PATCH, Patch, put_on, take_off
from ._values import SeenText

_ops = torch.ops.rocm_sd


class TextUNetForward(EngineForward):
    """A UNet's forward by the engine, which keeps a text's keys and values while the same text comes again."""

    def __init__(self, unet: nn.Module, make: Callable, cache_text: bool = True) -> None:
        super().__init__(unet, make)
        self._cache_text = cache_text
        self._text: Optional[tuple[int, SeenText]] = None
        self._last: Any = None  # the text of the last call
        self._new = True

    def forget(self) -> None:
        super().forget()
        self._text = None

    def left_alone(self) -> None:
        self._text = None

    def _same_text(self, model: int, text: Tensor) -> bool:
        self._new = self._last is None or self._last() is not text
        self._last = weakref.ref(text)
        same = self._cache_text and self._text is not None and self._text[0] == model and self._text[1].holds(text)
        if not same:
            self._text = (model, SeenText(text)) if SeenText.may_keep(text) else None
        return same

    def new_input(self) -> bool:
        return self._new


def define_operators(library: torch.library.Library) -> None:
    """torch.ops.rocm_sd._unet_forward, once."""
    library.define("_unet_forward(int key, Tensor sample, Tensor timestep, Tensor text, Tensor? timestep_cond,"
                   " Tensor? text_embeds, Tensor? time_ids) -> Tensor",
                   tags=(torch.Tag.cudagraph_unsafe,))  # it looks at the module, and starts a graph of its own
    library.impl("_unet_forward", _unet_forward, "CompositeExplicitAutograd")
    torch.library.register_fake("rocm_sd::_unet_forward", _fake_unet_forward, lib=library)


_keys = itertools.count(1)
_unets: weakref.WeakValueDictionary[int, UNetForward] = weakref.WeakValueDictionary()


def _unet_forward(key: int, sample: Tensor, timestep: Tensor, text: Tensor, timestep_cond: Optional[Tensor],
                  text_embeds: Optional[Tensor], time_ids: Optional[Tensor]) -> Tensor:
    """torch.ops.rocm_sd._unet_forward: the eager forward of the UNet with this key, for compiled graphs."""
    engine = _unets.get(key)
    module = None if engine is None else engine._module()
    if module is None:
        raise RuntimeError("the UNet that was compiled is gone, or was restored: compile again")
    added = {k: v for k, v in (("text_embeds", text_embeds), ("time_ids", time_ids)) if v is not None}
    with torch.no_grad():
        y = module.forward(sample, timestep, text, timestep_cond=timestep_cond, added_cond_kwargs=added or None,
                           return_dict=False)[0]
    return y.contiguous(memory_format=torch.channels_last)


def _fake_unet_forward(key: int, sample: Tensor, *args: Any) -> Tensor:
    engine = _unets.get(key)
    module = None if engine is None else engine._module()
    channels = sample.shape[1] if module is None else module.config.out_channels
    return sample.new_empty((sample.shape[0], *sample.shape[2:], channels)).permute(0, 3, 1, 2)


class UNetForward(TextUNetForward):
    """UNet2DConditionModel.forward by the engine."""

    def __init__(self, unet: nn.Module, cache_text: bool = True) -> None:
        super().__init__(unet, lambda state: new_unet(state, module_config(unet)), cache_text)
        self.key = next(_keys)
        _unets[self.key] = self

    def traced_forward(self, original: Callable, sample: Tensor, timestep: Any, encoder_hidden_states: Tensor,
                       *args: Any, **kwargs: Any) -> Any:
        """try_forward under torch.compile: one operator, which runs the module's eager forward with all its looking; or, where
        the engine declined the call before, the layers for the compiler to follow. (The compiler guards `reason`: a graph is made
        anew when it changes.)"""
        plain = not args and all(v is None for k, v in kwargs.items() if k not in ("added_cond_kwargs", "timestep_cond", "return_dict"))
        added = kwargs.get("added_cond_kwargs") or {}
        willing = not torch.is_grad_enabled() and self.reason == ""
        if not (willing and plain and set(added) <= {"text_embeds", "time_ids"}):
            return original(sample, timestep, encoder_hidden_states, *args, **kwargs)
        times = torch.as_tensor(timestep, device=sample.device).reshape(-1).expand(sample.shape[0])
        y = _ops._unet_forward(self.key, sample, times, encoder_hidden_states, kwargs.get("timestep_cond"),
                               added.get("text_embeds"), added.get("time_ids"))
        if not kwargs.get("return_dict", True):
            return (y,)
        from diffusers.models.unets.unet_2d_condition import UNet2DConditionOutput

        return UNet2DConditionOutput(sample=y)

    def try_forward(self, original: Callable, sample: Tensor, timestep: Any, encoder_hidden_states: Tensor,
                    class_labels: Any = None, timestep_cond: Optional[Tensor] = None, attention_mask: Any = None,
                    cross_attention_kwargs: Optional[dict] = None, added_cond_kwargs: Optional[dict] = None,
                    down_block_additional_residuals: Any = None, mid_block_additional_residual: Any = None,
                    down_intrablock_additional_residuals: Any = None, encoder_attention_mask: Any = None,
                    return_dict: bool = True) -> Any:
        """The signature of UNet2DConditionModel.forward after `original`, which it calls where the engine declines."""

        def plain() -> Any:
            return original(sample, timestep, encoder_hidden_states, class_labels, timestep_cond, attention_mask,
                            cross_attention_kwargs, added_cond_kwargs, down_block_additional_residuals,
                            mid_block_additional_residual, down_intrablock_additional_residuals, encoder_attention_mask,
                            return_dict)

        def run(model: int) -> Any:
            extra = (class_labels, attention_mask, down_block_additional_residuals, mid_block_additional_residual,
                     down_intrablock_additional_residuals, encoder_attention_mask)
            refuse(all(x is None for x in extra), "class labels, masks or additional residuals")
            refuse(all(k == "scale" and isinstance(v, (int, float, type(None))) and v in (None, 1.0)
                       for k, v in (cross_attention_kwargs or {}).items()), "cross_attention_kwargs")
            unet = self._module()
            for block in unet.up_blocks:  # FreeU
                own = block.__dict__
                refuse(own.get("s1") is None and own.get("b1") is None, "FreeU")
            added = added_cond_kwargs or {}
            embeds, ids = added.get("text_embeds"), added.get("time_ids")
            refuse(set(added) <= {"text_embeds", "time_ids"}, "added conditions other than SDXL's")
            refuse(sample.ndim == 4 and torch.is_tensor(encoder_hidden_states) and encoder_hidden_states.ndim == 3
                    and sample.dtype == encoder_hidden_states.dtype, "inputs of another kind")
            # The operator takes times and sizes of any type and strides: the GPU waits for all that is started before it.
            times = torch.as_tensor(timestep, device=sample.device).reshape(-1).expand(sample.shape[0])
            y = _ops._engine_unet(model, sample, times, encoder_hidden_states,
                                  None if embeds is None else embeds.to(sample.dtype), ids, timestep_cond,
                                  self._same_text(model, encoder_hidden_states))
            if not return_dict:
                return (y,)
            from diffusers.models.unets.unet_2d_condition import UNet2DConditionOutput

            return UNet2DConditionOutput(sample=y)

        return self(run, plain, sample)


class LdmUNetForward(TextUNetForward):
    """The UNetModel of the ldm family (ComfyUI, AUTOMATIC1111) by the engine."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__(unet, new_unet)

    def try_forward(self, original: Callable[[], Any], x: Tensor, timesteps: Optional[Tensor] = None,
                    context: Optional[Tensor] = None, y: Optional[Tensor] = None, control: Any = None,
                    transformer_options: Optional[dict] = None, ours: Callable[[Any], bool] = lambda override: False,
                    **kwargs: Any) -> Any:
        """UNetModel.forward's arguments; original() runs the model. y: SDXL's pooled text and embedded sizes. ours(f): an
        attention override that the engine may leave out."""

        def run(model: int) -> Tensor:
            options = transformer_options or {}
            override = options.get("optimized_attention_override")
            refuse(control is None, "a ControlNet")
            refuse(not options.get("patches") and not options.get("patches_replace"), "patches of the model")
            refuse(override is None or ours(override), "another attention")
            refuse(not {k for k, v in kwargs.items() if v is not None}, "options of other models")
            refuse(timesteps is not None and context is not None and x.ndim == 4 and context.ndim == 3, "inputs of another kind")
            parameter = next(self._module().parameters())  # type: ignore[union-attr]
            refuse(x.dtype == parameter.dtype and x.device == parameter.device, "weights of another type or place")
            text = context.to(x.dtype)  # type: ignore[union-attr]
            times = timesteps.reshape(-1).expand(x.shape[0])  # type: ignore[union-attr]
            return _ops._engine_unet(model, x, times, text, None if y is None else y.to(x.dtype), None, None,
                                     self._same_text(model, text))

        return self(run, original, x)

    def _first_problem(self, module: nn.Module) -> str:
        for child in module.modules():
            if getattr(child, "weight_function", None) or getattr(child, "bias_function", None):
                return "weights are patched on the fly"
        return super()._first_problem(module)


class VaeHalfForward(EngineForward):
    """vae.decoder's or vae.encoder's forward by the engine, of Diffusers' AutoencoderKL or of ldm's VAEs; tiling and slicing are
    the VAE's own."""

    def __init__(self, vae: nn.Module, half: str) -> None:
        config = module_config(vae) if type(vae).__name__ == "AutoencoderKL" else ""  # ldm's: told from the shapes

        def make(state: dict[str, Tensor]) -> Model:
            named = {f"{half}.{name}": t for name, t in state.items()}
            tensors = list(named.values())
            return Model(_ops._new_engine_vae(tensors, "\n".join(named), config, half), tensors[0])

        super().__init__(getattr(vae, half), make)

    def try_forward(self, original: Callable, sample: Tensor, latent_embeds: Any = None, bands: int = 1) -> Tensor:
        """Decoder.forward or Encoder.forward after `original`. bands: of rows that a decoder works in, to need less memory;
        the picture is the same."""

        def plain() -> Tensor:
            return original(sample) if latent_embeds is None else original(sample, latent_embeds)

        def run(model: int) -> Tensor:
            refuse(latent_embeds is None and sample.ndim == 4, "inputs of another kind")
            parameter = next(self._module().parameters())  # type: ignore[union-attr]
            refuse(sample.dtype == parameter.dtype and sample.device == parameter.device, "another type than the weights'")
            return _ops._engine_vae(model, sample, bands)

        return self(run, plain, sample)


def _plain_names(stand: nn.Module, state: dict, prefix: str, *_: Any) -> None:
    for key in [k for k in state if k.startswith(f"{prefix}model.")]:
        state[prefix + key.removeprefix(f"{prefix}model.")] = state.pop(key)


def _own_names(stand: nn.Module, state: dict, prefix: str, *_: Any) -> None:
    for key in [k for k in state if k.startswith(prefix)]:
        state[f"{prefix}model.{key.removeprefix(prefix)}"] = state.pop(key)


class _Stand(nn.Module):
    """Stands in for a Diffusers model: attributes, parameters, their names in a state_dict and everything but forward are the
    model's."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_state_dict_post_hook(_plain_names)
        self.register_load_state_dict_pre_hook(_own_names)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or "_modules" not in self.__dict__:  # while it is copied
                raise
            return getattr(super().__getattr__("model"), name)


class EngineUNet(_Stand):
    """A UNet2DConditionModel whose forward is the C++ engine's: `pipe.unet = EngineUNet(pipe.unet)`.

    It computes what the model does, on the model's weights; what the engine declines the model computes itself, and
    `declined` says why. cache_text: keys and values of the text are kept while the caller passes the same states.
    Copies and pickles have an engine of their own.
    """

    def __init__(self, unet: nn.Module, cache_text: bool = True) -> None:
        super().__init__(unet)
        self._cache_text = cache_text
        self._engine = UNetForward(unet, cache_text)

    def __getstate__(self) -> dict:
        return {k: v for k, v in self.__dict__.items() if k != "_engine"}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._engine = UNetForward(self.model, self._cache_text)

    @property
    def declined(self) -> str:
        """Why the last call was left to the model; "" where the engine ran."""
        return self._engine.reason

    def forward(self, sample: Tensor, timestep: Any, encoder_hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or self._engine._module() is not self.model:  # a shallow copy's is another's
            return self.model.forward(sample, timestep, encoder_hidden_states, *args, **kwargs)
        return self._engine.try_forward(self.model.forward, sample, timestep, encoder_hidden_states, *args, **kwargs)


class EngineVAE(_Stand):
    """An AutoencoderKL whose decoder and encoder are the C++ engine's: `pipe.vae = EngineVAE(pipe.vae)`. detach() gives the
    model its own forwards back."""

    def __init__(self, vae: nn.Module) -> None:
        super().__init__(vae)
        from ._model_forwards import vae_half_forward

        for half in ("decoder", "encoder"):
            if hasattr(vae, half):
                put_on(getattr(vae, half), Patch(vae_half_forward(half, True), "", True, "auto", owner=vae))

    def _halves(self) -> dict[str, Any]:
        found = {half: getattr(self.model, half, None) for half in ("decoder", "encoder")}
        held = {half: module.__dict__.get(PATCH) for half, module in found.items() if module is not None}
        return {half: patch.engine for half, patch in held.items() if patch is not None and patch.engine is not None}

    @property
    def declined(self) -> str:
        """Why the last call of a half was left to the model; "" where the engine ran."""
        return "; ".join(f"{half}: {engine.reason}" for half, engine in self._halves().items() if engine.reason)

    def detach(self) -> nn.Module:
        """The model, with its own forwards."""
        for half in ("decoder", "encoder"):
            if hasattr(self.model, half):
                take_off(getattr(self.model, half))
        return self.model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)
