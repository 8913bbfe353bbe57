"""What control models do in tiled diffusion: T2I-Adapters and masks, window by window, against MultiDiffusion's average written out around
Diffusers' UNet and adapters. Small random models, fp32 on the CPU, >= 60 dB."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest
import torch
from control_models import adapter_folder, control_folder, drawing
from pictures import psnr
from PIL import Image
from test_sampler_pictures import SCALE
from test_tiled_diffusion import Tiled, begins, euler, ours, side

CHANNELS = (32, 64, 64, 64)


class Steered(Tiled):
    """steer(sample, top, left): what a window's call of the UNet gets beside it, for one row."""

    def __init__(self, model, tile: int, overlap: int, weights: str, steer):
        super().__init__(model, tile, overlap, weights)
        self.steer = steer

    @torch.no_grad()
    def __call__(self, x: np.ndarray, sigma: float) -> np.ndarray:
        height, width = x.shape[-2:]
        norm = (sigma**2 + 1) ** 0.5
        total, sums = np.zeros(x.shape), np.zeros((height, width))
        tall, wide = min(self.tile, height), min(self.tile, width)
        weight = np.outer(side(tall, self.weights), side(wide, self.weights))
        for top in begins(height, self.tile, self.overlap):
            for left in begins(width, self.tile, self.overlap):
                at = np.s_[..., top:top + tall, left:left + wide]
                one = torch.from_numpy(x[at] / norm).float()
                parts = []
                for text in self.text:
                    more = self.steer(one, self.table.timestep(sigma), text[None], top, left, tall, wide)
                    parts.append(self.pipeline.unet(one, self.table.timestep(sigma), encoder_hidden_states=text[None], **more).sample.double().numpy())
                total[at] += weight * (parts[0] + SCALE * (parts[1] - parts[0]))
                sums[at] += weight
        return x - sigma * total / sums


def opened(path, top, left, tall, wide) -> torch.Tensor:
    """The window's part of a picture, or of a mask: [1,C,8 tall,8 wide] in 0..1."""
    values = np.asarray(Image.open(path), np.float32) / 255
    values = values[..., None] if values.ndim == 2 else values
    part = values[8 * top:8 * (top + tall), 8 * left:8 * (left + wide)]
    return torch.from_numpy(part).permute(2, 0, 1)[None]


def mean_over(mask: torch.Tensor, map_: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.adaptive_avg_pool2d(mask, map_.shape[-2:])


@pytest.fixture()
def drawn_mask(tmp_path):
    rng = np.random.default_rng(3)
    path = tmp_path / "mask.png"
    Image.fromarray(np.kron(rng.integers(0, 256, (10, 15)), np.ones((8, 8))).astype(np.uint8)).save(path)
    return path


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tile,overlap,batch", [(64, 24, 1), (48, 8, 3)])
def test_adapters(rocm_sd, tiny_model, tmp_path, drawn_mask, masked, tile, overlap, batch):
    """The adapter reads the window's part of what it sees, at windows that begin anywhere."""
    model = tiny_model("sd15")
    folder = adapter_folder(tmp_path / "adapter", "full_adapter", CHANNELS)
    hint = drawing(tmp_path / "hint.png", 120, 80)
    adapter = diffusers.T2IAdapter.from_pretrained(folder)

    def steer(one, timestep, text, top, left, tall, wide):
        maps = adapter(opened(hint, top, left, tall, wide))
        if masked:
            mask = opened(drawn_mask, top, left, tall, wide)
            maps = [map_ * mean_over(mask, map_) for map_ in maps]
        return dict(down_intrablock_additional_residuals=[0.8 * map_ for map_ in maps])

    want = euler(Steered(model, tile // 8, overlap // 8, "gaussian", steer), 120, 80)
    tiles = ["--tile-size", tile, "--tile-overlap", overlap, "--tile-batch", batch, "--tile-weights", "gaussian"]
    args = ["--control", folder, "--control-image", hint, "--control-strength", 0.8]
    got = ours(rocm_sd, model, tmp_path / "a.png", 120, 80, *tiles, *args, *(["--control-mask", drawn_mask] if masked else []))
    assert psnr(got, want) >= 60
    plain = ours(rocm_sd, model, tmp_path / "b.png", 120, 80, *tiles, *args, *([] if masked else ["--control-mask", drawn_mask]))
    assert psnr(got, plain) < 50, "the mask, or the adapter, changes too little to prove anything"


def test_masks_of_controlnets(rocm_sd, tiny_model, tmp_path, drawn_mask):
    model = tiny_model("sd15")
    folder = control_folder(model, tmp_path / "net")
    net = diffusers.ControlNetModel.from_pretrained(folder)
    hint = drawing(tmp_path / "hint.png", 120, 80)
    with torch.no_grad():
        whole = net.controlnet_cond_embedding(opened(hint, 0, 0, 10, 15))

    def steer(one, timestep, text, top, left, tall, wide):
        net.controlnet_cond_embedding = Cut(whole[..., top:top + tall, left:left + wide])
        down, middle = net(one, timestep, encoder_hidden_states=text, controlnet_cond=one, conditioning_scale=0.8, return_dict=False)
        mask = opened(drawn_mask, top, left, tall, wide)
        return dict(down_block_additional_residuals=[r * mean_over(mask, r) for r in down],
                    mid_block_additional_residual=middle * mean_over(mask, middle))

    want = euler(Steered(model, 8, 3, "uniform", steer), 120, 80)
    args = ["--tile-size", 64, "--tile-overlap", 24, "--tile-batch", 2, "--control", folder, "--control-image", hint, "--control-strength", 0.8]
    got = ours(rocm_sd, model, tmp_path / "a.png", 120, 80, *args, "--control-mask", drawn_mask)
    assert psnr(got, want) >= 60
    assert psnr(ours(rocm_sd, model, tmp_path / "b.png", 120, 80, *args), want) < 50


class Cut(torch.nn.Module):
    """In place of a ControlNet's first layers: the window's part of what they made of the whole image."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, _):
        return self.part


@pytest.mark.parametrize("kind", ["adapter", "net"])
def test_one_window_is_the_plain_picture(rocm_sd, tiny_model, tmp_path, drawn_mask, kind):
    model = tiny_model("sd15")
    folder = adapter_folder(tmp_path / "x", "full_adapter", CHANNELS) if kind == "adapter" else control_folder(model, tmp_path / "x")
    args = ["--control", folder, "--control-image", drawing(tmp_path / "hint.png", 120, 80), "--control-mask", drawn_mask]
    plain = ours(rocm_sd, model, tmp_path / "a.png", 120, 80, *args)
    assert np.array_equal(ours(rocm_sd, model, tmp_path / "b.png", 120, 80, *args, "--tile-size", 256), plain)


def test_images_of_a_batch_see_their_own(rocm_sd, tiny_model, tmp_path, drawn_mask):
    """Windows, conditions and images share a call."""
    model = tiny_model("sd15")
    folder = adapter_folder(tmp_path / "x", "full_adapter", CHANNELS)
    (tmp_path / "seen").mkdir()
    hints = [drawing(tmp_path / "seen" / f"{i}.png", 120, 80, seed=i) for i in range(2)]
    args = ["--control", folder, "--control-mask", drawn_mask, "--tile-size", 64, "--tile-batch", 2]
    rocm_sd("generate", "-m", model, "-p", "a cat", "-W", 120, "-H", 80, "--steps", 2, "--dtype", "f32", "-s", 1, "--batch", 2,
            *args, "--control-image", tmp_path / "seen", "-o", tmp_path / "both_{index}.png")
    for index, hint in enumerate(hints, 1):
        rocm_sd("generate", "-m", model, "-p", "a cat", "-W", 120, "-H", 80, "--steps", 2, "--dtype", "f32", "-s", index, *args,
                "--control-image", hint, "-o", tmp_path / "alone.png")
        both, alone = (np.asarray(Image.open(tmp_path / name)) for name in (f"both_{index}.png", "alone.png"))
        assert psnr(both, alone) >= 60
