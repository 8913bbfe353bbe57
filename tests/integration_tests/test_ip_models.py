"""Image encoders and IP-Adapters against transformers and Diffusers on the CPU in float32, block by block (test_models.py has the rest)."""

from __future__ import annotations

import subprocess

import ip_models
import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file
from test_models import F32_TOLERANCE, nhwc, relative, run_model, seeded, unet_inputs  # noqa: F401 (fixture)


def run(program, kind, folder, inputs):
    """Results of model_main on a folder that is written already; a planned and replayed forward gives the same bits."""
    save_file({name: value.contiguous() for name, value in inputs.items()}, folder / "in.safetensors")
    command = [program("model_main"), kind, folder, folder / "in.safetensors", folder / "out.safetensors"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    results = load_file(folder / "out.safetensors")
    for name, value in results.items():
        if name.startswith("replayed."):
            assert torch.equal(value, results[name.removeprefix("replayed.")]), name
    return results


@pytest.mark.parametrize("act", ["gelu", "quick_gelu"])
@pytest.mark.parametrize("images, sizes", [(1, dict()), (3, dict(image_size=28, patch_size=7, width=48)),
                                           (2, dict(image_size=45, patch_size=14))])  # 45: a border that no patch covers
def test_image_encoder_matches_transformers_block_by_block(program, tmp_path, act, images, sizes):
    model = ip_models.image_encoder(act=act, **sizes)
    model.save_pretrained(tmp_path)
    side = model.config.image_size
    pixels = seeded(5, images, 3, side, side)
    with torch.no_grad():
        want = model(pixels, output_hidden_states=True)
    got = run(program, "vision", tmp_path, {"pixels": nhwc(pixels)})
    assert relative(got["tap.embeddings"], want.hidden_states[0]) < F32_TOLERANCE
    for i in range(model.config.num_hidden_layers):
        assert relative(got[f"tap.layers.{i}"], want.hidden_states[i + 1]) < F32_TOLERANCE, i
    assert relative(got["states"], want.hidden_states[-2]) < F32_TOLERANCE
    assert relative(got["output"], want.image_embeds) < F32_TOLERANCE


def image_of(kind, encoder, rows, seed):
    if kind == "faceid":
        return seeded(seed, rows, ip_models.FACE)
    states = (rows, encoder.vision_model.embeddings.num_positions, encoder.config.hidden_size)
    return seeded(seed, *((rows, encoder.config.projection_dim) if kind == "plain" else states))


# Every kind, and the numbering of layers for every form of UNet: without a middle attention, with several transformer blocks.
@pytest.mark.parametrize("base, kinds", [("sd15", ("plain",)), ("sd15", ("full",)), ("sd15", ("faceid",)), ("sd21", ("plus",)),
                                         ("sdxl", ("plain", "plus")), ("ssd-1b", ("plain",)), ("small-sd", ("plus",))])
def test_unet_with_adapters_matches_diffusers(program, tmp_path, base, kinds):
    """Projections and the whole UNet to 1e-4: several adapters with scales of their own, two images of the first."""
    unet, encoder, batch = tiny_models.unet(base), ip_models.image_encoder(), 2
    folder = tiny_models.write_model(unet, tmp_path / "model")
    tensors = [ip_models.adapter_tensors(kind, unet, encoder, seed=30 + i, tokens=4 if kind != "plus" else 6) for i, kind in enumerate(kinds)]
    ours, theirs = unet_inputs(unet, batch, 8, 6)
    with torch.no_grad():
        plain = unet(**theirs).sample
    counts, scales = [2, 1][:len(kinds)], [0.7, 1.3][:len(kinds)]
    images = [image_of(kind, encoder, batch * n, 40 + i) for i, (kind, n) in enumerate(zip(kinds, counts))]
    for i, (own, image, scale) in enumerate(zip(tensors, images, scales)):
        save_file(own, folder / f"ip.{i}.safetensors")
        ours |= {f"image.{i}": image, f"factors.{i}": torch.full((batch,), scale)}
    unet._load_ip_adapter_weights([ip_models.state_dict(t) for t in tensors], low_cpu_mem_usage=False)
    for processor in unet.attn_processors.values():
        if hasattr(processor, "scale"):
            processor.scale = list(scales)
    embeds = [image.reshape(batch, n, *image.shape[1:]) for image, n in zip(images, counts)]
    theirs["added_cond_kwargs"] = dict(theirs.get("added_cond_kwargs") or {}) | {"image_embeds": embeds}
    with torch.no_grad():
        tokens = unet.encoder_hid_proj(embeds)
        want = unet(**theirs).sample
    assert relative(plain, want) > 0.05, "the adapter changes too little to prove anything"
    got = run(program, "ip-adapter", folder, ours)
    for i, own in enumerate(tokens):
        assert relative(got[f"tokens.{i}"], own.reshape(batch, -1, own.shape[-1])) < F32_TOLERANCE
    assert relative(got["output"], nhwc(want)) < F32_TOLERANCE
