"""How a model is changed and changed back: forwards replaced on instances, parameters held in the form that kernels want."""

from __future__ import annotations

import types
import weakref
from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

from .ops import below
from .packs import Pack

STATE = "_rocm_sd_state"  # attribute of an optimised model


class State:
    """What restore() undoes, last change first, and what refresh() forgets."""

    def __init__(self, level: str) -> None:
        self.level = level
        self.undo: list[Callable[[], None]] = []
        self.forget: list[Callable[[], None]] = []
        self.counts: dict[str, int] = {}
        self.engines: dict[str, Any] = {}
        self.shared: dict[str, Any] = {}  # what several layers of one forward need
        self.forget.append(self.shared.clear)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def replace_forward(self, module: nn.Module, function: Callable, what: str) -> None:
        """module.forward becomes function(module, original, ...), where original is the bound forward of before."""
        had = module.__dict__.get("forward")
        original = module.forward

        def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return function(self, original, *args, **kwargs)

        forward.rocm_sd_forward = True  # type: ignore[attr-defined]  # for those who look for others' changes
        module.forward = types.MethodType(forward, module)  # type: ignore[method-assign]

        def undo() -> None:
            if had is None:
                module.__dict__.pop("forward", None)
            else:
                module.forward = had  # type: ignore[method-assign]

        self.undo.append(undo)
        self.count(what)

    def set_attribute(self, owner: Any, name: str, value: Any) -> None:
        before = getattr(owner, name)
        setattr(owner, name, value)
        self.undo.append(lambda: setattr(owner, name, before))


class Seen:
    """Tensors as they were: whether they are still the same ones, neither moved nor written to in place. Every call asks, so it
    is the least of Python that can tell. Tensors of inference mode count no writes. Holds no tensor alive."""

    __slots__ = ("_of",)

    def __init__(self, *tensors: Tensor) -> None:
        self._of = [(weakref.ref(t), t.data_ptr(), None if t.is_inference() else t._version) for t in tensors]

    def holds(self, *tensors: Tensor) -> bool:
        for (of, data, count), t in zip(self._of, tensors):
            if of() is not t or t.data_ptr() != data or (count is not None and t._version != count):
                return False
        return True


def is_capturing(x: Tensor) -> bool:
    """Whether what is done with x is recorded for a CUDA or HIP graph, whose replays see other values in the same memory."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _unwatched(module: nn.Module) -> bool:
    """Neither hooked nor offloaded, and with the forward of its class or one of ours, which computes the same."""
    return (not module._forward_hooks and not module._forward_pre_hooks and not hasattr(module, "_hf_hook")
            and getattr(module.__dict__.get("forward"), "rocm_sd_forward", "forward" not in module.__dict__))


def is_plain(module: Optional[nn.Module], kind: type) -> bool:
    """Exactly a `kind` whose own forward is what runs: no LoRA layer around it, no offloading or other hook on it, so that
    using its parameters directly computes the same."""
    return (module is not None and type(module) is kind and _unwatched(module) and module.weight is not None
            and module.weight.device.type != "meta")


class PlainChildren:
    """The layers of a block whose parameters a forward uses directly, in the order of `kinds` (path: class). What is looked at once
    is remembered; each call then asks only whether a layer on the way was replaced, hooked or given another forward."""

    def __init__(self, kinds: dict[str, type]) -> None:
        self._kinds = kinds
        self._seen: tuple = (None, (), None)  # of whom, the way to each layer, the layers: one value, for threads

    def of(self, root: nn.Module) -> Optional[tuple]:
        """The layers, or None where one is not what `kinds` says, or not plain."""
        if torch.compiler.is_compiling():
            return self._look(root)[0]
        of, links, found = self._seen
        if of is root:
            for siblings, key, child, kind, attributes, forward in links:
                if (siblings.get(key) is not child or type(child) is not kind or attributes.get("forward") is not forward
                        or attributes["_forward_hooks"] or attributes["_forward_pre_hooks"] or "_hf_hook" in attributes):
                    break
            else:
                return found
        found, links = self._look(root)
        self._seen = (None, (), None) if found is None else (root, links, found)
        return found

    def _look(self, root: nn.Module) -> tuple[Optional[tuple], list]:
        found, links = [], {}
        for path, kind in self._kinds.items():
            module, walked = root, ""
            for key in path.split("."):
                child = module._modules.get(key)
                if child is None or not _unwatched(child):
                    return None, []
                walked = f"{walked}.{key}"
                links[walked] = (module._modules, key, child, type(child), child.__dict__, child.__dict__.get("forward"))
                module = child
            weight = module._parameters.get("weight")  # where the forwards take it from
            if type(module) is not kind or weight is None or weight.device.type == "meta":
                return None, []
            found.append(module)
        return tuple(found), list(links.values())


class Parameters:
    """A layer's weight in a pack and its vectors in float32, made again when the layer's parameters change."""

    def __init__(self, state: State, packs: bool) -> None:
        self._pack = Pack() if packs else None
        self._packed: Optional[Seen] = None
        self._vectors: dict[str, tuple[Seen, Tensor]] = {}
        state.forget.append(self.forget)

    def pack(self, weight: Tensor) -> int:
        """The number of the pack that holds this weight as it is now; 0 for none."""
        if self._pack is None:
            return 0
        if not torch.compiler.is_compiling():
            if self._packed is None:
                self._packed = Seen(weight)
            elif not self._packed.holds(weight):
                self._pack.forget()
                self._packed = Seen(weight)
        return self._pack.id

    def f32(self, owner: nn.Module, name: str) -> Optional[Tensor]:
        value = owner._parameters.get(name)
        if value is None:  # none, or computed (parametrizations)
            value = getattr(owner, name)
        if value is None or value.dtype == torch.float32 or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return value
        held = self._vectors.get(name)
        if held is None or not held[0].holds(value):
            held = (Seen(value), value.detach().float())
            self._vectors[name] = held
        return held[1]

    def forget(self) -> None:
        self._vectors.clear()
        self._packed = None
        if self._pack is not None:
            self._pack.forget()


def below_autograd(module: nn.Module, original: Callable, *args: Any, **kwargs: Any) -> Any:
    """A forward without gradients skips autograd's bookkeeping of every operator, which is Python's for ours."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return original(*args, **kwargs)
    outer = below.autograd
    below.autograd = True
    try:
        with torch._C._AutoDispatchBelowAutograd():
            return original(*args, **kwargs)
    finally:
        below.autograd = outer
