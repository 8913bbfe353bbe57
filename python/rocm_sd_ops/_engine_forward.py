"""What the engine's models have in common when they stand in for PyTorch modules: an engine model made of the module's
parameters, and a look at the module before each call."""

from __future__ import annotations

import json
import logging
import weakref
from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

from ._layers import base_of, changes_meaning, is_original, layers_are_pytorchs
from ._values import Fingerprint, Seen
from .ops import as_torch_raises

_log = logging.getLogger(__name__)
_ops = torch.ops.rocm_sd
_PLAIN_PROCESSORS = ("AttnProcessor", "AttnProcessor2_0", "RocmSDAttnProcessor")
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


_DECLINES = "rocm-sd declines: "  # in errors of the library: no kernel takes what the engine was asked for


def _steps_aside(processor: Any) -> bool:
    """Whether another program gave the processor's class another __call__."""
    aside = getattr(processor, "steps_aside", None)
    return aside() if aside is not None else not type(processor).__call__.__module__.startswith("diffusers.")


class Declined(Exception):
    """Why the engine leaves a call to the module."""


class Model:
    """An engine model's number, given back with the last reference. of: one of its weights."""

    def __init__(self, id_: int, of: Tensor) -> None:
        self.id, self.device, self.dtype = id_, of.device, of.dtype
        self._finalizer = weakref.finalize(self, _ops._drop_engine_model, id_)
        self._finalizer.atexit = False


def module_config(module: nn.Module) -> str:
    """Diffusers' config.json of a module, or "" where it has none."""
    config = getattr(module, "config", None)
    if config is None or not hasattr(config, "items"):
        return ""
    return json.dumps({k: v for k, v in config.items() if not k.startswith("_") or k == "_class_name"}, default=str)


def new_unet(state: dict[str, Tensor], config: str = "") -> Model:
    """An engine UNet on these tensors (Diffusers' or LDM's names). Raises RuntimeError with the reason for a model that the
    engine does not have."""
    tensors = list(state.values())
    return Model(_ops._new_engine_unet(tensors, "\n".join(state), config), tensors[0])


def is_ours(forward: Any) -> bool:
    """Whether a module's replaced forward is one of this package's, for which the engine may stand in."""
    return getattr(forward, "rocm_sd_forward", False)


def _foreign_forward(module: nn.Module) -> Any:
    forward = module.__dict__.get("forward")
    return None if is_ours(forward) else forward


class _Watched:
    """What a module was made of when the engine read it: classes, forwards, hooks, children and parameters."""

    def __init__(self, root: nn.Module) -> None:
        self.classes = [(cls, cls.forward) for cls in {base_of(type(m)) for m in root.modules()}]
        self.convolutions = [m.__dict__ for m in root.modules() if isinstance(m, nn.Conv2d)]
        self.links = [(m._modules, key, child, type(child)) for m in root.modules() for key, child in m._modules.items()]
        self.forwards = [(m.__dict__, _foreign_forward(m), m._forward_hooks, m._forward_pre_hooks)
                         for m in root.modules() if m is not root]
        self.processors = [m for m in root.modules() if hasattr(m, "processor")]
        self.parameters = [(m._parameters, key) for m in root.modules() for key in m._parameters]
        self.note_values()

    def note_values(self) -> None:
        """Takes the parameters' values for those that the engine has."""
        found = [(of, key, of[key]) for of, key in self.parameters]
        self._fingerprint = Fingerprint()
        self._fingerprint.changed_of([p for _, _, p in found if p is not None])
        self._none = [(of, key) for of, key, p in found if p is None]
        self._values = [(of, key, Seen(p)) for of, key, p in found if p is not None]

    def structure_problem(self) -> str:
        """Why the module is not what it was, or ""."""
        for children, key, child, cls in self.links:
            if children.get(key) is not child or (type(child) is not cls and base_of(type(child)) is not base_of(cls)):
                return f"the layer {key} was replaced"
        for attributes, forward, hooks, pre_hooks in self.forwards:
            now = attributes.get("forward")
            if now is not forward and not (forward is None and is_ours(now)):
                return "a layer's forward was replaced"
            if hooks or pre_hooks:
                return "a layer has hooks"
        for cls, function in self.classes:
            if cls.forward is not function:
                return f"the forward of class {cls.__name__} was replaced"
        for attributes in self.convolutions:
            if "_conv_forward" in attributes:
                return "a convolution's _conv_forward was replaced"
        if not layers_are_pytorchs():
            return "a method of PyTorch's layers was replaced, or all modules are hooked"
        for module in self.processors:
            if type(module.processor).__name__ not in _PLAIN_PROCESSORS or _steps_aside(module.processor):
                return f"attention processor {type(module.processor).__name__}"
        return ""

    def same_values(self, on_gpu: bool = False) -> bool:
        """Whether nobody replaced or wrote to a parameter since note_values(). On the CPU samples of the values are compared, too;
        on a GPU with on_gpu, which waits for it."""
        parameters = []
        for of, key, seen in self._values:
            p = of.get(key)
            if p is None or not seen.holds(p):
                return False
            parameters.append(p)
        if not all(of.get(key) is None for of, key in self._none):
            return False
        return not ((on_gpu or not parameters[0].is_cuda) and self._fingerprint.changed_of(parameters))


def refuse(ok: bool, reason: str) -> None:
    if not ok:
        raise Declined(reason)


class EngineForward:
    """The engine's forward of one module, made at the first call and again when the module's weights were changed."""

    def __init__(self, module: nn.Module, make: Callable[[dict[str, Tensor]], Model]) -> None:
        self._module = weakref.ref(module)
        self._make = make
        self._model: Optional[Model] = None
        self._watched: Optional[_Watched] = None
        self.reason = ""  # why the last call was left to the module

    def forget(self) -> None:
        """Drops the engine's model; the next call makes it anew."""
        self._model = self._watched = None

    def new_input(self) -> bool:
        """Whether the call that is being made is one at which a GPU's weights are read back: a new text, or any picture."""
        return True

    def left_alone(self) -> None:
        """Called where the engine did not run, and so has not seen the call's inputs."""

    def _willing(self) -> nn.Module:
        """What every call asks before all else. Raises Declined."""
        module = self._module()
        assert module is not None
        refuse(not changes_meaning(), "autocast, forward-mode derivatives, torch.func or tracing")
        refuse(not torch.is_grad_enabled(), "gradients")
        refuse(not hasattr(module, "_hf_hook"), "accelerate moves the weights")
        return module

    def _unchanged(self) -> bool:
        """Whether the module is what the engine's model was made of."""
        watched = self._watched
        return watched is not None and not watched.structure_problem() and watched.same_values(self.new_input())

    def _may_run_first(self, sample: Tensor) -> bool:
        """Looking at a UNet takes longer than starting it, so a GPU is started first and looked at while it works; what it made of
        a module that had changed is thrown away. Its weights stay where they are for as long as the engine's model lives."""
        model = self._model
        return (model is not None and sample.device.type == "cuda" and sample.device == model.device
                and sample.dtype == model.dtype and not torch.cuda.is_current_stream_capturing())

    def model(self) -> int:
        """The number of the engine's model, after a look at the module. Raises Declined."""
        module = self._willing()
        if self._watched is None:
            self._watched = _Watched(module)
            problem = self._first_problem(module)
            refuse(not problem, problem)
        else:
            problem = self._watched.structure_problem()
            if problem:
                self.forget()  # looked at anew by the next call
                raise Declined(problem)
        if self._model is None or not self._watched.same_values():  # (on a GPU the first call of a kind comes here)
            self._model = None  # the old weights go first
            tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            dtypes = {t.dtype for t in tensors.values()}
            refuse(len(dtypes) == 1 and next(iter(dtypes)) in _DTYPES, "parameters of several types")
            try:
                self._model = self._make({name: t.detach() for name, t in tensors.items()})
            except RuntimeError as error:
                raise Declined(str(error).splitlines()[0]) from None
            self._watched.note_values()
        return self._model.id

    def takes(self) -> bool:
        """Whether the engine has the module as it is now."""
        try:
            return self.model() > 0
        except Declined:
            return False

    def _first_problem(self, module: nn.Module) -> str:
        assert self._watched is not None
        own = type(module).__module__.split(".")[0] + "."
        for child in module.modules():
            if not type(child).__module__.startswith(("torch.nn.modules.", "diffusers.models.", own)):
                return f"a layer is a {type(child).__module__}.{type(child).__name__}"
            if child is not module and _foreign_forward(child) is not None:
                return "a layer's forward was replaced"
            if type(child).__module__.startswith("diffusers.") and not is_original(type(child)):
                return f"the forward of class {type(child).__name__} was replaced"
        return self._watched.structure_problem()

    def _run(self, run: Callable[[int], Any], sample: Tensor) -> Any:
        if not self._may_run_first(sample):
            return run(self.model())
        self._willing()
        try:
            made = run(self._model.id)  # type: ignore[union-attr]
        except (Declined, RuntimeError):
            if self._unchanged():
                raise
        else:
            if self._unchanged():
                return made
        self.left_alone()
        return run(self.model())

    def __call__(self, run: Callable[[int], Any], original: Callable[[], Any], sample: Tensor) -> Any:
        """run(number) on a sample, or original() where the engine declines; reason then says why."""
        try:
            made = self._run(run, sample)
        except Declined as declined:
            reason = str(declined)
        except RuntimeError as error:
            _, mark, reason = str(error).partition(_DECLINES)
            if not mark:
                if (other := as_torch_raises(error)) is not error:
                    raise other from None
                raise
            reason = reason.splitlines()[0]
        else:
            self.reason = ""
            return made
        if reason != self.reason:
            _log.info("rocm-sd: the engine leaves %s to its layers: %s", type(self._module()).__name__, reason)
        self.reason = reason
        self.left_alone()
        return original()
