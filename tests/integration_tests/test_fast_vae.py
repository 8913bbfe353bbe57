"""--fast-vae against Diffusers' decoder with its last doubling left out, and against the whole decoder."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from pictures import psnr, read_parameters, read_picture

PROMPT = "a red apple on a white background"


def draw(rocm_sd, model, path, *args):
    rocm_sd("generate", "--model", model, "--device", "cpu", "--dtype", "f32", "-p", PROMPT, "--steps", 6, "--seed", 3, "--sampler", "Euler",
            "--cfg-scale", 4, "--rng", "cpu", *args, "-o", path)
    return read_picture(path)


def without_last_doubling(vae, latents: torch.Tensor) -> np.ndarray:
    decoder = vae.decoder
    x = decoder.mid_block(decoder.conv_in(vae.post_quant_conv(latents) if vae.post_quant_conv is not None else latents))
    for i, block in enumerate(decoder.up_blocks):
        for resnet in block.resnets:
            x = resnet(x, None)
        for upsampler in block.upsamplers or ():
            x = upsampler.conv(x) if i == len(decoder.up_blocks) - 2 else upsampler(x)
    x = decoder.conv_out(decoder.conv_act(decoder.conv_norm_out(x)))
    x = interpolate(x, scale_factor=2, mode="bicubic", antialias=True)  # the cubic of Pillow, a = -0.5
    return np.rint(((x / 2 + 0.5).clamp(0, 1) * 255)[0].permute(1, 2, 0).numpy()).astype(np.uint8)


@pytest.mark.parametrize("kind, args", [("sd15", ["-W", 72, "-H", 64]), ("sdxl", ["-W", 64, "-H", 80]), ("demo", [])])
def test_decodes_as_diffusers_would(rocm_sd, repository, tiny_model, tmp_path, kind, args):
    model = repository / "models" / "demo" if kind == "demo" else tiny_model(kind)
    got = draw(rocm_sd, model, tmp_path / "a.png", *args, "--fast-vae")
    assert "VAE decoder: finest level at half size" in read_parameters(tmp_path / "a.png")
    pipeline = diffusers.DiffusionPipeline.from_pretrained(model, torch_dtype=torch.float32)
    pipeline.scheduler = diffusers.EulerDiscreteScheduler.from_config(pipeline.scheduler.config, timestep_spacing="linspace")
    pipeline.set_progress_bar_config(disable=True)
    height, width = got.shape[:2]
    with torch.no_grad():
        latents = pipeline(PROMPT, num_inference_steps=6, guidance_scale=4, width=width, height=height, output_type="latent",
                           generator=torch.Generator().manual_seed(3)).images
        want = without_last_doubling(pipeline.vae, latents / pipeline.vae.config.scaling_factor)
    assert psnr(got, want) >= 60


def test_comes_near_the_whole_decoder(rocm_sd, repository, tmp_path):
    """On trained weights; those of the other models are random, and say nothing of a picture's quality."""
    model = repository / "models" / "demo"
    whole = draw(rocm_sd, model, tmp_path / "a.png", "--steps", 15)
    fast = draw(rocm_sd, model, tmp_path / "b.png", "--steps", 15, "--fast-vae")
    assert 26 <= psnr(fast, whole) < 60
    bands = draw(rocm_sd, model, tmp_path / "c.png", "--steps", 15, "--fast-vae", "--vae-weights", "int8")
    assert psnr(bands, fast) >= 35


def test_says_where_it_has_no_effect(rocm_sd, repository, tmp_path):
    """TAESD decodes then. Random, with as many levels as the demo model's VAE."""
    diffusers.AutoencoderTiny(encoder_block_out_channels=(16,) * 4,
                              decoder_block_out_channels=(16,) * 4).save_pretrained(tmp_path / "tiny")
    args = ["generate", "--model", repository / "models" / "demo", "-p", "a", "--seed", 1, "--steps", 1, "--taesd", tmp_path / "tiny"]
    done = rocm_sd(*args, "--fast-vae", "-o", tmp_path / "a.png")
    assert "fast-vae: no effect" in done.stderr
    rocm_sd(*args, "-o", tmp_path / "b.png")
    assert (read_picture(tmp_path / "a.png") == read_picture(tmp_path / "b.png")).all()
    assert "VAE decoder" not in read_parameters(tmp_path / "a.png")
