"""Perturbed-attention guidance beside ControlNets against Diffusers' pipelines of both. Small random models, fp32 on the CPU, >= 60 dB."""

from __future__ import annotations

import diffusers
import pytest
import torch
from control_models import control_folder, drawing
from PIL import Image
from pictures import psnr
from pipelines_oracle import ours, same, theirs
from test_diffusers_pipelines import model  # noqa: F401 (fixture)

SIDE = 128  # a middle block of one pixel would have nothing to perturb


@pytest.mark.parametrize("kind, name", [("sd15", "StableDiffusionControlNetPAGPipeline"), ("sdxl", "StableDiffusionXLControlNetPAGPipeline")])
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_perturbed_attention_beside_a_controlnet(rocm_sd, model, tmp_path, kind, name, scale):  # noqa: F811
    folder = model(kind)
    net = control_folder(folder, tmp_path / "net")
    hint = drawing(tmp_path / "hint.png", SIDE, SIDE)
    pipe = getattr(diffusers, name).from_pretrained(folder, controlnet=diffusers.ControlNetModel.from_pretrained(net), torch_dtype=torch.float32,
                                                    pag_applied_layers="mid")
    want = theirs(folder, pipe, image=Image.open(hint).convert("RGB"), width=SIDE, height=SIDE, pag_scale=60.0, guidance_scale=scale,
                  controlnet_conditioning_scale=0.7)
    args = ["-W", SIDE, "-H", SIDE, "--control", net, "--control-image", hint, "--control-strength", 0.7]
    same(ours(rocm_sd, folder, tmp_path / "a.png", *args, "--pag-scale", 60, scale=scale, size=None), want)
    assert psnr(ours(rocm_sd, folder, tmp_path / "b.png", *args, scale=scale, size=None), want) < 50
