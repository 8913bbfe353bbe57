"""Savings and seamless tiling against Diffusers' UNet with the same things done by hooks: DeepCache's reuse of an up block's input, T-GATE's
means of cross attention, circular padding. What a saving reports and refuses, and `--compare-exact`, `rocm-sd compare`."""

from __future__ import annotations

import re

import numpy as np
import picture_quality as quality
import pytest
import sampler_formulas
import torch
import torch.nn.functional as F
from pictures import psnr, read_parameters, read_picture
from PIL import Image
from test_pipeline import NEGATIVE, PROMPT, SCALE, SEED
from test_sampler_pictures import Guided

STEPS = 6


class DeepCached(Guided):
    """Every n-th call runs whole; in the others what an up block's resnet reads beside a skip is what it was then."""

    def __init__(self, model, every: int, branch: int):
        super().__init__(model)
        self.every, self.calls, self.kept = every, 0, None
        unet = self.pipeline.unet
        resnets = [resnet for block in unet.up_blocks for resnet in block.resnets]
        at = len(resnets) - 1 - branch
        before = resnets[at - 1] if at > 0 else unet.mid_block.resnets[-1]
        self.channels = before.out_channels
        resnets[at].register_forward_pre_hook(self.replace)

    def replace(self, _, args):
        joined = args[0]
        if self.calls % self.every == 0:
            self.kept = joined[:, :self.channels].clone()
        return (torch.cat([self.kept, joined[:, self.channels:]], dim=1), *args[1:])

    def __call__(self, x, sigma):
        out = super().__call__(x, sigma)
        self.calls += 1
        return out


class Gated(Guided):
    """After `steps` calls no guidance, and every attn2 gives the mean of what it gave in the last of them."""

    def __init__(self, model, steps: int):
        super().__init__(model)
        self.steps, self.calls, self.means = steps, 0, {}
        for name, module in self.pipeline.unet.named_modules():
            if name.endswith("attn2"):
                module.register_forward_hook(lambda _, __, out, name=name: self.gate(name, out))

    def gate(self, name, out):
        if self.calls + 1 == self.steps:
            self.means[name] = out.mean(dim=0, keepdim=True)
        return self.means[name].expand_as(out) if self.calls >= self.steps else out

    @torch.no_grad()
    def __call__(self, x, sigma):
        if self.calls < self.steps:
            out = super().__call__(x, sigma)
        else:
            one = torch.from_numpy(x / (sigma**2 + 1) ** 0.5).float()
            out = x - sigma * self.pipeline.unet(one, self.table.timestep(sigma),
                                                 encoder_hidden_states=self.text[1:]).sample.double().numpy()
        self.calls += 1
        return out


class Foretold(Guided):
    """SADA's steps, from their formulas (src/schedulers/step_skipping.hpp), around a denoiser of Euler's levels."""

    def __init__(self, model, levels: list[float]):
        super().__init__(model)
        self.levels, self.step, self.skipped, self.in_a_row = levels, 0, 0, 0
        self.h, self.z, self.noise = [], None, None

    def foretell(self, x, i):
        steps, sigma = len(self.levels) - 1, self.levels[i]
        if len(self.h) < 3 or not int(0.2 * steps) < i <= int(0.94 * steps):
            return None
        if self.in_a_row == 4:
            return None
        norm = (1 + sigma**2) ** 0.5
        expected = self.z + 5 / 8 * self.h[0] + 3 / 4 * self.h[1] - 3 / 8 * self.h[2]
        stable = np.sum((x / norm - expected) * (self.h[0] - 2 * self.h[1] + self.h[2])) >= 0
        return norm * expected - sigma * self.noise if stable else None

    def __call__(self, x, sigma):
        i, after = self.step, self.levels[self.step + 1]
        self.step += 1
        clean = self.foretell(x, i)
        told = clean is not None
        self.in_a_row = self.in_a_row + 1 if told else 0
        self.skipped += told
        if not told:
            clean = super().__call__(x, sigma)
            self.noise = (x - clean) / sigma
        norm = (1 + sigma**2) ** 0.5
        self.z = x / norm
        self.h = [(after - sigma) * (self.noise / norm - x * sigma / norm**3), *self.h[:2]]
        return clean


class Tiling(Guided):
    """Each convolution that pads does so with the other side's pixels along the axes."""

    def __init__(self, model, axes: str):
        super().__init__(model)
        for part in (self.pipeline.unet, self.pipeline.vae):
            for module in part.modules():
                if isinstance(module, torch.nn.Conv2d) and module.padding[0] > 0:
                    module.forward = lambda x, conv=module: self.convolved(x, conv, axes)

    @staticmethod
    def convolved(x, conv, axes):
        p = conv.padding[0]
        x = F.pad(x, (p, p, 0, 0), mode="circular" if "x" in axes else "constant")
        x = F.pad(x, (0, 0, p, p), mode="circular" if "y" in axes else "constant")
        return F.conv2d(x, conv.weight, conv.bias, conv.stride)

    @torch.no_grad()
    def encode(self, pixels: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(pixels / 127.5 - 1).float().permute(2, 0, 1)[None]
        return (self.pipeline.vae.encode(x).latent_dist.mean * self.pipeline.vae.config.scaling_factor).double().numpy()


def euler(model: Guided, width: int, height: int, steps: int = STEPS, latents=0, kept: int | None = None) -> np.ndarray:
    levels = sampler_formulas.schedule("normal", steps, model.table.sigmas)
    levels = levels[steps - (kept or steps):]
    x = latents + levels[0] * torch.randn((1, 4, height // 8, width // 8), generator=torch.Generator().manual_seed(SEED)).double().numpy()
    for now, after in zip(levels, levels[1:]):
        x = x + (x - model(x, now)) / now * (after - now)
    return model.decode(x)


@pytest.fixture
def draw(rocm_sd, tiny_model, tmp_path):
    def run(width: int, height: int, *args, name: str = "a", model: str = "sd15", **kwargs):
        path = tmp_path / f"{name}.png"
        done = rocm_sd("generate", "--model", tiny_model(model), "--prompt", PROMPT, "--negative-prompt", NEGATIVE, "--plain-prompt", "--rng",
                       "cpu", "--seed", SEED, "--steps", STEPS, "--cfg-scale", SCALE, "-W", width, "-H", height, "--sampler", "euler",
                       "--schedule", "normal", "--dtype", "f32", "--device", "cpu", "-o", path, *args, **kwargs)
        return (read_picture(path) if path.exists() else None), done.stderr

    return run


@pytest.mark.parametrize("every, branch", [(3, 0), (2, 1)])
def test_deep_cache(draw, tiny_model, tmp_path, every, branch):
    want = euler(DeepCached(tiny_model("sd15"), every, branch), 72, 56)
    got, said = draw(72, 56, "--deep-cache", f"{every}:{branch}")
    shallow = STEPS - -(-STEPS // every)
    assert psnr(got, want) >= 60 and want.std() > 5
    assert psnr(want, draw(72, 56, name="exact")[0]) < 60  # the test would see a cache that is not used
    assert f"{shallow} of {STEPS} calls of the UNet were shallow" in said
    assert (f'DeepCache: "{every}:{branch}",' if branch else f"DeepCache: {every},") in read_parameters(tmp_path / "a.png")


def test_deep_cache_in_batches_and_two_rows_of_calls(draw, tmp_path):
    """Each image of a batch as alone; beside intervals of guidance a call with guidance never reads a map without the negative prompt's rows."""
    alone = draw(64, 64, "--deep-cache", 3)[0]
    draw(64, 64, "--deep-cache", 3, "--batch", 2, "-o", tmp_path / "b-{index}.png", name="unused")
    assert psnr(read_picture(tmp_path / "b-1.png"), alone) >= 60
    both, said = draw(64, 64, "--deep-cache", 3, "--guidance-start", 0.4, "--guidance-end", 0.7)
    assert "left out of 4 of 6 calls" in said and "3 of 6 calls of the UNet were shallow" in said  # 2 of the interval begin anew
    assert both.std() > 5


def operations(said: str) -> float:
    return float(re.search(r"([\d.]+) % of the UNet's operations", said)[1])


@pytest.mark.parametrize("steps", [1, 4])
def test_t_gate(draw, tiny_model, tmp_path, steps):
    want = euler(Gated(tiny_model("sd15"), steps), 64, 72)
    got, said = draw(64, 72, "--t-gate", steps)
    assert psnr(got, want) >= 60 and want.std() > 5
    assert f"{STEPS - steps} of {STEPS} calls added means" in said and f"T-GATE: {steps}," in read_parameters(tmp_path / "a.png")
    assert operations(said) < 100 * (steps + 0.5 * (STEPS - steps)) / STEPS + 0.1


@pytest.mark.parametrize("sampler", ["euler", "ddim"])
def test_sada(draw, tiny_model, tmp_path, sampler):
    """DDIM with Euler's levels takes the same steps in the other space."""
    steps = 20
    plain = Guided(tiny_model("sd15"))
    levels = sampler_formulas.schedule("normal", steps, plain.table.sigmas)
    model = Foretold(tiny_model("sd15"), levels)
    want = euler(model, 64, 56, steps)
    sigmas = ["--sigmas", ",".join(repr(float(level)) for level in levels)]
    got, said = draw(64, 56, "--sada", "--steps", steps, "--sampler", sampler, *(sigmas if sampler == "ddim" else []))
    assert model.skipped >= 3 and f"{model.skipped} of {steps} calls were foretold" in said
    assert psnr(got, want) >= (60 if sampler == "euler" else 45) and want.std() > 5
    assert "SADA: True," in read_parameters(tmp_path / "a.png") and abs(operations(said) - 100 * (1 - model.skipped / steps)) < 0.1


def test_skipped_guidance_costs_half(draw, tiny_model):
    want = Guided(tiny_model("sd15"))
    calls = []

    def model(x, sigma):
        calls.append(sigma)
        if len(calls) <= 4:
            return want(x, sigma)
        one = torch.from_numpy(x / (sigma**2 + 1) ** 0.5).float()
        with torch.no_grad():
            return x - sigma * want.pipeline.unet(one, want.table.timestep(sigma),
                                                  encoder_hidden_states=want.text[1:]).sample.double().numpy()

    model.table, model.decode = want.table, want.decode
    got, said = draw(64, 64, "--guidance-end", 0.67)
    assert psnr(got, euler(model, 64, 64)) >= 60
    assert f"left out of 2 of {STEPS} calls" in said and abs(operations(said) - 100 * 5 / 6) < 1


@pytest.mark.parametrize("axes, options", [("xy", ["--tiling"]), ("x", ["--tiling-x"]), ("y", ["--tiling-y"])])
def test_tiling(draw, tiny_model, tmp_path, axes, options):
    model = Tiling(tiny_model("sd15"), axes)
    want = euler(model, 72, 56)
    got, _ = draw(72, 56, *options)
    assert psnr(got, want) >= 60 and want.std() > 5 and psnr(draw(72, 56, name="plain")[0], want) < 40
    assert f"Tiling: {'True' if axes == 'xy' else axes}," in read_parameters(tmp_path / "a.png")


def test_tiling_of_a_picture(draw, tiny_model, tmp_path):
    """Image to image: the encoder's convolutions wrap, too, but for those before which zeros are padded below and to the right."""
    model = Tiling(tiny_model("sd15"), "xy")
    pixels = np.random.default_rng(2).integers(0, 256, (64, 72, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "in.png")
    want = euler(model, 72, 64, latents=model.encode(pixels), kept=3)
    got, _ = draw(72, 64, "--tiling", "-i", tmp_path / "in.png", "--strength", 0.5)
    assert psnr(got, want) >= 60


@pytest.mark.parametrize("model", ["sdxl"])
def test_other_models(draw, model):
    """Every call whole is the plain picture: what a cache leaves, nobody reads."""
    plain, _ = draw(64, 64, model=model)
    cached, said = draw(64, 64, "--deep-cache", 2, "--t-gate", 3, model=model, name="b")
    assert operations(said) < 80 and psnr(plain, cached) > 8 and cached.std() > 5
    whole, _ = draw(64, 64, "--t-gate", STEPS, model=model, name="c")  # the gate never opens
    assert psnr(whole, plain) >= 70


def test_compare_exact(draw):
    exact, _ = draw(64, 64, name="exact")
    got, said = draw(64, 64, "--deep-cache", 3, "--compare-exact")
    figures = [float(v) for v in re.search(r"PSNR ([\d.]+) dB, SSIM ([\d.-]+), FLIP ([\d.]+); sampling", said).groups()]
    a, b = exact / 255.0, got / 255.0
    assert figures[0] == pytest.approx(quality.psnr(a, b), abs=0.006)
    assert figures[1] == pytest.approx(quality.ssim(a, b), abs=1e-5) and figures[2] == pytest.approx(quality.flip(a, b), abs=1e-5)


def test_compare_command(rocm_sd, tmp_path):
    """benchmarks/picture_quality.py, which is tested against the authors' evaluator."""
    rng = np.random.default_rng(5)
    for number, (height, width) in enumerate([(11, 11), (33, 48), (64, 21)]):
        a = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        b = np.clip(a + rng.normal(0, 6 + 40 * number, a.shape), 0, 255).astype(np.uint8)
        for name, picture in (("a", a), ("b", b)):
            Image.fromarray(picture).save(tmp_path / f"{name}.png")
        said = rocm_sd("compare", tmp_path / "a.png", tmp_path / "b.png", tmp_path / "a.png").stdout.splitlines()
        figures = [float(v) for v in re.search(r"PSNR ([\d.]+) dB, SSIM ([\d.-]+), FLIP ([\d.]+)$", said[0]).groups()]
        x, y = a / 255.0, b / 255.0
        assert figures == pytest.approx([quality.psnr(x, y), quality.ssim(x, y), quality.flip(x, y)], abs=0.006)
        assert figures[1:] == pytest.approx([quality.ssim(x, y), quality.flip(x, y)], abs=1e-5)
        assert said[1].endswith("PSNR inf dB, SSIM 1.00000, FLIP 0.00000")
    Image.fromarray(np.zeros((9, 20, 3), np.uint8)).save(tmp_path / "c.png")
    assert "expected one size" in rocm_sd("compare", tmp_path / "a.png", tmp_path / "c.png", code=2).stderr


@pytest.mark.parametrize("options, sentence", [
    (["--deep-cache", "101"], "expected a whole number from 0 to 100"),
    (["--deep-cache", "2:x"], "deep-cache: expected a whole number"),
    (["--deep-cache", "2:99"], "this UNet has the branches 0 to"),
    (["--deep-cache", "2", "--sag-scale", "1"], "deep-cache: not with sag-scale"),
    (["--deep-cache", "2", "--tile-size", "32"], "deep-cache: not with tile-size"),
    (["--t-gate", "2", "--pag-scale", "1"], "t-gate: defined for one prompt"),
    (["--tiling", "--tile-size", "32"], "tiling: not with tile-size"),
    (["--sada", "--sampler", "euler_a"], "sada: for samplers that draw no noise"),
    (["--sada", "--sampler", "heun"], "sada: for samplers that draw no noise"),
    (["--compare-exact"], "compare-exact: nothing to compare")])
def test_refused(draw, options, sentence):
    assert sentence in draw(64, 64, *options, code=2)[1]
