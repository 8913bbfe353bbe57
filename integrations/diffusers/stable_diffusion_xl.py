"""custom_pipeline="integrations/diffusers/stable_diffusion_xl.py" of DiffusionPipeline.from_pretrained: Stable Diffusion XL on
rocm-sd's operators and engine."""

from rocm_sd_ops.diffusers_pipelines import ROCmStableDiffusionXLPipeline

__all__ = ["ROCmStableDiffusionXLPipeline"]
