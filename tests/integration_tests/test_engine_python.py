"""rocm_sd_ops.engine: the C++ engine from Python draws what the command line draws, reports, cancels, and tells errors."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from pictures import read_picture
from torch_ops import load_package

pytestmark = pytest.mark.in_python


@pytest.fixture(scope="module")
def engine(build_dir):
    os.environ["ROCM_SD_LIBRARY"] = str(build_dir / "librocm_sd.so")
    load_package(build_dir)
    import rocm_sd_ops.engine

    return rocm_sd_ops.engine


@pytest.fixture(scope="module")
def pipe(engine, tiny_model):
    with engine.ROCmOptimizedPipeline.from_pretrained(tiny_model("sd15"), device="cpu") as made:
        yield made


SIZE = dict(width=64, height=64)


def test_draws_what_the_command_line_draws(pipe, rocm_sd, tiny_model, tmp_path):
    steps: list = []
    out = pipe("a cat", num_inference_steps=2, seed=7, output_type="np", num_images_per_prompt=2, sampler="Euler",
               callback=lambda stage, step, total, seconds: steps.append((stage, step, total)) and None, **SIZE)
    assert out.images.shape == (2, 64, 64, 3) and out.images.dtype == np.uint8 and out.seeds == [7, 8]
    assert "a cat" in out.parameters[0] and ("sample", 2, 2) in steps
    rocm_sd("generate", "--model", tiny_model("sd15"), "--prompt", "a cat", "--steps", 2, "--seed", 7, "--sampler", "Euler",
            "--width", 64, "--height", 64, "--device", "cpu", "-o", tmp_path / "a.png")
    one = pipe("a cat", num_inference_steps=2, seed=7, sampler="Euler", **SIZE)
    assert np.array_equal(np.asarray(one.images[0]), read_picture(tmp_path / "a.png"))


def test_pictures_in_and_out(pipe):
    torch = pytest.importorskip("torch")
    start = np.random.default_rng(0).random((64, 64, 3))
    a = pipe("a cat", image=start, strength=0.5, num_inference_steps=4, seed=1, output_type="pt")
    b = pipe("a cat", image=torch.from_numpy(start), strength=0.5, num_inference_steps=4, seed=1, output_type="np")
    c = pipe("a cat", image=np.rint(start * 255).astype(np.uint8), strength=0.5, num_inference_steps=4, seed=1,
             output_type="np", mask_image=np.zeros((64, 64), np.uint8))
    assert np.array_equal(a.images.numpy(), b.images) and c.images.shape == b.images.shape
    assert pipe.plan(**SIZE) > 0


def test_latents_out_and_in(pipe):
    """A picture in two parts is the whole one; latents of a finished picture at strength 0.5 are an init image's."""
    call = dict(num_inference_steps=4, seed=3, sampler="Euler", schedule="leading", output_type="np")
    whole = pipe("a cat", keep_latents=True, **call, **SIZE)
    first = pipe("a cat", denoising_end=0.5, **call, **SIZE)
    assert first.latents.shape == whole.latents.shape == (1, 4, 8, 8)
    second = pipe("a cat", init_latents=first.latents, denoising_start=0.5, **call, **SIZE)
    assert not np.array_equal(first.images, whole.images) and np.array_equal(second.images, whole.images)
    a, b = (pipe("a cat", init_latents=whole.latents * scale, strength=0.5, **call, **SIZE) for scale in (1, 0.5))
    assert a.latents is None and not np.array_equal(a.images, b.images)


def test_a_live_pipeline_without_a_copy(engine, tiny_model):
    import diffusers
    import torch

    folder = tiny_model("sd15")
    live = diffusers.StableDiffusionPipeline.from_pretrained(folder)
    call = dict(num_inference_steps=2, seed=7, sampler="Euler", output_type="np", **SIZE)
    with (engine.ROCmOptimizedPipeline.from_pipeline(live, device="cpu") as ours,
          engine.ROCmOptimizedPipeline(folder, device="cpu", dtype="f32") as theirs):
        want = theirs("a cat", **call).images
        assert np.array_equal(ours("a cat", **call).images, want)
        weights = {p.data_ptr() for p in live.unet.parameters()}
        assert weights <= {tensor.data_ptr() for tensor, _ in ours._held}
        with torch.no_grad():
            live.unet.conv_norm_out.weight.mul_(0.5)  # a norm's values are used as they lie
        assert not np.array_equal(ours("a cat", **call).images, want)
        noise = np.random.default_rng(0).standard_normal((1, 4, 8, 8), np.float32)
        a, b = (ours("a cat", initial_noise=n, **call).images for n in (noise, torch.from_numpy(noise.copy())))
        assert np.array_equal(a, b) and not np.array_equal(a, ours("a cat", **call).images)


@pytest.mark.bad_input
def test_bad_live_tensors(engine, tiny_model):
    folder, good = tiny_model("sd15"), np.zeros((2, 2), np.float32)
    for tensors, error, word in (({"unet": {"a": good.astype(np.int32)}}, ValueError, "int32"),
                                 ({"unet": {"a": good}}, engine.EngineError, "expected a unet"),
                                 ({"unet": {"a": np.zeros((4, 4), np.float32)[:, ::2]}}, ValueError, "row-major"),
                                 ({"soul": {"a": good}}, engine.EngineError, "soul"),
                                 ({"unet": {"a": np.zeros((0, 2), np.float32)}}, engine.EngineError, "dimension")):
        with pytest.raises(error, match=word):
            engine.ROCmOptimizedPipeline(folder, device="cpu", tensors=tensors)
    noise = np.zeros(5, np.float32)
    with engine.ROCmOptimizedPipeline(folder, device="cpu") as pipe:
        with pytest.raises(engine.EngineError, match="init latents: expected 256 values, got 5"):
            pipe("a cat", num_inference_steps=1, init_latents=noise, **SIZE)
        with pytest.raises(engine.EngineError, match="noise"):
            pipe("a cat", num_inference_steps=1, initial_noise=noise, **SIZE)
        with pytest.raises(ValueError, match="expected the image's size"):
            pipe("a cat", image=np.zeros((64, 64, 3), np.uint8), mask_image=np.zeros((32, 32), np.uint8))


def test_callbacks_and_cancel(pipe, engine):
    with pytest.raises(engine.Cancelled):
        pipe("a cat", num_inference_steps=5, callback=lambda stage, *rest: stage == "sample", **SIZE)
    with pytest.raises(KeyError, match="mine"):
        pipe("a cat", num_inference_steps=5, callback=lambda *a: {}["mine"], **SIZE)
    began = threading.Event()

    def stop():
        began.wait()
        pipe.cancel()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(engine.Cancelled):
        pipe("a cat", num_inference_steps=1000, callback=lambda stage, *rest: began.set(), **SIZE)
    thread.join()
    assert pipe("a cat", num_inference_steps=1, **SIZE).images  # serves on


@pytest.fixture(scope="module")
def control(tiny_model, tmp_path_factory):
    from control_models import control_folder

    return control_folder(tiny_model("sd15"), tmp_path_factory.mktemp("controls") / "net")


def test_controlnets(engine, pipe, control, rocm_sd, tiny_model, tmp_path):
    """Pictures from memory and from files, one ControlNet and two, named in the call and beforehand: as the command line's."""
    from control_models import drawing
    from PIL import Image

    files = [drawing(tmp_path / f"{i}.png", 64, 64, seed=i) for i in range(2)]
    values = [np.asarray(Image.open(file)) for file in files]
    call = dict(num_inference_steps=2, seed=7, sampler="Euler", output_type="np", **SIZE)
    args = ["generate", "--model", tiny_model("sd15"), "--prompt", "a cat", "--steps", 2, "--seed", 7, "--sampler", "Euler", "-W", 64, "-H", 64,
            "--device", "cpu", "--control", control]
    rocm_sd(*args, "--control-image", files[0], "--control-strength", 0.7, "--control-end", 0.5, "--control-mode", "guess",
            "--control-preprocess", "invert", "-o", tmp_path / "a.png")
    options = dict(controlnet_conditioning_scale=0.7, control_guidance_end=0.5, guess_mode=True, control_preprocess="invert")
    want = read_picture(tmp_path / "a.png")
    for picture in (files[0], values[0], Image.open(files[0])):
        assert np.array_equal(pipe("a cat", controlnet=control, control_image=picture, **options, **call).images[0], want)
    rocm_sd(*args, "--control", control, "--control-image", files[0], "--control-image", files[1], "--control-strength", 0.5,
            "--control-strength", 0.3, "-o", tmp_path / "b.png")
    two = dict(controlnet=[control, control], controlnet_conditioning_scale=[0.5, 0.3])
    for pictures in (files, values, [files[0], values[1]]):
        assert np.array_equal(pipe("a cat", control_image=pictures, **two, **call).images[0], read_picture(tmp_path / "b.png"))
    plain = pipe("a cat", **call).images
    with engine.ROCmOptimizedPipeline.from_pretrained(tiny_model("sd15"), device="cpu", controlnet=control) as made:
        assert np.array_equal(made("a cat", **call).images, plain)  # no picture, no ControlNet
        assert np.array_equal(made("a cat", control_image=values[0], **options, **call).images[0], want)
    assert not np.array_equal(plain[0], want)


def test_masks_and_batches_of_controlnets(engine, pipe, control, rocm_sd, tiny_model, tmp_path):
    """A picture for each image of the batch, and where the ControlNet acts: as the command line's."""
    from control_models import drawing
    from PIL import Image

    (tmp_path / "seen").mkdir()
    files = [drawing(tmp_path / "seen" / f"{i}.png", 64, 64, seed=i) for i in range(2)]
    mask = drawing(tmp_path / "mask.png", 64, 64, seed=8)
    rocm_sd("generate", "--model", tiny_model("sd15"), "--prompt", "a cat", "--steps", 2, "--seed", 7, "--sampler", "Euler", "-W", 64, "-H", 64,
            "--device", "cpu", "--batch", 2, "--control", control, "--control-image", tmp_path / "seen", "--control-mask", mask,
            "-o", tmp_path / "{index}.png")
    call = dict(num_inference_steps=2, seed=7, sampler="Euler", output_type="np", num_images_per_prompt=2, controlnet=control, **SIZE)
    for pictures, region in ((files, mask), ([np.asarray(Image.open(f)) for f in files], Image.open(mask))):
        images = pipe("a cat", control_image=[pictures], control_mask=region, **call).images
        for i in range(2):
            assert np.array_equal(images[i], read_picture(tmp_path / f"{i + 1}.png"))
    with pytest.raises(ValueError, match="control_mask: expected 1"):
        pipe("a cat", control_image=[files], control_mask=[mask, mask], **call)
    with pytest.raises(ValueError, match="lists of other lengths"):
        pipe("a cat", control_image=[files, files[:1]], **(call | dict(controlnet=[control, control])))
    with pytest.raises(engine.EngineError, match="no union ControlNet"):
        pipe("a cat", control_image=[files], control_type="canny", **call)


@pytest.mark.bad_input
def test_bad_controlnets(engine, pipe, control):
    picture = np.zeros((64, 64, 3), np.uint8)
    for given, word in ((dict(control_image=picture), "there is no ControlNet"), (dict(controlnet_conditioning_scale=1.0), "there is no ControlNet"),
                        (dict(controlnet=control, control_image=[picture] * 2), "expected 1, one for each"),
                        (dict(controlnet=[control] * 2, control_image=[picture] * 2, controlnet_conditioning_scale=[1]), "control_strength"),
                        (dict(controlnet=control, control_image=np.zeros((4, 4, 7), np.uint8)), "control_image: expected")):
        with pytest.raises(ValueError, match=word):
            pipe("a cat", num_inference_steps=1, **given)
    for given, word in ((dict(controlnet=control), "expected an image for it to see"), (dict(controlnet="none", control_image=picture), "no such file"),
                        (dict(controlnet=control, control_image=picture, controlnet_conditioning_scale=99), "-10 to 10")):
        with pytest.raises(engine.EngineError, match=word):
            pipe("a cat", num_inference_steps=1, **given, **SIZE)


LIBRARIES = {"older": 'const char* rocm_sd_version(void) { return "0.1.0"; }',
             "newer": 'const char* rocm_sd_version(void) { return "9.9.9"; } int rocm_sd_abi_version(void) { return 99; }',
             "foreign": "int nothing;"}


@pytest.mark.bad_input
@pytest.mark.parametrize("kind,words", [("older", ["an older librocm_sd.so", "number 1 (version 0.1.0), expected"]),
                                        ("newer", ["a newer librocm_sd.so", "number 99 (version 9.9.9), expected"]),
                                        ("foreign", ["no rocm-sd library"])])
def test_a_library_of_another_version_is_refused(tmp_path, repository, kind, words):
    """Its structs would be read as something else: a sentence, and no crash."""
    import shutil
    import subprocess
    import sys

    (tmp_path / "x.c").write_text(LIBRARIES[kind])
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "x.so", tmp_path / "x.c"], check=True)
    code = "import importlib.util as u; s = u.spec_from_file_location('engine', %r); m = u.module_from_spec(s); import sys; " \
           "sys.modules['engine'] = m; s.loader.exec_module(m); m.engine_library()" % str(repository / "python/rocm_sd_ops/_engine_library.py")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"ROCM_SD_LIBRARY": str(tmp_path / "x.so")})
    assert done.returncode == 1 and "ImportError" in done.stderr and all(word in done.stderr for word in words), done.stderr


def test_structs_are_the_headers(engine, repository, tmp_path):
    """The number beside the Python structs is that of the header, and that of the library; sizes and places of fields agree, too."""
    import ctypes
    import subprocess

    from rocm_sd_ops import _engine_library as library

    structs = {"rocm_sd_inputs": library.Inputs, "rocm_sd_picture": library.Picture, "rocm_sd_tensor": library.Tensor,
               "rocm_sd_control_image": library.ControlImage, "rocm_sd_result": library.Result, "rocm_sd_option": library.Option}
    rows = [f'printf("{name} %zu\\n", sizeof({name}));' for name in structs]
    rows += [f'printf("{name}.{field[0]} %zu\\n", offsetof({name}, {field[0]}));' for name, kind in structs.items() for field in kind._fields_]
    (tmp_path / "x.c").write_text('#include <stdio.h>\n#include "rocm_sd/rocm_sd.h"\nint main(void) {\n' + "\n".join(rows) + "\nreturn 0; }\n")
    subprocess.run(["cc", "-I", repository / "include", "-o", tmp_path / "x", tmp_path / "x.c"], check=True)
    shown = dict(line.split() for line in subprocess.run([tmp_path / "x"], capture_output=True, text=True, check=True).stdout.splitlines())
    for name, kind in structs.items():
        assert int(shown[name]) == ctypes.sizeof(kind), name
        for field in kind._fields_:
            assert int(shown[f"{name}.{field[0]}"]) == getattr(kind, field[0]).offset, (name, field[0])
    header = (repository / "include/rocm_sd/rocm_sd.h").read_text()
    assert f"#define ROCM_SD_ABI_VERSION {library.ABI}\n" in header
    assert engine.engine_library().rocm_sd_abi_version() == library.ABI


@pytest.mark.bad_input
def test_errors_are_the_engines_sentences(pipe, engine, tmp_path):
    with pytest.raises(engine.EngineError) as missing:
        engine.ROCmOptimizedPipeline(tmp_path / "nothing")
    assert missing.value.status == 3 and "nothing" in str(missing.value)
    for options, word in ((dict(sampler="magic"), "magic"), (dict(width=63, height=64), "63"), (dict(no_such=1), "no-such")):
        with pytest.raises(engine.EngineError, match=word):
            pipe("a cat", num_inference_steps=1, **options)
    for image in (np.zeros((4, 4, 7), np.uint8), np.zeros((4, 4, 3), np.int64)):
        with pytest.raises(ValueError, match="expected"):
            pipe("a cat", image=image)
    with pytest.raises(ValueError, match="output_type"):
        pipe("a cat", output_type="tiff")
    for given in (dict(image=3), dict(initial_noise="noise")):
        with pytest.raises(TypeError, match=f"{next(iter(given))}: expected"):
            pipe("a cat", **given)


@pytest.mark.bad_input
def test_a_closed_pipeline_says_so(engine, tiny_model):
    pipe = engine.ROCmOptimizedPipeline(tiny_model("sd15"), device="cpu")
    pipe.close()
    pipe.close()
    for call in (lambda: pipe("a cat"), pipe.plan):
        with pytest.raises(engine.EngineError, match="was closed"):
            call()


def test_names_of_the_package(engine):
    """From the package itself; pipelines of Diffusers, too."""
    import diffusers
    import rocm_sd_ops

    assert rocm_sd_ops.ROCmOptimizedPipeline is engine.ROCmOptimizedPipeline
    assert issubclass(rocm_sd_ops.ROCmStableDiffusionPipeline, diffusers.StableDiffusionPipeline)
    assert issubclass(rocm_sd_ops.ROCmStableDiffusionXLPipeline, diffusers.StableDiffusionXLPipeline)
    for name in rocm_sd_ops.__all__:
        assert getattr(rocm_sd_ops, name) is not None, name
    with pytest.raises(AttributeError, match="no attribute 'ROCmPipeline'"):
        rocm_sd_ops.ROCmPipeline  # noqa: B018


def test_as_a_diffusers_pipeline_is_used(engine, tiny_model):
    import torch

    call = dict(num_inference_steps=2, output_type="np", sampler="Euler", **SIZE)
    empty = engine.ROCmOptimizedPipeline(device="cpu")
    with pytest.raises(engine.EngineError, match="no model is loaded.*from_pretrained"):
        empty("a cat", **call)
    with empty.load(tiny_model("sd15"), torch_dtype=torch.float32) as made:
        want = made("a cat", seed=7, rng="cpu", **call).images
        generator = torch.Generator().manual_seed(7)
        assert made.to("cpu") is made and np.array_equal(made("a cat", generator=generator, **call).images, want)
        assert not np.array_equal(made("a cat", generator=generator, **call).images, want)  # it has moved on
        assert np.array_equal(made("a cat", generator=torch.Generator().manual_seed(7), **call).images, want)
        assert made.to(torch.bfloat16) is made and "bf16" in made("a cat", seed=7, rng="cpu", **call).parameters[0]
        made.to(torch.device("cpu"), torch.float32)
        assert np.array_equal(made("a cat", seed=7, rng="cpu", **call).images, want)
        with pytest.raises(engine.EngineError, match="no such emulated GPU"):
            made.to("emu:gfx0")
        assert np.array_equal(made("a cat", seed=7, rng="cpu", **call).images, want)  # what was loaded stays
        with pytest.raises(ValueError, match="torch_dtype"):
            made.load(tiny_model("sd15"), torch_dtype=torch.float64)
        with pytest.raises(TypeError, match="torch.Generator"):
            made("a cat", generator=7, **call)


def test_torch_dtype(engine, tiny_model):
    import torch

    with engine.ROCmOptimizedPipeline.from_pretrained(tiny_model("sd15"), torch_dtype=torch.bfloat16, device="cpu") as made:
        assert "bf16" in made("a cat", num_inference_steps=1, seed=1, **SIZE).parameters[0]


def test_textual_inversion_as_diffusers_names_it(pipe, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    def draw(prompt):
        return pipe(prompt, num_inference_steps=2, seed=7, output_type="np", guidance_scale=9.0, **SIZE).images

    width = 64
    save_file({"<toy>": torch.randn(2, width, generator=torch.Generator().manual_seed(0))}, tmp_path / "toy.safetensors")
    plain = draw("a <toy>, red")
    pipe.load_textual_inversion(tmp_path / "toy.safetensors", token="<other>")
    assert np.array_equal(draw("a <toy>, red"), plain)
    other = draw("a <other>, red")
    pipe.unload_textual_inversion("<other>")
    pipe.load_textual_inversion(tmp_path / "toy.safetensors")
    assert np.array_equal(draw("a <toy>, red"), other) and not np.array_equal(other, plain)
    pipe.unload_textual_inversion()
    assert np.array_equal(draw("a <toy>, red"), plain)
    with pytest.raises(ValueError, match="no textual inversion was loaded as that"):
        pipe.unload_textual_inversion("<toy>")


def test_a_distilled_models_own_steps_and_scale(engine, tiny_model, tmp_path):
    (tmp_path / "sd-turbo.safetensors").symlink_to(tiny_model("sd15", layout="single"))
    with engine.ROCmOptimizedPipeline(tmp_path / "sd-turbo.safetensors", device="cpu") as pipe:
        assert "Steps: 4, Sampler: Euler a," in pipe("a", seed=1, **SIZE).parameters[0]
        asked = pipe("a", seed=1, num_inference_steps=2, guidance_scale=3.0, sampler="Euler", guidance_end=0.5, **SIZE).parameters[0]
        assert "Steps: 2, Sampler: Euler," in asked and "CFG scale: 3," in asked and "Guidance end: 0.5" in asked
