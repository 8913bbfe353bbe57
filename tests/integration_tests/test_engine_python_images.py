"""Images as prompts (IP-Adapter) from Python: what the command line draws, by files, pictures in memory and embeddings."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest
from control_models import drawing
from ip_models import adapter_file, encoder_folder, image_encoder
from PIL import Image
from pictures import read_picture
from safetensors.torch import save_file
from test_engine_python import SIZE, engine, pipe  # noqa: F401 (fixtures)

pytestmark = pytest.mark.in_python


@pytest.fixture(scope="module")
def adapters(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    encoder_folder(folder / "image_encoder")
    unet = diffusers.UNet2DConditionModel.from_pretrained(tiny_model("sd15") / "unet")
    return [adapter_file(folder / f"{kind}.safetensors", kind, unet, image_encoder()) for kind in ("plain", "plus")]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seen")
    return [drawing(folder / f"{i}.png", 50 + 9 * i, 40, seed=i) for i in range(2)]


def by_command(rocm_sd, model, path, *args):
    rocm_sd("generate", "--model", model, "--prompt", "a cat", "--steps", 2, "--seed", 7, "--sampler", "Euler", "--width", 64, "--height", 64,
            "--device", "cpu", *args, "-o", path)
    return read_picture(path)


CALL = dict(num_inference_steps=2, seed=7, sampler="Euler", output_type="np", **SIZE)


def test_images(pipe, rocm_sd, tiny_model, adapters, seen, tmp_path):  # noqa: F811
    plain, plus = adapters
    want = by_command(rocm_sd, tiny_model("sd15"), tmp_path / "a.png", "--ip-adapter", plain, "--ip-adapter", plus, "--ip-image", seen[0],
                      "--ip-image", f"{seen[0]},{seen[1]}", "--ip-weight", 0.4, "--ip-weight", 0.7, "--ip-end", 1, "--ip-end", 0.5)
    opened = [Image.open(path).convert("RGB") for path in seen]
    arrays = [np.asarray(image) for image in opened]
    for one, two in ((seen[0], seen), (opened[0], opened), (arrays[0], [arrays[0], opened[1]])):
        got = pipe("a cat", ip_adapter=[plain, plus], ip_adapter_image=[one, list(two)], ip_adapter_scale=[0.4, 0.7],
                   ip_adapter_end=[1, 0.5], **CALL)
        assert np.array_equal(got.images[0], want)
    assert not np.array_equal(pipe("a cat", **CALL).images[0], want)


def test_as_diffusers_loads_them(engine, pipe, rocm_sd, tiny_model, adapters, seen, tmp_path):  # noqa: F811
    plain = adapters[0]
    want = by_command(rocm_sd, tiny_model("sd15"), tmp_path / "a.png", "--ip-adapter", plain, "--ip-image", seen[0], "--ip-weight", 0.6)
    without = pipe("a cat", **CALL).images[0]
    pipe.load_ip_adapter(plain.parent.parent, subfolder=plain.parent.name, weight_name=plain.name)
    pipe.set_ip_adapter_scale(0.6)
    try:
        assert np.array_equal(pipe("a cat", ip_adapter_image=seen[0], **CALL).images[0], want)
        assert np.array_equal(pipe("a cat", **CALL).images[0], without), "a call without images is a plain one"
        with pytest.raises(ValueError, match="expected 1, one for each IP-Adapter, got 2"):
            pipe("a cat", ip_adapter_image=seen, **CALL)
    finally:
        pipe.unload_ip_adapter()
    with pytest.raises(ValueError, match="there is no IP-Adapter"):
        pipe("a cat", ip_adapter_image=seen[0], **CALL)
    with pytest.raises(ValueError, match="no such file"):
        pipe.load_ip_adapter(plain.parent, weight_name="other.safetensors")


def test_images_of_each_image_of_a_batch(pipe, adapters, seen):
    """For an adapter a list with a list for each image of the batch; another adapter shares one image."""
    plain, plus = adapters[:2]
    own = [[seen[0], seen[1]], [seen[1], seen[1]]]
    files = dict(ip_adapter=[plain, plus], ip_adapter_scale=[0.8, 0.4])
    out = pipe(["a cat", "a cat"], ip_adapter_image=[own, seen[0]], **files, **CALL)
    for i, pair in enumerate(own):
        alone = pipe("a cat", ip_adapter_image=[pair, seen[0]], **files, **CALL | dict(seed=CALL["seed"] + i))
        difference = np.abs(out.images[i].astype(int) - alone.images[0].astype(int))
        assert difference.max() <= 1 and difference.mean() < 0.01
    other = pipe("a cat", ip_adapter_image=[own[0], seen[0]], **files, **CALL | dict(seed=CALL["seed"] + 1))
    assert not np.array_equal(other.images[0], out.images[1])
    with pytest.raises(ValueError, match="as many in a list for each image of the batch"):
        pipe(["a cat"] * 2, ip_adapter=plain, ip_adapter_image=[[[seen[0]], seen[1]]], **CALL)
    with pytest.raises(Exception, match="expected images for each of the 3 images of the batch, got those of 2"):
        pipe(["a cat"] * 3, ip_adapter=plain, ip_adapter_image=[own], **CALL)


def test_embeddings_and_masks(pipe, rocm_sd, tiny_model, adapters, seen, tmp_path):  # noqa: F811
    torch = pytest.importorskip("torch")
    embeds = torch.randn(2, 2, 24, generator=torch.Generator().manual_seed(1))
    save_file({"e": embeds}, tmp_path / "e.safetensors")
    masks = []
    for i in range(2):
        values = np.zeros((64, 64), np.uint8)
        values[:, 32 * i: 32 * i + 32] = 255
        masks.append(tmp_path / f"m{i}.png")
        Image.fromarray(values).save(masks[-1])
    want = by_command(rocm_sd, tiny_model("sd15"), tmp_path / "a.png", "--ip-adapter", adapters[0], "--ip-embeds", tmp_path / "e.safetensors",
                      "--ip-mask", f"{masks[0]},{masks[1]}")
    got = pipe("a cat", ip_adapter=adapters[0], ip_adapter_image_embeds=[embeds], ip_adapter_mask=[[Image.open(m) for m in masks]], **CALL)
    assert np.array_equal(got.images[0], want)
    with pytest.raises(Exception, match="expected one for each of the 2 embeddings, got 1"):
        pipe("a cat", ip_adapter=adapters[0], ip_adapter_image_embeds=[embeds], ip_adapter_mask=[masks[0]], **CALL)
