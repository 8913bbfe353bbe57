"""How a model is changed and changed back.

A module whose forward is ours gets another class: a subclass of its own of the same name, which says what its forward is, and a
Patch in its attributes, which holds what that forward keeps (packed weights, keys and values). All of it belongs to the module:
copy.deepcopy gives the copy a Patch of its own; a pickle, copy.copy and the replicas of data-parallel training are the plain module;
another program's forward on the instance, or a class made on top of ours, goes first. Nothing is kept on whoever asked for the
change, so two owners of one module see the same.
"""

from __future__ import annotations

import copy
import copyreg
import functools
import weakref
from typing import Any, Callable, Iterable, Iterator, Optional

import torch
from torch import Tensor, nn

from ._layers import BASE, base_of, changes_meaning
from ._values import Seen
from .ops import below
from .packs import Pack

PATCH = "_rocm_sd_patch"  # attribute of a module whose forward is ours
# Methods of models that write new values into weights behind PyTorch's back.
_REWRITING = ("fuse_lora", "unfuse_lora", "set_adapters", "delete_adapters", "load_lora_adapter", "unload_lora", "load_state_dict",
              "fuse_qkv_projections", "unfuse_qkv_projections")


class Patch:
    """What a module with a forward of ours holds.

    make(patch, module, packs) -> function(module, original, *args), where original is the bound forward of the module's own class.
    what: the kind of layer, for report(); "" is not reported. packs: whether weights are kept laid out for the kernels.
    partner, owner: of a norm that also computes the activation behind it: that module, and the one that has both.
    """

    def __init__(self, make: Callable, what: str, packs: bool, level: str, partner: Optional[nn.Module] = None,
                 owner: Optional[nn.Module] = None) -> None:
        self.make, self.what, self.packs, self.level, self.partner = make, what, packs, level, partner
        self.owner = None if owner is None else weakref.ref(owner)
        self.engine: Any = None  # the C++ engine's forward, where it takes the module's
        self.engine_name = ""
        self.forgets: list[Callable[[], None]] = []
        self._module: Any = None
        self._own: Any = None
        self._run: Any = None

    def belong_to(self, module: nn.Module) -> None:
        self._module, self._own, self._run = weakref.ref(module), base_of(_ours_in(type(module))).forward, None

    def bind(self, module: nn.Module) -> None:
        self.belong_to(module)
        self._run = self.make(self, module, self.packs)

    def function_for(self, module: nn.Module, base: Any) -> Optional[Callable]:
        """The forward, or None where the module's own code is to run."""
        if base.forward is not self._own or changes_meaning():
            return None
        if torch.compiler.is_compiling():
            return self._run
        if self._module() is not module:
            return None  # a shallow copy, which has another's attributes
        return self.made(module)

    def belongs_to(self, module: nn.Module) -> bool:
        return self._module() is module

    def made(self, module: nn.Module) -> Callable:
        if self._run is None:  # of a deep copy, which is whole by its first call
            self._run = self.make(self, module, self.packs)
        return self._run

    def forget(self) -> None:
        for forget in self.forgets:
            forget()

    def __deepcopy__(self, memo: dict) -> "Patch":
        owner = None if self.owner is None else memo.get(id(self.owner()))
        return Patch(self.make, self.what, self.packs, self.level, copy.deepcopy(self.partner, memo), owner)

    def __reduce__(self) -> tuple:
        return type(None), ()


def _ours_in(cls: type) -> type:
    """The class of ours that cls is, or is made on top of; else cls."""
    return next((c for c in cls.__mro__ if BASE in c.__dict__), cls)


_classes: dict[type, type] = {}  # ours, by what they stand for


def _class_for(base: type) -> type:
    if base in _classes:
        return _classes[base]

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        patch = self.__dict__.get(PATCH)
        function = None if patch is None else patch.function_for(self, base)
        if function is None:
            return base.forward(self, *args, **kwargs)  # type: ignore[attr-defined]
        return function(self, functools.partial(base.forward, self), *args, **kwargs)  # type: ignore[attr-defined]

    def __deepcopy__(self: nn.Module, memo: dict) -> nn.Module:
        made = copy._reconstruct(self, memo, *base.__reduce_ex__(self, 4))  # type: ignore[attr-defined]
        if made.__dict__.get(PATCH) is not None:
            made.__dict__[PATCH].belong_to(made)
        return made

    def __reduce_ex__(self: nn.Module, protocol: int) -> Any:
        """The plain module: a pickle is read where this package is not."""
        reduced = base.__reduce_ex__(self, protocol)  # type: ignore[arg-type]
        if not isinstance(reduced, tuple) or len(reduced) < 3:
            return reduced
        build, args, state, *rest = reduced
        if isinstance(state, dict):
            state = {k: v for k, v in state.items() if k != PATCH}
        if build is copyreg.__newobj__ and args == (made,):  # which pickle would hold against the class of what it writes
            build, args = copyreg._reconstructor, (base, object, None)  # type: ignore[attr-defined]
        return (build, tuple(base if a is made else a for a in args), state, *rest)

    names: dict[str, Any] = {"forward": forward, "__deepcopy__": __deepcopy__, "__reduce_ex__": __reduce_ex__, BASE: base,
                             "__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    for name in _REWRITING if hasattr(base, "config") or "load_lora_adapter" in dir(base) else ():
        if callable(getattr(base, name, None)):
            names[name] = _then_forgetting(base, name)
    made = _classes[base] = type(base)(base.__name__, (base,), names)
    return made


def _then_forgetting(base: type, name: str) -> Callable:
    def method(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(base, name)(self, *args, **kwargs)
        finally:
            for _, patch in patches(self):
                patch.forget()
            forget_processors(self)

    method.__name__, method.__doc__ = name, getattr(base, name).__doc__
    return method


def put_on(module: nn.Module, patch: Patch) -> None:
    """Gives the module our forward. A module that has one already keeps the class and gets this patch."""
    if PATCH not in module.__dict__ and _ours_in(type(module)) is type(module) and BASE not in type(module).__dict__:
        module.__class__ = _class_for(type(module))
    module.__dict__[PATCH] = patch
    patch.bind(module)


def take_off(module: nn.Module) -> None:
    """Undoes put_on. A class that somebody made on top of ours stays; its forward is then the plain one."""
    module.__dict__.pop(PATCH, None)
    if BASE in type(module).__dict__:
        module.__class__ = base_of(type(module))


def patches(root: nn.Module) -> Iterator[tuple[nn.Module, Patch]]:
    """Each module below root with a forward of ours. Replicas and shallow copies, whose patch is another's, are left out."""
    for module in root.modules():
        patch = module.__dict__.get(PATCH)
        if patch is not None and patch.belongs_to(module):
            yield module, patch


def forget_processors(root: nn.Module) -> None:
    for module in root.modules():
        forget = getattr(module.__dict__.get("processor"), "forget", None)
        if forget is not None:
            forget()


class Switched:
    """The forwards that a module has from optimize_sd_model, taken off it and put back for the length of a with block: for front ends
    in which several users share the module. May be nested."""

    def __init__(self, root: nn.Module) -> None:
        self._ours = list(patches(root))
        for module, _ in self._ours:
            take_off(module)
        self._depth = 0

    def __enter__(self) -> "Switched":
        if self._depth == 0:
            self._before = [module.__dict__.get(PATCH) for module, _ in self._ours]
            for module, patch in self._ours:
                if BASE not in type(module).__dict__:
                    module.__class__ = _class_for(type(module))
                module.__dict__[PATCH] = patch
        self._depth += 1
        return self

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        for (module, _), before in zip(self._ours, self._before):
            if before is None:
                take_off(module)
            else:
                module.__dict__[PATCH] = before

    def forget(self) -> None:
        """Drops what the forwards keep of the weights."""
        for _, patch in self._ours:
            patch.forget()


class Parameters:
    """A layer's weight in a pack and its vectors in float32, made again when the layer's parameters change."""

    def __init__(self, patch: Patch, packs: bool) -> None:
        self._pack = Pack() if packs else None
        self._packed: Optional[Seen] = None
        self._vectors: dict[str, tuple[Seen, Tensor]] = {}
        patch.forgets.append(self.forget)

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
        """The layer's vector; in float32 where a GPU would cast it in each call."""
        value = owner._parameters.get(name)
        if value is None:  # none, or computed (parametrizations)
            value = getattr(owner, name)
        if (value is None or value.dtype == torch.float32 or not value.is_cuda or torch.is_grad_enabled()
                or torch.compiler.is_compiling()):
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


def below_autograd(original: Callable, *args: Any, **kwargs: Any) -> Any:
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


def all_modules(roots: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """Each module below the roots, once."""
    seen: set[int] = set()
    for root in roots:
        for module in root.modules():
            if id(module) not in seen:
                seen.add(id(module))
                yield module
