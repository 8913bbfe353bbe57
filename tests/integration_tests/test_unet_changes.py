"""Changes of the UNet's own computation against Diffusers: FreeU, and perturbed-attention guidance in layers that the user names.
Small random models, fp32 on the CPU, >= 60 dB."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest
import torch
from pictures import psnr, read_parameters
from pipelines_oracle import ours, same, theirs
from test_diffusers_pipelines import command, model  # noqa: F401 (fixture)

FREEU = dict(b1=1.5, b2=1.6, s1=0.9, s2=0.2)


def pipe_of(folder, name="DiffusionPipeline", **options):
    pipe = getattr(diffusers, name).from_pretrained(folder, torch_dtype=torch.float32, **options)
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.mark.parametrize("kind, width, height", [("sd15", 64, 64), ("sd15", 88, 72), ("sd21v", 64, 64), ("sdxl", 64, 64), ("sdxl", 72, 104)])
@pytest.mark.parametrize("values", [FREEU, dict(b1=1.2, b2=0.9, s1=0.1, s2=3.0)])
def test_freeu(rocm_sd, model, tmp_path, kind, width, height, values):  # noqa: F811
    """At maps of one pixel, odd ones and those of no power of two, too: Diffusers' filter by FFT is a sum over seven functions."""
    folder = model(kind)
    pipe = pipe_of(folder)
    pipe.enable_freeu(**values)
    want = theirs(folder, pipe, width=width, height=height)
    size = ["-W", width, "-H", height]
    text = ",".join(str(values[name]) for name in ("b1", "b2", "s1", "s2"))
    got = ours(rocm_sd, folder, tmp_path / "a.png", *size, "--freeu", text, size=None)
    same(got, want)
    assert psnr(ours(rocm_sd, folder, tmp_path / "b.png", *size, size=None), want) < 50
    shown = read_parameters(tmp_path / "a.png")
    assert f'FreeU: "b1 {values["b1"]:g}, b2 {values["b2"]:g}, s1 {values["s1"]:g}, s2 {values["s2"]:g}"' in shown


def test_freeu_of_ones_is_the_plain_picture(rocm_sd, model, tmp_path):  # noqa: F811
    folder = model("sd15")
    ones = ours(rocm_sd, folder, tmp_path / "a.png", "--freeu", "1,1,1,1")
    assert np.array_equal(ones, ours(rocm_sd, folder, tmp_path / "b.png"))


@pytest.mark.parametrize("args", [["--batch", 2], ["--offload"], ["--tile-size", 64]])
def test_freeu_with(rocm_sd, model, tmp_path, args):  # noqa: F811
    folder = model("sd15")
    text = "1.5,1.6,0.9,0.2"
    want = ours(rocm_sd, folder, tmp_path / "a.png", "--freeu", text)
    name = "b{index}.png" if "--batch" in args else "b.png"
    got = ours(rocm_sd, folder, tmp_path / name, "--freeu", text, *args)
    if got is None:
        from pictures import read_picture

        got = read_picture(tmp_path / "b1.png")
    assert psnr(got, want) >= 60


@pytest.mark.parametrize("kind, layers", [("sd15", "down_blocks.1"), ("sd15", "mid,up_blocks.2.attentions.0"), ("sdxl", "up_blocks.1"),
                                          ("sdxl", "attentions.1"), ("sdxl", "down.blocks")])
def test_layers_of_perturbed_attention(rocm_sd, model, tmp_path, kind, layers):  # noqa: F811
    folder = model(kind)
    name = "StableDiffusionXLPAGPipeline" if kind == "sdxl" else "StableDiffusionPAGPipeline"
    want = theirs(folder, pipe_of(folder, name, pag_applied_layers=layers.split(",")), pag_scale=8.0)
    got = ours(rocm_sd, folder, tmp_path / "a.png", "--pag-scale", 8, "--pag-layers", layers)
    same(got, want)
    assert psnr(ours(rocm_sd, folder, tmp_path / "b.png"), want) < 50
    assert "PAG layers: " in read_parameters(tmp_path / "a.png")


@pytest.mark.bad_input
@pytest.mark.parametrize("args, message", [
    (["--freeu", "1,2,3"], "freeu: expected b1,b2,s1,s2, got 3 numbers"), (["--freeu", "1,2,3,99"], "freeu"), (["--freeu", "a,1,1,1"], "freeu"),
    (["--pag-scale", 2, "--pag-layers", "down_blocks.9"], 'is named "down_blocks.9"'), (["--pag-scale", 2, "--pag-layers", "mid,"], 'is named ""')])
def test_bad_values(rocm_sd, model, tmp_path, args, message):  # noqa: F811
    done = rocm_sd(*command(model("sd15"), tmp_path / "a.png", *args), code=2)
    assert message in done.stderr and not (tmp_path / "a.png").exists()
