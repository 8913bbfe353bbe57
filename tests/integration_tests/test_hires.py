"""Two passes ("hires fix") against A1111's order of operations written out around Diffusers' parts: first pass, latents interpolated by torch
(or the picture enlarged and encoded), noise of the same seeds at the new size, the last steps of a longer schedule."""

from __future__ import annotations

import numpy as np
import pytest
import sampler_formulas
import torch
import torch.nn.functional as F
from pictures import psnr, read_parameters, read_picture
from PIL import Image
from test_pipeline import NEGATIVE, PROMPT, SCALE, SEED
from test_tiled_diffusion import Tiled
from upscaler_models import CompactNet, SwinIr, enlarged, randomised, written

STEPS = 4
LATENT = {"Latent": ("bilinear", False), "latent (antialiased)": ("bilinear", True), "Latent (bicubic)": ("bicubic", False),
          "Latent (bicubic antialiased)": ("bicubic", True), "Latent (nearest)": ("nearest", None),
          "Latent (nearest-exact)": ("nearest-exact", None)}


@pytest.fixture(scope="module")
def parts(tiny_model):
    return Tiled(tiny_model("sd15"), 10**6, 0, "uniform")  # one window: the plain model


def noise(width: int, height: int) -> np.ndarray:
    return torch.randn((1, 4, height // 8, width // 8), generator=torch.Generator().manual_seed(SEED)).double().numpy()


def euler(parts: Tiled, levels: list[float], x: np.ndarray) -> np.ndarray:
    for now, after in zip(levels, levels[1:]):
        x = x + (x - parts(x, now)) / now * (after - now)
    return x


def first_pass(parts: Tiled, width: int, height: int) -> np.ndarray:
    levels = sampler_formulas.schedule("normal", STEPS, parts.table.sigmas)
    return euler(parts, levels, levels[0] * noise(width, height))


def second_pass(parts: Tiled, latents: np.ndarray, steps: int, strength: float) -> np.ndarray:
    total = int(steps / min(strength, 0.999))
    levels = sampler_formulas.schedule("normal", total, parts.table.sigmas)[total - steps:]
    height, width = (8 * side for side in latents.shape[-2:])
    return parts.decode(euler(parts, levels, latents + levels[0] * noise(width, height)))


def interpolated(latents: np.ndarray, width: int, height: int, name: str) -> np.ndarray:
    mode, antialias = LATENT[name]
    more = {} if antialias is None else {"antialias": antialias}
    return F.interpolate(torch.from_numpy(latents), (height // 8, width // 8), mode=mode, **more).numpy()


@pytest.fixture
def draw(rocm_sd, tiny_model, tmp_path):
    def run(width: int, height: int, *args, name: str = "a") -> np.ndarray:
        path = tmp_path / f"{name}.png"
        rocm_sd("generate", "--model", tiny_model("sd15"), "--prompt", PROMPT, "--negative-prompt", NEGATIVE, "--plain-prompt", "--rng",
                "cpu", "--seed", SEED, "--steps", STEPS, "--cfg-scale", SCALE, "-W", width, "-H", height, "--sampler", "euler",
                "--schedule", "normal", "--dtype", "f32", "--device", "cpu", "-o", path, *args)
        return read_picture(path)

    return run


@pytest.mark.parametrize("name", LATENT)
def test_latent_upscalers(draw, parts, tmp_path, name):
    want = second_pass(parts, interpolated(first_pass(parts, 64, 48), 104, 72, name), 3, 0.6)
    got = draw(64, 48, "--hires-scale", 1.63, "--hires-upscaler", name, "--hires-steps", 3, "--hires-denoising-strength", 0.6)
    assert want.std() > 5 and psnr(got, want) >= 60
    text = read_parameters(tmp_path / "a.png")
    assert all(part in text for part in ("Steps: 4,", "Size: 64x48", "Denoising strength: 0.6", "Hires upscale: 1.63", "Hires steps: 3",
                                         f"Hires upscaler: {name}"))


@pytest.mark.parametrize("options, enlarged_to, cut", [
    (("--hires-width", 96), (96, 72), np.s_[:, :]),
    (("--hires-height", 96), (128, 96), np.s_[:, :]),
    (("--hires-width", 96, "--hires-height", 48), (96, 72), np.s_[1:7, :]),   # 3 rows of latents too many: 1 above, 2 below
    (("--hires-width", 72, "--hires-height", 96), (128, 96), np.s_[:, 3:12])])
def test_sizes(draw, parts, options, enlarged_to, cut):
    latents = interpolated(first_pass(parts, 64, 48), *enlarged_to, "Latent")[(..., *cut)]
    want = second_pass(parts, latents, STEPS, 1.0)
    got = draw(64, 48, "--hires-denoising-strength", 1, *options)
    assert got.shape == want.shape and psnr(got, want) >= 60


NETWORKS = {"compact": lambda: CompactNet(factor=2), "swinir": SwinIr}


@pytest.mark.parametrize("name", ["Lanczos", "None", *NETWORKS])
def test_picture_upscalers(draw, parts, tmp_path, name):
    first = parts.decode(first_pass(parts, 64, 48))
    if name in NETWORKS:
        net = randomised(NETWORKS[name]())
        large = np.rint(enlarged(net, first)).astype(np.uint8)
        upscaler = written(tmp_path / "net.pth", net.state_dict(), "params")
    else:
        large, upscaler = np.asarray(Image.fromarray(first).resize((128, 96), Image.Resampling.LANCZOS)), name
    want = second_pass(parts, parts.encode(large), 2, 0.5)
    got = draw(64, 48, "--hires-scale", 2, "--hires-upscaler", upscaler, "--hires-steps", 2, "--hires-denoising-strength", 0.5)
    assert psnr(got, want) >= (50 if name in NETWORKS else 55)  # a value of the first picture may round to either side
    if name in NETWORKS:
        assert "Hires upscaler: net," in read_parameters(tmp_path / "a.png")


def test_own_prompt_sampler_and_scale(draw, tmp_path):
    """The second pass is image to image from the first one's latents, with what it is told."""
    from safetensors.numpy import load_file, save_file

    one = draw(64, 64, "--keep-latents", name="one")
    (key, latents), = load_file(tmp_path / "one.safetensors").items()
    save_file({key: interpolated(latents, 96, 96, "Latent (bicubic)").astype(np.float32)}, tmp_path / "large.safetensors")
    own = ["--sampler", "dpmpp_2m", "--schedule", "karras", "--prompt", "a blue dog", "--negative-prompt", "grey", "--cfg-scale", 3]
    want = draw(96, 96, "--init-latents", tmp_path / "large.safetensors", "--strength", 0.45, "--exact-steps", "--steps", 5, *own, name="two")
    got = draw(64, 64, "--hires-scale", 1.5, "--hires-upscaler", "Latent (bicubic)", "--hires-steps", 5, "--hires-denoising-strength", 0.45,
               *(f"--hires-{option[2:]}" if str(option).startswith("--") else option for option in own))
    assert psnr(got, want) >= 60 and one.shape == (64, 64, 3)
    text = read_parameters(tmp_path / "a.png")
    assert "Hires prompt: a blue dog" in text and "Hires sampler: dpmpp_2m" in text and "Exact steps" in read_parameters(tmp_path / "two.png")


def test_windows_of_the_second_pass_alone(draw, parts, tiny_model, tmp_path):
    """The first pass is whole, the second by windows that share 64 pixels, at most half of their side, or what is asked for."""
    latents = interpolated(first_pass(parts, 96, 64), 144, 96, "Latent")
    for options, shared in (((), 4), (("--hires-tile-overlap", 16), 2)):
        tiled = Tiled(tiny_model("sd15"), 8, shared, "uniform")
        want = second_pass(tiled, latents, 3, 0.6)
        got = draw(96, 64, "--hires-scale", 1.5, "--hires-steps", 3, "--hires-denoising-strength", 0.6, "--hires-tile-size", 64, *options)
        assert want.std() > 5 and psnr(got, want) >= 60
        assert psnr(got, second_pass(parts, latents, 3, 0.6)) < 50  # windows are seen
        assert "Hires tile size: 64" in read_parameters(tmp_path / "a.png")


@pytest.mark.parametrize("name", ["Lanczos", "network"])
def test_an_init_image_is_enlarged_and_drawn_again(rocm_sd, parts, tiny_model, tmp_path, name):
    """The picture takes the first pass's place: enlarged, encoded, and drawn by windows with the strength of image to image. The same as
    `upscale` and `generate` with tiles."""
    small = np.random.default_rng(4).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    small = np.asarray(Image.fromarray(small).resize((75, 50), Image.Resampling.BICUBIC))
    Image.fromarray(small).save(tmp_path / "small.png")
    if name == "network":
        net = randomised(CompactNet(factor=2))
        large, upscaler = np.rint(enlarged(net, small)).astype(np.uint8), written(tmp_path / "net.pth", net.state_dict(), "params")
        large = np.asarray(Image.fromarray(large).resize((144, 96), Image.Resampling.LANCZOS))
    else:
        large, upscaler = np.asarray(Image.fromarray(small).resize((144, 96), Image.Resampling.LANCZOS)), name
    tiled = Tiled(tiny_model("sd15"), 8, 3, "gaussian")
    want = second_pass(tiled, parts.encode(large), 2, 0.5)
    common = ["generate", "--model", tiny_model("sd15"), "--prompt", PROMPT, "--negative-prompt", NEGATIVE, "--plain-prompt", "--rng", "cpu", "--seed", SEED,
              "--cfg-scale", SCALE, "--sampler", "euler", "--schedule", "normal", "--dtype", "f32", "--device", "cpu", "--steps", 2, "--strength", 0.5, "--exact-steps",
              "--tile-weights", "gaussian"]
    done = rocm_sd(*common, "-i", tmp_path / "small.png", "--hires-scale", 1.93, "--hires-upscaler", upscaler, "--hires-tile-size", 64, "--hires-tile-overlap", 24,
                   "-o", tmp_path / "a.png")
    got = read_picture(tmp_path / "a.png")
    assert want.std() > 5 and psnr(got, want) >= 50  # a value of the large picture may round to either side
    text = read_parameters(tmp_path / "a.png")
    assert all(part in text for part in ("Size: 144x96", "Denoising strength: 0.5", "Hires upscale: 1.93", "Hires tile size: 64", "Hires tile overlap: 24"))
    assert text.count("Denoising strength") == 1 and "upscale" in done.stderr
    rocm_sd("upscale", tmp_path / "small.png", "--upscaler", upscaler, "-W", 144, "-H", 96, "--device", "cpu", "-o", tmp_path / "large.png")
    rocm_sd(*common, "-i", tmp_path / "large.png", "--tile-size", 64, "--tile-overlap", 24, "-o", tmp_path / "b.png")
    assert (read_picture(tmp_path / "b.png") == got).all()


def test_an_init_image_needs_a_picture_upscaler(rocm_sd, tiny_model, tmp_path):
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    common = ["generate", "-m", tiny_model("sd15"), "-p", "a", "--steps", 2, "-i", tmp_path / "a.png", "-o", tmp_path / "b.png", "--device", "cpu"]
    for options, word in (((), "Lanczos"), (("--hires-upscaler", "Latent (bicubic)"), "Lanczos"), (("--hires-upscaler", "None", "-W", 64), "width"),
                          (("--hires-upscaler", "None", "--loopback", 2), "loopback")):
        assert word in rocm_sd(*common, "--hires-scale", 2, *options, code=2).stderr
    assert "4096" in rocm_sd(*common, "--hires-width", 4104, "--hires-upscaler", "None", code=2).stderr
    done = rocm_sd(*common, "--hires-scale", 2, "--hires-upscaler", "None", "--hires-denoising-strength", 0.3)
    assert "--hires-denoising-strength has no effect" in done.stderr
    assert read_picture(tmp_path / "b.png").shape == (128, 128, 3)
    plan = rocm_sd(*common, "--hires-scale", 4, "--hires-upscaler", "None", "--plan").stderr
    assert plan != rocm_sd(*common, "--hires-scale", 4, "--hires-upscaler", "None", "--hires-tile-size", 64, "--plan").stderr


def test_batches(rocm_sd, tiny_model, tmp_path):
    """An image of a batch is the one that its seed draws alone, by latents and by pictures."""
    for name in ("Latent", "Lanczos"):
        common = ["generate", "-m", tiny_model("sd15"), "-p", PROMPT, "--steps", 2, "-W", 64, "-H", 64, "--dtype", "f32", "--device", "cpu",
                  "--hires-scale", 1.25, "--hires-upscaler", name]
        rocm_sd(*common, "-s", 5, "--batch", 2, "-o", tmp_path / "b{index}.png")
        rocm_sd(*common, "-s", 6, "-o", tmp_path / "c.png")
        assert psnr(read_picture(tmp_path / "b2.png"), read_picture(tmp_path / "c.png")) >= 60


def test_bad_input(rocm_sd, tiny_model, tmp_path):
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    for options, word, code in ((("--hires-scale", 9), "8", 2), (("--hires-scale", 0.5), "1 to 8", 2),
                                (("--hires-scale", 2, "--hires-denoising-strength", 0), "above 0", 2),
                                (("--hires-scale", 8, "-W", 1024, "-H", 1024), "4096", 2), (("--hires-scale", 2, "-i", tmp_path / "a.png"), "width or height", 2),
                                (("--hires-scale", 2, "--mask", tmp_path / "a.png", "-i", tmp_path / "a.png"), "mask", 2),
                                (("--hires-scale", 2, "--hires-tile-overlap", 16), "hires-tile-size", 2), (("--hires-scale", 2, "--hires-tile-size", 60), "multiple of 8", 2),
                                (("--hires-scale", 2, "--hires-tile-size", 64, "--hires-tile-overlap", 64), "below tile-size", 2),
                                (("--hires-scale", 2, "--hires-tile-size", 9999), "hires-tile-size", 2),
                                (("--hires-scale", 2, "--denoising-end", 0.5), "denoising-end", 2),
                                (("--hires-scale", 2, "--hires-sampler", "dice"), "dice", 2),
                                (("--hires-scale", 2, "--hires-steps", 900, "--hires-denoising-strength", 0.5), "1000", 2),
                                (("--hires-scale", 2, "--hires-upscaler", tmp_path / "none.pth"), "no such file", 3)):
        size = () if "-W" in options else ("-W", 64, "-H", 64)
        done = rocm_sd("generate", "-m", tiny_model("sd15"), "-p", "a", "--steps", 1, *size, "-o", tmp_path / "b.png", *options, code=code)
        assert word in done.stderr, done.stderr
