"""Configurations of the Stable Diffusion families as Diffusers and transformers state them, in real and in tiny sizes.

The real rows are the published architectures (facts from the models' config.json files); the tiny ones keep the topology
(levels, block kinds, conditioning) with widths that a CPU runs in milliseconds. A single file cannot state what its tensors'
shapes do not show, so the tiny rows also keep each family's rules: 8 heads in SD 1, heads of 64 in the others and in the text
encoders, groups of 32.
"""

from __future__ import annotations

KINDS = ("sd15", "sd15-inpaint", "sd15-pix2pix", "sd21v", "sdxl", "refiner")

# Of few layers, and tiny but for its width: from 256 channels on a model in bf16 is computed in products of bf16
# (docs/architecture.md, "Numerics"). It has one size.
WIDE = "sd15-wide"

CLIP_VOCABULARY = 49408

_SCALED_LINEAR = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", num_train_timesteps=1000,
                      steps_offset=1, clip_sample=False)
_ALL_CROSS = dict(
    down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"))


def _unet(kind: str, tiny: bool) -> dict:
    unet: dict = dict(in_channels=4, out_channels=4, layers_per_block=2, norm_num_groups=32, act_fn="silu",
                      flip_sin_to_cos=True, freq_shift=0, center_input_sample=False)
    if kind.startswith("sd15"):
        unet |= dict(_ALL_CROSS, sample_size=64, cross_attention_dim=768, attention_head_dim=8,
                     block_out_channels=(320, 640, 1280, 1280))
        unet["in_channels"] = {"sd15-inpaint": 9, "sd15-pix2pix": 8}.get(kind, 4)
        if kind == WIDE:
            return unet | dict(sample_size=8, cross_attention_dim=64, attention_head_dim=8, layers_per_block=1,
                               block_out_channels=(320, 320), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                               up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
        if tiny:
            unet |= dict(sample_size=8, cross_attention_dim=64, attention_head_dim=8,
                         block_out_channels=(32, 64, 64, 64))
    elif kind == "sd21v":
        unet |= dict(_ALL_CROSS, sample_size=96, cross_attention_dim=1024, attention_head_dim=(5, 10, 20, 20),
                     block_out_channels=(320, 640, 1280, 1280), use_linear_projection=True, upcast_attention=True)
        if tiny:
            unet |= dict(sample_size=8, cross_attention_dim=64, attention_head_dim=(1, 2, 2, 2),
                         block_out_channels=(64, 128, 128, 128))
    elif kind == "sdxl":
        unet |= dict(sample_size=128, cross_attention_dim=2048, attention_head_dim=(5, 10, 20),
                     block_out_channels=(320, 640, 1280), use_linear_projection=True,
                     down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
                     up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
                     transformer_layers_per_block=(1, 2, 10), addition_embed_type="text_time",
                     addition_time_embed_dim=256, projection_class_embeddings_input_dim=1280 + 6 * 256)
        if tiny:
            unet |= dict(sample_size=8, cross_attention_dim=64 + 128, attention_head_dim=(1, 2, 2),
                         block_out_channels=(64, 128, 128), transformer_layers_per_block=(1, 2, 3),
                         addition_time_embed_dim=256, projection_class_embeddings_input_dim=128 + 6 * 256)
    elif kind == "refiner":
        unet |= dict(sample_size=128, cross_attention_dim=1280, attention_head_dim=(6, 12, 24, 24),
                     block_out_channels=(384, 768, 1536, 1536), use_linear_projection=True,
                     down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                     up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
                     transformer_layers_per_block=4, addition_embed_type="text_time",
                     addition_time_embed_dim=256, projection_class_embeddings_input_dim=1280 + 5 * 256)
        if tiny:
            unet |= dict(sample_size=8, cross_attention_dim=128, attention_head_dim=(1, 2, 2, 2),
                         block_out_channels=(64, 128, 128, 128), transformer_layers_per_block=2,
                         addition_time_embed_dim=256, projection_class_embeddings_input_dim=128 + 5 * 256)
    else:
        raise ValueError(f"unknown kind {kind!r}: expected one of {', '.join(KINDS)}")
    return unet


def _vae(kind: str, tiny: bool) -> dict:
    xl = kind in ("sdxl", "refiner")
    tiny |= kind == WIDE
    widths = (32, 64, 128, 256) if kind == WIDE else (32, 32, 64, 64) if tiny else (128, 256, 512, 512)
    return dict(in_channels=3, out_channels=3, latent_channels=4, layers_per_block=1 if tiny else 2,
                norm_num_groups=32, act_fn="silu",
                block_out_channels=widths,
                down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
                sample_size=64 if tiny else (1024 if xl else 512), scaling_factor=0.13025 if xl else 0.18215,
                force_upcast=xl)


def _text(name: str, tiny: bool) -> dict:
    """name: clip_l, openclip_h or openclip_bigg. Layers are those that are run: Diffusers stores 23 of OpenCLIP-H's 24."""
    real = dict(clip_l=(768, 3072, 12, 12, "quick_gelu", 768), openclip_h=(1024, 4096, 23, 16, "gelu", 512),
                openclip_bigg=(1280, 5120, 32, 20, "gelu", 1280))
    small = dict(clip_l=(64, 128, 3, 1, "quick_gelu", 64), openclip_h=(64, 128, 3, 1, "gelu", 64),
                 openclip_bigg=(128, 256, 4, 2, "gelu", 128))
    hidden, inner, layers, heads, act, projection = (small if tiny else real)[name]
    return dict(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
                hidden_act=act, projection_dim=projection, max_position_embeddings=77, layer_norm_eps=1e-5)


def shapes(kind: str, tiny: bool = False) -> dict:
    """Everything that a Diffusers folder of this kind holds: class names and configurations, by component."""
    unet, vae = _unet(kind, tiny), _vae(kind, tiny)
    tiny |= kind == WIDE
    # unused_layer, unused_projection: what single files of SD 2 carry of OpenCLIP-H beside what SD 2 runs
    spec: dict = dict(unet=unet, vae=vae, vae_class="AutoencoderKL", pipeline_args={}, unused_layer=True, unused_projection=True)
    if kind.startswith("sd15"):
        spec |= dict(pipeline={"sd15-inpaint": "StableDiffusionInpaintPipeline",
                               "sd15-pix2pix": "StableDiffusionInstructPix2PixPipeline"}.get(kind, "StableDiffusionPipeline"),
                     text={"text_encoder": ("CLIPTextModel", "clip_l", _text("clip_l", tiny))},
                     scheduler=("PNDMScheduler", {k: v for k, v in _SCALED_LINEAR.items() if k != "clip_sample"}
                                | dict(set_alpha_to_one=False, skip_prk_steps=True)))
    elif kind == "sd21v":
        spec |= dict(pipeline="StableDiffusionPipeline",
                     text={"text_encoder": ("CLIPTextModel", "openclip_h", _text("openclip_h", tiny))},
                     scheduler=("DDIMScheduler",
                                dict(_SCALED_LINEAR, set_alpha_to_one=False, prediction_type="v_prediction")))
    else:
        encoders = {"text_encoder": ("CLIPTextModel", "clip_l", _text("clip_l", tiny)),
                    "text_encoder_2": ("CLIPTextModelWithProjection", "openclip_bigg", _text("openclip_bigg", tiny))}
        euler = {k: v for k, v in _SCALED_LINEAR.items() if k != "clip_sample"} | dict(timestep_spacing="leading")
        spec |= dict(pipeline="StableDiffusionXLPipeline", text=encoders, scheduler=("EulerDiscreteScheduler", euler))
        if kind == "refiner":
            del encoders["text_encoder"]
            spec |= dict(pipeline="StableDiffusionXLImg2ImgPipeline",
                         pipeline_args=dict(requires_aesthetics_score=True, force_zeros_for_empty_prompt=False))
        else:
            spec |= dict(pipeline_args=dict(force_zeros_for_empty_prompt=True))
    return spec
