"""How a model is changed and changed back: forwards replaced on instances, parameters held in the form that kernels want."""

from __future__ import annotations

import types
from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

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


def version(x: Tensor) -> int:
    """PyTorch's count of writes in place; tensors made in inference mode have none."""
    return 0 if x.is_inference() else x._version


def is_plain(module: Optional[nn.Module], kind: type) -> bool:
    """Exactly a `kind` whose own forward is what runs: no LoRA layer around it, no offloading or other hook on it, so that
    using its parameters directly computes the same."""
    return (type(module) is kind and not module._forward_hooks and not module._forward_pre_hooks
            and "forward" not in module.__dict__ and not hasattr(module, "_hf_hook")
            and module.weight is not None and module.weight.device.type != "meta")


class Parameters:
    """A layer's weight in a pack and its vectors in float32, made again when the layer's parameters change place."""

    def __init__(self, state: State, packs: bool) -> None:
        self._pack = Pack() if packs else None
        self._vectors: dict[str, tuple[tuple, Tensor]] = {}
        state.forget.append(self.forget)

    @property
    def pack(self) -> int:
        return 0 if self._pack is None else self._pack.id

    def f32(self, owner: nn.Module, name: str) -> Optional[Tensor]:
        value = getattr(owner, name)
        if value is None or value.dtype == torch.float32 or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return value
        key = (value.data_ptr(), version(value), value.device, value.dtype)
        held = self._vectors.get(name)
        if held is None or held[0] != key:
            held = (key, value.detach().float())
            self._vectors[name] = held
        return held[1]

    def forget(self) -> None:
        self._vectors.clear()
        if self._pack is not None:
            self._pack.forget()


def below_autograd(module: nn.Module, original: Callable, *args: Any, **kwargs: Any) -> Any:
    """A forward without gradients skips autograd's bookkeeping of every operator, which is Python's for ours."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return original(*args, **kwargs)
    with torch._C._AutoDispatchBelowAutograd():
        return original(*args, **kwargs)
