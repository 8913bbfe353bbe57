"""Changes of the UNet's own computation against Diffusers: FreeU, its second version by its definition, and perturbed-attention guidance in layers that the user names.
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


def second_freeu(pipe, b1, b2, s1, s2) -> None:
    """The authors' second version around each residual block of the way up: what it reads is a map and its skip."""
    widths = pipe.unet.config.block_out_channels
    factors = {4 * widths[0]: (b1, s1), 2 * widths[0]: (b2, s2)}

    def changed(block, args):
        both = args[0]
        x, skip = both[:, :block.map_width], both[:, block.map_width:]
        if block.map_width not in factors:
            return None
        backbone, low = factors[block.map_width]
        mean = x.mean(1, keepdim=True)
        least, most = mean.amin((2, 3), keepdim=True), mean.amax((2, 3), keepdim=True)
        share = torch.where(most > least, (mean - least) / (most - least), torch.zeros_like(mean))
        half = x.shape[1] // 2
        x = torch.cat([x[:, :half] * (1 + (backbone - 1) * share), x[:, half:]], 1)
        spectrum = torch.fft.fftshift(torch.fft.fftn(skip.double(), dim=(2, 3)), dim=(2, 3))
        row, column = spectrum.shape[2] // 2, spectrum.shape[3] // 2
        mask = torch.ones(spectrum.shape)
        mask[..., max(row - 1, 0):row + 1, max(column - 1, 0):column + 1] = low
        skip = torch.fft.ifftn(torch.fft.ifftshift(spectrum * mask, dim=(2, 3)), dim=(2, 3)).real.to(x.dtype)
        return (torch.cat([x, skip], 1), *args[1:])

    width = widths[-1]
    for block in pipe.unet.up_blocks:
        for resnet in block.resnets:
            resnet.map_width, width = width, resnet.out_channels
            resnet.register_forward_pre_hook(changed)


WIDER = (("block_out_channels", (32, 64, 128, 128)),)  # so that maps of four times the first width exist, as in SD 1


@pytest.mark.parametrize("kind, unet, width, height", [("sd15", WIDER, 64, 64), ("sd15", WIDER, 136, 104), ("sdxl", (), 64, 72)])
@pytest.mark.parametrize("values", [FREEU, dict(b1=0.5, b2=2.5, s1=0.1, s2=1.7)])
def test_second_version_of_freeu(rocm_sd, model, tmp_path, kind, unet, width, height, values):  # noqa: F811
    folder = model(kind, unet=unet)
    pipe = pipe_of(folder)
    second_freeu(pipe, **values)
    want = theirs(folder, pipe, width=width, height=height)
    size = ["-W", width, "-H", height]
    text = ",".join(str(values[name]) for name in ("b1", "b2", "s1", "s2"))
    same(ours(rocm_sd, folder, tmp_path / "a.png", *size, "--freeu-v2", text, size=None), want)
    for args in [], ["--freeu", text]:
        assert psnr(ours(rocm_sd, folder, tmp_path / "b.png", *size, *args, size=None), want) < 50
    assert f'FreeU v2: "b1 {values["b1"]:g}, b2 {values["b2"]:g}, ' in read_parameters(tmp_path / "a.png")


@pytest.mark.parametrize("option", ["--freeu", "--freeu-v2"])
@pytest.mark.parametrize("args", [["--batch", 2], ["--offload"], ["--tile-size", 64]])
def test_freeu_with(rocm_sd, model, tmp_path, args, option):  # noqa: F811
    folder = model("sd15")
    text = "1.5,1.6,0.9,0.2"
    want = ours(rocm_sd, folder, tmp_path / "a.png", option, text)
    name = "b{index}.png" if "--batch" in args else "b.png"
    got = ours(rocm_sd, folder, tmp_path / name, option, text, *args)
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
    (["--freeu-v2", "1"], "freeu-v2: expected b1,b2,s1,s2, got 1 numbers"), (["--freeu-v2", "1,2,3,4", "--freeu", "1,1,1,1"], "expected one of them"),
    (["--pag-scale", 2, "--pag-layers", "down_blocks.9"], 'is named "down_blocks.9"'), (["--pag-scale", 2, "--pag-layers", "mid,"], 'is named ""')])
def test_bad_values(rocm_sd, model, tmp_path, args, message):  # noqa: F811
    done = rocm_sd(*command(model("sd15"), tmp_path / "a.png", *args), code=2)
    assert message in done.stderr and not (tmp_path / "a.png").exists()
