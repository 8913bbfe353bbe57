"""Regional prompts against a blend of predictions by Diffusers' UNet. Small random models, fp32 on the CPU, >= 60 dB."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest
import torch
from control_models import control_folder, drawing
from guidance_oracle import add_regions, cells, shares_of
from pictures import psnr, read_parameters, read_picture
from PIL import Image
from pipelines_oracle import NEGATIVE, PROMPT, command, ours, same, theirs
from test_diffusers_pipelines import model  # noqa: F401 (fixture)

TEXTS = ["a house by the sea", "two green birds", "an old book"]


def regional(folder, texts, shares, **options):
    """Diffusers' picture with regions."""
    pipe = diffusers.DiffusionPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    add_regions(pipe, texts, shares, options.get("prompt", PROMPT))
    return theirs(folder, pipe, **options)


BOXES = [(0.1, 0.25, 0.5, 0.4), (0.45, 0.0, 0.55, 1.0)]  # they overlap, and leave something over


@pytest.mark.parametrize("kind", ["sd15", "sdxl", "sd21v"])
@pytest.mark.parametrize("base, scale", [(0.0, 5.0), (0.3, 5.0), (0.2, 1.0)])
def test_boxes(rocm_sd, model, tmp_path, kind, base, scale):  # noqa: F811
    folder = model(kind)
    width, height = 104, 72
    shares = shares_of([cells(box, height // 8, width // 8) for box in BOXES], base)
    want = regional(folder, TEXTS[:2], shares, width=width, height=height, guidance_scale=scale)
    args = ["-W", width, "-H", height]
    for box, text in zip(BOXES, TEXTS):
        args += ["--region", ",".join(map(str, box)) + ": " + text]
    got = ours(rocm_sd, folder, tmp_path / "a.png", *args, "--region-base", base, size=None, scale=scale)
    same(got, want)
    assert psnr(ours(rocm_sd, folder, tmp_path / "b.png", *args[:4], size=None, scale=scale), want) < 55
    shown = read_parameters(tmp_path / "a.png")
    assert f'Region 0: "{",".join(map(str, BOXES[0]))}: {TEXTS[0]}"' in shown and ("Region base" in shown) == (base > 0)


@pytest.mark.parametrize("way", ["columns", "rows"])
@pytest.mark.parametrize("base", [0, 0.25])
def test_rows_and_columns(rocm_sd, model, tmp_path, way, base):  # noqa: F811
    folder = model("sd15")
    parts, covers, begin = [1, 2.5, 1], [], 0.0
    for part in parts:
        share = part / sum(parts)
        covers.append(cells((begin, 0, share, 1) if way == "columns" else (0, begin, 1, share), 9, 8))
        begin += share
    want = regional(folder, TEXTS, shares_of(covers, base), width=64, height=72)
    args = [item for text in TEXTS for item in ("--region", text)]
    got = ours(rocm_sd, folder, tmp_path / "a.png", "-W", 64, "-H", 72, *args, "--region-split", f"{way}:1,2.5,1", "--region-base", base, size=None)
    same(got, want)
    assert f"Region split: \"{way}:1,2.5,1\"" in read_parameters(tmp_path / "a.png")


def test_grey_masks_and_what_they_leave(rocm_sd, model, tmp_path):  # noqa: F811
    folder = model("sd15")
    rng = np.random.default_rng(5)
    covers, args = [], []
    for index in range(2):
        grey = rng.integers(0, 256, (9, 11))
        pixels = np.kron(grey, np.ones((8, 8))).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"mask, {index}.png")
        covers.append(grey / 255)
        args += ["--region", f"{tmp_path}/mask, {index}.png: {TEXTS[index]}"]
    want = regional(folder, TEXTS[:2], shares_of(covers, 0), width=88, height=72)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "-W", 88, "-H", 72, *args, size=None), want)


def test_batches_and_prompts_that_change(rocm_sd, model, tmp_path):  # noqa: F811
    """Images of a batch are those that are drawn alone; a region's prompt may be edited while it is drawn."""
    folder = model("sd15")
    args = ["--region", "0,0,0.5,1: [a house:a green bird:0.5] (big:1.3)", "--region-base", 0.2]
    rocm_sd(*command(folder, tmp_path / "a{index}.png", *args, "--image-prompt", "a cat", "--image-prompt", "a dog", steps=4))
    for index, text in enumerate(["a cat", "a dog"], 1):
        rocm_sd(*command(folder, tmp_path / "b.png", *args, "--seed", 6 + index, prompt=text, steps=4))
        assert psnr(read_picture(tmp_path / f"a{index}.png"), read_picture(tmp_path / "b.png")) >= 60
    still = ours(rocm_sd, folder, tmp_path / "c.png", "--region", "0,0,0.5,1: a house (big:1.3)", *args[2:], "--seed", 8, plain=False,
                 prompt="a dog", steps=4)
    assert not np.array_equal(still, read_picture(tmp_path / "b.png"))  # equal to the bit, if nothing were edited


@pytest.mark.parametrize("args", [["--tile-size", 64], ["--offload"], ["--mimic-scale", 3], ["--guidance-rescale", 0.5], ["--freeu-v2", "1.2,1.3,0.9,0.5"]])
def test_a_region_of_everything_is_its_prompt(rocm_sd, model, tmp_path, args):  # noqa: F811
    folder = model("sd15")
    size = ["-W", 96, "-H", 64]
    want = ours(rocm_sd, folder, tmp_path / "a.png", *size, *args, size=None, prompt=TEXTS[0])
    done = rocm_sd(*command(folder, tmp_path / "b.png", *size, *args, "--plain-prompt", "--region", "0,0,1,1:" + TEXTS[0], size=None))
    assert psnr(read_picture(tmp_path / "b.png"), want) >= 60 and "prompt: not drawn" in done.stderr
    both = ours(rocm_sd, folder, tmp_path / "c.png", *size, *args, *(f for box, t in zip(("0,0,.4,1:", ".4,0,.6,1:"), TEXTS) for f in ("--region", box + TEXTS[0])),
                size=None)
    assert psnr(both, want) >= 60


def test_beside_a_controlnet(rocm_sd, model, tmp_path):  # noqa: F811
    folder = model("sd15")
    net, hint = control_folder(folder, tmp_path / "net"), drawing(tmp_path / "hint.png", 64, 64)
    for mode in "balanced", "guess":
        args = ["--control", net, "--control-image", hint, "--control-mode", mode]
        want = ours(rocm_sd, folder, tmp_path / "a.png", *args, prompt=TEXTS[0])
        same(ours(rocm_sd, folder, tmp_path / "b.png", *args, "--region", TEXTS[0], "--region", TEXTS[0], "--region-split", "rows:1,1"), want)


@pytest.mark.bad_input
@pytest.mark.parametrize("args, message", [
    (["--region", "a cat"], "no place; expected"), (["--region-base", 0.5], "need a region"),
    (["--region", "0.5,0,0.6,1: a cat"], "expected a box within the picture"), (["--region", "0,0,1: a cat"], "got 3 numbers"),
    (["--region", "a", "--region-split", "columns:1,1"], "has 2 rows or columns, expected one for each region without a place: 1"), (["--region", "a", "--region-split", "diagonal:1"], "region-split: expected"),
    (["--region", "a", "--region", "b", "--region-split", "rows:1"], "no row or column left"), (["--region", "a", "--region-split", "rows:0"], "above 0"),
    (["--region", "0,0,1,1: a AND b"], "not with AND"), (["--region", "0,0,1,1: a", "--prompt", "a AND b"], "not with AND"),
    (["--region", "0,0,1,1: a", "--pag-scale", 2], "not with pag-scale"), (["--region", "0,0,1,1: a", "--region-base", 2], "region-base"),
    (["--region", "0,0,1,1: a"] * 9, "region: at most 8")])
def test_bad_values(rocm_sd, model, tmp_path, args, message):  # noqa: F811
    done = rocm_sd(*command(model("sd15"), tmp_path / "a.png", *args), code=2)
    assert message in done.stderr and not (tmp_path / "a.png").exists()
    assert NEGATIVE not in done.stderr


@pytest.mark.bad_input
def test_a_mask_that_is_not_there(rocm_sd, model, tmp_path):  # noqa: F811
    done = rocm_sd(*command(model("sd15"), tmp_path / "a.png", "--region", f"{tmp_path}/none.png: a cat"), code=None)
    assert done.returncode in (2, 3) and "none.png" in done.stderr
