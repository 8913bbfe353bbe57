"""Whole pictures of models that were made smaller against Diffusers: SSD-1B, Segmind-Vega, small-sd and tiny-sd, whose UNets lack blocks and
layers in ways of their own. Small random models of their structure (facts from the models' config.json files), fp32 on the CPU, >= 60 dB."""

from __future__ import annotations

import pytest
from pictures import psnr
from pipelines_oracle import ours, same, theirs
from test_diffusers_pipelines import model  # noqa: F401 (fixture)

_CROSS_DOWN, _CROSS_UP = ("CrossAttnDownBlock2D",) * 3, ("CrossAttnUpBlock2D",) * 3
# kind -> the family that it was made of, and what its UNet's configuration says in place of the family's
SMALL = {
    "SSD-1B": ("sdxl", (("transformer_layers_per_block", [0, [2, 2], [4, 4]]), ("mid_block_type", "UNetMidBlock2D"),
                        ("reverse_transformer_layers_per_block", [[4, 4, 10], [2, 1, 1], 1]))),
    "Segmind-Vega": ("sdxl", (("transformer_layers_per_block", [0, [1, 1], [2, 2]]), ("mid_block_type", None),
                              ("reverse_transformer_layers_per_block", [[2, 2, 2], [1, 1, 1], 1]))),
    "without middle attention": ("sd15", (("mid_block_type", "UNetMidBlock2D"),)),
    "small-sd": ("sd15", (("layers_per_block", 1), ("block_out_channels", (32, 64, 64, 64)), ("mid_block_type", None))),
    "tiny-sd": ("sd15", (("layers_per_block", 1), ("block_out_channels", (32, 64, 128)), ("mid_block_type", None),
                         ("down_block_types", _CROSS_DOWN), ("up_block_types", _CROSS_UP))),
    "two levels, one with attention": ("sd15", (("layers_per_block", (1, 3)), ("block_out_channels", (32, 64)),
                                                ("down_block_types", ("DownBlock2D", "CrossAttnDownBlock2D")),
                                                ("up_block_types", ("CrossAttnUpBlock2D", "UpBlock2D")))),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("width, height", [(64, 64), (72, 104)])
def test_pictures(rocm_sd, model, tmp_path, name, width, height):  # noqa: F811
    kind, unet = SMALL[name]
    folder = model(kind, unet=unet)
    want = theirs(folder, width=width, height=height)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "-W", width, "-H", height, size=None), want)


@pytest.mark.parametrize("name", ["SSD-1B", "small-sd"])
def test_batches_without_guidance(rocm_sd, model, tmp_path, name):  # noqa: F811
    kind, unet = SMALL[name]
    folder = model(kind, unet=unet)
    want = theirs(folder, width=64, height=64, guidance_scale=1.0)
    same(ours(rocm_sd, folder, tmp_path / "a.png", scale=1), want)
    assert psnr(ours(rocm_sd, folder, tmp_path / "b.png"), want) < 50


@pytest.mark.parametrize("name", ["SSD-1B", "Segmind-Vega", "tiny-sd"])
def test_freeu(rocm_sd, model, tmp_path, name):  # noqa: F811
    """What changes blocks finds those that are there. Without a middle block the first up block's input and its skip are one tensor in
    Diffusers, which scales the input in place and so the skip, too: the oracle gets a copy there."""
    import diffusers
    import torch

    class Copy(torch.nn.Module):
        has_cross_attention = False

        def forward(self, sample, *_):
            return sample.clone()

    kind, unet = SMALL[name]
    folder = model(kind, unet=unet)
    pipe = diffusers.DiffusionPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    pipe.enable_freeu(s1=0.9, s2=0.2, b1=1.5, b2=1.6)
    if pipe.unet.mid_block is None:
        pipe.unet.mid_block = Copy()
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--freeu", "1.5,1.6,0.9,0.2"), theirs(folder, pipe, width=64, height=64))
