"""Tiled diffusion against MultiDiffusion's and Mixture of Diffusers' averages written out around Diffusers' UNet."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
import sampler_formulas
import torch
from pictures import psnr, read_parameters, read_picture
from PIL import Image
from test_pipeline import NEGATIVE, PROMPT, SCALE, SEED
from test_sampler_pictures import Guided

STEPS = 4


def begins(length: int, tile: int, overlap: int) -> list[int]:
    """Where the fewest evenly spread windows begin, in latents (docs/howto/tiled-diffusion.md)."""
    if tile >= length:
        return [0]
    steps = ceil((length - tile) / (tile - overlap))
    return [(length - tile) * i // steps for i in range(steps + 1)]


def side(length: int, kind: str) -> np.ndarray:
    """Mixture of Diffusers: a Gaussian of variance 0.01 of the window's side squared."""
    if kind == "uniform":
        return np.ones(length)
    place = (np.arange(length) - (length - 1) / 2) / length
    return np.exp(-(place**2) / 0.02)


class Tiled(Guided):
    """Guided over windows of the latents: the sum of weight * prediction over the sum of weights."""

    def __init__(self, model, tile: int, overlap: int, weights: str, extra: np.ndarray | None = None):
        super().__init__(model)
        self.tile, self.overlap, self.weights, self.extra = tile, overlap, weights, extra

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
                part = x[at] / norm
                if self.extra is not None:
                    part = np.concatenate([part, self.extra[at]], 1)
                pair = torch.from_numpy(np.concatenate([part, part])).float()
                uncond, cond = self.pipeline.unet(pair, self.table.timestep(sigma),
                                                  encoder_hidden_states=self.text).sample.double().numpy()
                total[at] += weight * (uncond + SCALE * (cond - uncond))
                sums[at] += weight
        return x - sigma * total / sums

    @torch.no_grad()
    def encode(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 [H,W,3] -> the posterior's mean, scaled, [1,4,h,w]."""
        return self.encode_values(pixels / 127.5 - 1)

    @torch.no_grad()
    def encode_values(self, values: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(values).float().permute(2, 0, 1)[None]
        return (self.pipeline.vae.encode(x).latent_dist.mean * self.pipeline.vae.config.scaling_factor).double().numpy()


def euler(model: Tiled, width: int, height: int, strength: float = 1, latents: np.ndarray | None = None) -> np.ndarray:
    levels = sampler_formulas.schedule("normal", STEPS, model.table.sigmas)
    if strength < 1:
        levels = levels[STEPS - int(STEPS * strength):]
    noise = torch.randn((1, 4, height // 8, width // 8), generator=torch.Generator().manual_seed(SEED)).double().numpy()
    x = levels[0] * noise + (0 if latents is None else latents)
    for now, after in zip(levels, levels[1:]):
        x = x + (x - model(x, now)) / now * (after - now)
    return model.decode(x)


def ours(rocm_sd, model, path, width: int, height: int, *args) -> np.ndarray:
    rocm_sd("generate", "--model", model, "--prompt", PROMPT, "--negative-prompt", NEGATIVE, "--plain-prompt", "--rng", "cpu",
            "--seed", SEED, "--steps", STEPS, "--cfg-scale", SCALE, "-W", width, "-H", height, "--sampler", "euler",
            "--schedule", "normal", "--dtype", "f32", "-o", path, *args)
    return read_picture(path)


def gradient(width: int, height: int) -> np.ndarray:
    down, across = np.mgrid[:height, :width]
    return np.stack([255 * down / height, 255 * across / width, 128 + 100 * np.sin(across / 9)], -1).astype(np.uint8)


@pytest.mark.parametrize("weights", ["uniform", "gaussian"])
@pytest.mark.parametrize("width,height,tile,overlap,batch", [(136, 64, 64, 40, 2), (72, 112, 48, 0, 1), (104, 104, 64, 24, 3)])
def test_text_to_image(rocm_sd, tiny_model, tmp_path, weights, width, height, tile, overlap, batch):
    model = tiny_model("sd15")
    want = euler(Tiled(model, tile // 8, overlap // 8, weights), width, height)
    assert want.std() > 5
    got = ours(rocm_sd, model, tmp_path / "a.png", width, height, "--tile-size", tile, "--tile-overlap", overlap,
               "--tile-batch", batch, "--tile-weights", weights)
    assert psnr(got, want) >= 60
    plain = ours(rocm_sd, model, tmp_path / "b.png", width, height)
    assert psnr(got, plain) < 40, "this would prove nothing: tiles draw the plain picture"
    parameters = read_parameters(tmp_path / "a.png")
    assert f"Tile size: {tile}, Tile overlap: {overlap}, Tile weights: {weights}" in parameters
    assert "Tile" not in read_parameters(tmp_path / "b.png")


def test_image_to_image(rocm_sd, tiny_model, tmp_path):
    model = tiny_model("sd15")
    picture = gradient(120, 80)
    Image.fromarray(picture).save(tmp_path / "init.png")
    tiled = Tiled(model, 6, 3, "gaussian")
    want = euler(tiled, 120, 80, 0.5, tiled.encode(picture))
    got = ours(rocm_sd, model, tmp_path / "a.png", 120, 80, "--tile-size", 48, "--tile-weights", "gaussian",
               "--init-image", tmp_path / "init.png", "--strength", 0.5)
    assert psnr(got, want) >= 60


def test_a_window_sees_its_part_of_the_mask(rocm_sd, tiny_model, tmp_path):
    """Inpainting models read mask and masked latents through further channels."""
    model = tiny_model("sd15-inpaint")
    picture, mask = gradient(96, 64), np.zeros((64, 96), np.uint8)
    mask[16:48, 24:80] = 255
    Image.fromarray(picture).save(tmp_path / "init.png")
    Image.fromarray(mask).save(tmp_path / "mask.png")
    tiled = Tiled(model, 6, 2, "uniform")
    values = np.where(mask[..., None] > 0, 0, picture / 127.5 - 1)
    tiled.extra = np.concatenate([mask[None, None, ::8, ::8] / 255, tiled.encode_values(values)], 1)
    drawn = euler(tiled, 96, 64, 1)
    want = np.where(mask[..., None] > 0, drawn, picture)
    got = ours(rocm_sd, model, tmp_path / "a.png", 96, 64, "--tile-size", 48, "--tile-overlap", 16, "--mask-blur", 0,
               "--init-image", tmp_path / "init.png", "--mask", tmp_path / "mask.png", "--strength", 1)
    assert psnr(got, want) >= 60


def test_images_of_a_batch_keep_their_own_channels(rocm_sd, tiny_model, tmp_path):
    """Mask and masked latents belong to an image and a condition, the windows of a call to both."""
    model = tiny_model("sd15-inpaint")
    mask = np.zeros((64, 96), np.uint8)
    mask[16:48, 24:80] = 255
    Image.fromarray(gradient(96, 64)).save(tmp_path / "init.png")
    Image.fromarray(mask).save(tmp_path / "mask.png")
    args = ["-m", model, "-p", PROMPT, "-W", 96, "-H", 64, "--steps", 2, "--dtype", "f32", "-i", tmp_path / "init.png", "--strength", 1,
            "--mask", tmp_path / "mask.png", "--vae-sample", "posterior", "--tile-size", 48, "--tile-overlap", 16, "--tile-batch", 2]
    rocm_sd("generate", *args, "-s", 1, "--batch", 2, "-o", tmp_path / "both_{index}.png")
    for index in 1, 2:
        rocm_sd("generate", *args, "-s", index, "-o", tmp_path / "alone.png")
        assert psnr(read_picture(tmp_path / f"both_{index}.png"), read_picture(tmp_path / "alone.png")) >= 60


@pytest.mark.parametrize("kind", ["sd15", "sdxl", "sd15-pix2pix"])
def test_one_window_is_the_plain_picture(rocm_sd, tiny_model, tmp_path, kind):
    model = tiny_model(kind)
    Image.fromarray(gradient(72, 64)).save(tmp_path / "init.png")
    args = ["--init-image", tmp_path / "init.png"] if kind == "sd15-pix2pix" else []
    plain = ours(rocm_sd, model, tmp_path / "a.png", 72, 64, *args)
    for size, weights in (72, "uniform"), (512, "gaussian"):
        tiled = ours(rocm_sd, model, tmp_path / "b.png", 72, 64, *args, "--tile-size", size, "--tile-weights", weights)
        assert np.array_equal(tiled, plain), (size, weights)


@pytest.mark.parametrize("args,message", [
    (["--tile-size", 60], "tile-size: expected a multiple of 8, or 0 for none, got 60"),
    (["--tile-size", 64, "--tile-overlap", 64], "tile-overlap: expected a multiple of 8 below tile-size (64), got 64"),
    (["--tile-size", 64, "--tile-overlap", 12], "tile-overlap: expected a multiple of 8 below tile-size (64), got 12"),
    (["--tile-overlap", 8], "tile-overlap: needs tile-size"),
    (["--tile-size", 64, "--tile-weights", "round"], 'tile-weights: expected uniform or gaussian, got "round"'),
    (["--tile-size", 64, "--tile-batch", 0], "tile-batch: expected a whole number from 1 to 64"),
])
def test_what_is_refused(rocm_sd, tiny_model, tmp_path, args, message):
    done = rocm_sd("generate", "--model", tiny_model("sd15"), "--prompt", "x", "-W", 64, "-H", 64, "-o", tmp_path / "a.png", *args,
                   code=2)
    assert message in done.stderr and not list(tmp_path.iterdir())
