"""Diffusers' Stable Diffusion pipelines with our operators inside, as real subclasses: from_pretrained, from_single_file,
LoRA, IP-Adapter, callbacks, schedulers and offloading are Diffusers' own.

    from rocm_sd_ops.diffusers_pipelines import ROCmStableDiffusionXLPipeline
    pipe = ROCmStableDiffusionXLPipeline.from_pretrained(path, torch_dtype=torch.float16).to("cuda")

The models are optimised at the first call, when they are where they will run (those that another pipeline shares and has optimised
stay as they are); `pipe.rocm_sd_level = "memory"` before it, or
pipe.optimize(level) at any time, chooses the level, None leaves them plain.
"""

from __future__ import annotations

from typing import Any, Optional

from diffusers import (StableDiffusionControlNetImg2ImgPipeline, StableDiffusionControlNetInpaintPipeline,
                       StableDiffusionControlNetPipeline, StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline,
                       StableDiffusionPipeline, StableDiffusionXLControlNetImg2ImgPipeline,
                       StableDiffusionXLControlNetPipeline, StableDiffusionXLImg2ImgPipeline,
                       StableDiffusionXLInpaintPipeline, StableDiffusionXLPipeline)

from .optimize import optimize_rest, optimize_sd_model, restore


class _Optimized:
    """What the subclasses add."""

    rocm_sd_level: Optional[str] = "auto"

    def optimize(self, level: Optional[str] = "auto") -> Any:
        """optimize_sd_model(self, level), or restore(self) for None. Returns the pipeline."""
        self.rocm_sd_level = level
        return restore(self) if level is None else optimize_sd_model(self, level)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.rocm_sd_level is not None:
            optimize_rest(self, self.rocm_sd_level)
        return super().__call__(*args, **kwargs)  # type: ignore[misc]


class ROCmStableDiffusionPipeline(_Optimized, StableDiffusionPipeline):
    pass


class ROCmStableDiffusionImg2ImgPipeline(_Optimized, StableDiffusionImg2ImgPipeline):
    pass


class ROCmStableDiffusionInpaintPipeline(_Optimized, StableDiffusionInpaintPipeline):
    pass


class ROCmStableDiffusionControlNetPipeline(_Optimized, StableDiffusionControlNetPipeline):
    pass


class ROCmStableDiffusionControlNetImg2ImgPipeline(_Optimized, StableDiffusionControlNetImg2ImgPipeline):
    pass


class ROCmStableDiffusionControlNetInpaintPipeline(_Optimized, StableDiffusionControlNetInpaintPipeline):
    pass


class ROCmStableDiffusionXLPipeline(_Optimized, StableDiffusionXLPipeline):
    pass


class ROCmStableDiffusionXLImg2ImgPipeline(_Optimized, StableDiffusionXLImg2ImgPipeline):
    pass


class ROCmStableDiffusionXLInpaintPipeline(_Optimized, StableDiffusionXLInpaintPipeline):
    pass


class ROCmStableDiffusionXLControlNetPipeline(_Optimized, StableDiffusionXLControlNetPipeline):
    pass


class ROCmStableDiffusionXLControlNetImg2ImgPipeline(_Optimized, StableDiffusionXLControlNetImg2ImgPipeline):
    pass
