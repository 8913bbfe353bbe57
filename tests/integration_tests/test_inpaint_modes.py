"""Inpainting's modes, seeds of other sizes and previews, against A1111's behaviour written out around Diffusers' parts and Pillow."""

from __future__ import annotations

import os

import numpy as np
import pytest
import sampler_formulas
import torch
from pictures import psnr, read_parameters, read_picture
from PIL import Image, ImageFilter, ImageOps
from test_hires import euler, noise
from test_hires import parts as parts  # noqa: F401 (fixture)
from test_pipeline import NEGATIVE, PROMPT, SCALE, SEED
from test_tiled_diffusion import Tiled, gradient
from torch_ops import load_package

STEPS = 4


@pytest.fixture
def draw(rocm_sd, tiny_model, tmp_path):
    def run(*args, name: str = "a", code: int = 0):
        path = tmp_path / f"{name}.png"
        done = rocm_sd("generate", "--model", tiny_model("sd15"), "--prompt", PROMPT, "--negative-prompt", NEGATIVE, "--plain-prompt", "--rng",
                       "cpu", "--seed", SEED, "--steps", STEPS, "--cfg-scale", SCALE, "--sampler", "euler", "--schedule", "normal", "--dtype",
                       "f32", "--device", "cpu", "-o", path, *args, code=code)
        return read_picture(path) if code == 0 else done.stderr

    return run


def saved(path, pixels: np.ndarray):
    Image.fromarray(pixels).save(path)
    return path


def box_mask(width: int, height: int, box: tuple[int, int, int, int]) -> np.ndarray:
    out = np.zeros((height, width), np.uint8)
    out[box[1]:box[3], box[0]:box[2]] = 255
    return out


@pytest.mark.parametrize("content", ["latent noise", "latent nothing"])
@pytest.mark.parametrize("invert", [False, True])
def test_latent_content(draw, parts: Tiled, tmp_path, content, invert):  # noqa: F811
    picture, mask = gradient(96, 64), box_mask(96, 64, (24, 16, 80, 48))
    filled = by_pillow(picture, mask)
    clean = parts.encode(filled)
    inside = (mask[None, None, ::8, ::8] > 0).astype(float)
    clean = clean * (1 - inside) + (noise(96, 64) if content == "latent noise" else 0) * inside
    levels = sampler_formulas.schedule("normal", STEPS, parts.table.sigmas)[STEPS - int(STEPS * 0.75):]

    class Kept:
        def __call__(self, x, sigma):
            return parts(x, sigma) * inside + clean * (1 - inside)

    drawn = parts.decode(euler(Kept(), levels, clean + levels[0] * noise(96, 64)))
    want = np.where(mask[..., None] > 0, drawn, picture)
    got = draw("-i", saved(tmp_path / "i.png", picture), "--mask", saved(tmp_path / "m.png", 255 - mask if invert else mask), "--mask-blur", 0,
               "--masked-content", content, *(["--mask-invert"] if invert else []))
    assert psnr(got, want) >= 40  # the known latents near the mask come from a picture that Pillow filled in 8 bits
    assert f"Masked content: {content}" in read_parameters(tmp_path / "a.png")


def by_pillow(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A1111's fill: blurs of what is known, the widest first, laid upon each other."""
    known = Image.new("RGBa", (picture.shape[1], picture.shape[0]))
    known.paste(Image.fromarray(picture).convert("RGBA").convert("RGBa"), mask=ImageOps.invert(Image.fromarray(mask)))
    known, out = known.convert("RGBa"), Image.new("RGBA", known.size)
    for radius, repeats in ((256, 1), (64, 1), (16, 2), (4, 4), (2, 2), (0, 1)):
        blurred = known.filter(ImageFilter.GaussianBlur(radius)).convert("RGBA")
        for _ in range(repeats):
            out.alpha_composite(blurred)
    return np.asarray(out.convert("RGB"))


@pytest.mark.parametrize("box", [(24, 16, 80, 48), (0, 0, 40, 64), (72, 40, 96, 64)])
def test_fill(draw, tmp_path, box):
    """As the same picture with the hole filled by Pillow beforehand; with strength 0.3 the filling is seen."""
    picture, mask = gradient(96, 64), box_mask(96, 64, box)
    args = ["--mask", saved(tmp_path / "m.png", mask), "--mask-blur", 0, "--strength", 0.3]
    want = draw("-i", saved(tmp_path / "f.png", by_pillow(picture, mask)), *args, name="want")
    got = draw("-i", saved(tmp_path / "i.png", picture), "--masked-content", "fill", *args)
    plain = draw("-i", tmp_path / "i.png", *args, name="plain")
    inside = mask > 0
    assert psnr(got[inside], want[inside]) > 38 > psnr(plain[inside], want[inside])
    assert np.array_equal(got[~inside], picture[~inside])


def area_of(mask: np.ndarray, padding: int, width: int, height: int) -> tuple[int, int, int, int]:
    """A1111's crop region: around the mask, padded, widened to the shape of what is drawn, within the picture."""
    rows, cols = np.nonzero(mask.any(1))[0], np.nonzero(mask.any(0))[0]
    tall, wide = mask.shape
    x1, y1 = max(cols[0] - padding, 0), max(rows[0] - padding, 0)
    x2, y2 = min(cols[-1] + 1 + padding, wide), min(rows[-1] + 1 + padding, tall)
    if (x2 - x1) / (y2 - y1) > width / height:
        more = int((x2 - x1) / (width / height) - (y2 - y1))
        y1, y2 = y1 - more // 2, y2 + more - more // 2
        if y2 >= tall:
            y1, y2 = y1 - (y2 - tall), tall
        if y1 < 0:
            y1, y2 = 0, min(y2 - y1, tall)
    else:
        more = int((y2 - y1) * (width / height) - (x2 - x1))
        x1, x2 = x1 - more // 2, x2 + more - more // 2
        if x2 >= wide:
            x1, x2 = x1 - (x2 - wide), wide
        if x1 < 0:
            x1, x2 = 0, min(x2 - x1, wide)
    return int(x1), int(y1), int(x2), int(y2)


@pytest.mark.parametrize("box, padding, size", [((70, 50, 102, 74), 16, (64, 64)), ((0, 0, 30, 12), 8, (64, 64)), ((150, 90, 160, 120), 4, (96, 64)),
                                                ((60, 20, 130, 40), 0, (64, 96)), ((3, 1, 158, 119), 32, (64, 64))])
def test_only_masked(draw, tmp_path, box, padding, size):
    picture, mask = gradient(160, 120), box_mask(160, 120, box)
    x1, y1, x2, y2 = area_of(mask, padding, *size)
    crop = Image.fromarray(picture[y1:y2, x1:x2]).resize(size, Image.Resampling.LANCZOS)
    hole = Image.fromarray(mask[y1:y2, x1:x2]).resize(size, Image.Resampling.LANCZOS)
    crop.save(tmp_path / "crop.png"), hole.save(tmp_path / "hole.png")
    args = ["--mask-blur", 0, "--strength", 0.8, "-W", size[0], "-H", size[1]]
    drawn = draw("-i", tmp_path / "crop.png", "--mask", tmp_path / "hole.png", *args, name="part")
    want = picture.copy()
    back = np.asarray(Image.fromarray(drawn).resize((x2 - x1, y2 - y1), Image.Resampling.LANCZOS))
    want[y1:y2, x1:x2] = np.where(mask[y1:y2, x1:x2, None] > 0, back, want[y1:y2, x1:x2])
    got = draw("-i", saved(tmp_path / "i.png", picture), "--mask", saved(tmp_path / "m.png", mask), "--only-masked", "--only-masked-padding", padding, *args)
    assert np.array_equal(got[mask == 0], picture[mask == 0])
    if (x2 - x1, y2 - y1) == size:
        assert np.array_equal(got, want)
    assert psnr(got, want) > 28  # what surrounds the mask is drawn, too, and resizing mixes it in at the edge
    assert psnr(got[mask > 0], picture[mask > 0]) < 28
    assert "Inpaint area: Only masked" in read_parameters(tmp_path / "a.png")


def test_only_masked_with_a_soft_edge(draw, tmp_path):
    """Far from the blurred mask the picture stays; in its middle it is what was drawn, between them it is mixed."""
    picture, mask = gradient(160, 120), box_mask(160, 120, (70, 50, 102, 82))
    got = draw("-i", saved(tmp_path / "i.png", picture), "--mask", saved(tmp_path / "m.png", mask), "--only-masked", "--mask-blur", 4, "-W", 96, "-H", 96)
    blurred = np.asarray(Image.fromarray(mask).filter(ImageFilter.GaussianBlur(12)))
    assert np.array_equal(got[blurred == 0], picture[blurred == 0])
    assert psnr(got[60:72, 80:92], picture[60:72, 80:92]) < 28


@pytest.mark.parametrize("sides, size, at", [((24, 0, 0, 0), (120, 64), (24, 0)), ((0, 20, 0, 12), (120, 80), (0, 0)), ((8, 8, 16, 8), (112, 88), (8, 16)),
                                             ((3, 0, 0, 0), (104, 64), (8, 0))])
def test_outpaint(draw, tmp_path, sides, size, at):
    """As a canvas whose new parts, and two blurs of the old one, are masked and filled."""
    picture, blur = gradient(96, 64), 2
    (x, y), (width, height) = at, size
    canvas = np.pad(picture, ((y, height - 64 - y), (x, width - 96 - x), (0, 0)), "edge")
    mask = np.full((height, width), 255, np.uint8)
    left, top = x + 2 * blur * (x > 0), y + 2 * blur * (y > 0)
    right, bottom = x + 96 - 2 * blur * (x + 96 < width), y + 64 - 2 * blur * (y + 64 < height)
    mask[top:bottom, left:right] = 0
    args = ["--mask-blur", blur, "--strength", 0.9]
    want = draw("-i", saved(tmp_path / "c.png", canvas), "--mask", saved(tmp_path / "m.png", mask), "--masked-content", "fill", *args, name="want")
    got = draw("-i", saved(tmp_path / "i.png", picture), "--outpaint", ",".join(map(str, sides)), *args)
    assert got.shape == (height, width, 3) and np.array_equal(got, want)
    inner = np.s_[top + 3 * blur:bottom - 3 * blur, left + 3 * blur:right - 3 * blur]
    assert np.array_equal(got[inner], canvas[inner])
    assert "Outpaint: " in read_parameters(tmp_path / "a.png")


def slerp(share: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    low, high = torch.from_numpy(low), torch.from_numpy(high)
    cosine = (low / low.norm(dim=1, keepdim=True) * (high / high.norm(dim=1, keepdim=True))).sum(1, keepdim=True)
    if cosine.mean() > 0.9995:
        return (low * share + high * (1 - share)).numpy()
    angle = torch.acos(cosine)
    return (torch.sin((1 - share) * angle) / torch.sin(angle) * low + torch.sin(share * angle) / torch.sin(angle) * high).numpy()


@pytest.mark.parametrize("origin", [(64, 64), (56, 120), (40, 48)])
@pytest.mark.parametrize("share", [0, 0.3])
def test_resized_seeds(draw, parts: Tiled, origin, share):  # noqa: F811
    """The noise of a picture of another size, cut or in the middle, with a variation mixed in before."""
    width, height = 88, 72
    own, small = noise(width, height)[0], noise(*origin)[0]
    if share:
        other = torch.randn(small.shape, generator=torch.Generator().manual_seed(99)).double().numpy()
        small = slerp(share, small, other)
    dx, dy = (own.shape[2] - small.shape[2]) // 2, (own.shape[1] - small.shape[1]) // 2
    w, h = small.shape[2] + min(2 * dx, 0), small.shape[1] + min(2 * dy, 0)
    tx, ty, dx, dy = max(dx, 0), max(dy, 0), max(-dx, 0), max(-dy, 0)
    own[:, ty:ty + h, tx:tx + w] = small[:, dy:dy + h, dx:dx + w]
    levels = sampler_formulas.schedule("normal", STEPS, parts.table.sigmas)
    want = parts.decode(euler(parts, levels, levels[0] * own[None]))
    varied = ["--variation-seed", 99, "--variation-strength", share] if share else []
    got = draw("-W", width, "-H", height, "--seed-resize-width", origin[0], "--seed-resize-height", origin[1], *varied)
    assert psnr(got, want) >= 60


SD_FACTORS = np.array([[0.3512, 0.2297, 0.3227], [0.3250, 0.4974, 0.2350], [-0.2829, 0.1762, 0.2721], [-0.2120, -0.2616, -0.7177]])


def test_previews(draw, tmp_path):
    """By a matrix and by the VAE: after the last Euler step the latents are the clean ones, so the last look is at the picture."""
    from safetensors.numpy import load_file

    size = ["-W", 72, "-H", 64]
    done = draw(*size, "--keep-latents", "--preview", "proj", "--preview-path", tmp_path / "p.png")
    latents, = load_file(tmp_path / "a.safetensors").values()
    want = np.rint(np.clip((latents[0].transpose(1, 2, 0) @ SD_FACTORS + 1) / 2, 0, 1) * 255)
    assert np.abs(read_picture(tmp_path / "p.png") - want).max() <= 1 and want.std() > 5
    assert np.array_equal(done, draw(*size, name="plain")), "looking changes nothing"
    done = draw(*size, "--preview", "vae", "--preview-interval", 2, "--preview-path", tmp_path / "v.png", "--batch", 2)
    assert psnr(read_picture(tmp_path / "v.png"), done) >= 60
    assert read_picture(tmp_path / "v-2.png").shape == done.shape


def test_bad_input(draw, tmp_path):
    picture, empty = saved(tmp_path / "i.png", gradient(64, 64)), saved(tmp_path / "m.png", np.zeros((64, 64), np.uint8))
    for options, word in ((("-i", picture, "--mask", empty, "--only-masked"), "white"), (("--only-masked",), "init-image"),
                          (("-i", picture, "--masked-content", "fill"), "mask"), (("-i", picture, "--mask", empty, "--masked-content", "x"), "latent noise"),
                          (("-i", picture, "--outpaint", "1,2,3"), "four"), (("-i", picture, "--outpaint", "1,2,3,4.5"), "whole"),
                          (("--outpaint", "8,0,0,0"), "init-image"), (("-i", picture, "--outpaint", "4096,0,0,0"), "4096"),
                          (("-i", picture, "--outpaint", "8,0,0,0", "-W", 64), "width"), (("-i", picture, "--outpaint", "8,0,0,0", "--mask", empty), "mask"),
                          (("--seed-resize-width", 64), "seed-resize-height"), (("--preview", "x"), "proj"), (("--preview", "tae"), "taesd"),
                          (("-i", picture, "--strength", 0, "--exact-steps"), "strength")):
        assert word in draw(*options, code=2), options


@pytest.mark.in_python
def test_python(build_dir, tiny_model):
    os.environ["ROCM_SD_LIBRARY"] = str(build_dir / "librocm_sd.so")
    load_package(build_dir)
    from rocm_sd_ops.engine import ROCmOptimizedPipeline

    call = dict(num_inference_steps=4, seed=3, sampler="Euler", output_type="np", width=64, height=72)
    looks: list = []
    with ROCmOptimizedPipeline.from_pretrained(tiny_model("sd15"), device="cpu") as pipe:
        plain = pipe("a cat", **call).images
        seen = pipe("a cat", preview_callback=lambda *look: looks.append(look), preview_interval=2, num_images_per_prompt=2, **call).images
        assert np.array_equal(seen[0], plain[0])
        assert [look[:3] for look in looks] == [(0, 2, 4), (1, 2, 4), (0, 4, 4), (1, 4, 4)] and looks[0][3].shape == (9, 8, 3)
        looks.clear()
        pipe("a cat", preview_callback=lambda *look: looks.append(look), preview="vae", **call)
        assert len(looks) == 4 and psnr(looks[-1][3], plain[0]) >= 60
        with pytest.raises(ZeroDivisionError):
            pipe("a cat", preview_callback=lambda *_: 1 / 0, **call)
        large = pipe("a cat", hires_scale=1.5, hires_upscaler="Latent (bicubic)", **call).images
        assert large.shape == (1, 104, 96, 3)
        grown = pipe("a cat", image=plain[0], outpaint=[8, 0, 0, 8], num_inference_steps=2, output_type="np").images
        assert grown.shape == (1, 80, 72, 3)
