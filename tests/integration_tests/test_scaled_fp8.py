"""ComfyUI's scaled fp8 against torch: the values of every weight, bit for bit, in both forms of the files; pictures; what is malformed is
refused by name."""

from __future__ import annotations

import json
import random

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from test_torch_files import draw

UNET, TEXT = "model.diffusion_model.", ("cond_stage_model.", "conditioner.")
FORMS = ["older", "older e5m2", "newer", "newer e5m2", "metadata", "metadata without prefix"]


def layers_of(tensors: dict[str, torch.Tensor], prefixes: tuple[str, ...]) -> list[str]:
    """What ComfyUI's converters quantise: matrices and convolutions, not embeddings of tokens and places."""
    return [name.removesuffix(".weight") for name, value in tensors.items()
            if name.endswith(".weight") and name.startswith(prefixes) and value.ndim >= 2 and "embedding" not in name]


def quantised(tensors: dict[str, torch.Tensor], form: str, prefixes: tuple[str, ...] = (UNET, *TEXT), seed: int = 3):
    """(the file's tensors, its metadata, the same weights dequantised by torch in float32)."""
    rng = random.Random(seed)
    dtype = torch.float8_e5m2 if "e5m2" in form else torch.float8_e4m3fn
    file, reference, formats = dict(tensors), dict(tensors), {}
    for layer in layers_of(tensors, prefixes):
        weight = tensors[layer + ".weight"].float()
        scale = (weight.abs().max() / torch.finfo(dtype).max * rng.uniform(1, 1.5)).to(rng.choice([torch.float32, torch.bfloat16, torch.float16]))
        if scale == 0:
            scale = torch.tensor(1e-3)
        stored = (weight / scale.float()).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)
        file[layer + ".weight"] = stored
        reference[layer + ".weight"] = stored.float() * scale.float()
        scale = scale.reshape(rng.choice([(), (1,)]))
        older = form.startswith("older")
        file[layer + (".scale_weight" if older else ".weight_scale")] = scale
        if rng.random() < 0.5:
            file[layer + (".scale_input" if older else ".input_scale")] = torch.tensor(rng.random())
        formats[layer] = {"format": str(dtype).removeprefix("torch."), **({"full_precision_matrix_mult": True} if rng.random() < 0.3 else {})}
    metadata = {}
    if form.startswith("older"):
        for prefix in {next(p for p in ("model.diffusion_model.", "") if layer.startswith(p)) for layer in formats}:
            file[prefix + "scaled_fp8"] = torch.zeros(rng.choice([0, 1, 2])).to(dtype)
    elif form.startswith("newer"):
        for layer, said in formats.items():
            file[layer + ".comfy_quant"] = torch.tensor(list(json.dumps(said).encode()), dtype=torch.uint8)
    else:
        cut = UNET if "without" in form else ""
        metadata["_quantization_metadata"] = json.dumps({"format_version": "1.0", "layers": {k.removeprefix(cut): v for k, v in formats.items()}})
    return file, metadata, reference


def dumped(weights_main, path, out, *options):
    weights_main("dump", path, out, *options)
    with safe_open(out, "pt") as file:
        return load_file(out), file.metadata()


def same(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> None:
    assert set(got) == set(want)
    for name, value in want.items():
        assert got[name].dtype == value.dtype and got[name].shape == value.shape, name
        assert got[name].numpy().tobytes() == value.numpy().tobytes(), name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_values(tiny_model, weights_main, tmp_path, kind, form):
    """UNet and text encoders; a mapped file; nothing of the format is left over or unexpected."""
    file, metadata, reference = quantised(load_file(tiny_model(kind, "single", small_vocab=True)), form)
    save_file(file, tmp_path / "fp8.safetensors", metadata)
    save_file(reference, tmp_path / "reference.safetensors")
    want, _ = dumped(weights_main, tmp_path / "reference.safetensors", tmp_path / "want.safetensors")
    got, said = dumped(weights_main, tmp_path / "fp8.safetensors", tmp_path / "got.safetensors")
    same(got, want)
    assert said["unexpected"] == "[]"
    assert sum(name.startswith("text_encoder/") and "q_proj" in name for name in got) > 0
    mapped, _ = dumped(weights_main, tmp_path / "fp8.safetensors", tmp_path / "mapped.safetensors", "mmap=1")
    same(mapped, want)


def test_every_byte(weights_main, tiny_model, tmp_path):
    """All 256 values of both types, NaN and infinities among them, times factors of many sizes."""
    tensors = load_file(tiny_model("sd15", "single", small_vocab=True))
    layer = UNET + "input_blocks.0.0"
    shape = tensors[layer + ".weight"].shape
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        for scale in (1e-38, 3.1e-5, 0.37, 1.0000001, 7e4):
            stored = torch.arange(tensors[layer + ".weight"].numel(), dtype=torch.int64).to(torch.uint8).view(dtype).reshape(shape)
            factor = torch.tensor(scale)
            save_file(tensors | {layer + ".weight": stored, layer + ".scale_weight": factor}, tmp_path / "a.safetensors")
            got, _ = dumped(weights_main, tmp_path / "a.safetensors", tmp_path / "got.safetensors")
            want, value = stored.float() * factor, got["unet/conv_in.weight"]
            assert torch.equal(value.isnan(), want.isnan())
            assert torch.equal(value[~want.isnan()].view(torch.int32), want[~want.isnan()].view(torch.int32))


def test_a_unet_and_a_text_encoder_alone(tiny_model, weights_main, tmp_path):
    """As ComfyUI keeps them: the UNet without a prefix, the text encoder under transformers' names."""
    whole, folder = tiny_model("sd15", "single", small_vocab=True), tiny_model("sd15")
    unet = {k.removeprefix(UNET): v for k, v in load_file(whole).items() if k.startswith(UNET)}
    text = load_file(folder / "text_encoder" / "model.safetensors")
    for form in ("older", "newer", "metadata"):
        options = []
        for name, tensors in (("unet", unet), ("text_encoder", text)):
            file, metadata, reference = quantised(tensors, form, ("",))
            save_file(file, tmp_path / f"{name}.safetensors", metadata)
            save_file(reference, tmp_path / f"{name}_reference.safetensors")
            options.append(name)
        got, _ = dumped(weights_main, folder, tmp_path / "got.safetensors", *(f"{n}={tmp_path}/{n}.safetensors" for n in options))
        want, _ = dumped(weights_main, folder, tmp_path / "want.safetensors", *(f"{n}={tmp_path}/{n}_reference.safetensors" for n in options))
        same(got, want)


def test_pictures_and_conversion(rocm_sd, tiny_model, weights_main, tmp_path):
    file, metadata, reference = quantised(load_file(tiny_model("sd15", "single")), "newer")
    save_file(file, tmp_path / "fp8.safetensors", metadata)
    save_file(reference, tmp_path / "reference.safetensors")
    want = draw(rocm_sd, tmp_path / "reference.safetensors", tmp_path / "want.png", "--dtype", "f32")
    assert (draw(rocm_sd, tmp_path / "fp8.safetensors", tmp_path / "got.png", "--dtype", "f32") == want).all()
    weights_main("convert", tmp_path / "fp8.safetensors", tmp_path / "half.safetensors", "f16")
    half = load_file(tmp_path / "half.safetensors")
    assert not any(".weight_scale" in name or "comfy_quant" in name for name in half)
    for layer in layers_of(reference, (UNET,)):
        assert torch.equal(half[layer + ".weight"], reference[layer + ".weight"].half()), layer


def test_inspect(rocm_sd, tiny_model, weights_main, tmp_path):
    tensors = load_file(tiny_model("sdxl", "single", small_vocab=True))
    for form in ("older", "newer"):
        file, metadata, _ = quantised(tensors, form)
        save_file(file, tmp_path / "a.safetensors", metadata)
        report = json.loads(weights_main("inspect", tmp_path / "a.safetensors", "json").stdout)
        assert "problem" not in report and report["type"] == "sdxl"
        row = next(c for c in report["components"] if c["name"] == "unet")["scaled_fp8"]
        assert row["layers"] == len(layers_of(tensors, (UNET,)))
        assert row["input_scales"] == sum(k.startswith(UNET) and k.endswith((".scale_input", ".input_scale")) for k in file)
        assert row["formats"] == (row["layers"] if form == "newer" else 0)
        assert f"{row['layers']} layers with a factor" in rocm_sd("inspect", tmp_path / "a.safetensors").stdout
    assert "scaled fp8" not in rocm_sd("inspect", tiny_model("sdxl", "single", small_vocab=True)).stdout


def marked(text: bytes | str) -> torch.Tensor:
    return torch.tensor(list(text.encode() if isinstance(text, str) else text), dtype=torch.uint8)


def test_malformed_files(weights_main, tiny_model, tmp_path):
    tensors = load_file(tiny_model("sd15", "single", small_vocab=True))
    layer = UNET + "input_blocks.0.0"
    weight, scale, said = layer + ".weight", layer + ".weight_scale", layer + ".comfy_quant"
    fp8 = tensors[weight].to(torch.float8_e4m3fn)
    good = tensors | {weight: fp8, scale: torch.tensor(2.0), said: marked('{"format": "float8_e4m3fn"}')}

    def refused(changed: dict, *words: str, metadata: dict | None = None) -> None:
        path = tmp_path / "bad.safetensors"
        save_file({k: v for k, v in changed.items() if v is not None}, path, metadata)
        text = weights_main("dump", path, tmp_path / "out.safetensors", code=3).stderr
        assert all(word in text for word in words), text
        report = json.loads(weights_main("inspect", path, "json").stdout)
        assert all(word in report["problem"] for word in words), report["problem"]

    save_file(good, tmp_path / "good.safetensors")
    dumped(weights_main, tmp_path / "good.safetensors", tmp_path / "out.safetensors")
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        refused(good | {scale: torch.tensor(bad)}, scale, "usable")
    refused(good | {scale: torch.ones(8)}, scale, "[8]", "rows")
    refused(good | {scale: torch.ones(0)}, scale, "[0]")
    refused(good | {scale: torch.tensor(2)}, scale, "i64")
    refused(good | {scale: None}, scale, "missing")
    refused(good | {layer + ".scale_weight": torch.tensor(2.0)}, "scale_weight", "already")
    refused(good | {weight: tensors[weight]}, weight, "float8_e4m3fn", "f32")
    refused(good | {weight: tensors[weight].to(torch.float8_e5m2)}, weight, "float8_e4m3fn", "f8e5m2")
    refused(good | {weight: torch.zeros(fp8.shape, dtype=torch.int8), said: None}, weight, "i8")
    for text, word in (('{"format": "nvfp4"}', "nvfp4"), ('{"format": "int8_tensorwise"}', "int8_tensorwise"), ("{}", "format"), ("[1]", "format"),
                       ('{"format": 3}', "format"), ('{"format": ', "JSON"), (b"\xff\xfe", "UTF-8"), ('{"format": "a", "format": "b"}', "format"), ("[" * 40, "")):
        refused(good | {said: marked(text)}, said, word)
    refused(good | {said: torch.zeros(3)}, said, "u8")
    refused(good | {said: torch.zeros(0, dtype=torch.uint8)}, said, "[0]")
    refused(good | {layer + ".weight_scale_2": torch.tensor(1.0)}, "weight_scale_2", "not read")
    refused(good | {UNET + "scaled_fp8": torch.zeros(3)}, "scaled_fp8", "[3]")
    refused(good | {UNET + "scaled_fp8": torch.zeros(1, dtype=torch.int64)}, "scaled_fp8", "i64")
    bare = good | {said: None}
    for text, word in (("3", "layers"), ('{"layers": 3}', "layers"), ('{"layers": {"a": 3}}', '"a"'), ("{", "JSON"), ('{"layers": {"a": {}}}', '"a"'),
                       (json.dumps({"layers": {layer: {"format": "mxfp8"}}}), "mxfp8"),
                       (json.dumps({"layers": {layer.removeprefix(UNET): {"format": "float8_e5m2"}}}), "float8_e5m2")):
        refused(bare, "_quantization_metadata", word, metadata={"_quantization_metadata": text})
    # A factor of a weight that is not there is a tensor that no structure has.
    save_file(good | {UNET + "nowhere.scale_weight": torch.tensor(1.0)}, tmp_path / "more.safetensors")
    _, said_of = dumped(weights_main, tmp_path / "more.safetensors", tmp_path / "out.safetensors")
    assert json.loads(said_of["unexpected"]) == [UNET + "nowhere.scale_weight"]
