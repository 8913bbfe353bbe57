"""Random ControlNets for tests: in Diffusers' folder and single file, and in LDM's single file."""

from __future__ import annotations

from pathlib import Path

import diffusers
import ldm_names
import numpy as np
import tiny_models
import torch
from PIL import Image
from safetensors.torch import load_file, save_file


def control_folder(model: Path, folder: Path, seed: int = 1, scale: float = 0.3, **options) -> Path:
    """A ControlNet for the model's UNet. scale: of its last convolutions, so that a picture stays one."""
    unet = diffusers.UNet2DConditionModel.from_config(diffusers.UNet2DConditionModel.load_config(model / "unet"))
    control = tiny_models.controlnet(unet, seed, **options)
    with torch.no_grad():
        for layer in (*control.controlnet_down_blocks, control.controlnet_mid_block):
            layer.weight.mul_(scale)
    control.save_pretrained(folder)
    return folder


def single_file(folder: Path, path: Path) -> Path:
    save_file(load_file(folder / "diffusion_pytorch_model.safetensors"), path)
    return path


def ldm_file(folder: Path, model: Path, path: Path, prefix: str = "control_model.") -> Path:
    """The same under LDM's names (ControlNet's own training code: cldm.py)."""
    unet = diffusers.UNet2DConditionModel.load_config(model / "unet")
    tensors = load_file(folder / "diffusion_pytorch_model.safetensors")
    hints = sum(name.startswith("controlnet_cond_embedding.blocks.") and name.endswith("weight") for name in tensors)
    out = {}
    for name, value in tensors.items():
        module, _, leaf = name.rpartition(".")
        parts = module.split(".")
        if parts[0] == "controlnet_down_blocks":
            renamed = f"zero_convs.{parts[1]}.0"
        elif parts[0] == "controlnet_mid_block":
            renamed = "middle_block_out.0"
        elif parts[0] == "controlnet_cond_embedding":
            number = {"conv_in": 0, "conv_out": 2 * hints + 2}.get(parts[1])
            renamed = f"input_hint_block.{number if number is not None else 2 * int(parts[2]) + 2}"
        else:
            renamed, _, leaf = ldm_names.unet_name(name, unet).removeprefix("model.diffusion_model.").rpartition(".")
        out[f"{prefix}{renamed}.{leaf}"] = value
    assert len(out) == len(tensors)
    save_file(out, path)
    return path


def drawing(path: Path, width: int, height: int, seed: int = 0) -> Path:
    """Circles and bars, so that resizing and channels matter."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    rng = np.random.default_rng(seed)
    image = np.zeros((height, width, 3))
    for c in range(3):
        for _ in range(3):
            cx, cy, r = rng.random() * width, rng.random() * height, (0.1 + 0.2 * rng.random()) * min(width, height)
            image[..., c] += 200 * ((x - cx) ** 2 + (y - cy) ** 2 < r * r)
        image[..., c] += 55 * (np.sin(x / (3 + 2 * c)) > 0)
    Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(path)
    return path


def _saved(model, folder: Path, seed: int) -> Path:
    tiny_models.random_weights(model, seed)
    model.save_pretrained(folder)
    return folder


def union_folder(model: Path, folder: Path, types: int = 8, seed: int = 3, scale: float = 0.3) -> Path:
    """A union ControlNet (Diffusers' ControlNetUnionModel) for the model's UNet; eight types: ProMax."""
    unet = diffusers.UNet2DConditionModel.load_config(model / "unet")
    fields = ("down_block_types", "block_out_channels", "layers_per_block", "norm_num_groups", "norm_eps", "cross_attention_dim",
              "transformer_layers_per_block", "attention_head_dim", "use_linear_projection", "addition_embed_type",
              "projection_class_embeddings_input_dim")
    width = unet["block_out_channels"][0]
    config = {field: unet[field] for field in fields if field in unet} | dict(
        addition_time_embed_dim=unet.get("addition_time_embed_dim") or 8, conditioning_embedding_out_channels=(8, 16, 24, 32),
        num_control_type=types, num_trans_channel=width, num_proj_channel=width, num_trans_head=4, num_trans_layer=2)
    control = diffusers.ControlNetUnionModel(**config)
    tiny_models.random_weights(control, seed)
    with torch.no_grad():
        control.task_embedding.normal_(0, 1, generator=torch.Generator().manual_seed(seed))
        for layer in (*control.controlnet_down_blocks, control.controlnet_mid_block):
            layer.weight.mul_(scale)
    control.save_pretrained(folder)
    return folder


def adapter_folder(folder: Path, kind: str, channels: tuple[int, ...], in_channels: int = 3, seed: int = 4, scale: float = 3.0) -> Path:
    """A T2I-Adapter. scale: of its first layer, so that it changes enough and a picture stays one."""
    adapter = diffusers.T2IAdapter(in_channels=in_channels, channels=list(channels), num_res_blocks=4 if kind == "light_adapter" else 2,
                                   downscale_factor=16 if kind.endswith("xl") else 8, adapter_type=kind)
    tiny_models.random_weights(adapter, seed)
    with torch.no_grad():
        for name, value in adapter.named_parameters():
            if "conv_in" in name or "body.0.in_conv" in name:
                value.mul_(scale)
    adapter.save_pretrained(folder)
    return folder


def original_adapter(folder: Path, path: Path) -> Path:
    """The same under TencentARC's names: residual blocks counted through all levels, those of light ones in "body"."""
    import re

    tensors = load_file(folder / "diffusion_pytorch_model.safetensors")
    light = not any("conv_in" in name and "body" not in name for name in tensors)
    out = {}
    for name, value in tensors.items():
        name = name.removeprefix("adapter.")
        if light:
            name = name.replace(".resnets.", ".body.")
        else:
            name = re.sub(r"body\.(\d+)\.resnets\.(\d+)\.", lambda m: f"body.{2 * int(m[1]) + int(m[2])}.", name)
            name = re.sub(r"body\.(\d+)\.in_conv\.", lambda m: f"body.{2 * int(m[1])}.in_conv.", name)
        out[name] = value
    assert len(out) == len(tensors)
    save_file(out, path)
    return path


def low_rank_file(net: Path, model: Path, path: Path, merged: Path, rank: int = 3, seed: int = 6) -> Path:
    """A ControlNet-LoRA as Stability's: low-rank changes of the UNet's matrices and filters under LDM's names, the net's own norms and
    biases, hint encoder and last convolutions. merged: a folder that gets the ControlNet that it stands for."""
    generator = torch.Generator().manual_seed(seed)
    control = diffusers.ControlNetModel.from_pretrained(net)
    unet = diffusers.UNet2DConditionModel.from_pretrained(model / "unet").state_dict()
    config = diffusers.UNet2DConditionModel.load_config(model / "unet")
    tensors = {"lora_controlnet": torch.tensor([])}
    state = control.state_dict()
    whole = ldm_file(net, model, path.with_suffix(".whole.safetensors"), prefix="")
    ldm = load_file(whole)
    for name, value in state.items():
        if name.startswith("controlnet_") or name not in unet:
            continue
        original = ldm_names.unet_name(name, config).removeprefix("model.diffusion_model.")
        if name.endswith(".weight") and value.dim() > 1:
            out, rest = value.shape[0], value[0].numel()
            up = torch.randn(out, rank, generator=generator) * 0.3
            down = torch.randn(rank, rest, generator=generator) * rest ** -0.5
            state[name] = unet[name] + (up @ down).reshape(value.shape)
            stem = original.removesuffix("weight")
            tensors[stem + "up"] = up.reshape(out, rank, *[1] * (value.dim() - 2)).contiguous()
            tensors[stem + "down"] = down.reshape(rank, *value.shape[1:]).contiguous()
            del ldm[original]
    tensors |= ldm
    control.load_state_dict(state)
    control.save_pretrained(merged)
    tensors["lora_controlnet"] = torch.zeros(1)
    save_file({key: value.contiguous() for key, value in tensors.items()}, path)
    return path
