"""The random checkpoints are what they claim: Diffusers runs the folders, and its converters read the single files."""

from __future__ import annotations

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from make_random_checkpoint import KINDS, random_tensor
from model_shapes import shapes
from random_checkpoints import RandomCheckpoints


def folder_tensors(folder, component):
    name = "model" if component.startswith("text_encoder") else "diffusion_pytorch_model"
    return load_file(folder / component / f"{name}.safetensors")


@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl"])
def test_diffusers_draws_from_the_folder(tiny_model, kind):
    import diffusers

    pipe = getattr(diffusers, shapes(kind)["pipeline"]).from_pretrained(tiny_model(kind))
    pipe.set_progress_bar_config(disable=True)
    out = pipe("a photo of the red cat", num_inference_steps=3, guidance_scale=5.0, width=64, height=64,
               generator=torch.Generator().manual_seed(1), output_type="pt").images  # [1,3,64,64]
    assert out.shape == (1, 3, 64, 64)
    assert torch.isfinite(out).all()
    assert out.std() > 0.05, "a flat picture would make every comparison with it vacuous"


@pytest.mark.parametrize("kind", KINDS)
def test_single_file_converts_back_to_the_folder(tiny_model, kind):
    from diffusers.loaders import single_file_utils as convert

    folder, single = tiny_model(kind), tiny_model(kind, "single", small_vocab=True)
    config = shapes(kind, tiny=True)
    loaded = load_file(single)
    # The converters rename in place of what they took: each gets a dictionary of its own.
    unet = convert.convert_ldm_unet_checkpoint(dict(loaded), config=dict(config["unet"], class_embed_type=None))
    assert_same(unet, folder_tensors(folder, "unet"))
    vae = convert.convert_ldm_vae_checkpoint(dict(loaded), config=config["vae"])
    assert_same(vae, folder_tensors(folder, "vae"))


def test_single_file_openclip_matches_the_folder(tiny_model):
    """q, k, v fused in order; the projection transposed."""
    single = load_file(tiny_model("sdxl", "single", small_vocab=True))
    folder = folder_tensors(tiny_model("sdxl"), "text_encoder_2")
    prefix = "conditioner.embedders.1.model."
    fused = single[prefix + "transformer.resblocks.2.attn.in_proj_weight"]  # [3*64,64]
    parts = [folder[f"text_model.encoder.layers.2.self_attn.{p}_proj.weight"] for p in "qkv"]
    assert torch.equal(fused, torch.cat(parts))
    assert torch.equal(single[prefix + "text_projection"], folder["text_projection.weight"].T)
    assert torch.equal(single[prefix + "positional_embedding"],
                       folder["text_model.embeddings.position_embedding.weight"])


def test_stored_types(tiny_model):
    for dtype, name in {"fp16": "F16", "bf16": "BF16", "fp8": "F8_E4M3"}.items():
        with safe_open(tiny_model("sd15", "single", dtype, small_vocab=True), "pt") as file:
            assert file.get_slice("model.diffusion_model.out.2.weight").get_dtype() == name


def test_values_depend_on_the_seed():
    first, again, other = (random_tensor(seed, "unet", "conv_in.weight", (8, 4, 3, 3)) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def assert_same(got, want):
    assert set(got) == set(want)
    different = [name for name in want if not torch.equal(got[name].reshape(want[name].shape), want[name])]
    assert not different, different[:5]


def test_kept_checkpoints_shrink_by_their_last_use(tmp_path):
    kept = RandomCheckpoints(tmp_path)
    first, second, third = (kept.get("sd15", "folder", "fp16", seed, True) for seed in range(3))
    assert kept.get("sd15", "folder", "fp16", 0, True) == first  # the second is now the one longest unused
    size = sum(file.stat().st_size for file in first.rglob("*") if file.is_file())
    kept.shrink(3 * size)
    assert first.exists() and second.exists() and third.exists()
    kept.shrink(3 * size - 1)
    assert first.exists() and third.exists() and not second.exists()
    again = kept.get("sd15", "folder", "fp16", 1, True)
    assert again.exists() and again != second
    kept.shrink(0)
    assert not any(tmp_path.iterdir())
