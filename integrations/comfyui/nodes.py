"""The nodes. Each works on a clone of what it is given, and can be chained with other patches."""

from __future__ import annotations

from typing import Any

import rocm_sd_ops

from .attention import with_attention
from .vae import with_operators

CATEGORY = "rocm_sd"


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


class RocmSDVAE:
    """The VAE by rocm-sd's operators."""

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        return {"required": {"vae": ("VAE",)}}

    RETURN_TYPES = ("VAE",)
    FUNCTION = "patch"
    CATEGORY = CATEGORY
    DESCRIPTION = "Decodes and encodes with rocm-sd's attention and norms; the scores of the middle block are never made."

    def patch(self, vae: Any) -> tuple:
        return (with_operators(vae),)


class RocmSDDoctor:
    """What rocm-sd can do on this machine, as text."""

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        return {"required": {}}

    RETURN_TYPES = ("STRING",)
    FUNCTION = "report"
    OUTPUT_NODE = True
    CATEGORY = CATEGORY

    def report(self) -> dict:
        backend = rocm_sd_ops.ROCmSDBackend()
        lines = [repr(backend), *rocm_sd_ops.fallbacks()]
        text = "\n".join(lines)
        return {"ui": {"text": [text]}, "result": (text,)}


NODE_CLASS_MAPPINGS = {"RocmSDAttention": RocmSDAttention, "RocmSDVAE": RocmSDVAE, "RocmSDDoctor": RocmSDDoctor}
NODE_DISPLAY_NAME_MAPPINGS = {"RocmSDAttention": "ROCm Optimized Attention", "RocmSDVAE": "ROCm Optimized VAE",
                              "RocmSDDoctor": "ROCm Doctor"}
