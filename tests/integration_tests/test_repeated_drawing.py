"""Details and loopback against the same steps one by one: each step is image to image or inpainting, which have oracles of their own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pictures import read_parameters, read_picture
from PIL import Image

PROMPT = "a photo of the red cat"


@pytest.fixture
def draw(rocm_sd, tiny_model, tmp_path):
    def run(name: str, *args, **kwargs):
        path = tmp_path / f"{name}.png"
        done = rocm_sd("generate", "--model", tiny_model("sd15"), "--prompt", PROMPT, "--steps", 4, "--cfg-scale", 3, "--sampler", "euler_a",
                       "--dtype", "f32", "--device", "cpu", "-o", path, *args, **kwargs)
        return (read_picture(path) if path.exists() else None), done.stderr

    return run


def mask_of(path, size: tuple[int, int], boxes) -> None:
    mask = np.zeros((size[1], size[0], 3), np.uint8)
    for left, top, width, height in boxes:
        mask[top:top + height, left:left + width] = 255
    Image.fromarray(mask).save(path)


def test_details(draw, tmp_path):
    boxes = [(8, 4, 20, 16), (70, 40, 26, 24)]
    whole = ["-W", 96, "-H", 64, "--seed", 5]
    draw("step", *whole)
    for box in boxes:
        mask_of(tmp_path / "mask.png", (96, 64), [box])
        draw("step", "--seed", 5, "-i", tmp_path / "step.png", "--mask", tmp_path / "mask.png", "--only-masked", "--only-masked-padding", 6,
             "--mask-blur", 2, "--strength", 0.6, "-W", 64, "-H", 64, "--prompt", "a blue dog")
    want = read_picture(tmp_path / "step.png")
    own = ["--detail-padding", 6, "--detail-blur", 2, "--detail-strength", 0.6, "--detail-width", 64, "--detail-height", 64,
           "--detail-prompt", "a blue dog"]
    given, _ = draw("boxes", *whole, *own, *[part for box in boxes for part in ("--detail-box", ",".join(map(str, box)))])
    assert np.array_equal(given, want)
    mask_of(tmp_path / "mask.png", (96, 64), [*boxes, (50, 2, 3, 3)])  # the last one is too small to count
    assert np.array_equal(draw("mask", *whole, *own, "--detail-mask", tmp_path / "mask.png")[0], want)
    text = read_parameters(tmp_path / "mask.png")
    assert 'Detail boxes: "8,4,20,16 70,40,26,24"' in text and "Detail denoising strength: 0.6" in text and "Detail prompt: a blue dog" in text
    plain, _ = draw("plain", *whole)
    changed = np.argwhere((plain != want).any(-1))  # (row, column)
    assert changed.min() >= 0 and (plain == want).all(-1)[30:36, 34:60].all() and len(changed) > 200


def test_details_of_a_batch_have_their_seeds(draw, tmp_path):
    box = ["--detail-box", "16,16,32,32", "--detail-width", 64, "--detail-height", 64]
    draw("batch-{index}", "-W", 64, "-H", 64, "--seed", 5, "--batch", 2, *box)
    alone, _ = draw("alone", "-W", 64, "-H", 64, "--seed", 6, *box)
    both = read_picture(tmp_path / "batch-2.png").astype(int)
    assert np.abs(both - alone).max() <= 1  # rounding: the first pass ran beside another image


def strengths(loops: int, first: float, last: float, curve: str) -> list[float]:
    """A1111's script, from its description."""
    out = []
    for loop in range(loops):
        progress = loop / (loops - 1)
        share = {"aggressive": math.sin(progress * math.pi / 2), "lazy": 1 - math.cos(progress * math.pi / 2), "linear": progress}[curve]
        out.append(first + (last - first) * share)
    return out


@pytest.mark.parametrize("curve, last", [("linear", None), ("aggressive", 0.9), ("lazy", 0.3)])
def test_loopback(draw, tmp_path, curve, last):
    Image.fromarray(np.random.default_rng(4).integers(0, 256, (64, 72, 3), dtype=np.uint8)).save(tmp_path / "in.png")
    path = tmp_path / "in.png"
    for loop, strength in enumerate(strengths(3, 0.5, last or 0.5, curve)):
        draw("step", "-i", path, "--strength", repr(strength), "--seed", 7 + loop)
        path = tmp_path / "step.png"
    got, _ = draw("looped", "-i", tmp_path / "in.png", "--strength", 0.5, "--seed", 7, "--loopback", 3, "--loopback-curve", curve,
                  *(["--loopback-strength", last] if last else []))
    assert np.array_equal(got, read_picture(path)) and "Loopback: 3," in read_parameters(tmp_path / "looped.png") + ","


def test_loopback_of_a_batch(draw, tmp_path):
    Image.fromarray(np.random.default_rng(4).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path / "in.png")
    draw("both-{index}", "-i", tmp_path / "in.png", "--strength", 0.6, "--seed", 7, "--batch", 2, "--loopback", 2)
    draw("one", "-i", tmp_path / "in.png", "--strength", 0.6, "--seed", 8)
    alone, _ = draw("two", "-i", tmp_path / "one.png", "--strength", 0.6, "--seed", 9)
    assert np.abs(read_picture(tmp_path / "both-2.png").astype(int) - alone).max() <= 2


@pytest.mark.parametrize("options, sentence", [
    (["--detail-box", "1,2,3"], "detail-box: expected left,top,width,height"),
    (["--detail-box", "1,2,0,3"], "detail-box: expected left,top,width,height"),
    (["--detail-box", "60,0,5,8", "-W", 64, "-H", 64], "lies beyond the picture of 64 x 64"),
    (["--detail-box", "0,0,9,9", "--detail-strength", "0"], "detail-strength: expected a number above 0"),
    (["--detail-box", "0,0,9,9", "--keep-latents"], "detail: not with"),
    (["--loopback", "2"], "loopback: image to image again and again"),
    (["--loopback", "0"], "loopback: expected a whole number from 1 to 100")])
def test_refused(draw, options, sentence):
    assert sentence in draw("a", *options, code=2)[1]


def test_loopback_refuses(draw, tmp_path):
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(tmp_path / "in.png")
    start = ["-i", tmp_path / "in.png", "--loopback", 2]
    assert "loopback-curve: expected aggressive, linear or lazy" in draw("a", *start, "--loopback-curve", "steep", code=2)[1]
    assert "loopback: not with hires" in draw("a", *start, "--hires-scale", 2, code=2)[1]
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(tmp_path / "mask.png")
    assert "detail-mask: it has no white area" in draw("a", "-W", 64, "-H", 64, "--detail-mask", tmp_path / "mask.png", code=2)[1]
    assert "has no effect: there is no --loopback" in draw("a", "-W", 64, "-H", 64, "--loopback-strength", 0.5)[1]
