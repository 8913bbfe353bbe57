"""LoRAs at run time, as terms beside the weights: whole images against Diffusers with PEFT's unmerged layers and against our merged
ones, different LoRAs within one batch, every way in which the engine runs, and files that are refused."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import psnr, read_picture
from safetensors.torch import save, save_file
from test_lora import ATTENTION, CONVOLUTIONS, SIZE, made, to_kohya  # noqa: F401 (fixture)
from test_pipeline import NEGATIVE, PROMPT, SCALE, SEED
from torch_ops import load_package

pytestmark = pytest.mark.in_python
CALL = dict(negative_prompt=NEGATIVE, rng="cpu", seed=SEED, num_inference_steps=6, guidance_scale=SCALE, width=SIZE, height=SIZE, output_type="np")


@pytest.fixture(scope="module")
def engine(build_dir):
    os.environ["ROCM_SD_LIBRARY"] = str(build_dir / "librocm_sd.so")
    load_package(build_dir)
    import rocm_sd_ops.engine

    return rocm_sd_ops.engine


@pytest.fixture
def opened(engine):
    """opened(model, ...): the engine on the CPU, closed after the test."""
    pipes = []

    def open_model(model, **options):
        pipes.append(engine.ROCmOptimizedPipeline.from_pretrained(model, device="cpu", **{"dtype": "f32", **options}))
        return pipes[-1]

    yield open_model
    for pipe in pipes:
        pipe.close()


@pytest.mark.parametrize("kind, targets", [("sd15", ATTENTION + CONVOLUTIONS), ("sd21v", ATTENTION), ("sdxl", ATTENTION + CONVOLUTIONS)])
def test_as_unmerged_and_as_merged(opened, made, tmp_path, kind, targets):  # noqa: F811
    """Diffusers' image comes from PEFT's own layers, which are not merged. UNet and text encoders have terms."""
    model, _, lora, want, plain = made(kind, tuple(targets))
    save_file(lora, tmp_path / "x.safetensors")
    pipe = opened(model)
    call = CALL | dict(plain_prompt=True)
    out = pipe(PROMPT, lora=tmp_path / "x.safetensors", lora_mode="runtime", **call)
    merged = pipe(PROMPT, lora=tmp_path / "x.safetensors", **call).images[0]
    assert psnr(out.images[0], want) >= 60 and psnr(out.images[0], merged) >= 60
    assert "Lora mode: runtime" in out.parameters[0] and "Lora hashes" in out.parameters[0]
    assert psnr(pipe(PROMPT, **call).images[0], plain) >= 60


@pytest.fixture(scope="module")
def two(made, tmp_path_factory):  # noqa: F811
    """The model and a folder with LoRAs "one" and "two" of different ranks and layers."""
    model, _, first, _, _ = made("sd15", tuple(ATTENTION + CONVOLUTIONS))
    _, _, second, _, _ = made("sd15", seed=1)
    wider = {key: torch.cat([value, 0.5 * value], dim=0 if "lora_A" in key else 1) if "lora_" in key else value
             for key, value in second.items()}
    folder = tmp_path_factory.mktemp("two")
    save_file(to_kohya(first), folder / "one.safetensors")
    save_file(to_kohya(wider), folder / "two.safetensors")
    return model, folder


PROMPTS = ["a photo of the red cat <lora:one:0.8>", "a blue dog <lora:two:-0.5>", "a tree", "a photo of the red cat <lora:one:0.3:0.6><lora:two:0.4>"]


def test_each_image_of_a_batch_has_its_own(opened, engine, two):
    """Each equals the image of its prompt alone with merged LoRAs, which other tests compare with Diffusers."""
    model, folder = two
    pipe = opened(model, lora_dir=folder)
    out = pipe(PROMPTS, lora_mode="runtime", **CALL)
    assert out.images.shape[0] == 4 and out.seeds == [SEED + i for i in range(4)]
    for i, text in enumerate(PROMPTS):
        alone = pipe(text, **CALL | dict(seed=SEED + i))
        assert psnr(out.images[i], alone.images[0]) >= 60, text
        assert text in out.parameters[i]
    with pytest.raises(engine.EngineError, match="lora-mode runtime") as error:
        pipe(PROMPTS, **CALL)
    assert error.value.status == 2
    with pytest.raises(engine.EngineError, match="expected one for each of 3 images"):
        pipe("a cat", image_prompt=PROMPTS, batch=3, **CALL)


def test_prompts_of_a_batch_on_the_command_line(rocm_sd, two, tmp_path):
    model, folder = two
    args = ["generate", "--model", model, "--lora-dir", folder, "--dtype", "f32", "--steps", 2, "-W", SIZE, "-H", SIZE, "--lora-mode", "runtime"]
    rocm_sd(*args, "--seed", SEED, "--image-prompt", PROMPTS[0], "--image-prompt", PROMPTS[1], "-o", tmp_path / "both{index}.png")
    for i in range(2):
        rocm_sd(*args, "--prompt", PROMPTS[i], "--seed", SEED + i, "-o", tmp_path / "one.png")
        assert psnr(read_picture(tmp_path / f"both{i + 1}.png"), read_picture(tmp_path / "one.png")) >= 60
    assert "expected merge or runtime" in rocm_sd(*args[:-1], "now", "-o", tmp_path / "no.png", code=2).stderr


def test_strengths_come_and_go(opened, two):
    """One pipeline draws with changing strengths and LoRAs what fresh ones draw; without any, the plain image to the bit."""
    model, folder = two
    pipe = opened(model, lora_dir=folder)
    for text in ["a cat <lora:one:0.8>", "a cat <lora:one:-0.4>", "a cat <lora:two:1>", "a cat", "a cat <lora:one:0.8>"]:
        mode = "runtime" if "<" in text else "merge"
        got, fresh = pipe(text, lora_mode="runtime", **CALL).images, opened(model, lora_dir=folder)(text, lora_mode=mode, **CALL).images
        assert np.array_equal(got, fresh), text


@pytest.mark.parametrize("options, floor", [(dict(weights="int8"), 35), (dict(dtype="bf16"), 38), (dict(offload=True), 200), (dict(tile_size=48), 60)])
def test_with(opened, two, options, floor):
    """8-bit weights keep terms that are not quantised; weights that wait in host memory give the same image; tiles that of merged LoRAs."""
    model, folder = two
    text = "a cat <lora:one:0.8><lora:two:0.5>"
    call = CALL | (options if floor == 60 else {})
    want = opened(model, lora_dir=folder)(text, **call | (dict(lora_mode="runtime") if floor != 60 else {})).images[0]
    pipe = opened(model, lora_dir=folder, **({} if floor == 60 else options))
    got = pipe(text, **call | dict(lora_mode="runtime")).images[0]
    assert (got == want).all() if floor == 200 else psnr(got, want) >= floor


@pytest.mark.bad_input
def test_only_low_rank_terms(opened, engine, made, tmp_path):  # noqa: F811
    model, _, lora, _, _ = made("sd15", tuple(ATTENTION), True)
    save_file(lora, tmp_path / "dora.safetensors")
    with pytest.raises(engine.EngineError, match="lora dora: .* is DoRA, which cannot be added at run time: merge it") as error:
        opened(model)(PROMPT, lora=tmp_path / "dora.safetensors", lora_mode="runtime", **CALL)
    assert error.value.status == 2


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.uint8, torch.float64])
def test_types_of_alpha(opened, made, tmp_path, dtype):  # noqa: F811
    """An alpha of any type is its number, of no or one dimension."""
    model, _, lora, want, _ = made("sd15")
    pipe = opened(model)
    for i, shape in enumerate(([], [1])):
        path = tmp_path / f"{i}.safetensors"
        save_file({key: value.to(dtype).reshape(shape) if key.endswith(".alpha") else value for key, value in to_kohya(lora).items()}, path)
        assert psnr(pipe(PROMPT, lora=path, plain_prompt=True, **CALL).images[0], want) >= 60


def damaged(tensors: dict[str, torch.Tensor], draw: random.Random) -> bytes:
    """The file with one thing wrong with it, whichever."""
    tensors = dict(tensors)
    key = draw.choice(sorted(key for key in tensors if "alpha" not in key))
    value = tensors.pop(key)
    down = "lora_down" in key
    kind = draw.randrange(8)
    if kind == 1:
        tensors[f"{key}.{draw.randrange(10)}"] = value
    elif kind == 2:  # another rank than its other half
        tensors[key] = torch.cat([value, value], dim=0 if down else 1)
    elif kind == 3:  # another width than the layer
        axis = 1 if down else 0
        tensors[key] = torch.cat([value, value.narrow(axis, 0, 1)], dim=axis).contiguous()
    elif kind == 4:
        flat = value.clone().reshape(-1)
        flat[draw.randrange(len(flat))] = draw.choice([float("nan"), float("inf"), float("-inf")])
        tensors[key] = flat.reshape(value.shape)
    elif kind == 5:
        tensors[key] = value.to(torch.int32)
    elif kind == 6:  # a layer that the model has not
        tensors[key], tensors[key.replace("lora_unet_", "lora_unet_x").replace("lora_te_", "lora_te_x")] = value, value.clone()
    elif kind == 7:
        data = save(tensors | {key: value})
        return data[: draw.randrange(len(data))]
    return save(tensors)  # kind 0: a half without the other


@pytest.mark.bad_input
@pytest.mark.parametrize("mode", ["merge", "runtime"])
def test_damaged_files_leave_the_model_alone(opened, engine, two, made, tmp_path, mode):  # noqa: F811
    """Thirty files, each with something wrong: a sentence that names the file, and the images of a model that saw none of them."""
    model, folder = two
    lora = to_kohya(made("sd15", tuple(ATTENTION + CONVOLUTIONS))[2])
    good, bad = f"{folder / 'one.safetensors'}:0.7", tmp_path / "bad.safetensors"
    draw = random.Random(5)
    pipe = opened(model)

    def image(*loras: str | Path) -> np.ndarray:
        return pipe("a cat", lora=list(loras), lora_mode=mode, num_inference_steps=2, seed=1, width=64, height=64, output_type="np").images

    plain, with_good = image(), image(good)
    assert psnr(plain[0], with_good[0]) < 40
    for i in range(30):
        bad.write_bytes(damaged(lora, draw))
        with pytest.raises(engine.EngineError) as error:
            image(*([good] if i % 2 else []), bad)
        assert error.value.status == 3 and "bad.safetensors" in str(error.value), i
        if i % 10 == 9:
            assert np.array_equal(image(good), with_good) and np.array_equal(image(), plain)


def test_each_image_of_a_batch_on_weights_in_eight_bits(opened, two):
    """Another LoRA for each image, on weights that no LoRA is merged into: each equals the image of its prompt alone."""
    model, folder = two
    pipe = opened(model, lora_dir=folder, weights="int8")
    images = pipe(PROMPTS, lora_mode="runtime", **CALL).images
    for i, text in enumerate(PROMPTS):
        alone = pipe(text, lora_mode="runtime", **CALL | dict(seed=SEED + i)).images[0]
        assert psnr(images[i], alone) >= 60, text
    assert psnr(images[0], images[2]) < 40


@pytest.mark.parametrize("options, exact", [(dict(), True), (dict(offload=True), True), (dict(weights="int8"), False), (dict(dtype="bf16"), False),
                                            (dict(weights="int8", offload=True), False)])
def test_merging_does_not_read_the_models_file_again(opened, made, tmp_path, options, exact):  # noqa: F811
    """The model's files are cut to nothing after loading, where weights in use are the file's, else after the first change of the layers:
    LoRAs come, change and go, and draw what fresh pipelines draw, to the bit. DoRA needs the weight itself."""
    model, _, lora, _, _ = made("sd15", tuple(ATTENTION + CONVOLUTIONS))
    _, _, dora, _, _ = made("sd15", dora=True)
    save_file(to_kohya(lora), tmp_path / "a.safetensors")
    save_file(to_kohya(dora), tmp_path / "b.safetensors")
    copy = shutil.copytree(model, tmp_path / "model")
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    requests = [[f"{a}:0.8"], [f"{a}:-0.4:0.3"], [f"{a}:0.5", f"{b}:0.7"], [f"{b}:0.7"], [], [f"{b}:0.2"], [f"{a}:0.8"], []]
    call = CALL | dict(num_inference_steps=2, plain_prompt=True)
    want = {tuple(loras): opened(model, **options)(PROMPT, lora=loras, **call).images for loras in requests}
    pipe = opened(copy, **options)
    if not exact:
        pipe(PROMPT, lora=[f"{a}:0.5", f"{b}:0.7"], **call)
    for file in copy.rglob("*.safetensors"):
        os.truncate(file, 8)
    for loras in requests:
        assert np.array_equal(pipe(PROMPT, lora=loras, **call).images, want[tuple(loras)]), loras
