"""The C++ engine's UNet and VAE in place of PyTorch modules: one operator call a forward, on the same weights.

    pipe.unet = rocm_sd_ops.EngineUNet(pipe.unet)     # or optimize_sd_model(pipe), which does it where it pays

Every call looks at what the module is now: LoRA layers, hooks, replaced forwards, other attention processors, gradients and
options that the engine does not have get the module's own code.
"""

from __future__ import annotations

import json
import logging
import weakref
from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

from ._patching import version

_log = logging.getLogger(__name__)
_ops = torch.ops.rocm_sd
_PLAIN_PROCESSORS = ("AttnProcessor", "AttnProcessor2_0", "RocmSDAttnProcessor")
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Declined(Exception):
    """Why the engine leaves a call to the module."""


class _Model:
    """An engine model's number, given back with the last reference."""

    def __init__(self, id_: int) -> None:
        self.id = id_
        self._finalizer = weakref.finalize(self, _ops._drop_engine_model, id_)
        self._finalizer.atexit = False


def module_config(module: nn.Module) -> str:
    """Diffusers' config.json of a module, or "" where it has none."""
    config = getattr(module, "config", None)
    if config is None or not hasattr(config, "items"):
        return ""
    return json.dumps({k: v for k, v in config.items() if not k.startswith("_") or k == "_class_name"}, default=str)


def new_unet(state: dict[str, Tensor], config: str = "") -> _Model:
    """An engine UNet on these tensors (Diffusers' or LDM's names). Raises RuntimeError with the reason for a model that the
    engine does not have."""
    return _Model(_ops._new_engine_unet(list(state.values()), "\n".join(state), config))


def is_ours(forward: Any) -> bool:
    """Whether a module's replaced forward is one of this package's, for which the engine may stand in."""
    return getattr(forward, "rocm_sd_forward", False)


def _foreign_forward(module: nn.Module) -> Any:
    forward = module.__dict__.get("forward")
    return None if is_ours(forward) else forward


class _Watched:
    """What a module was made of when the engine read it: classes, forwards, hooks, children and parameters."""

    def __init__(self, root: nn.Module) -> None:
        self.links = [(m._modules, key, child) for m in root.modules() for key, child in m._modules.items()]
        self.forwards = [(m.__dict__, _foreign_forward(m), m._forward_hooks, m._forward_pre_hooks)
                         for m in root.modules() if m is not root]
        self.parameters = [(m._parameters, key) for m in root.modules() for key in m._parameters]
        self.processors = [m for m in root.modules() if hasattr(m, "processor")]
        self.stamp = self._stamp()

    def _stamp(self) -> list:
        return [None if p is None else (p.data_ptr(), version(p))
                for p in (parameters[key] for parameters, key in self.parameters)]

    def structure_problem(self) -> str:
        """Why the module is not what it was, or ""."""
        for children, key, child in self.links:
            if children.get(key) is not child:
                return f"the layer {key} was replaced"
        for attributes, forward, hooks, pre_hooks in self.forwards:
            now = attributes.get("forward")
            if now is not forward and not (forward is None and is_ours(now)):
                return "a layer's forward was replaced"
            if hooks or pre_hooks:
                return "a layer has hooks"
        for module in self.processors:
            if type(module.processor).__name__ not in _PLAIN_PROCESSORS:
                return f"attention processor {type(module.processor).__name__}"
        return ""

    def same_values(self) -> bool:
        return self._stamp() == self.stamp


def _refuse(ok: bool, reason: str) -> None:
    if not ok:
        raise Declined(reason)


class EngineForward:
    """The engine's forward of one module, made at the first call and again when the module's weights were changed."""

    def __init__(self, module: nn.Module, make: Callable[[dict[str, Tensor]], _Model]) -> None:
        self._module = weakref.ref(module)
        self._make = make
        self._model: Optional[_Model] = None
        self._watched: Optional[_Watched] = None
        self.reason = ""  # why the last call was left to the module

    def forget(self) -> None:
        """Drops the engine's model; the next call makes it anew."""
        self._model = self._watched = None

    def model(self) -> int:
        """The number of the engine's model. Raises Declined."""
        module = self._module()
        assert module is not None
        _refuse(not torch.jit.is_tracing(), "the call is being traced")
        _refuse(not torch.is_grad_enabled(), "gradients")
        _refuse(not hasattr(module, "_hf_hook"), "accelerate moves the weights")
        if self._watched is None:
            self._watched = _Watched(module)
            problem = self._first_problem(module)
            _refuse(not problem, problem)
        else:
            problem = self._watched.structure_problem()
            if problem:
                self.forget()  # looked at anew by the next call
                raise Declined(problem)
        if self._model is None or not self._watched.same_values():
            self._model = None  # the old weights go first
            tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            dtypes = {t.dtype for t in tensors.values()}
            _refuse(len(dtypes) == 1 and next(iter(dtypes)) in _DTYPES, "parameters of several types")
            try:
                self._model = self._make({name: t.detach() for name, t in tensors.items()})
            except RuntimeError as error:
                raise Declined(str(error).splitlines()[0]) from None
            self._watched.stamp = self._watched._stamp()
        return self._model.id

    def _first_problem(self, module: nn.Module) -> str:
        assert self._watched is not None
        own = type(module).__module__.split(".")[0] + "."
        for child in module.modules():
            if not type(child).__module__.startswith(("torch.nn.modules.", "diffusers.models.", own)):
                return f"a layer is a {type(child).__module__}.{type(child).__name__}"
            if child is not module and _foreign_forward(child) is not None:
                return "a layer's forward was replaced"
        return self._watched.structure_problem()

    def __call__(self, run: Callable[[int], Any], original: Callable[[], Any]) -> Any:
        """run(number), or original() where the engine declines; reason then says why."""
        try:
            made = run(self.model())
        except Declined as declined:
            if str(declined) != self.reason:
                _log.info("rocm-sd: the engine leaves %s to its layers: %s", type(self._module()).__name__, declined)
            self.reason = str(declined)
            return original()
        self.reason = ""
        return made


class TextUNetForward(EngineForward):
    """A UNet's forward by the engine, which keeps a text's keys and values while the same text comes again."""

    def __init__(self, unet: nn.Module, make: Callable, cache_text: bool = True) -> None:
        super().__init__(unet, make)
        self._cache_text = cache_text
        self._text: Optional[tuple] = None

    def forget(self) -> None:
        super().forget()
        self._text = None

    def _same_text(self, model: int, text: Tensor) -> bool:
        stamp = (model, text.data_ptr(), version(text), text.shape)
        same = self._cache_text and self._text is not None and self._text[0]() is text and self._text[1] == stamp
        self._text = (weakref.ref(text), stamp)
        return same


class UNetForward(TextUNetForward):
    """UNet2DConditionModel.forward by the engine."""

    def __init__(self, unet: nn.Module, cache_text: bool = True) -> None:
        super().__init__(unet, lambda state: new_unet(state, module_config(unet)), cache_text)

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
            _refuse(all(x is None for x in extra), "class labels, masks or additional residuals")
            _refuse(not {k: v for k, v in (cross_attention_kwargs or {}).items() if v not in (None, 1.0) or k != "scale"},
                    "cross_attention_kwargs")
            unet = self._module()
            for block in unet.up_blocks:  # FreeU
                _refuse(getattr(block, "s1", None) is None and getattr(block, "b1", None) is None, "FreeU")
            added = added_cond_kwargs or {}
            embeds, ids = added.get("text_embeds"), added.get("time_ids")
            _refuse(set(added) <= {"text_embeds", "time_ids"}, "added conditions other than SDXL's")
            _refuse(sample.ndim == 4 and torch.is_tensor(encoder_hidden_states) and encoder_hidden_states.ndim == 3
                    and sample.dtype == encoder_hidden_states.dtype, "inputs of another kind")
            times = torch.as_tensor(timestep, device=sample.device, dtype=torch.float32).reshape(-1).expand(sample.shape[0])
            y = _ops._engine_unet(model, sample, times.contiguous(), encoder_hidden_states,
                                  None if embeds is None else embeds.to(sample.dtype),
                                  None if ids is None else ids.float(), timestep_cond,
                                  self._same_text(model, encoder_hidden_states))
            if not return_dict:
                return (y,)
            from diffusers.models.unets.unet_2d_condition import UNet2DConditionOutput

            return UNet2DConditionOutput(sample=y)

        return self(run, plain)


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
            _refuse(control is None, "a ControlNet")
            _refuse(not options.get("patches") and not options.get("patches_replace"), "patches of the model")
            _refuse(override is None or ours(override), "another attention")
            _refuse(not {k for k, v in kwargs.items() if v is not None}, "options of other models")
            _refuse(timesteps is not None and context is not None and x.ndim == 4 and context.ndim == 3, "inputs of another kind")
            parameter = next(self._module().parameters())  # type: ignore[union-attr]
            _refuse(x.dtype == parameter.dtype and x.device == parameter.device, "weights of another type or place")
            text = context.to(x.dtype)  # type: ignore[union-attr]
            times = timesteps.float().reshape(-1).expand(x.shape[0]).contiguous()  # type: ignore[union-attr]
            return _ops._engine_unet(model, x, times, text, None if y is None else y.to(x.dtype), None, None,
                                     self._same_text(model, text))

        return self(run, original)

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

        def make(state: dict[str, Tensor]) -> _Model:
            named = {f"{half}.{name}": t for name, t in state.items()}
            return _Model(_ops._new_engine_vae(list(named.values()), "\n".join(named), config, half))

        super().__init__(getattr(vae, half), make)

    def try_forward(self, original: Callable, sample: Tensor, latent_embeds: Any = None, bands: int = 1) -> Tensor:
        """Decoder.forward or Encoder.forward after `original`. bands: of rows that a decoder works in, to need less memory;
        the picture is the same."""

        def plain() -> Tensor:
            return original(sample) if latent_embeds is None else original(sample, latent_embeds)

        def run(model: int) -> Tensor:
            _refuse(latent_embeds is None and sample.ndim == 4, "inputs of another kind")
            parameter = next(self._module().parameters())  # type: ignore[union-attr]
            _refuse(sample.dtype == parameter.dtype and sample.device == parameter.device, "another type than the weights'")
            return _ops._engine_vae(model, sample, bands)

        return self(run, plain)


class _Stand(nn.Module):
    """Stands in for a Diffusers model: attributes, parameters and everything but forward are the model's."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)


class EngineUNet(_Stand):
    """A UNet2DConditionModel whose forward is the C++ engine's: `pipe.unet = EngineUNet(pipe.unet)`.

    It computes what the model does, on the model's weights; what the engine declines the model computes itself, and
    `declined` says why. cache_text: keys and values of the text are kept while the caller passes the same states.
    """

    def __init__(self, unet: nn.Module, cache_text: bool = True) -> None:
        super().__init__(unet)
        self._engine = UNetForward(unet, cache_text)

    @property
    def declined(self) -> str:
        """Why the last call was left to the model; "" where the engine ran."""
        return self._engine.reason

    def forward(self, sample: Tensor, timestep: Any, encoder_hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.model.forward(sample, timestep, encoder_hidden_states, *args, **kwargs)
        return self._engine.try_forward(self.model.forward, sample, timestep, encoder_hidden_states, *args, **kwargs)


class EngineVAE(_Stand):
    """An AutoencoderKL whose decoder and encoder are the C++ engine's: `pipe.vae = EngineVAE(pipe.vae)`. detach() gives the
    model its own forwards back."""

    def __init__(self, vae: nn.Module) -> None:
        super().__init__(vae)
        self._halves = {half: VaeHalfForward(vae, half) for half in ("decoder", "encoder") if hasattr(vae, half)}
        for half, engine in self._halves.items():
            module = getattr(vae, half)
            module.forward = _bound(engine, module.forward)

    @property
    def declined(self) -> str:
        """Why the last call of a half was left to the model; "" where the engine ran."""
        return "; ".join(f"{half}: {engine.reason}" for half, engine in self._halves.items() if engine.reason)

    def detach(self) -> nn.Module:
        """The model, with its own forwards."""
        for half in self._halves:
            getattr(self.model, half).__dict__.pop("forward", None)
        return self.model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)


def _bound(engine: VaeHalfForward, original: Callable) -> Callable:
    def forward(sample: Tensor, latent_embeds: Any = None) -> Tensor:
        if torch.compiler.is_compiling():
            return original(sample) if latent_embeds is None else original(sample, latent_embeds)
        return engine.try_forward(original, sample, latent_embeds)

    return forward
