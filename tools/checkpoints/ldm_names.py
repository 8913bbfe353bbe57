"""Tensor names of LDM single-file checkpoints, from the names that Diffusers and transformers give the same tensors."""

from __future__ import annotations

import re

_RESNET = {"norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "norm2": "out_layers.0",
           "conv2": "out_layers.3", "conv_shortcut": "skip_connection"}
_OPENCLIP = {"layer_norm1": "ln_1", "layer_norm2": "ln_2", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj",
             "self_attn.out_proj": "attn.out_proj"}

TEXT_PREFIX = {  # by kind: component -> prefix in the single file
    "sd15": {"text_encoder": "cond_stage_model.transformer."},
    "sd21v": {"text_encoder": "cond_stage_model.model."},
    "sdxl": {"text_encoder": "conditioner.embedders.0.transformer.", "text_encoder_2": "conditioner.embedders.1.model."},
    "refiner": {"text_encoder_2": "conditioner.embedders.0.model."},
}


def _unet_modules(config: dict) -> dict[str, str]:
    """Diffusers module prefix -> LDM module prefix, for every module that holds parameters."""
    levels, layers = len(config["block_out_channels"]), config["layers_per_block"]
    table = {"conv_in": "input_blocks.0.0", "time_embedding.linear_1": "time_embed.0",
             "time_embedding.linear_2": "time_embed.2", "add_embedding.linear_1": "label_emb.0.0",
             "add_embedding.linear_2": "label_emb.0.2", "mid_block.resnets.0": "middle_block.0",
             "mid_block.attentions.0": "middle_block.1", "mid_block.resnets.1": "middle_block.2",
             "conv_norm_out": "out.0", "conv_out": "out.2"}
    index = 1
    for level in range(levels):
        for layer in range(layers):
            table[f"down_blocks.{level}.resnets.{layer}"] = f"input_blocks.{index}.0"
            table[f"down_blocks.{level}.attentions.{layer}"] = f"input_blocks.{index}.1"
            index += 1
        if level + 1 < levels:
            table[f"down_blocks.{level}.downsamplers.0.conv"] = f"input_blocks.{index}.0.op"
            index += 1
    index = 0
    for level in range(levels):
        has_attention = config["up_block_types"][level].startswith("CrossAttn")
        for layer in range(layers + 1):
            table[f"up_blocks.{level}.resnets.{layer}"] = f"output_blocks.{index}.0"
            table[f"up_blocks.{level}.attentions.{layer}"] = f"output_blocks.{index}.1"
            if layer == layers and level + 1 < levels:
                slot = 2 if has_attention else 1
                table[f"up_blocks.{level}.upsamplers.0.conv"] = f"output_blocks.{index}.{slot}.conv"
            index += 1
    return table


def unet_name(name: str, config: dict) -> str:
    table = _unet_modules(config)
    for prefix in sorted(table, key=len, reverse=True):
        if name.startswith(prefix + "."):
            rest = name[len(prefix) + 1:]
            if ".resnets." in prefix:
                module, _, leaf = rest.rpartition(".")
                rest = f"{_RESNET[module]}.{leaf}"
            return f"model.diffusion_model.{table[prefix]}.{rest}"
    raise KeyError(f"no single-file name is known for the UNet tensor {name!r}")


def vae_name(name: str, config: dict) -> str:
    levels = len(config["block_out_channels"])
    out = re.sub(r"mid_block\.resnets\.(\d)", lambda m: f"mid.block_{int(m[1]) + 1}", name)
    out = out.replace("mid_block.attentions.0.", "mid.attn_1.").replace("group_norm", "norm")
    out = re.sub(r"to_([qkv])\.", r"\1.", out).replace("to_out.0.", "proj_out.")
    out = re.sub(r"down_blocks\.(\d+)\.resnets\.", r"down.\1.block.", out)
    out = re.sub(r"down_blocks\.(\d+)\.downsamplers\.0\.", r"down.\1.downsample.", out)
    out = re.sub(r"up_blocks\.(\d+)\.", lambda m: f"up.{levels - 1 - int(m[1])}.", out)
    out = re.sub(r"(up\.\d+)\.resnets\.", r"\1.block.", out).replace("upsamplers.0.", "upsample.")
    out = out.replace("conv_shortcut", "nin_shortcut").replace("conv_norm_out", "norm_out")
    return "first_stage_model." + out


def vae_is_convolution(ldm_name: str) -> bool:
    """The attention's linear weights [C,C] stand as 1x1 convolutions [C,C,1,1] in a single file."""
    return ".attn_1." in ldm_name and ldm_name.endswith("weight") and ".norm." not in ldm_name


def openclip_name(name: str) -> str | None:
    """For one text-encoder tensor; None for q, k and v, which the file holds fused (openclip_fused)."""
    body = name.removeprefix("text_model.")
    fixed = {"embeddings.token_embedding.weight": "token_embedding.weight",
             "embeddings.position_embedding.weight": "positional_embedding", "text_projection.weight": "text_projection",
             "final_layer_norm.weight": "ln_final.weight", "final_layer_norm.bias": "ln_final.bias"}
    if body in fixed:
        return fixed[body]
    match = re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)\.(weight|bias)", body)
    if match is None:
        raise KeyError(f"no OpenCLIP name is known for the text encoder tensor {name!r}")
    layer, module, leaf = match.groups()
    if module in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
        return None
    return f"transformer.resblocks.{layer}.{_OPENCLIP[module]}.{leaf}"


def openclip_fused(layer: int, leaf: str) -> tuple[str, list[str]]:
    """The fused q, k, v tensor's name and the names of its three parts, in order."""
    parts = [f"text_model.encoder.layers.{layer}.self_attn.{p}_proj.{leaf}" for p in "qkv"]
    return f"transformer.resblocks.{layer}.attn.in_proj_{leaf}", parts
