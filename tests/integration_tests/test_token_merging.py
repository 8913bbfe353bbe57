"""Token merging before self attention against the authors' `tomesd` on Diffusers (use_rand=False), and what it reports and refuses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tomesd
from pictures import psnr, read_parameters, read_picture
from test_pipeline import NEGATIVE, PROMPT, SCALE, SEED
from test_sampler_pictures import Guided
from test_savings import STEPS, draw, euler, operations  # noqa: F401 (a fixture)

EXAMPLES = Path(__file__).resolve().parents[2] / "models" / "demo_examples"
DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"


class Merged(Guided):
    """The authors' own patch of Diffusers' UNet."""

    def __init__(self, model, ratio: float, down: int):
        super().__init__(model)
        tomesd.apply_patch(self.pipeline, ratio=ratio, max_downsample=down, use_rand=False)


@pytest.mark.parametrize("ratio, down, width, height", [(0.5, 1, 64, 64), (0.5, 2, 72, 56), (0.75, 4, 120, 104), (0.3, 8, 64, 128)])
def test_against_the_authors(draw, tiny_model, tmp_path, ratio, down, width, height):
    want = euler(Merged(tiny_model("sd15"), ratio, down), width, height)
    got, said = draw(width, height, "--token-merge", f"{ratio}:{down}")
    assert psnr(got, want) >= 60 and want.std() > 5
    assert psnr(want, draw(width, height, name="exact")[0]) < 60  # the test would see merging that does nothing
    assert f"token-merge: {100 * ratio:g} % of the tokens" in said and operations(said) < 100
    text = read_parameters(tmp_path / "a.png")
    assert f"Token merging ratio: {ratio}" in text
    assert (f"Token merging maximum downsampling: {down}" in text) == (down > 1)


@pytest.mark.parametrize("model, down", [("sdxl", 2), ("sd21v", 1)])
def test_other_models(draw, model, down):
    """SDXL has no attention at the latents' size: what is merged there is nothing."""
    plain, _ = draw(64, 64, model=model)
    merged, said = draw(64, 64, "--token-merge", f"0.5:{down}", model=model, name="b")
    assert operations(said) < 100 and 8 < psnr(plain, merged) < 60 and merged.std() > 5
    if model == "sdxl":
        none, said = draw(64, 64, "--token-merge", "0.5", model=model, name="c")
        assert np.array_equal(none, plain) and operations(said) == 100


def test_the_demo_model(rocm_sd, tmp_path):
    """Whole pictures of trained weights, in the size that the model was made for."""
    model = Merged(DEMO, 0.5, 1)
    want = euler(model, 128, 128)
    rocm_sd("generate", "--model", DEMO, "--prompt", PROMPT, "--negative-prompt", NEGATIVE, "--plain-prompt", "--rng", "cpu", "--seed", SEED,
            "--steps", STEPS, "--cfg-scale", SCALE, "-W", 128, "-H", 128, "--sampler", "euler", "--schedule", "normal", "--dtype", "f32",
            "--device", "cpu", "--token-merge", 0.5, "-o", tmp_path / "a.png")
    assert psnr(read_picture(tmp_path / "a.png"), want) >= 60 and want.std() > 5


def test_beside_batches_savings_and_adapters(draw, rocm_sd, tmp_path):
    """Each picture of a batch as alone: every row has matches of its own. Beside what changes layers and calls, too."""
    alone = draw(64, 72, "--token-merge", "0.5:2")[0]
    draw(64, 72, "--token-merge", "0.5:2", "--batch", 2, "-o", tmp_path / "b-{index}.png", name="unused")
    assert psnr(read_picture(tmp_path / "b-1.png"), alone) >= 60
    cached, said = draw(64, 72, "--token-merge", "0.5:2", "--deep-cache", 3, "--t-gate", 4, name="c")
    assert cached.std() > 5 and psnr(cached, alone) < 60 and "were shallow" in said and "added means" in said

    def demo(name: str, *options):
        rocm_sd("generate", "--model", DEMO, "--prompt", "a red apple", "--steps", 4, "--seed", 1, "--dtype", "f32", "-W", 64, "-H", 64,
                "-o", tmp_path / f"{name}.png", *options)
        return read_picture(tmp_path / f"{name}.png")

    lora = ["--lora", EXAMPLES / "dusk_lora.safetensors"]
    exact, merged = demo("exact", *lora), demo("merged", *lora, "--token-merge", 0.5)
    assert 15 < psnr(exact, merged) < 60  # its picture, not the same one
    assert psnr(merged, demo("runtime", *lora, "--lora-mode", "runtime", "--token-merge", 0.5)) >= 60
    control = ["--control", EXAMPLES / "canny_adapter", "--control-image", sorted((EXAMPLES / "edges").iterdir())[0]]
    exact, merged = demo("exact-control", *control), demo("control", *control, "--token-merge", 0.5)
    assert 15 < psnr(exact, merged) < 60
    tiles = ["-W", 96, "--tile-size", 64]
    exact, merged = demo("exact-tiles", *tiles), demo("tiles", *tiles, "--token-merge", 0.5)
    assert 15 < psnr(exact, merged) < 60


def test_compare_exact(draw):
    _, said = draw(64, 64, "--token-merge", 0.5, "--compare-exact")
    assert re.search(r"PSNR ([\d.]+) dB, SSIM ([\d.-]+), FLIP ([\d.]+); sampling", said)


@pytest.mark.parametrize("options, sentence", [
    (["--token-merge", "0.8"], "token-merge: expected a number from 0 to 0.75"),
    (["--token-merge", "x"], "token-merge: expected a number"),
    (["--token-merge", "0.5:3"], "expected maps down to 1, 2, 4 or 8 times smaller"),
    (["--token-merge", "0.5:x"], "token-merge: expected a whole number"),
    (["--token-merge", "0.5", "--sag-scale", "1"], "token-merge: not with sag-scale")])
def test_refused(draw, options, sentence):
    assert sentence in draw(64, 64, *options, code=2)[1]
