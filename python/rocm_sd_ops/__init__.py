"""rocm-sd's kernels as PyTorch operators.

    import rocm_sd_ops
    y = rocm_sd_ops.attention(q, k, v)          # or torch.ops.rocm_sd.attention
    print(rocm_sd_ops.explain("attention", q, k, v))

Importing the package loads its library into PyTorch; nothing of PyTorch is changed by that.
"""

from __future__ import annotations

from . import _library

LIBRARY_PATH = _library.load()

from . import _register  # noqa: E402

_register.register()

from . import comfyui, compat, ldm, tuning  # noqa: E402
from .attention_processor import RocmSDAttnProcessor  # noqa: E402
from .backend import Capabilities, ROCmSDBackend  # noqa: E402
from .engine_modules import EngineUNet, EngineVAE, define_operators  # noqa: E402
from .explain import Explanation, doctor, explain, fallbacks, set_kernels_enabled  # noqa: E402
from .ops import (attention, conv2d_epilogue, geglu, group_norm_silu, layer_norm, layer_norm_residual,  # noqa: E402
                  linear_epilogue, run_op, scheduler_step, upsample2x_conv, use_triton,
                  vae_attention)
from .optimize import engine_reasons, optimize_sd_model, refresh, report, restore  # noqa: E402
from .packs import Pack  # noqa: E402
from .profiling import profile  # noqa: E402
from .sdpa import register_attention_backend, scaled_dot_product_attention, sdpa  # noqa: E402

define_operators(_register.LIBRARY)

__version__ = "0.1.0"
_PIPELINES = ("ROCmStableDiffusionPipeline", "ROCmStableDiffusionImg2ImgPipeline", "ROCmStableDiffusionInpaintPipeline",
              "ROCmStableDiffusionXLPipeline", "ROCmStableDiffusionXLImg2ImgPipeline", "ROCmStableDiffusionXLInpaintPipeline")
__all__ = [
    "Capabilities", "EngineUNet", "EngineVAE", "Explanation", "LIBRARY_PATH", "Pack", "ROCmOptimizedPipeline", "ROCmSDBackend",
    "ROCmStableDiffusionPipeline", "ROCmStableDiffusionXLPipeline", "RocmSDAttnProcessor", "Upscaler", "attention", "comfyui", "compat",
    "conv2d_epilogue", "doctor", "engine_reasons", "explain", "fallbacks", "geglu", "group_norm_silu", "layer_norm",
    "layer_norm_residual", "ldm", "linear_epilogue", "optimize_sd_model", "profile", "refresh", "register_attention_backend", "report",
    "restore", "run_op", "scaled_dot_product_attention", "scheduler_step", "sdpa", "set_kernels_enabled", "tuning", "upsample2x_conv",
    "use_triton", "vae_attention",
]


def __getattr__(name: str) -> object:
    """What needs more than PyTorch: the engine's pipeline (its library), Diffusers' pipelines, Triton's kernels."""
    import importlib

    if name == "ROCmOptimizedPipeline":
        return importlib.import_module(".engine", __name__).ROCmOptimizedPipeline
    if name == "Upscaler":
        return importlib.import_module(".upscaler", __name__).Upscaler
    if name in _PIPELINES:
        return getattr(importlib.import_module(".diffusers_pipelines", __name__), name)
    if name == "triton_kernels":
        return importlib.import_module(".triton_kernels", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
