"""ControlNets on whole pictures against Diffusers' pipelines (fp32 on the CPU, >= 60 dB): file forms, image to image,
inpainting, several at once, guess mode, start and end; what goes with them."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest
import tomesd
import torch
from control_models import control_folder, drawing, ldm_file, single_file
from PIL import Image
from pictures import psnr, read_parameters, read_picture
from safetensors.torch import save_file
from test_diffusers_pipelines import SIZE, command, mask, model, ours, picture, same, theirs  # noqa: F401 (fixtures)

TEXT = {"sd15": "StableDiffusionControlNetPipeline", "sd21v": "StableDiffusionControlNetPipeline",
        "sdxl": "StableDiffusionXLControlNetPipeline"}


@pytest.fixture(scope="module")
def hint(tmp_path_factory):
    return drawing(tmp_path_factory.mktemp("hints") / "hint.png", SIZE, SIZE)


@pytest.fixture(scope="module")
def other_hint(tmp_path_factory):
    return drawing(tmp_path_factory.mktemp("hints") / "other.png", SIZE, SIZE, seed=5)


@pytest.fixture(scope="module")
def control(model, tmp_path_factory):  # noqa: F811
    """control(kind, seed, ...): (model's folder, ControlNet's folder)."""
    made = {}

    def make(kind, seed=1, **options):
        key = repr((kind, seed, options))
        if key not in made:
            folder = model(kind)
            made[key] = folder, control_folder(folder, tmp_path_factory.mktemp("controls") / f"canny{seed}", seed, **options)
        return made[key]

    return make


def their_pipe(folder, controls, name):
    nets = [diffusers.ControlNetModel.from_pretrained(c) for c in controls]
    return getattr(diffusers, name).from_pretrained(folder, controlnet=nets if len(nets) > 1 else nets[0], torch_dtype=torch.float32)


def opened(path):
    return Image.open(path).convert("RGB")


# --- kinds and forms of files ---

@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl"])
def test_draws_what_diffusers_draws(rocm_sd, control, hint, tmp_path, kind):
    folder, net = control(kind)
    want = theirs(folder, their_pipe(folder, [net], TEXT[kind]), image=opened(hint), controlnet_conditioning_scale=0.8)
    got = ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint, "--control-strength", 0.8)
    same(got, want)
    assert psnr(want, ours(rocm_sd, folder, tmp_path / "b.png")) < 35, "the ControlNet changes too little to prove anything"
    for strength in (0, 1e-9):  # a factor of 0 is the plain UNet's program, a tiny one the whole computation
        none = ours(rocm_sd, folder, tmp_path / "c.png", "--control", net, "--control-image", hint, "--control-strength", f"{strength:.9f}")
        assert psnr(none, ours(rocm_sd, folder, tmp_path / "b.png")) >= 60


@pytest.mark.parametrize("kind, ratio, down", [("sd15", 0.5, 1), ("sd15", 0.75, 4), ("sd21v", 0.3, 2), ("sdxl", 0.6, 2)])
def test_beside_token_merging(rocm_sd, control, hint, tmp_path, kind, ratio, down):
    """The authors' patch is of the UNet alone: the ControlNet's own trunk merges nothing."""
    folder, net = control(kind)
    pipe = their_pipe(folder, [net], TEXT[kind])
    tomesd.apply_patch(pipe, ratio=ratio, max_downsample=down, use_rand=False)
    want = theirs(folder, pipe, image=opened(hint), controlnet_conditioning_scale=0.8)
    ask = ("--control", net, "--control-image", hint, "--control-strength", 0.8)
    same(ours(rocm_sd, folder, tmp_path / "a.png", *ask, "--token-merge", f"{ratio}:{down}"), want)
    assert psnr(want, ours(rocm_sd, folder, tmp_path / "b.png", *ask)) < 60, "merging changes nothing"


@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl"])
@pytest.mark.parametrize("form", ["diffusers", "ldm", "ldm without prefix"])
def test_single_files(rocm_sd, control, hint, tmp_path, kind, form):
    """Heads and groups, which shapes do not say, are those of the model's UNet."""
    folder, net = control(kind)
    file = tmp_path / "lines.safetensors"
    single_file(net, file) if form == "diffusers" else ldm_file(net, folder, file, "control_model." if form == "ldm" else "")
    want = ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint, steps=1)
    got = ours(rocm_sd, folder, tmp_path / "b.png", "--control", file, "--control-image", hint, steps=1)
    assert np.array_equal(got, want)


def test_the_model_as_a_single_file(rocm_sd, control, hint, tiny_model, tmp_path):
    folder, net = control("sd15")
    single = tiny_model("sd15", "single")
    file = ldm_file(net, folder, tmp_path / "x.safetensors")
    args = ["--control-image", hint, "--prediction", "epsilon", "--sampler", "euler"]
    a = ours(rocm_sd, single, tmp_path / "a.png", "--control", net, *args, steps=1)
    b = ours(rocm_sd, single, tmp_path / "b.png", "--control", file, *args, steps=1)
    assert np.array_equal(a, b) and psnr(a, ours(rocm_sd, single, tmp_path / "c.png", *args[2:], steps=1)) < 40


@pytest.mark.parametrize("options", [dict(controlnet_conditioning_channel_order="bgr"), dict(global_pool_conditions=True)])
def test_configurations(rocm_sd, control, hint, tmp_path, options):
    folder, net = control("sd15", **options)
    want = theirs(folder, their_pipe(folder, [net], TEXT["sd15"]), image=opened(hint))
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint), want)


# --- what it goes with ---

@pytest.mark.parametrize("kind,name", [("sd15", "StableDiffusionControlNetImg2ImgPipeline"),
                                       ("sdxl", "StableDiffusionXLControlNetImg2ImgPipeline")])
def test_image_to_image(rocm_sd, control, hint, picture, tmp_path, kind, name):  # noqa: F811
    folder, net = control(kind)
    want = theirs(folder, their_pipe(folder, [net], name), image=opened(picture), control_image=opened(hint), strength=0.7,
                  controlnet_conditioning_scale=0.9, num_inference_steps=5)
    got = ours(rocm_sd, folder, tmp_path / "a.png", "-i", picture, "--strength", 0.7, "--control", net, "--control-image", hint,
               "--control-strength", 0.9, steps=5)
    same(got, want)


@pytest.mark.parametrize("kind", ["sd15", "sd15-inpaint"])
def test_inpainting(rocm_sd, control, hint, picture, mask, tmp_path, kind):  # noqa: F811
    """Of a model with nine channels the ControlNet sees the four of the latents."""
    folder, net = control(kind)
    want = theirs(folder, their_pipe(folder, [net], "StableDiffusionControlNetInpaintPipeline"), image=opened(picture),
                  mask_image=Image.open(mask), control_image=opened(hint), strength=0.8, width=SIZE, height=SIZE,
                  controlnet_conditioning_scale=1.0)
    nearest = [] if kind.endswith("inpaint") else ["--mask-downscale", "nearest", "--mask-blend", "latents"]
    got = ours(rocm_sd, folder, tmp_path / "a.png", "-i", picture, "--mask", mask, "--mask-blur", 0, "--strength", 0.8,
               "--control", net, "--control-image", hint, *nearest)
    inside = read_picture(mask)[..., 0] > 0
    same(got[inside], want[inside])


def test_an_inpainting_controlnet(rocm_sd, control, picture, mask, tmp_path):  # noqa: F811
    """Its picture is the init image with -1 where the mask repaints (Diffusers' make_inpaint_condition)."""
    folder, net = control("sd15")
    values = torch.from_numpy(np.asarray(opened(picture)).astype(np.float32) / 255)
    values[torch.from_numpy(np.asarray(Image.open(mask)) > 127)] = -1.0
    pipe = their_pipe(folder, [net], "StableDiffusionControlNetInpaintPipeline")
    want = theirs(folder, pipe, image=opened(picture), mask_image=Image.open(mask), control_image=values.permute(2, 0, 1)[None],
                  strength=0.8, width=SIZE, height=SIZE, controlnet_conditioning_scale=1.0)
    got = ours(rocm_sd, folder, tmp_path / "a.png", "-i", picture, "--mask", mask, "--mask-blur", 0, "--strength", 0.8, "--control", net,
               "--control-preprocess", "inpaint", "--mask-downscale", "nearest", "--mask-blend", "latents")
    inside = read_picture(mask)[..., 0] > 0
    same(got[inside], want[inside])


def test_several(rocm_sd, control, hint, other_hint, tmp_path):
    folder, first = control("sd15")
    _, second = control("sd15", seed=2)
    want = theirs(folder, their_pipe(folder, [first, second], TEXT["sd15"]), image=[opened(hint), opened(other_hint)],
                  controlnet_conditioning_scale=[0.7, 0.5], control_guidance_start=[0.0, 0.2], control_guidance_end=[0.5, 1.0],
                  num_inference_steps=6)
    args = ["--control", first, "--control", second, "--control-image", hint, "--control-image", other_hint, "--control-strength", 0.7,
            "--control-strength", 0.5, "--control-start", 0, "--control-start", 0.2, "--control-end", 0.5, "--control-end", 1]
    same(ours(rocm_sd, folder, tmp_path / "a.png", *args, steps=6), want)
    shown = read_parameters(tmp_path / "a.png")
    assert 'ControlNet 0: "Module: none, Model: canny1, Weight: 0.7, Resize Mode: Crop and Resize, Guidance Start: 0, Guidance End: 0.5' in shown
    assert 'ControlNet 1: "Module: none, Model: canny2, Weight: 0.5' in shown


def test_one_model_twice(rocm_sd, control, hint, other_hint, tmp_path):
    folder, net = control("sd15")
    want = theirs(folder, their_pipe(folder, [net, net], TEXT["sd15"]), image=[opened(hint), opened(other_hint)],
                  controlnet_conditioning_scale=[0.4, 0.5])
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control", net, "--control-image", hint, "--control-image", other_hint,
              "--control-strength", 0.4, "--control-strength", 0.5), want)


@pytest.mark.parametrize("start,end", [(0, 0.5), (0.3, 1), (0.4, 0.7), (0.99, 1)])
def test_start_and_end(rocm_sd, control, hint, tmp_path, start, end):
    folder, net = control("sd15")
    want = theirs(folder, their_pipe(folder, [net], TEXT["sd15"]), image=opened(hint), control_guidance_start=float(start),
                  control_guidance_end=float(end), num_inference_steps=5)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint, "--control-start", start, "--control-end", end,
              steps=5), want)


@pytest.mark.parametrize("kind,scale", [("sd15", 5.0), ("sd15", 1.0), ("sdxl", 5.0)])
def test_guess_mode(rocm_sd, control, hint, tmp_path, kind, scale):
    folder, net = control(kind)
    want = theirs(folder, their_pipe(folder, [net], TEXT[kind]), image=opened(hint), guess_mode=True, guidance_scale=scale)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint, "--control-mode", "guess", scale=scale), want)
    assert "Control Mode: Guess" in read_parameters(tmp_path / "a.png")


@pytest.mark.parametrize("mode", ["prompt", "control"])
@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_modes_of_a1111(rocm_sd, control, hint, tmp_path, mode, kind):
    """Its extension's soft weights, and no residuals beside the negative prompt: written down over Diffusers' ControlNet."""
    folder, net = control(kind)
    pipe = their_pipe(folder, [net], TEXT[kind])
    forward = pipe.controlnet.forward

    def weighted(*args, **kwargs):
        down, middle = forward(*args, **kwargs)
        out = [residual * 0.825 ** (12 - i) for i, residual in enumerate([*down, middle])]
        if mode == "control":
            for residual in out:
                residual[: len(residual) // 2] = 0
        return out[:-1], out[-1]

    pipe.controlnet.forward = weighted
    want = theirs(folder, pipe, image=opened(hint))
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint, "--control-mode", mode), want)
    label = {"prompt": "My prompt", "control": "ControlNet"}[mode]
    assert f"Control Mode: {label} is more important" in read_parameters(tmp_path / "a.png")


@pytest.mark.parametrize("words", ["a photo of [the red cat:the thing:0.5]", "a photo AND the red cat :0.7"])
def test_prompt_control(rocm_sd, control, hint, tmp_path, words):
    """Another text in the middle of the run, and further conditions, reach the ControlNet: a step of which it makes nothing is the
    plain one, one of which it makes something is not."""
    folder, net = control("sd15")
    plain = ours(rocm_sd, folder, tmp_path / "a.png", prompt=words, plain=False, steps=4)
    units = ["--control", net, "--control-image", hint]
    none = ours(rocm_sd, folder, tmp_path / "b.png", *units, "--control-strength", "0.000000001", prompt=words, plain=False, steps=4)
    some = ours(rocm_sd, folder, tmp_path / "c.png", *units, prompt=words, plain=False, steps=4)
    assert psnr(none, plain) >= 60 and psnr(some, plain) < 32


def test_with_a_lora(rocm_sd, control, hint, tmp_path):
    from test_lora import add_random_lora, state, with_alpha

    folder, net = control("sd15")
    pipe = their_pipe(folder, [net], TEXT["sd15"])
    plain = theirs(folder, pipe, image=opened(hint))
    add_random_lora(pipe)
    want = theirs(folder, pipe, image=opened(hint))
    save_file(with_alpha(state(pipe)), tmp_path / "style.safetensors")
    got = ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint, "--lora", tmp_path / "style.safetensors")
    same(got, want)
    assert psnr(want, plain) < 35


def test_batches(rocm_sd, control, hint, tmp_path):
    folder, net = control("sd15")
    generators = [torch.Generator().manual_seed(7 + i) for i in range(2)]
    want = theirs(folder, their_pipe(folder, [net], TEXT["sd15"]), image=opened(hint), num_images_per_prompt=2, generator=generators)
    ours(rocm_sd, folder, tmp_path / "{index}.png", "--control", net, "--control-image", hint, "--batch", 2)
    for i in range(2):
        same(read_picture(tmp_path / f"{i + 1}.png"), want[i])


@pytest.mark.parametrize("args, floor", [(["--weights", "int8"], 30), (["--dtype", "bf16"], 35), (["--offload"], 200), (["--mmap"], 200),
                                         (["--tile-size", SIZE], 200)])
def test_with(rocm_sd, control, hint, tmp_path, args, floor):
    folder, net = control("sd15")
    units = ["--control", net, "--control-image", hint]
    want = ours(rocm_sd, folder, tmp_path / "a.png", *units)
    got = ours(rocm_sd, folder, tmp_path / "b.png", *units, *args)
    assert np.array_equal(got, want) if floor == 200 else psnr(got, want) >= floor
    assert psnr(want, ours(rocm_sd, folder, tmp_path / "c.png", *args)) < 32


def test_under_windows(rocm_sd, control, tmp_path):
    """Each window of tiled diffusion sees its own part of the picture: left of the seam nothing knows what is right of it."""
    folder, net = control("sd15")
    left, right = (np.asarray(opened(drawing(tmp_path / f"{i}.png", 128, 64, seed=i))).copy() for i in (0, 5))
    right[:, :96] = left[:, :96]
    pictures = []
    for name, values in (("l", left), ("r", right)):
        Image.fromarray(values).save(tmp_path / f"{name}.png")
        pictures.append(ours(rocm_sd, folder, tmp_path / f"out_{name}.png", "-W", 128, "--tile-size", 64, "--tile-overlap", 0,
                             "--control", net, "--control-image", tmp_path / f"{name}.png", steps=1, size=None))
    left_half, right_half = (psnr(pictures[0][:, part], pictures[1][:, part]) for part in (slice(0, 48), slice(80, 128)))
    assert left_half > 40 and right_half < left_half - 10  # the VAE's attention sees all of the picture


def test_the_plan_counts_it(rocm_sd, control, hint, tmp_path):
    folder, net = control("sd15")
    import re

    def planned(*args):
        done = rocm_sd(*command(folder, tmp_path / "a.png", "--plan", *args))
        return [float(x) for x in re.search(r"weights ([\d.]+) .*buffers ([\d.]+)", done.stderr).groups()], done.stderr

    plain, with_one = planned(), planned("--control", net, "--control-image", hint)
    assert with_one[0][0] > plain[0][0] or "GB" in plain[1], (plain, with_one)
    rocm_sd(*command(folder, tmp_path / "a.png", "--control", net, "--control-image", hint, "--vram-budget", 1000), code=5)
