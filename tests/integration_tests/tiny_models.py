"""Small models with the structure of the real ones and seeded random weights, for comparison with Diffusers.

write_model(model, folder) stores what tests/tools/model_main.cpp reads: config.json and model.safetensors under the
canonical tensor names.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from diffusers import AutoencoderKL, AutoencoderTiny, ControlNetModel, UNet2DConditionModel
from safetensors.torch import save_file
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

_CROSS_DOWN, _DOWN = "CrossAttnDownBlock2D", "DownBlock2D"
_CROSS_UP, _UP = "CrossAttnUpBlock2D", "UpBlock2D"
_SD1 = dict(block_out_channels=(32, 64, 96, 96), norm_num_groups=8, cross_attention_dim=24, attention_head_dim=4)
_SDXL = dict(block_out_channels=(32, 64, 96), norm_num_groups=16, cross_attention_dim=40, attention_head_dim=(2, 4, 6),
             down_block_types=(_DOWN, _CROSS_DOWN, _CROSS_DOWN), up_block_types=(_CROSS_UP, _CROSS_UP, _UP),
             use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=8,
             projection_class_embeddings_input_dim=20 + 6 * 8)

UNETS: dict[str, dict] = {
    "sd15": _SD1,
    "sd15-inpaint": _SD1 | dict(in_channels=9),
    "sd15-pix2pix": _SD1 | dict(in_channels=8),
    "sd21": _SD1 | dict(cross_attention_dim=40, attention_head_dim=(2, 4, 6, 6), use_linear_projection=True,
                        norm_num_groups=32, upcast_attention=True),
    "sdxl": _SDXL | dict(transformer_layers_per_block=(1, 2, 3)),
    "refiner": _SDXL | dict(block_out_channels=(48, 96, 96, 96), attention_head_dim=(2, 4, 6, 6),
                            down_block_types=(_DOWN, _CROSS_DOWN, _CROSS_DOWN, _DOWN),
                            up_block_types=(_UP, _CROSS_UP, _CROSS_UP, _UP), transformer_layers_per_block=2,
                            projection_class_embeddings_input_dim=20 + 5 * 8),
    "ssd-1b": _SDXL | dict(transformer_layers_per_block=[0, [2, 2], [3, 3]], mid_block_type="UNetMidBlock2D",
                           reverse_transformer_layers_per_block=[[3, 3, 4], [2, 1, 1], 1]),
    "vega": _SDXL | dict(transformer_layers_per_block=[0, [1, 1], [2, 2]], mid_block_type=None,
                         reverse_transformer_layers_per_block=[[2, 2, 2], [1, 1, 1], 1]),
    "small-sd": _SD1 | dict(layers_per_block=1, block_out_channels=(32, 64, 96),
                            down_block_types=(_CROSS_DOWN, _CROSS_DOWN, _CROSS_DOWN),
                            up_block_types=(_CROSS_UP, _CROSS_UP, _CROSS_UP), mid_block_type=None),
    "lcm": _SD1 | dict(time_cond_proj_dim=16),
    # Options that few models set, all at once; widths such that a skip makes the shortcut a plain concat.
    "unusual": _SD1 | dict(block_out_channels=(32, 32, 64, 96), layers_per_block=(1, 2, 1, 3),
                           only_cross_attention=(True, False, True, False), freq_shift=1, flip_sin_to_cos=False,
                           center_input_sample=True, conv_in_kernel=5, conv_out_kernel=1, norm_eps=1e-4,
                           cross_attention_dim=(24, 24, 24, 24)),
}


def random_weights(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Seeded weights that keep activations near unit size: gains about 1, matrices of unit gain, small biases."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            if value.ndim > 1:
                embedding = "embedding.weight" in name
                value.copy_(noise * (0.5 if embedding else (value[0].numel()) ** -0.5))
            else:
                value.copy_(0.1 * noise + (1.0 if name.endswith("weight") else 0.0))
    return model.eval()


def unet(kind: str, seed: int = 0) -> UNet2DConditionModel:
    return random_weights(UNet2DConditionModel(**UNETS[kind]), seed)


def controlnet(unet: UNet2DConditionModel, seed: int = 0, **options) -> ControlNetModel:
    """A ControlNet for this UNet, whose last convolutions are not zero as a new one's are. options: of its configuration."""
    fields = ("flip_sin_to_cos", "freq_shift", "down_block_types", "mid_block_type", "only_cross_attention", "block_out_channels",
              "layers_per_block", "norm_num_groups", "norm_eps", "cross_attention_dim", "transformer_layers_per_block",
              "attention_head_dim", "use_linear_projection", "addition_embed_type", "addition_time_embed_dim",
              "projection_class_embeddings_input_dim", "upcast_attention")
    config = {field: unet.config[field] for field in fields}
    return random_weights(ControlNetModel(**(config | dict(conditioning_embedding_out_channels=(8, 16, 24, 32)) | options)), seed)


def vae(seed: int = 0, **options) -> AutoencoderKL:
    config = dict(block_out_channels=(32, 64, 64), layers_per_block=2, norm_num_groups=16,
                  down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3,
                  scaling_factor=0.13025, shift_factor=0.25)
    return random_weights(AutoencoderKL(**(config | options)), seed)


def taesd(seed: int = 0) -> AutoencoderTiny:
    model = AutoencoderTiny(encoder_block_out_channels=(16, 16, 16, 16), decoder_block_out_channels=(16, 16, 16, 16))
    return random_weights(model, seed)


def text_encoder(kind: str, seed: int = 0) -> CLIPTextModel | CLIPTextModelWithProjection:
    """kind: clip-l (quick GELU), openclip-h (GELU), openclip-bigg (GELU, projection)."""
    config = CLIPTextConfig(vocab_size=200, hidden_size=48, intermediate_size=96, num_hidden_layers=4,
                            num_attention_heads=4, projection_dim=40, max_position_embeddings=77,
                            hidden_act="quick_gelu" if kind == "clip-l" else "gelu",
                            bos_token_id=198, eos_token_id=2 if kind == "openclip-h" else 199)
    projected = kind == "openclip-bigg"
    return random_weights((CLIPTextModelWithProjection if projected else CLIPTextModel)(config), seed)


def canonical(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The model's tensors under the names that checkpoints use."""
    tensors = {name: value.contiguous() for name, value in model.state_dict().items() if "position_ids" not in name}
    if isinstance(model, CLIPTextModel):  # transformers 5 leaves the prefix to its writer
        tensors = {name if name.startswith("text_model.") else "text_model." + name: value
                   for name, value in tensors.items()}
    return tensors


def write_model(model: torch.nn.Module, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = dict(model.config.to_dict() if hasattr(model.config, "to_dict") else model.config)
    if isinstance(model, (CLIPTextModel, CLIPTextModelWithProjection)):
        config["architectures"] = [type(model).__name__]
    else:
        config["_class_name"] = type(model).__name__
    (folder / "config.json").write_text(json.dumps(config, default=str))
    save_file(canonical(model), folder / "model.safetensors")
    return folder
