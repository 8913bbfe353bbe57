"""The nodes. Each works on a clone of what it is given, and can be chained with other patches."""

from __future__ import annotations

from typing import Any

import rocm_sd_ops
from rocm_sd_ops.comfyui import optimized, with_attention

from .vae import with_operators

CATEGORY = "rocm_sd"
LEVELS = ["auto", "performance", "memory", "off"]
FIRST_LEVELS = ["Auto", "Performance", "Memory"]  # as the first description of the nodes writes them


class RocmSDAttention:
    """The model's attention by rocm-sd's operator."""

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        return {"required": {"model": ("MODEL",)}}

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "patch"
    CATEGORY = CATEGORY
    DESCRIPTION = "Runs the model's attention with rocm-sd's kernels. Other attention overrides get what these leave alone."

    def patch(self, model: Any) -> tuple:
        return (with_attention(model),)


class RocmSDOptimizeModel:
    """The whole UNet by rocm-sd: its layers one by one, or all of them as the C++ engine's one call."""

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        return {"required": {"model": ("MODEL",), "level": (LEVELS, {"default": "auto"})},
                "optional": {"engine": (["auto", "on", "off"], {"default": "auto"})}}

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "patch"
    CATEGORY = CATEGORY
    DESCRIPTION = ("Attention, norms, residual blocks and gated layers by rocm-sd. \"performance\" keeps weights laid out for the "
                   "kernels, \"memory\" does not. engine: the C++ engine runs the UNet in one call where no patch needs its "
                   "layers (auto: on a GPU).")

    def patch(self, model: Any, level: str, engine: str = "auto") -> tuple:
        return (optimized(model, level, engine),)


class RocmSDVAE:
    """The VAE by rocm-sd: operators, or the C++ engine; tiled decoding that gives the untiled picture."""

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        return {"required": {"vae": ("VAE",)},
                "optional": {"bands": ("INT", {"default": 1, "min": 1, "max": 64,
                                               "tooltip": "decode in so many bands of rows: less memory, the same picture"})}}

    RETURN_TYPES = ("VAE",)
    FUNCTION = "patch"
    CATEGORY = CATEGORY
    DESCRIPTION = ("Decodes and encodes with rocm-sd's engine. Tiled decoding becomes exact: it works in bands of rows with the "
                   "norms' statistics of the whole picture, so there are no seams.")

    def patch(self, vae: Any, bands: int = 1) -> tuple:
        return (with_operators(vae, bands),)


class RocmSDEngineSampler:
    """KSampler whose UNet is the C++ engine's."""

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        import comfy.samplers

        return {"required": {
            "model": ("MODEL",), "seed": ("INT", {"default": 0, "min": 0, "max": 0xffffffffffffffff, "control_after_generate": True}),
            "steps": ("INT", {"default": 20, "min": 1, "max": 10000}),
            "cfg": ("FLOAT", {"default": 7.0, "min": 0.0, "max": 100.0, "step": 0.1, "round": 0.01}),
            "sampler_name": (comfy.samplers.KSampler.SAMPLERS,), "scheduler": (comfy.samplers.KSampler.SCHEDULERS,),
            "positive": ("CONDITIONING",), "negative": ("CONDITIONING",), "latent_image": ("LATENT",),
            "denoise": ("FLOAT", {"default": 1.0, "min": 0.0, "max": 1.0, "step": 0.01})}}

    RETURN_TYPES = ("LATENT",)
    FUNCTION = "sample"
    CATEGORY = CATEGORY
    DESCRIPTION = ("Samples with the C++ engine's UNet, on the model's own weights. Steps, progress, previews and interruption are "
                   "ComfyUI's. Where a patch or a ControlNet needs the model's layers, those run with rocm-sd's operators.")

    def sample(self, model: Any, seed: int, steps: int, cfg: float, sampler_name: str, scheduler: str, positive: Any,
               negative: Any, latent_image: Any, denoise: float = 1.0) -> tuple:
        import nodes

        ours = optimized(model, "auto", "on")
        return nodes.common_ksampler(ours, seed, steps, cfg, sampler_name, scheduler, positive, negative, latent_image,
                                     denoise=denoise)


class RocmSDDoctor:
    """What rocm-sd can do on this machine, what is missing, what each gap costs and how it is mended, as text."""

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        return {"required": {}}

    RETURN_TYPES = ("STRING",)
    FUNCTION = "report"
    OUTPUT_NODE = True
    CATEGORY = CATEGORY
    DESCRIPTION = "The findings of rocm-sd doctor (GPUs, drivers, libraries, settings), and what this ComfyUI's PyTorch runs."

    @classmethod
    def IS_CHANGED(cls) -> float:
        return float("nan")  # never what it was: drivers and settings change

    def report(self) -> dict:
        text = "\n".join([rocm_sd_ops.doctor().rstrip(), "", repr(rocm_sd_ops.ROCmSDBackend()), *rocm_sd_ops.fallbacks()])
        return {"ui": {"text": [text]}, "result": (text,)}


class ROCmOptimizedAttention:
    """Attention, or the whole model, by rocm-sd, under the name and with the input of the project's first description."""

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        return {"required": {"model": ("MODEL",), "optimization_level": (FIRST_LEVELS, {"default": "Auto"})}}

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "apply_optimization"
    CATEGORY = "ROCm Optimizations"
    DESCRIPTION = ("The model's attention and layers by rocm-sd; optimization_level as in ROCm Optimize Model, which can also choose the "
                   "engine.")

    def apply_optimization(self, model: Any, optimization_level: str = "Auto") -> tuple:
        return (rocm_sd_ops.optimize_sd_model(model, optimization_level),)


class ROCmOptimizedVAE:
    """The VAE by rocm-sd, under the name and with the input of the project's first description."""

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        return {"required": {"vae": ("VAE",), "optimization_level": (FIRST_LEVELS, {"default": "Auto"})}}

    RETURN_TYPES = ("VAE",)
    FUNCTION = "apply_optimization"
    CATEGORY = "ROCm Optimizations"
    DESCRIPTION = "Decodes and encodes with rocm-sd's engine; \"memory\" decodes in bands of rows, which gives the same picture."

    def apply_optimization(self, vae: Any, optimization_level: str = "Auto") -> tuple:
        return (with_operators(vae, MEMORY_BANDS if optimization_level.lower() == "memory" else 1),)


MEMORY_BANDS = 4
NODES = {"RocmSDAttention": (RocmSDAttention, "ROCm Optimized Attention"),
         "RocmSDOptimizeModel": (RocmSDOptimizeModel, "ROCm Optimize Model"), "RocmSDVAE": (RocmSDVAE, "ROCm Optimized VAE"),
         "RocmSDEngineSampler": (RocmSDEngineSampler, "ROCm Engine Sampler"), "RocmSDDoctor": (RocmSDDoctor, "ROCm Doctor"),
         "ROCmOptimizedAttention": (ROCmOptimizedAttention, "ROCm Optimized Attention (level)"),
         "ROCmOptimizedVAE": (ROCmOptimizedVAE, "ROCm Optimized VAE (level)")}
NODE_CLASS_MAPPINGS = {key: node for key, (node, _) in NODES.items()}
NODE_DISPLAY_NAME_MAPPINGS = {key: name for key, (_, name) in NODES.items()}
