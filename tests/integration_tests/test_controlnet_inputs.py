"""What a ControlNet is given: pictures of any shape, preprocessors against their formulas; bad files and requests."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from control_models import control_folder, drawing, ldm_file, single_file
from PIL import Image
from pictures import psnr, read_parameters
from safetensors.torch import load_file, save_file
from test_controlnet import control, hint, opened  # noqa: F401 (fixtures)
from test_diffusers_pipelines import SIZE, command, model, ours, picture  # noqa: F401 (fixtures)


# --- pictures ---

def crop_and_resize(values: Image.Image, width: int, height: int) -> Image.Image:
    scale = max(width / values.width, height / values.height)
    whole = values.resize((round(values.width * scale), round(values.height * scale)), Image.LANCZOS)
    left, top = (whole.width - width) // 2, (whole.height - height) // 2
    return whole.crop((left, top, left + width, top + height))


def resize_and_fill(values: Image.Image, width: int, height: int) -> Image.Image:
    scale = min(width / values.width, height / values.height)
    whole = values.resize((round(values.width * scale), round(values.height * scale)), Image.LANCZOS)
    v = np.asarray(values)
    border = np.concatenate([v[0], v[-1], v[:, 0], v[:, -1]])
    out = Image.new("RGB", (width, height), tuple(int(c) for c in np.median(border, axis=0)))
    out.paste(whole, ((width - whole.width) // 2, (height - whole.height) // 2))
    return out


@pytest.mark.parametrize("how", ["just", "crop", "fill"])
@pytest.mark.parametrize("width,height", [(200, 120), (90, 170)])
def test_pictures_of_another_shape(rocm_sd, control, tmp_path, how, width, height):
    """A1111's three modes, by Pillow."""
    folder, net = control("sd15")
    source = opened(drawing(tmp_path / "source.png", width, height))
    shown = {"just": lambda: source.resize((SIZE, SIZE), Image.LANCZOS), "crop": lambda: crop_and_resize(source, SIZE, SIZE),
             "fill": lambda: resize_and_fill(source, SIZE, SIZE)}[how]()
    shown.save(tmp_path / "shown.png")
    got = ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", tmp_path / "source.png", "--control-resize", how, steps=1)
    want = ours(rocm_sd, folder, tmp_path / "b.png", "--control", net, "--control-image", tmp_path / "shown.png", steps=1)
    assert psnr(got, want) >= 50  # Pillow rounds between its two passes


def reference_canny(rgb: np.ndarray, low: float, high: float) -> np.ndarray:
    """Canny as OpenCV's documentation has it, pixel by pixel: Sobel, the channel with the largest |dx| + |dy|, ridges, hysteresis."""
    padded = np.pad(rgb.astype(int), ((1, 1), (1, 1), (0, 0)), mode="edge")
    h, w, _ = rgb.shape
    part = lambda i, j: padded[1 + j:1 + j + h, 1 + i:1 + i + w]  # noqa: E731
    dx = sum(k * (part(1, j) - part(-1, j)) for j, k in ((-1, 1), (0, 2), (1, 1)))
    dy = sum(k * (part(i, 1) - part(i, -1)) for i, k in ((-1, 1), (0, 2), (1, 1)))
    best = (abs(dx) + abs(dy)).argmax(2)[..., None]
    dx, dy = (np.take_along_axis(d, best, 2)[..., 0] for d in (dx, dy))
    size = np.pad(abs(dx) + abs(dy), 1)
    ridge = np.zeros((h, w), bool)
    for y in range(h):
        for x in range(w):
            m, angle = size[y + 1, x + 1], np.degrees(np.arctan2(abs(dy[y, x]), abs(dx[y, x])))
            if m == 0:
                continue
            if angle < 22.5:
                before, after, strict = size[y + 1, x], size[y + 1, x + 2], False
            elif angle > 67.5:
                before, after, strict = size[y, x + 1], size[y + 2, x + 1], False
            else:
                s = -1 if (dx[y, x] < 0) != (dy[y, x] < 0) else 1
                before, after, strict = size[y, x + 1 - s], size[y + 2, x + 1 + s], True
            ridge[y, x] = m > before and (m > after if strict else m >= after)
    inner = size[1:-1, 1:-1]
    candidates, strong = ridge & (inner > low), ridge & (inner > high)
    while True:
        grown = np.pad(strong, 1)
        near = np.any([grown[1 + j:1 + j + h, 1 + i:1 + i + w] for i in (-1, 0, 1) for j in (-1, 0, 1)], axis=0)
        larger = strong | (candidates & near)
        if (larger == strong).all():
            return np.repeat((strong * 255).astype(np.uint8)[..., None], 3, 2)
        strong = larger


def smooth(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 255, (9, 9, 3), dtype=np.uint8))
    return np.asarray(small.resize((SIZE, SIZE), Image.BICUBIC)).copy()


@pytest.mark.parametrize("name", ["canny", "canny:20:60", "invert", "grey", "tile:4", "none"])
def test_preprocessors(rocm_sd, control, tmp_path, name):
    """The picture that a preprocessor makes, given ready-made, draws the same picture to the bit."""
    folder, net = control("sd15")
    values = smooth(3)
    values[20:40, 10:30] = 250
    Image.fromarray(values).save(tmp_path / "source.png")
    luma = np.rint(values.astype(float) @ [0.299, 0.587, 0.114]).astype(np.uint8)
    quarter = Image.fromarray(values).resize((SIZE // 4, SIZE // 4), Image.LANCZOS).resize((SIZE, SIZE), Image.BICUBIC)
    want = {"canny": lambda: reference_canny(values, 100, 200), "canny:20:60": lambda: reference_canny(values, 20, 60),
            "invert": lambda: 255 - values, "grey": lambda: np.repeat(luma[..., None], 3, 2), "tile:4": lambda: np.asarray(quarter),
            "none": lambda: values}[name]()
    if name.startswith("canny"):
        assert 0.02 < (want > 0).mean() < 0.5
    Image.fromarray(want).save(tmp_path / "ready.png")
    a = ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", tmp_path / "source.png", "--control-preprocess", name, steps=1)
    b = ours(rocm_sd, folder, tmp_path / "b.png", "--control", net, "--control-image", tmp_path / "ready.png", steps=1)
    assert psnr(a, b) >= 45 if name.startswith("tile") else np.array_equal(a, b)
    shown = read_parameters(tmp_path / "a.png")
    assert f"Module: {name.split(':')[0]}" in shown and ("Threshold A: 20, Threshold B: 60" in shown) == (name == "canny:20:60")


def test_the_init_image_is_the_default_picture(rocm_sd, control, picture, tmp_path):  # noqa: F811
    folder, net = control("sd15")
    args = ["-i", picture, "--strength", 0.8, "--control", net]
    a = ours(rocm_sd, folder, tmp_path / "a.png", *args)
    assert np.array_equal(a, ours(rocm_sd, folder, tmp_path / "b.png", *args, "--control-image", picture))


def test_as_a1111_names_its_hash(rocm_sd, control, hint, tmp_path):
    import hashlib

    folder, net = control("sd15")
    file = single_file(net, tmp_path / "edges.safetensors")
    data = file.read_bytes()
    assert len(data) > 0x100000
    ours(rocm_sd, folder, tmp_path / "a.png", "--control", file, "--control-image", hint, steps=1)
    digest = hashlib.sha256(data[0x100000:0x110000]).hexdigest()[:8]
    assert f"Model: edges [{digest}]" in read_parameters(tmp_path / "a.png")


@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_inspect(rocm_sd, control, tmp_path, kind):  # noqa: F811
    folder, net = control(kind)
    width = {"sd15": 64, "sdxl": 192}[kind]
    for file in (single_file(net, tmp_path / "a.safetensors"), ldm_file(net, folder, tmp_path / "b.safetensors")):
        shown = rocm_sd("inspect", file).stdout
        assert "a ControlNet" in shown and f"attends to text states of width {width}" in shown and "problem" not in shown, shown
    assert f"attends to text states of width {width}" in rocm_sd("inspect", net).stdout, "a folder"


# --- bad files and requests ---

def changed(net, path, what, kind_of_file="diffusers", folder=None):
    tensors = load_file(net / "diffusion_pytorch_model.safetensors")
    key = "down_blocks.0.resnets.0.conv1.weight"
    match what:
        case "nan":
            tensors["controlnet_mid_block.weight"][0, 0] = float("nan")
        case "missing":
            del tensors[key], tensors["controlnet_down_blocks.3.bias"]
        case "extra":
            tensors["down_blocks.0.resnets.0.conv3.weight"] = tensors[key].clone()
        case "shape":
            tensors["controlnet_down_blocks.1.weight"] = tensors["controlnet_down_blocks.1.weight"][:, :8].clone()
        case "hint":
            tensors = {k: v for k, v in tensors.items() if not k.startswith("controlnet_cond_embedding.conv_in")}
    save_file(tensors, path)
    return path


@pytest.mark.bad_input
@pytest.mark.parametrize("what,words", [
    ("nan", ["controlnet_mid_block.weight: 1 of", "not finite"]), ("missing", ["2 of", "are missing", "down_blocks.0.resnets.0.conv1.weight [32,32,3,3]"]),
    ("extra", ["1 tensor has no place in a ControlNet", "conv3"]), ("shape", ["controlnet_down_blocks.1.weight", "[32,32,1,1]"]),
    ("hint", ["controlnet_cond_embedding"])])
def test_bad_files(rocm_sd, control, hint, tmp_path, what, words):
    folder, net = control("sd15")
    file = changed(net, tmp_path / "x.safetensors", what)
    done = rocm_sd(*command(folder, tmp_path / "a.png", "--control", file, "--control-image", hint), code=None)
    assert done.returncode == 3 and "x.safetensors" in done.stderr and all(word in done.stderr for word in words), done.stderr
    assert not (tmp_path / "a.png").exists()


@pytest.mark.bad_input
def test_other_base_models(rocm_sd, control, model, hint, tmp_path):  # noqa: F811
    sd15, sdxl = control("sd15"), control("sdxl")
    wide = control_folder(model("sd15"), tmp_path / "wide", block_out_channels=(32, 64, 96, 96))
    short = control_folder(model("sd15"), tmp_path / "short", block_out_channels=(32, 64, 64),
                           down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"))
    coarse = control_folder(model("sd15"), tmp_path / "coarse", conditioning_embedding_out_channels=(16, 32))
    for folder, net, word in ((sd15[0], sdxl[1], "text states of width 192, the model's are of width 64"),
                              (sdxl[0], sd15[1], "text states of width 64, the model's are of width 192"),
                              (model("refiner"), sdxl[1], "text states of width 192, the model's are of width 128"),
                              (sd15[0], wide, "32, 64, 96, 96 channels"), (sd15[0], short, "give 9 residuals"),
                              (sd15[0], coarse, "one latent of 2 pixels")):
        done = rocm_sd(*command(folder, tmp_path / "a.png", "--control", net, "--control-image", hint), code=3)
        assert "another base model" in done.stderr and word in done.stderr, done.stderr
    ldm = ldm_file(sdxl[1], sdxl[0], tmp_path / "xl.safetensors")
    done = rocm_sd(*command(sd15[0], tmp_path / "a.png", "--control", ldm, "--control-image", hint), code=3)
    assert "another base model" in done.stderr and "width 192" in done.stderr


@pytest.mark.bad_input
def test_what_is_no_controlnet(rocm_sd, control, hint, tmp_path):
    folder, net = control("sd15")

    def refused(*args, code):
        return rocm_sd(*command(folder, tmp_path / "a.png", *args), code=code).stderr

    assert "expected a ControlNet" in refused("--control", folder / "unet", "--control-image", hint, code=3)
    assert "no such file" in refused("--control", tmp_path / "none.safetensors", "--control-image", hint, code=3)
    save_file({"lora_unet_a.lora_down.weight": torch.zeros(1, 1)}, tmp_path / "l.safetensors")
    assert "found a LoRA" in refused("--control", tmp_path / "l.safetensors", "--control-image", hint, code=3)
    bare = tmp_path / "bare"
    shutil.copytree(net, bare)
    (bare / "config.json").unlink()
    assert "config.json: is missing" in refused("--control", bare, "--control-image", hint, code=3)
    (tmp_path / "empty.safetensors").write_bytes(b"")
    assert "empty.safetensors" in refused("--control", tmp_path / "empty.safetensors", "--control-image", hint, code=3)
    done = rocm_sd(*command(net, tmp_path / "a.png"), code=3)  # a ControlNet is no model
    assert "ControlNet" in done.stderr


@pytest.mark.bad_input
@pytest.mark.parametrize("args,word", [
    (["--control-strength", 0.5], "given 1 times for 0 --control"), (["--control", "NET"], "expected an image for it to see"),
    (["--control", "NET", "--control-image", "HINT", "--control-image", "HINT"], "control-image: given 2 times for 1 --control"),
    (["--control", "NET", "--control-image", "HINT", "--control-strength", 11], "control-strength: expected a number from -10 to 10"),
    (["--control", "NET", "--control-image", "HINT", "--control-strength", "nan"], "control-strength"),
    (["--control", "NET", "--control-image", "HINT", "--control-start", 0.5, "--control-end", 0.5], "expected the first below the second"),
    (["--control", "NET", "--control-image", "HINT", "--control-end", 1.5], "control-end: expected a number from 0 to 1"),
    (["--control", "NET", "--control-image", "HINT", "--control-mode", "loud"], "expected balanced, prompt, control or guess"),
    (["--control", "NET", "--control-image", "HINT", "--control-resize", "stretch"], "expected just, crop or fill"),
    (["--control", "NET", "--control-image", "HINT", "--control-preprocess", "depth"], "expected none, canny"),
    (["--control", "NET", "--control-image", "HINT", "--control-preprocess", "canny:200:100"], "expected LOW up to HIGH"),
    (["--control", "NET", "--control-image", "HINT", "--control-preprocess", "canny:5"], "canny takes 2 numbers"),
    (["--control", "NET", "--control-image", "HINT", "--control-preprocess", "inpaint"], "needs a mask"),
    (["--control", "NET", "--control-image", "none.png"], "none.png"),
    (["--control", "NET"] * 9 + ["--control-image", "HINT"], "given more than 8 times")])
def test_bad_requests(rocm_sd, control, hint, tmp_path, args, word):
    folder, net = control("sd15")
    named = [{"NET": net, "HINT": hint}.get(a, a) for a in args]
    done = rocm_sd(*command(folder, tmp_path / "a.png", *named), code=None)
    assert done.returncode in (2, 3) and word in done.stderr, done.stderr


# --- lines by thresholds ---

def blurred(values: np.ndarray, deviation: float, reach: int) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(values.astype(np.float64), deviation, mode="mirror", radius=reach)


def lines_of_dark(rgb, threshold=127):
    return rgb.min(2) < threshold


def lines_of_photo(rgb, threshold=32):
    """A1111's scribble_xdog by its description."""
    planes = [blurred(rgb[..., c], 5, 20) - blurred(rgb[..., c], 0.5, 2) for c in range(3)]
    rest = np.clip(255 - np.min(planes, axis=0), 0, 255).astype(np.uint8)
    return 2 * (255 - rest.astype(int)) > threshold


def lines_of_edges(rgb):
    """A1111's scribble_hed after its network: ridges of the blurred map above 127, blurred and widened."""
    from scipy.ndimage import maximum_filter

    soft = blurred(rgb[..., 0], 3, 12)
    lines = [np.array(rows, bool) for rows in ([[0, 0, 0], [1, 1, 1], [0, 0, 0]], [[0, 1, 0]] * 3, np.eye(3), np.eye(3)[::-1])]
    ridges = np.any([(maximum_filter(soft, footprint=line, mode="constant", cval=0) == soft) & (soft > 127) for line in lines], axis=0)
    return np.round(blurred(255.0 * ridges, 3, 9)) > 4


@pytest.mark.parametrize("text, rule", [("scribble", lines_of_dark), ("scribble:60", lambda v: lines_of_dark(v, 60)),
                                        ("scribble_xdog", lines_of_photo), ("scribble_xdog:12", lambda v: lines_of_photo(v, 12)),
                                        ("scribble_hed", lines_of_edges), ("threshold", lambda v: v > 127), ("threshold:40", lambda v: v > 40)])
def test_lines_by_thresholds(rocm_sd, control, tmp_path, text, rule):
    folder, net = control("sd15")
    rgb = np.asarray(opened(drawing(tmp_path / "source.png", SIZE, SIZE)))
    if text == "scribble_hed":
        rgb = np.repeat(np.uint8(blurred(rgb[..., :1], 1, 4)), 3, axis=2)
        Image.fromarray(rgb).save(tmp_path / "source.png")
    lines = rule(rgb)
    shown = np.uint8(255 * (lines if lines.ndim == 3 else np.repeat(lines[..., None], 3, axis=2)))
    assert 0.01 < (shown > 0).mean() < 0.99
    Image.fromarray(shown).save(tmp_path / "shown.png")
    args = ["--control", net, "--control-image"]
    got = ours(rocm_sd, folder, tmp_path / "a.png", *args, tmp_path / "source.png", "--control-preprocess", text, steps=1)
    want = ours(rocm_sd, folder, tmp_path / "b.png", *args, tmp_path / "shown.png", steps=1)
    assert psnr(got, want) >= 60 and psnr(got, ours(rocm_sd, folder, tmp_path / "c.png", *args, tmp_path / "source.png", steps=1)) < 50


@pytest.mark.bad_input
@pytest.mark.parametrize("text, message", [("scribble:300", "a threshold from 0 to 255"), ("scribble_hed:3", "takes 0 numbers"), ("scribbel", "expected none")])
def test_bad_lines(rocm_sd, control, hint, tmp_path, text, message):  # noqa: F811
    folder, net = control("sd15")
    done = rocm_sd(*command(folder, tmp_path / "a.png", "--control", net, "--control-image", hint, "--control-preprocess", text), code=2)
    assert message in done.stderr
