"""custom_pipeline="integrations/diffusers/stable_diffusion.py" of DiffusionPipeline.from_pretrained: Stable Diffusion 1 and 2 on
rocm-sd's operators and engine."""

from rocm_sd_ops.diffusers_pipelines import ROCmStableDiffusionPipeline

__all__ = ["ROCmStableDiffusionPipeline"]
