"""Optimize Model and the engine behind ComfyUI's DIFFUSION_MODEL wrapper: changes hold for one call of the model and of the
clone that asked for them, so that other clones on the same weights see nothing."""

from __future__ import annotations

from typing import Any, Callable, Optional

import rocm_sd_ops
from rocm_sd_ops.ldm import LdmUNetForward
from torch import nn

from .attention import OVERRIDE, with_attention

KEY = "rocm_sd"
DIFFUSION_MODEL = "diffusion_model"  # comfy.patcher_extension.WrappersMP.DIFFUSION_MODEL


class _Switched:
    """Forwards that optimize_sd_model would put into a module, put there for the length of a with block."""

    def __init__(self, module: nn.Module, level: str) -> None:
        rocm_sd_ops.optimize_sd_model(module, level, engine=False)
        self._ours = [(m, m.__dict__["forward"]) for m in module.modules() if "forward" in m.__dict__]
        self._state = rocm_sd_ops.optimize.take_state(module)  # keeps what the forwards hold
        self._depth = 0

    def __enter__(self) -> None:
        if self._depth == 0:
            self._before = [m.__dict__.get("forward") for m, _ in self._ours]
            for module, forward in self._ours:
                module.__dict__["forward"] = forward
        self._depth += 1

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        for (module, _), before in zip(self._ours, self._before):
            if before is None:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = before


class ModelWrapper:
    """ComfyUI's wrapper(executor, x, timesteps, context, y, control, transformer_options): the engine where it takes the
    call, else the model layer by layer with our operators (level), else the model itself (level None)."""

    def __init__(self, level: Optional[str], engine: bool) -> None:
        self.level, self.use_engine = level, engine
        self.declined = ""
        self._made: dict[int, tuple] = {}  # by module: a clone may be given other weights

    def _of(self, module: nn.Module) -> tuple:
        made = self._made.get(id(module))
        if made is None or made[0] is not module:
            engine = LdmUNetForward(module) if self.use_engine else None
            try:
                layers = _Switched(module, self.level) if self.level else None
            except TypeError:  # a model of another family: its attention alone is ours
                layers = None
            made = (module, engine, layers)
            self._made = {id(module): made}
        return made

    def __call__(self, executor: Any, *args: Any, **kwargs: Any) -> Any:
        module, engine, switched = self._of(executor.class_obj)

        def by_layers() -> Any:
            if switched is None:
                return executor(*args, **kwargs)
            with switched:
                return executor(*args, **kwargs)

        if engine is None:
            return by_layers()
        y = engine.try_forward(by_layers, *args, ours=is_ours, **kwargs)
        self.declined = engine.reason
        return y


def is_ours(override: Any) -> bool:
    """An attention override that the engine may leave out, because it computes the same."""
    return getattr(override, "rocm_sd_override", False)


def with_wrapper(model: Any, wrapper: ModelWrapper) -> Any:
    """A clone of a ModelPatcher with the wrapper innermost among those of its kind."""
    clone = model.clone()
    clone.add_wrapper_with_key(DIFFUSION_MODEL, KEY, wrapper)
    return clone


def optimized(model: Any, level: str, engine: str) -> Any:
    """A clone whose attention, and whose UNet by layers or as a whole, are ours. level "off": the clone alone."""
    if level == "off":
        return model.clone()
    module: Callable = model.model.diffusion_model
    parameter = next(module.parameters(), None)  # type: ignore[attr-defined]
    on_gpu = parameter is not None and parameter.device.type == "cuda"
    use_engine = engine == "on" or (engine == "auto" and on_gpu and level != "memory")
    return with_wrapper(with_attention(model), ModelWrapper(level, use_engine))


__all__ = ["OVERRIDE", "ModelWrapper", "is_ours", "optimized", "with_wrapper"]
