"""For programs with models of the ldm family (CompVis', Stability's, ComfyUI's modules): whether our operators know a model, and
its UNet by the C++ engine on tensors that the program hands over."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn

from ._engine_forward import new_unet
from ._ldm_blocks import is_ldm
from .engine_modules import LdmUNetForward, VaeHalfForward

__all__ = ["LdmUNetForward", "UNet", "VaeHalfForward", "is_known"]


def is_known(model: Any) -> bool:
    """Whether a module has layers of the ldm family, so that optimize_sd_model takes it."""
    return isinstance(model, nn.Module) and any(is_ldm(m) for m in model.modules())


class UNet:
    """The engine's UNet on these tensors (named as in a checkpoint, without "model.diffusion_model."), all of one type and device;
    matrices are used as they lie. It does not see later changes of their values: make a new one. Raises RuntimeError with the
    reason for a model that the engine does not have."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self._model = new_unet(state)

    @torch.no_grad()
    def __call__(self, x: Tensor, timesteps: Tensor, context: Tensor, y: Optional[Tensor] = None) -> Tensor:
        """x [N,C,H,W], timesteps [N] or [1], context [N,T,W], y: SDXL's pooled text and embedded sizes [N,A] -> [N,C',H,W] of x's
        type; computed in the weights' type."""
        kind = self._model.dtype
        times = timesteps.float().expand(x.shape[0]).contiguous()
        out = torch.ops.rocm_sd._engine_unet(self._model.id, x.to(kind), times, context.to(kind), None if y is None else y.to(kind),
                                             None, None, False)
        return out.to(x.dtype)
