"""What a layer is: whether its class has the forward that it came with, whether anything on the layer does more than that forward,
and the layers of a block whose parameters can be used directly."""

from __future__ import annotations

import os
import weakref
from typing import Any, Optional

import torch
from torch import nn
from torch.autograd import forward_ad

BASE = "_rocm_sd_base"  # attribute of a class of ours: the class that it stands for
_PACKAGES = [os.path.dirname(torch.__file__) + os.sep]


def _is_original(cls: type) -> bool:
    """Whether a class of PyTorch's or Diffusers' has the forward that it came with: its code lies in that package."""
    package = cls.__module__.split(".")[0]
    code = getattr(getattr(cls, "forward", None), "__code__", None)
    if code is None:
        return False
    if package == "diffusers" and len(_PACKAGES) == 1:
        import diffusers

        _PACKAGES.append(os.path.dirname(diffusers.__file__) + os.sep)
    return package not in ("torch", "diffusers") or code.co_filename.startswith(tuple(_PACKAGES))


def base_of(cls: type) -> type:
    """The class that a class of ours stands for; another class is its own."""
    return cls.__dict__.get(BASE, cls)


def is_original(cls: type) -> bool:
    """Whether nobody gave the class (or the one that it stands for) another forward."""
    return _is_original(base_of(cls))


# Layers that our forwards compute without calling them, and what of their classes says how they compute.
_LAYERS = [(cls, name, getattr(cls, name)) for cls, name in (
    (nn.Linear, "forward"), (nn.Conv2d, "forward"), (nn.Conv2d, "_conv_forward"), (nn.GroupNorm, "forward"), (nn.LayerNorm, "forward"),
    (nn.SiLU, "forward"), (nn.Module, "__call__"), (nn.Module, "_call_impl"))]
_AT_IMPORT = all(function.__module__.startswith("torch.") for _, _, function in _LAYERS)


def layers_are_pytorchs() -> bool:
    """Whether PyTorch's layers are what they were: no program replaced a method on a class, or hooked all modules."""
    for cls, name, function in _LAYERS:
        if getattr(cls, name) is not function:
            return False
    return _AT_IMPORT and (torch.compiler.is_compiling() or not nn.modules.module._has_any_global_hook())


def changes_meaning() -> bool:
    """Whether a mode is on under which PyTorch gives operators another meaning (autocast, forward-mode derivatives, torch.func's
    transforms, tracing): the model's own code runs then."""
    if torch.compiler.is_compiling():
        return torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")
    return (torch._C._is_any_autocast_enabled() or forward_ad._current_level >= 0
            or torch._C._functorch.peek_interpreter_stack() is not None or torch.jit.is_tracing())


def is_watched(attributes: dict) -> bool:
    """Whether a module with these attributes does more than its class's forward: hooks, offloading, a method of its own."""
    return bool("forward" in attributes or attributes["_forward_hooks"] or attributes["_forward_pre_hooks"]
                or attributes["_backward_hooks"] or attributes["_backward_pre_hooks"] or "_hf_hook" in attributes
                or "_conv_forward" in attributes)


def is_overridden(layer: nn.Module) -> bool:
    """Whether a layer that is being called computes something else than its class says: offloaded weights, a convolution's
    _conv_forward of its own (seamless tiling), a method replaced on PyTorch's class."""
    return "_hf_hook" in layer.__dict__ or "_conv_forward" in layer.__dict__ or not layers_are_pytorchs()


def is_plain(module: Optional[nn.Module], kind: type) -> bool:
    """Exactly a `kind` whose own forward is what runs: no LoRA layer around it, no offloading or other hook on it, so that
    using its parameters directly computes the same."""
    return (module is not None and base_of(type(module)) is kind and not is_watched(module.__dict__)
            and layers_are_pytorchs() and module.weight is not None and module.weight.device.type != "meta")


class PlainChildren:
    """The layers of a block whose parameters a forward uses directly, in the order of `kinds` (path: class). What is looked at once
    is remembered; each call then asks only whether a layer on the way was replaced, hooked or given another forward."""

    def __init__(self, root: nn.Module, kinds: dict[str, type]) -> None:
        self._kinds = kinds
        self._seen: tuple = (None, (), None)  # of whom, the way to each layer, the layers: one value, for threads
        # What the classes between root and the layers compute, if it is what they came with.
        self._between: dict[str, tuple[type, Any]] = {}
        for path in kinds:
            *inner, _ = path.split(".")
            module, walked = root, ""
            for key in inner:
                child = module._modules.get(key)
                if child is None:
                    break
                walked, module = f"{walked}.{key}", child
                if _is_original(type(child)):
                    self._between[walked] = (type(child), type(child).forward)

    def of(self, root: nn.Module) -> Optional[tuple]:
        """The layers, or None where one is not what `kinds` says, or not plain."""
        if not layers_are_pytorchs():
            return None
        if torch.compiler.is_compiling():
            return self._look(root)[0]
        of, links, found = self._seen
        if of is not None and of() is root:
            for siblings, key, child, kind, attributes, function in links:
                if (siblings.get(key) is not child or type(child) is not kind or kind.forward is not function
                        or is_watched(attributes)):
                    break
            else:
                return found
        found, links = self._look(root)
        self._seen = (None, (), None) if found is None else (weakref.ref(root), links, found)
        return found

    def _look(self, root: nn.Module) -> tuple[Optional[tuple], list]:
        found, links = [], {}
        for path, kind in self._kinds.items():
            module, walked = root, ""
            keys = path.split(".")
            for depth, key in enumerate(keys):
                child = module._modules.get(key)
                if child is None or is_watched(child.__dict__):
                    return None, []
                walked = f"{walked}.{key}"
                cls = type(child)
                if depth < len(keys) - 1:
                    between = self._between.get(walked)
                    if between is None or between[0] is not cls or cls.forward is not between[1]:
                        return None, []
                links[walked] = (module._modules, key, child, cls, child.__dict__, cls.forward)
                module = child
            weight = module._parameters.get("weight")  # where the forwards take it from
            if type(module) is not kind or (kind is not nn.SiLU and (weight is None or weight.device.type == "meta")):
                return None, []
            found.append(module)
        return tuple(found), list(links.values())
