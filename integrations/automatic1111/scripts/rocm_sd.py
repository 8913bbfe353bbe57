"""rocm-sd for AUTOMATIC1111: copy or link the folder above into extensions/; rocm_sd_ops must be installed in its Python.

Adds the cross attention optimisation "rocm-sd" to Settings > Optimizations (the highest priority of all, so that
"Automatic" takes it), the C++ engine's UNet to Settings > SD Unet, an accordion with the level for one picture (also
alwayson_scripts {"ROCm SD Optimization": {"args": [level]}} of the API), and GET /rocm_sd/v1/status.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

import gradio as gr
import rocm_sd_ops
import torch
from rocm_sd_ops import ldm as engine_ldm
from torch import Tensor

try:
    from modules import devices, script_callbacks, scripts, sd_hijack_optimizations, sd_unet, shared
    from modules.hypernetworks import hypernetwork
except ImportError as missing:  # the program shows this and goes on without the extension
    raise ImportError(f"rocm-sd: not loaded: {missing}. The extension is for AUTOMATIC1111's program; Forge and its kin have neither "
                      "its cross attention optimizations nor its SD Unet. What works there stands in docs/reference/pytorch.md.") from missing

NAME = "rocm-sd"
LEVELS = ["auto", "performance", "memory", "off"]


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

    @property
    def priority(self) -> int:  # type: ignore[override]
        """Ahead of all others where our kernels run (xformers has 100; without a GPU InvokeAI's has 1000), else behind them."""
        return 1010 if rocm_sd_ops.ROCmSDBackend(devices.device).capabilities().kernels else 0

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


class EngineUnet(sd_unet.SdUnet):
    """The C++ engine's UNet on the checkpoint's weights. LoRAs are merged into them before each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Any = None
        self.stamp: Any = None
        self.model: Any = None  # whose weights the engine has

    def activate(self) -> None:
        self.refresh()

    def deactivate(self) -> None:
        self.engine = self.stamp = self.model = None

    def refresh(self) -> None:
        """Reads the weights anew if they are others than before."""
        self.model = model = shared.sd_model.model.diffusion_model
        merge_loras(model)
        tensors = dict(model.named_parameters())
        stamp = [(id(model), t.data_ptr(), t._version) for t in tensors.values()]
        if self.engine is not None and stamp == self.stamp:
            return
        self.engine = None  # the old weights go first
        with torch.no_grad():
            state = {name: t.detach().to(devices.device, devices.dtype_unet) for name, t in tensors.items()}
            self.engine = engine_ldm.UNet(state)
        self.stamp = stamp
        self.coarsest = 1 << sum(type(m).__name__ == "Downsample" for m in model.modules())

    def forward(self, x: Tensor, timesteps: Tensor, context: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        y = kwargs.pop("y", args[0] if args else None)  # SDXL's pooled text and sizes
        others = [name for name, value in kwargs.items() if value is not None] + ["control"] * (len(args) > 1)
        if others:
            raise NotImplementedError(f"the rocm-sd engine has no {', '.join(others)}: set SD Unet to None")
        if shared.sd_model.model.diffusion_model is not self.model:  # a refiner took over in the middle of a picture
            self.refresh()
        if any(size % self.coarsest for size in x.shape[-2:]):  # there the program's own UNet resizes between its levels
            pixels = 8 * self.coarsest
            raise NotImplementedError(f"the rocm-sd engine draws multiples of {pixels} pixels: choose such a size, or SD Unet None")
        return self.engine(x, timesteps, context, y)


def merge_loras(model: Any) -> None:
    """The Lora extension writes a LoRA into a layer's weights when the layer runs, which the engine's do not."""
    networks = sys.modules.get("networks")
    merge = getattr(networks, "network_apply_weights", None)
    if merge is None:
        return
    for layer in model.modules():
        if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d)) and getattr(layer, "network_layer_name", None):
            merge(layer)


class EngineUnetOption(sd_unet.SdUnetOption):
    model_name = None  # never taken by "Automatic"
    label = "rocm-sd engine"

    def create_unet(self) -> EngineUnet:
        return EngineUnet()


def list_unets(known: list) -> None:
    known.append(EngineUnetOption())


def add_api(_demo: Any, app: Any) -> None:
    def status() -> dict:
        can = rocm_sd_ops.ROCmSDBackend(devices.device).capabilities()
        from modules import sd_hijack  # of which the script loader comes first

        attention, unet = sd_hijack.current_optimizer, sd_unet.current_unet_option
        return {"device": can.device, "name": can.name, "kernels": can.kernels, "reason": can.reason,
                "fallbacks": rocm_sd_ops.fallbacks(), "attention": attention and attention.name, "unet": unet and unet.label,
                "layers": RocmSDScript.changed}

    app.add_api_route("/rocm_sd/v1/status", status, methods=["GET"])


class RocmSDScript(scripts.Script):
    """For one picture: "off" draws it with PyTorch's own attention; the other levels put the operators into the UNet's
    layers, too. The infotext says which."""

    optimized: Any = None
    changed: dict[str, int] = {}  # layers, by the last picture's level

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
        # The option that this picture's settings name; the program applies it after this.
        unet = sd_unet.get_unet_option()
        rocm_sd_ops.set_kernels_enabled(level != "off" or isinstance(unet, EngineUnetOption))
        RocmSDScript.changed = {}
        if level != "off" and unet is None:
            self.optimized = unet_of(p)
            if self.optimized is not None:
                rocm_sd_ops.optimize_sd_model(self.optimized, level, engine=False)
                RocmSDScript.changed = rocm_sd_ops.report(self.optimized)
        p.extra_generation_params["ROCm SD level"] = level

    def process_batch(self, p: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(sd_unet.current_unet, EngineUnet):
            sd_unet.current_unet.refresh()

    def postprocess(self, p: Any, processed: Any, *args: Any) -> None:
        rocm_sd_ops.set_kernels_enabled(True)
        if self.optimized is not None:
            rocm_sd_ops.restore(self.optimized)
            self.optimized = None


def unet_of(p: Any) -> Any:
    """The checkpoint's UNet, or None where it has no layer that we know."""
    model = getattr(getattr(getattr(p, "sd_model", None), "model", None), "diffusion_model", None)
    return model if engine_ldm.is_known(model) else None


script_callbacks.on_list_optimizers(list_optimizers)
script_callbacks.on_list_unets(list_unets)
script_callbacks.on_app_started(add_api)
