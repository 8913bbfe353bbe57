"""Random IP-Adapters and image encoders for tests, in the published files' form, for Diffusers and for the engine."""

from __future__ import annotations

from pathlib import Path

import tiny_models
import torch
from diffusers import UNet2DConditionModel
from safetensors.torch import save_file
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

KINDS = ("plain", "plus", "full", "faceid")
FACE = 20  # width of a face's embedding; 512 of the published ones


def image_encoder(width: int = 32, projection: int = 24, act: str = "gelu", image_size: int = 40, patch_size: int = 8, layers: int = 4,
                  seed: int = 7) -> CLIPVisionModelWithProjection:
    config = CLIPVisionConfig(hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers, num_attention_heads=4,
                              image_size=image_size, patch_size=patch_size, projection_dim=projection, hidden_act=act)
    return tiny_models.random_weights(CLIPVisionModelWithProjection(config), seed)


def encoder_folder(folder: Path, **options) -> Path:
    image_encoder(**options).save_pretrained(folder)
    return folder


def _projection(kind: str, encoder, context: int, tokens: int, depth: int, made) -> dict[str, torch.Tensor]:
    width, embedding = encoder.config.hidden_size, encoder.config.projection_dim
    if kind == "plain":
        return made({"proj.weight": (tokens * context, embedding), "proj.bias": (tokens * context,), "norm.weight": (context,),
                     "norm.bias": (context,)})
    if kind == "full":
        return made({"proj.0.weight": (width, width), "proj.0.bias": (width,), "proj.2.weight": (context, width), "proj.2.bias": (context,),
                     "proj.3.weight": (context,), "proj.3.bias": (context,)})
    if kind == "faceid":
        return made({"proj.0.weight": (2 * FACE, FACE), "proj.0.bias": (2 * FACE,), "proj.2.weight": (tokens * context, 2 * FACE),
                     "proj.2.bias": (tokens * context,), "norm.weight": (context,), "norm.bias": (context,)})
    both = kind == "faceid-plus"
    inner, hidden = 64, context if both else 48  # one head of 64 values, as Diffusers has them
    queries = {} if both else {"latents": (1, tokens, hidden)}
    shapes = queries | {"proj_in.weight": (hidden, width), "proj_in.bias": (hidden,), "proj_out.weight": (context, hidden), "proj_out.bias": (context,), "norm_out.weight": (context,), "norm_out.bias": (context,)}
    for i in range(depth):
        for norm in ("0.norm1", "0.norm2", "1.0"):
            shapes |= {f"layers.{i}.{norm}.weight": (hidden,), f"layers.{i}.{norm}.bias": (hidden,)}
        shapes |= {f"layers.{i}.0.to_q.weight": (inner, hidden), f"layers.{i}.0.to_kv.weight": (2 * inner, hidden),
                   f"layers.{i}.0.to_out.weight": (hidden, inner), f"layers.{i}.1.1.weight": (4 * hidden, hidden),
                   f"layers.{i}.1.3.weight": (hidden, 4 * hidden)}
    if both:
        face = {"proj.0.weight": (2 * FACE, FACE), "proj.0.bias": (2 * FACE,), "proj.2.weight": (tokens * hidden, 2 * FACE),
                "proj.2.bias": (tokens * hidden,), "norm.weight": (hidden,), "norm.bias": (hidden,)}
        shapes = face | {f"perceiver_resampler.{name}": shape for name, shape in shapes.items()}
    return made(shapes)


def adapter_tensors(kind: str, unet: UNet2DConditionModel, encoder, seed: int = 11, tokens: int = 4, depth: int = 4) -> dict[str, torch.Tensor]:
    """Under the published names. Diffusers reads resamplers of four layers."""
    generator = torch.Generator().manual_seed(seed)

    def made(shapes):
        out = {}
        for name, shape in shapes.items():
            noise = torch.randn(shape, generator=generator)
            if len(shape) > 1:
                out[name] = noise * shape[-1] ** -0.5 if name != "latents" else noise
            else:
                out[name] = 0.1 * noise + (1.0 if name.endswith("weight") else 0.0)
        return out

    context = unet.config.cross_attention_dim
    out = {f"image_proj.{name}": value for name, value in _projection(kind, encoder, context, tokens, depth, made).items()}
    for i, name in enumerate(unet.attn_processors):
        if "attn2" in name:
            width = unet.get_submodule(name.removesuffix(".processor")).to_k.out_features
            for part in ("to_k_ip", "to_v_ip"):
                out[f"ip_adapter.{i}.{part}.weight"] = torch.randn(width, context, generator=generator) * context ** -0.5 * (
                    3 if part == "to_v_ip" else 1)  # so that it changes enough to prove something
    return out


def adapter_file(path: Path, *args, **options) -> Path:
    save_file(adapter_tensors(*args, **options), path)
    return path


def state_dict(tensors: dict[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    """As load_ip_adapter makes it of a file."""
    out: dict[str, dict[str, torch.Tensor]] = {"image_proj": {}, "ip_adapter": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        out[part][rest] = value
    return out
