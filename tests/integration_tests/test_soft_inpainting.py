"""Soft inpainting against the formulas of A1111's extension, written from their description in NumPy around Diffusers' UNet and VAE."""

from __future__ import annotations

import numpy as np
import pytest
import sampler_formulas
import torch
from pictures import psnr, read_parameters, read_picture
from PIL import Image, ImageFilter
from test_pipeline import NEGATIVE, PROMPT, SCALE, SEED
from test_tiled_diffusion import Tiled

STEPS, STRENGTH, WIDTH, HEIGHT = 8, 0.75, 72, 56


def blended(a: np.ndarray, b: np.ndarray, t: np.ndarray, detail: float) -> np.ndarray:
    """[1,4,h,w] each, t [h,w]: a mixture whose length at each pixel is the mixture of theirs in a norm of this order."""
    mixed = (1 - t) * a + t * b
    length = lambda v: np.linalg.norm(v, axis=1, keepdims=True)  # noqa: E731
    return mixed * ((1 - t) * length(a)**detail + t * length(b)**detail) ** (1 / detail) / (length(mixed) + 1e-5)


def share_means(plane: np.ndarray, low: float, high: float) -> np.ndarray:
    """The weighted mean of the values around a pixel that lie between two shares of their weights, at least 1 of weight."""
    zero = np.exp(-9 / 2.25)
    weight = lambda y, x: max(0.0, (np.exp(-(y * y + x * x) / 2.25) - zero) / (1 - zero))  # noqa: E731
    out = np.zeros_like(plane)
    for row, col in np.ndindex(plane.shape):
        around = sorted((plane[y, x], weight(y - row, x - col)) for y in range(max(row - 2, 0), min(row + 3, plane.shape[0]))
                        for x in range(max(col - 2, 0), min(col + 3, plane.shape[1])))
        ends = np.cumsum([w for _, w in around])
        begin, end = low * ends[-1], high * ends[-1]
        if end - begin < 1:
            middle = (begin + end) / 2
            begin, end = middle - 0.5, middle + 0.5
            if end > ends[-1]:
                begin, end = ends[-1] - 1, ends[-1]
            if begin < 0:
                begin, end = 0, 1
        parts = [max(0.0, min(end, e) - max(begin, e - w)) for (_, w), e in zip(around, ends)]
        out[row, col] = sum(v * p for (v, _), p in zip(around, parts)) / sum(parts)
    return out


def overlay(original, current, mask, scale, influence, threshold, contrast) -> np.ndarray:
    """[H,W] in 0..1: how much of the new picture shows."""
    distance = share_means(share_means(np.linalg.norm(current - original, axis=1)[0], 0.9, 1), 0.25, 0.75)
    kept = 0.5 * (1 - influence) + (1 - mask ** (scale / 2)) * influence
    x = 1 / (1 + (distance / (threshold * kept / (1.00001 - kept))) ** contrast)
    opacity = 1 - x**3 * (x * (6 * x - 15) + 10)
    grown = Image.fromarray((255 * opacity).astype(np.uint8)).resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    return np.asarray(grown.filter(ImageFilter.GaussianBlur(4))) / 255


@pytest.mark.parametrize("numbers", [(1, 0.5, 4, 0, 0.5, 2), (0.5, 1.5, 2, 0.6, 1.5, 4)])
def test_soft_inpainting(rocm_sd, tiny_model, tmp_path, numbers):
    power, scale, detail, influence, threshold, contrast = numbers
    rng = np.random.default_rng(3)
    pixels = np.clip(128 + 60 * np.sin(np.arange(HEIGHT * WIDTH * 3).reshape(HEIGHT, WIDTH, 3) / 97) + rng.normal(0, 20, (HEIGHT, WIDTH, 3)),
                     0, 255).astype(np.uint8)
    ramp = np.tile(np.linspace(0, 255, WIDTH).round().astype(np.uint8), (HEIGHT, 1))
    Image.fromarray(pixels).save(tmp_path / "in.png")
    Image.fromarray(ramp).convert("RGB").save(tmp_path / "mask.png")
    mask = np.asarray(Image.fromarray(ramp).resize((WIDTH // 8, HEIGHT // 8), Image.Resampling.BICUBIC)) / 255

    model = Tiled(tiny_model("sd15"), 10**6, 0, "uniform")
    levels = sampler_formulas.schedule("normal", STEPS, model.table.sigmas)[STEPS - int(STEPS * STRENGTH):]
    original = model.encode(pixels)
    noise = torch.randn((1, 4, HEIGHT // 8, WIDTH // 8), generator=torch.Generator().manual_seed(SEED)).double().numpy()
    x = original + levels[0] * noise
    for now, after in zip(levels, levels[1:]):
        clean = blended(original, model(x, now), mask ** (now**power * scale), detail)
        x = x + (x - clean) / now * (after - now)
    share = overlay(original, x, mask, scale, influence, threshold, contrast)[..., None]
    want = np.rint(model.decode(x) * share + pixels * (1 - share)).astype(np.uint8)

    setting = "soft" if numbers == (1, 0.5, 4, 0, 0.5, 2) else "soft:" + ":".join(map(str, numbers))
    draw = lambda blend, name: rocm_sd(  # noqa: E731
        "generate", "--model", tiny_model("sd15"), "--prompt", PROMPT, "--negative-prompt", NEGATIVE, "--plain-prompt", "--rng", "cpu", "--seed",
        SEED, "--steps", STEPS, "--cfg-scale", SCALE, "--sampler", "euler", "--schedule", "normal", "--dtype", "f32", "--device", "cpu", "-i",
        tmp_path / "in.png", "--mask", tmp_path / "mask.png", "--mask-blur", 0, "--strength", STRENGTH, "--mask-blend", blend, "-o",
        tmp_path / f"{name}.png")
    draw(setting, "soft")
    got = read_picture(tmp_path / "soft.png")
    draw("denoised", "hard")
    assert psnr(got, want) >= 45  # a mask of 8 bits may round to either side
    assert psnr(read_picture(tmp_path / "hard.png"), want) < 40
    if influence:  # of a random model's picture the defaults show nearly all
        assert 0.02 < share.mean() < 0.98
    text = read_parameters(tmp_path / "soft.png")
    assert f"Soft inpainting schedule bias: {power}," in text and f"Soft inpainting difference threshold: {threshold}," in text


@pytest.mark.parametrize("options, sentence", [
    (["--mask-blend", "soft:9"], "mask-blend: soft: number 1: expected a number from 0 to 8"),
    (["--mask-blend", "soft:1:1:1:1:1:1:1"], "mask-blend: expected soft with at most 6 numbers"),
    (["--mask-blend", "soft:"], "mask-blend: soft: number 1"),
    (["--mask-blend", "softly"], "mask-blend: expected denoised, latents or soft"),
    (["--mask-blend", "soft", "--only-masked"], "mask-blend: soft: not with only-masked")])
def test_refused(rocm_sd, tiny_model, tmp_path, options, sentence):
    Image.fromarray(np.full((64, 64, 3), 200, np.uint8)).save(tmp_path / "in.png")
    said = rocm_sd("generate", "--model", tiny_model("sd15"), "--prompt", "a", "-i", tmp_path / "in.png", "--mask", tmp_path / "in.png", *options,
                   "-o", tmp_path / "a.png", code=2).stderr
    assert sentence in said
