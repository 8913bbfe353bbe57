"""Union ControlNets, T2I-Adapters and ControlNet-LoRAs on whole pictures against Diffusers (fp32 on the CPU, >= 60 dB), masks of control
units, and pictures of their own for the images of a batch."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest
import torch
from control_models import adapter_folder, drawing, low_rank_file, original_adapter, single_file, union_folder
from PIL import Image
from pictures import psnr, read_parameters, read_picture
from safetensors.torch import load_file, save_file
from test_controlnet import TEXT, control, hint, opened, other_hint, their_pipe  # noqa: F401 (fixtures)
from test_diffusers_pipelines import SIZE, command, mask, model, ours, picture, same, theirs  # noqa: F401 (fixtures)

CANNY, DEPTH, TILE = 3, 1, 6
ADAPTERS = {"sd15": ("full_adapter", (32, 64, 64, 64)), "sdxl": ("full_adapter_xl", (64, 128, 128, 128)), "light": ("light_adapter", (32, 64, 64))}


# --- union ControlNets ---

@pytest.fixture(scope="module")
def union(model, tmp_path_factory):  # noqa: F811
    made = {}

    def make(types=8, seed=3):
        if (types, seed) not in made:
            made[types, seed] = model("sdxl"), union_folder(model("sdxl"), tmp_path_factory.mktemp("unions") / f"union{types}", types, seed)
        return made[types, seed]

    return make


def union_pipe(folder, net, name="StableDiffusionXLControlNetUnionPipeline"):
    return getattr(diffusers, name).from_pretrained(folder, controlnet=diffusers.ControlNetUnionModel.from_pretrained(net),
                                                    torch_dtype=torch.float32)


@pytest.mark.parametrize("types, kind", [(8, CANNY), (8, 7), (6, DEPTH)])
def test_union_with_one_picture(rocm_sd, union, hint, tmp_path, types, kind):  # noqa: F811
    folder, net = union(types)
    want = theirs(folder, union_pipe(folder, net), control_image=[opened(hint)], control_mode=[kind], controlnet_conditioning_scale=0.8)
    got = ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint, "--control-strength", 0.8, "--control-type", kind)
    same(got, want)
    other = ours(rocm_sd, folder, tmp_path / "b.png", "--control", net, "--control-image", hint, "--control-strength", 0.8, "--control-type", "normal")
    assert psnr(other, want) < 50 and psnr(ours(rocm_sd, folder, tmp_path / "c.png"), want) < 35
    if kind == CANNY:
        assert "Union Control Type: Hard Edge" in read_parameters(tmp_path / "a.png")
        named = ours(rocm_sd, folder, tmp_path / "d.png", "--control", net, "--control-image", hint, "--control-strength", 0.8,
                     "--control-type", "canny")
        assert np.array_equal(named, got)


def test_union_with_several_pictures(rocm_sd, union, hint, other_hint, tmp_path):  # noqa: F811
    """One forward sees all of them: the same model named twice in a row. Another order of types is another picture."""
    folder, net = union()
    want = theirs(folder, union_pipe(folder, net), control_image=[opened(hint), opened(other_hint)], control_mode=[CANNY, DEPTH],
                  controlnet_conditioning_scale=[0.7, 0.4])
    units = ["--control", net, "--control", net, "--control-image", hint, "--control-image", other_hint, "--control-strength", 0.7,
             "--control-strength", 0.4]
    same(ours(rocm_sd, folder, tmp_path / "a.png", *units, "--control-type", "canny", "--control-type", "depth"), want)
    other = ours(rocm_sd, folder, tmp_path / "b.png", *units, "--control-type", "depth", "--control-type", "canny")
    assert psnr(other, want) < 50


def test_union_beside_another(rocm_sd, union, hint, other_hint, tmp_path):  # noqa: F811
    """Two models have a forward each (MultiControlNetUnionModel)."""
    folder, first = union()
    _, second = union(6, 5)
    pipe = diffusers.StableDiffusionXLControlNetUnionPipeline.from_pretrained(
        folder, controlnet=[diffusers.ControlNetUnionModel.from_pretrained(n) for n in (first, second)], torch_dtype=torch.float32)
    want = theirs(folder, pipe, control_image=[opened(hint), opened(other_hint)], control_mode=[CANNY, DEPTH],
                  controlnet_conditioning_scale=[0.7, 0.4])
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--control", first, "--control", second, "--control-image", hint, "--control-image", other_hint,
              "--control-strength", 0.7, "--control-strength", 0.4, "--control-type", CANNY, "--control-type", DEPTH), want)


def test_union_image_to_image(rocm_sd, union, hint, picture, tmp_path):  # noqa: F811
    folder, net = union()
    pipe = union_pipe(folder, net, "StableDiffusionXLControlNetUnionImg2ImgPipeline")
    want = theirs(folder, pipe, image=opened(picture), control_image=[opened(hint)], control_mode=[TILE], strength=0.7,
                  controlnet_conditioning_scale=0.9, num_inference_steps=5)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "-i", picture, "--strength", 0.7, "--control", net, "--control-image", hint,
              "--control-strength", 0.9, "--control-type", "tile", steps=5), want)


def test_union_single_file(rocm_sd, union, hint, tmp_path):  # noqa: F811
    folder, net = union()
    args = ["--control-image", hint, "--control-type", "canny"]
    want = ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, *args, steps=1)
    got = ours(rocm_sd, folder, tmp_path / "b.png", "--control", single_file(net, tmp_path / "u.safetensors"), *args, steps=1)
    assert np.array_equal(got, want)


# --- T2I-Adapters ---

@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory):  # noqa: F811
    made = {}

    def make(name, **options):
        key = repr((name, options))
        if key not in made:
            kind, channels = ADAPTERS[name]
            folder = model("sdxl" if name == "sdxl" else "sd15")
            made[key] = folder, adapter_folder(tmp_path_factory.mktemp("adapters") / name, kind, channels, **options)
        return made[key]

    return make


def adapter_pipe(folder, adapters, kind):
    name = "StableDiffusionXLAdapterPipeline" if kind == "sdxl" else "StableDiffusionAdapterPipeline"
    nets = [diffusers.T2IAdapter.from_pretrained(a) for a in adapters]
    return getattr(diffusers, name).from_pretrained(folder, adapter=nets if len(nets) > 1 else nets[0], torch_dtype=torch.float32)


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("channels", [3, 1])
def test_adapters(rocm_sd, adapter, hint, tmp_path, kind, channels):  # noqa: F811
    folder, net = adapter(kind, in_channels=channels)
    seen = opened(hint).convert("L") if channels == 1 else opened(hint)
    seen.save(tmp_path / "seen.png")
    want = theirs(folder, adapter_pipe(folder, [net], kind), image=seen, adapter_conditioning_scale=0.8)
    got = ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", tmp_path / "seen.png", "--control-strength", 0.8)
    same(got, want)
    assert psnr(ours(rocm_sd, folder, tmp_path / "b.png"), want) < 35, "the adapter changes too little to prove anything"


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("form", ["diffusers", "original"])
def test_adapter_files(rocm_sd, adapter, hint, tmp_path, kind, form):  # noqa: F811
    folder, net = adapter(kind)
    file = (single_file if form == "diffusers" else original_adapter)(net, tmp_path / "x.safetensors")
    want = ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint, steps=1)
    assert np.array_equal(ours(rocm_sd, folder, tmp_path / "b.png", "--control", file, "--control-image", hint, steps=1), want)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_inspect(rocm_sd, adapter, union, tmp_path, kind):
    """From both kinds of names and from the folder; a union ControlNet says how many types it knows."""
    name, channels = ADAPTERS[kind]
    _, net = adapter(kind)
    for file in (net, single_file(net, tmp_path / "a.safetensors"), original_adapter(net, tmp_path / "b.safetensors")):
        shown = rocm_sd("inspect", file).stdout
        assert "a T2I-Adapter" in shown and f"{name}: for {'SDXL' if kind == 'sdxl' else 'SD 1.x, SD 2.x'}" in shown, shown
        assert "pictures of 3 channels" in shown and "problem" not in shown, shown
    assert "a union of 8 types" in rocm_sd("inspect", union()[1]).stdout


def test_several_adapters(rocm_sd, adapter, hint, other_hint, tmp_path):  # noqa: F811
    folder, first = adapter("sd15")
    _, second = adapter("sd15", seed=9)
    pipe = adapter_pipe(folder, [first, second], "sd15")
    want = theirs(folder, pipe, image=[opened(hint), opened(other_hint)], adapter_conditioning_scale=[0.7, 0.5], width=SIZE, height=SIZE)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--control", first, "--control", second, "--control-image", hint, "--control-image", other_hint,
              "--control-strength", 0.7, "--control-strength", 0.5), want)


@pytest.mark.parametrize("end", [0.5, 0.7])
def test_adapter_end(rocm_sd, adapter, hint, tmp_path, end):  # noqa: F811
    folder, net = adapter("sdxl")
    want = theirs(folder, adapter_pipe(folder, [net], "sdxl"), image=opened(hint), adapter_conditioning_factor=end, num_inference_steps=5)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint, "--control-end", end, steps=5), want)


def test_adapter_at_odd_sizes(rocm_sd, adapter, tmp_path):  # noqa: F811
    """Latents of 9 x 11 are halved upwards by both models."""
    folder, net = adapter("sd15")
    seen = drawing(tmp_path / "seen.png", 88, 72)
    want = theirs(folder, adapter_pipe(folder, [net], "sd15"), image=opened(seen), width=88, height=72)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "-W", 88, "-H", 72, "--control", net, "--control-image", seen, size=None), want)


def test_adapter_beside_a_controlnet(rocm_sd, adapter, control, hint, other_hint, tmp_path):  # noqa: F811
    """Each in its place: an adapter that adds nothing leaves the ControlNet's picture, and the other way round."""
    folder, net = adapter("sd15")
    _, canny = control("sd15")
    both = lambda a, b: ours(rocm_sd, folder, tmp_path / "x.png", "--control", net, "--control", canny, "--control-image", hint,  # noqa: E731
                             "--control-image", other_hint, "--control-strength", a, "--control-strength", b)
    alone = ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint)
    other = ours(rocm_sd, folder, tmp_path / "b.png", "--control", canny, "--control-image", other_hint)
    assert psnr(both("1", "0.000000001"), alone) >= 60 and psnr(both("0.000000001", "1"), other) >= 60
    assert psnr(both("1", "1"), alone) < 40 and psnr(both("1", "1"), other) < 40


@pytest.mark.parametrize("args, floor", [(["--weights", "int8"], 30), (["--dtype", "bf16"], 35), (["--offload"], 200)])
def test_adapter_with(rocm_sd, adapter, hint, tmp_path, args, floor):  # noqa: F811
    folder, net = adapter("sd15")
    units = ["--control", net, "--control-image", hint]
    want = ours(rocm_sd, folder, tmp_path / "a.png", *units)
    got = ours(rocm_sd, folder, tmp_path / "b.png", *units, *args)
    assert np.array_equal(got, want) if floor == 200 else psnr(got, want) >= floor


# --- ControlNet-LoRA ---

@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_low_rank(rocm_sd, control, hint, tmp_path, kind):  # noqa: F811
    folder, net = control(kind)
    file = low_rank_file(net, folder, tmp_path / "lr.safetensors", tmp_path / "merged")
    want = theirs(folder, their_pipe(folder, [tmp_path / "merged"], TEXT[kind]), image=opened(hint), controlnet_conditioning_scale=0.8)
    got = ours(rocm_sd, folder, tmp_path / "a.png", "--control", file, "--control-image", hint, "--control-strength", 0.8)
    same(got, want)
    assert psnr(ours(rocm_sd, folder, tmp_path / "b.png"), want) < 40


# --- masks, batches ---

@pytest.fixture(scope="module")
def region(tmp_path_factory):
    """Grey at the left, white in a ramp, black at the right."""
    values = np.zeros((SIZE, SIZE), np.uint8)
    values[:, : SIZE // 2] = 128
    values[: SIZE // 2, : SIZE // 3] = np.linspace(0, 255, SIZE // 3).astype(np.uint8)
    path = tmp_path_factory.mktemp("regions") / "region.png"
    Image.fromarray(values).save(path)
    return path


def masked_forward(module, region_file, adapter=False):
    """Every residual times the mean of the mask under each of its cells."""
    values = torch.from_numpy(np.asarray(Image.open(region_file)).astype(np.float32) / 255)[None, None]
    forward = module.forward

    def limited(x):
        return x * torch.nn.functional.interpolate(values, x.shape[-2:], mode="area")

    def wrapped(*args, **kwargs):
        out = forward(*args, **kwargs)
        return [limited(x) for x in out] if adapter else ([limited(x) for x in out[0]], limited(out[1]))

    module.forward = wrapped


@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_mask(rocm_sd, control, hint, region, tmp_path, kind):  # noqa: F811
    folder, net = control(kind)
    pipe = their_pipe(folder, [net], TEXT[kind])
    masked_forward(pipe.controlnet, region)
    want = theirs(folder, pipe, image=opened(hint), controlnet_conditioning_scale=0.9)
    units = ["--control", net, "--control-image", hint, "--control-strength", 0.9]
    got = ours(rocm_sd, folder, tmp_path / "a.png", *units, "--control-mask", region)
    same(got, want)
    whole = ours(rocm_sd, folder, tmp_path / "b.png", *units)
    assert psnr(got, whole) < 40 and psnr(got, ours(rocm_sd, folder, tmp_path / "c.png")) < 40
    assert psnr(ours(rocm_sd, folder, tmp_path / "d.png", *units, "--control-mask", "none"), whole) >= 60


def test_mask_of_an_adapter(rocm_sd, adapter, hint, region, tmp_path):  # noqa: F811
    folder, net = adapter("sd15")
    pipe = adapter_pipe(folder, [net], "sd15")
    masked_forward(pipe.adapter, region, adapter=True)
    want = theirs(folder, pipe, image=opened(hint))
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--control", net, "--control-image", hint, "--control-mask", region), want)


def test_two_regions(rocm_sd, control, hint, other_hint, region, tmp_path):  # noqa: F811
    """The mask belongs to its unit alone."""
    folder, first = control("sd15")
    _, second = control("sd15", seed=2)
    pipe = their_pipe(folder, [first, second], TEXT["sd15"])
    masked_forward(pipe.controlnet.nets[1], region)
    want = theirs(folder, pipe, image=[opened(hint), opened(other_hint)], controlnet_conditioning_scale=[0.6, 0.8])
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--control", first, "--control", second, "--control-image", hint, "--control-image", other_hint,
              "--control-strength", 0.6, "--control-strength", 0.8, "--control-mask", "none", "--control-mask", region), want)


@pytest.mark.parametrize("kind", ["sd15", "adapter", "union"])
def test_pictures_of_a_batch(rocm_sd, control, adapter, union, hint, other_hint, tmp_path, kind):  # noqa: F811
    """Each image of a batch sees its own picture: the batch's images are those of two single runs with their seeds."""
    folder, net = control("sd15") if kind == "sd15" else adapter("sd15") if kind == "adapter" else union()
    seen = tmp_path / "seen"
    seen.mkdir()
    for i, path in enumerate((hint, other_hint)):
        (seen / f"{i}.png").write_bytes(path.read_bytes())
    units = ["--control", net, *(["--control-type", "canny"] if kind == "union" else [])]
    ours(rocm_sd, folder, tmp_path / "{index}.png", *units, "--control-image", seen, "--batch", 2)
    pictures = [read_picture(tmp_path / f"{i + 1}.png") for i in range(2)]
    assert psnr(pictures[0], pictures[1]) < 30
    for i, path in enumerate((hint, other_hint)):
        alone = ours(rocm_sd, folder, tmp_path / "alone.png", *units, "--control-image", path, "--seed", 7 + i)
        assert psnr(pictures[i], alone) >= 60


def test_mask_with_image_to_image_and_inpainting(rocm_sd, control, hint, region, picture, mask, tmp_path):  # noqa: F811
    folder, net = control("sd15")
    pipe = their_pipe(folder, [net], "StableDiffusionControlNetImg2ImgPipeline")
    masked_forward(pipe.controlnet, region)
    want = theirs(folder, pipe, image=opened(picture), control_image=opened(hint), strength=0.7, controlnet_conditioning_scale=0.9,
                  num_inference_steps=5)
    units = ["--control", net, "--control-image", hint, "--control-strength", 0.9, "--control-mask", region]
    same(ours(rocm_sd, folder, tmp_path / "a.png", "-i", picture, "--strength", 0.7, *units, steps=5), want)
    pipe = their_pipe(folder, [net], "StableDiffusionControlNetInpaintPipeline")
    masked_forward(pipe.controlnet, region)
    want = theirs(folder, pipe, image=opened(picture), mask_image=Image.open(mask), control_image=opened(hint), strength=0.8, width=SIZE,
                  height=SIZE, controlnet_conditioning_scale=0.9)
    got = ours(rocm_sd, folder, tmp_path / "b.png", "-i", picture, "--mask", mask, "--mask-blur", 0, "--strength", 0.8, *units,
               "--mask-downscale", "nearest", "--mask-blend", "latents")
    inside = read_picture(mask)[..., 0] > 0
    same(got[inside], want[inside])


def test_from_base_to_refiner(rocm_sd, model, control, hint, region, tmp_path):  # noqa: F811
    """The base draws its share with a masked ControlNet, the refiner goes on without; a ControlNet of the base is none of the refiner's."""
    folder, net = control("sdxl")
    refiner = model("refiner")
    pipe, kept = their_pipe(folder, [net], TEXT["sdxl"]), []
    masked_forward(pipe.controlnet, region)

    def keep(pipeline, step, timestep, values):
        kept.append(values["latents"].clone())
        return values

    # Three of five steps lie before 0.6 of the training timesteps.
    theirs(folder, pipe, image=opened(hint), num_inference_steps=5, callback_on_step_end=keep)
    want = theirs(refiner, image=kept[2], num_inference_steps=5, denoising_start=0.6, aesthetic_score=6.0, negative_aesthetic_score=2.5)
    units = ["--control", net, "--control-image", hint, "--control-mask", region]
    ours(rocm_sd, folder, tmp_path / "a.png", *units, "--denoising-end", 0.6, steps=5)
    rest = ["--init-latents", tmp_path / "a.safetensors", "--denoising-start", 0.6]
    same(ours(rocm_sd, refiner, tmp_path / "b.png", *rest, steps=5, size=None), want)
    assert "another base model" in refused(rocm_sd, refiner, tmp_path / "c.png", *units, *rest, code=3)


# --- bad input ---

def refused(rocm_sd, folder, path, *args, code):
    done = rocm_sd(*command(folder, path, *args), code=None)
    assert done.returncode == code and not path.exists(), done.stderr
    return done.stderr


@pytest.mark.bad_input
def test_bad_types_and_units(rocm_sd, union, adapter, control, hint, region, tmp_path):  # noqa: F811
    folder, net = union(6)
    out, seen = tmp_path / "a.png", ["--control-image", hint]
    one = ["--control", net, *seen]
    assert "what kind of image" in refused(rocm_sd, folder, out, *one, code=2)
    assert "knows 6 types (0 to 5), got 7" in refused(rocm_sd, folder, out, *one, "--control-type", "inpaint", code=2)
    assert "expected a number or one of openpose" in refused(rocm_sd, folder, out, *one, "--control-type", "edges", code=2)
    two = one + one + ["--control-type", 1, "--control-type", 3]
    assert "act together" in refused(rocm_sd, folder, out, *two, "--control-end", 0.5, "--control-end", 0.7, code=2)
    assert "one mask" in refused(rocm_sd, folder, out, *two, "--control-mask", region, code=2)
    small, canny = control("sd15")
    assert "is no union ControlNet" in refused(rocm_sd, small, out, "--control", canny, *seen, "--control-type", 1, code=2)
    (tmp_path / "empty").mkdir()
    assert "expected a folder of pictures" in refused(rocm_sd, small, out, "--control", canny, "--control-image", tmp_path / "empty", code=3)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.png").write_bytes(hint.read_bytes())
    assert "2 images of the batch, got 1" in refused(rocm_sd, small, out, "--control", canny, "--control-image", tmp_path / "one", "--batch", 2, code=2)
    xl, t2i = adapter("sdxl")
    assert "multiples of 16, got 72 x 64" in refused(rocm_sd, xl, out, "--control", t2i, *seen, "-W", 72, code=2)
    assert "acts balanced" in refused(rocm_sd, xl, out, "--control", t2i, *seen, "--control-mode", "guess", code=2)
    assert "windows of 72 x 64" in refused(rocm_sd, xl, out, "--control", t2i, *seen, "-W", 128, "--tile-size", 72, code=2)
    assert "another base model" in refused(rocm_sd, small, out, "--control", t2i, *seen, code=3)


def changed(tensors: dict, what: str) -> dict:
    key = next(k for k in tensors if k.endswith(("block1.weight", ".down", "transformer_layes.0.attn.in_proj_weight")))
    match what:
        case "nan":
            tensors[key] = tensors[key].clone()
            tensors[key].view(-1)[0] = float("nan")
        case "missing":
            del tensors[key]
        case "shape":
            tensors[key] = torch.randn(*[n + 1 for n in tensors[key].shape])
        case "left over":
            tensors[key.replace("0", "77", 1)] = tensors[key].clone()
    return tensors


@pytest.mark.bad_input
@pytest.mark.parametrize("what, message", [("nan", "not finite"), ("missing", ""), ("shape", ""), ("left over", "")])
@pytest.mark.parametrize("kind", ["union", "adapter", "low rank"])
def test_bad_files(rocm_sd, union, adapter, control, hint, tmp_path, kind, what, message):  # noqa: F811
    folder, net = union() if kind == "union" else adapter("sd15") if kind == "adapter" else control("sd15")
    if kind == "low rank":
        file = low_rank_file(net, folder, tmp_path / "lr.safetensors", tmp_path / "merged")
    else:
        file = net / "diffusion_pytorch_model.safetensors"
    tensors = changed(load_file(file), what)
    save_file(tensors, tmp_path / "bad.safetensors")
    said = refused(rocm_sd, folder, tmp_path / "a.png", "--control", tmp_path / "bad.safetensors", "--control-image", hint,
                   *(["--control-type", 1] if kind == "union" else []), code=3)
    assert message in said and "bad.safetensors" in said
