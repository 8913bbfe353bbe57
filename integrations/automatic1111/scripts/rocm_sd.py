"""rocm-sd for AUTOMATIC1111: copy or link the folder above into extensions/; rocm_sd_ops must be installed in its Python.

Adds the cross attention optimisation "rocm-sd" to Settings > Optimizations (the highest priority of all, so that
"Automatic" takes it), an accordion that switches it for one picture, and GET /rocm_sd/v1/status.
"""

from __future__ import annotations

from typing import Any, Optional

import gradio as gr
import rocm_sd_ops
from modules import script_callbacks, scripts, sd_hijack_optimizations, shared
from modules.hypernetworks import hypernetwork
from torch import Tensor

NAME = "rocm-sd"
LEVELS = ["auto", "off"]


def cross_attention_forward(self: Any, x: Tensor, context: Optional[Tensor] = None, mask: Optional[Tensor] = None,
                            **kwargs: Any) -> Tensor:
    """CrossAttention.forward of ldm and sgm: x [B,N,C], context [B,M,Cc] -> [B,N,C]. Scores and sums are float, which is what
    the setting "upcast cross attention layer" asks for."""
    q = self.to_q(x)
    context_k, context_v = hypernetwork.apply_hypernetworks(shared.loaded_hypernetworks, x if context is None else context)
    k, v = self.to_k(context_k), self.to_v(context_v)
    q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))  # [B,H,N,D]
    if mask is not None and mask.ndim == 2 and mask.shape[0] == x.shape[0] and mask.shape[1] == k.shape[2]:
        mask = mask[:, None, None]  # of keys, one row an image
    elif mask is not None and mask.ndim == 3:
        mask = mask.unsqueeze(1)
    y = rocm_sd_ops.attention(q, k.to(q.dtype), v.to(q.dtype), mask=mask)
    return self.to_out(y.transpose(1, 2).flatten(2))


def attn_block_forward(self: Any, x: Tensor) -> Tensor:
    """AttnBlock.forward of the VAE: x [B,C,H,W], one head."""
    y = self.norm(x)
    y = rocm_sd_ops.vae_attention(self.q(y), self.k(y), self.v(y))
    return x + self.proj_out(y)


class RocmSDOptimization(sd_hijack_optimizations.SdOptimization):
    name = NAME
    label = "rocm-sd's kernels"
    cmd_opt = None
    priority = 110  # xformers has 100

    def is_available(self) -> bool:
        return True

    def apply(self) -> None:
        import ldm.modules.attention
        import ldm.modules.diffusionmodules.model
        import sgm.modules.attention
        import sgm.modules.diffusionmodules.model

        for stack in (ldm, sgm):
            stack.modules.attention.CrossAttention.forward = cross_attention_forward
            stack.modules.diffusionmodules.model.AttnBlock.forward = attn_block_forward


def list_optimizers(known: list) -> None:
    known.append(RocmSDOptimization())


def add_api(_demo: Any, app: Any) -> None:
    def status() -> dict:
        can = rocm_sd_ops.ROCmSDBackend().capabilities()
        return {"device": can.device, "name": can.name, "kernels": can.kernels, "reason": can.reason,
                "fallbacks": rocm_sd_ops.fallbacks()}

    app.add_api_route("/rocm_sd/v1/status", status, methods=["GET"])


class RocmSDScript(scripts.Script):
    """For one picture: level "off" draws it with PyTorch's own attention, and the infotext says so."""

    def title(self) -> str:
        return "ROCm SD Optimization"

    def show(self, is_img2img: bool) -> Any:
        return scripts.AlwaysVisible

    def ui(self, is_img2img: bool) -> list:
        with gr.Accordion(self.title(), open=False):
            level = gr.Dropdown(LEVELS, value="auto", label="Level")
        self.infotext_fields = [(level, "ROCm SD level")]
        return [level]

    def process(self, p: Any, level: str = "auto", *args: Any) -> None:
        if level not in LEVELS:
            raise ValueError(f"ROCm SD level {level!r}: expected one of {', '.join(LEVELS)}")
        rocm_sd_ops.set_kernels_enabled(level != "off")
        p.extra_generation_params["ROCm SD level"] = level

    def postprocess(self, p: Any, processed: Any, *args: Any) -> None:
        rocm_sd_ops.set_kernels_enabled(True)


script_callbacks.on_list_optimizers(list_optimizers)
script_callbacks.on_app_started(add_api)
