"""Pictures by a model folder's own scheduler_config.json beside Diffusers' pipelines: image to image, inpainting, EDM."""

from __future__ import annotations

import json
import shutil

import diffusers
import numpy as np
import pytest
import torch
from pictures import psnr
from safetensors.torch import load_file, save_file
from test_pipeline import NEGATIVE, PROMPT, SCALE, SEED, STEPS, diffusers_picture, drawing, init_image, link, our_picture


def with_config(model, folder, class_name: str, **options):
    """A copy of the model folder with another scheduler; large files are linked."""
    shutil.copytree(model, folder, copy_function=lambda a, b: shutil.copy(a, b) if a.endswith(".json") else link(a, b))
    path = folder / "scheduler" / "scheduler_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in (config | options | {"_class_name": class_name}).items() if v is not None}))
    index = json.loads((folder / "model_index.json").read_text())
    index["scheduler"] = ["diffusers", class_name]
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize("strength", [0.5, 1.0])
@pytest.mark.parametrize("class_name,options", [
    ("PNDMScheduler", {"skip_prk_steps": True}), ("PNDMScheduler", {"skip_prk_steps": None}),
    ("DPMSolverMultistepScheduler", {}), ("DDIMScheduler", {"clip_sample": True, "steps_offset": 0}),
    ("DDPMScheduler", {"variance_type": "fixed_large"}), ("EulerDiscreteScheduler", {"timestep_spacing": "leading"})])
def test_image_to_image(rocm_sd, tiny_model, tmp_path, class_name, options, strength):
    from PIL import Image

    model = with_config(tiny_model("sd15"), tmp_path / "model", class_name, **options)
    picture = init_image(tmp_path / "init.png")
    base = diffusers.DiffusionPipeline.from_pretrained(model, torch_dtype=torch.float32)
    pipeline = diffusers.StableDiffusionImg2ImgPipeline(**base.components)
    pipeline.set_progress_bar_config(disable=True)
    pixels = pipeline.image_processor.preprocess(Image.open(picture))
    latents = pipeline.vae.encode(pixels).latent_dist.mode() * pipeline.vae.config.scaling_factor
    want = pipeline(PROMPT, image=latents, strength=strength, num_inference_steps=STEPS, guidance_scale=SCALE,
                    negative_prompt=NEGATIVE, generator=torch.Generator().manual_seed(SEED), output_type="np").images[0]
    got = our_picture(rocm_sd, model, tmp_path / "a.png", 64, "--init-image", picture, "--strength", strength)
    assert psnr(got, np.rint(want * 255).astype(np.uint8)) >= 60


@pytest.mark.parametrize("class_name,options", [
    ("PNDMScheduler", {"skip_prk_steps": True, "set_alpha_to_one": False}), ("DDIMScheduler", {"set_alpha_to_one": True}),
    ("EulerDiscreteScheduler", {"timestep_spacing": "leading"})])
def test_a_schedule_in_place_of_the_files(rocm_sd, tiny_model, tmp_path, class_name, options):
    """One of Diffusers' spacings is the file's with another timestep_spacing; karras is that of the sampler without a file."""
    model = with_config(tiny_model("sd15"), tmp_path / "model", class_name, **options)
    want = diffusers_picture(with_config(model, tmp_path / "trailing", class_name, timestep_spacing="trailing"), 64)
    assert psnr(our_picture(rocm_sd, model, tmp_path / "a.png", 64, "--schedule", "trailing"), want) >= 60
    named = {"PNDMScheduler": "plms", "DDIMScheduler": "ddim", "EulerDiscreteScheduler": "euler"}[class_name]
    alone = our_picture(rocm_sd, model, tmp_path / "b.png", 64, "--sampler", named, "--schedule", "karras")
    assert psnr(our_picture(rocm_sd, model, tmp_path / "c.png", 64, "--schedule", "karras"), alone) >= 50


@pytest.mark.parametrize("class_name,options", [
    ("EDMEulerScheduler", {"sigma_min": 0.002, "sigma_max": 120.0, "sigma_data": 1.0, "sigma_schedule": "exponential",
                           "prediction_type": "v_prediction"}),  # CosXL
    ("EDMDPMSolverMultistepScheduler", {"sigma_min": 0.002, "sigma_max": 80.0, "sigma_data": 0.5}),  # Playground 2.5
    ("EulerDiscreteScheduler", {"timestep_type": "continuous", "prediction_type": "v_prediction"})])
def test_models_that_are_told_sigmas(rocm_sd, tiny_model, tmp_path, class_name, options):
    model = with_config(tiny_model("sdxl"), tmp_path / "model", class_name, **options)
    want = diffusers_picture(model, 64)
    assert want.std() > 5, "the oracle's picture is flat: this would prove nothing"
    assert psnr(our_picture(rocm_sd, model, tmp_path / "a.png", 64), want) >= 60


EDM_FILES = {
    "cosxl": ({"edm_vpred.sigma_max": torch.tensor(100.0), "edm_vpred.sigma_min": torch.tensor(0.005)}, "EDMEulerScheduler",
              {"sigma_min": 0.005, "sigma_max": 100.0, "sigma_data": 1.0, "sigma_schedule": "exponential",
               "prediction_type": "v_prediction"}, {}),
    "playground": ({"edm_mean": torch.tensor([-1.5, 2.0, -1.25, 2.5]).reshape(1, 4, 1, 1),
                    "edm_std": torch.tensor([8.5, 6.0, 6.5, 5.25]).reshape(1, 4, 1, 1)}, "EDMDPMSolverMultistepScheduler",
                   {"sigma_min": 0.002, "sigma_max": 80.0, "sigma_data": 0.5},
                   {"latents_mean": [-1.5, 2.0, -1.25, 2.5], "latents_std": [8.5, 6.0, 6.5, 5.25], "scaling_factor": 0.5})}


@pytest.mark.parametrize("name", EDM_FILES)
def test_single_files_of_edm_models(rocm_sd, tiny_model, tmp_path, name):
    """A single file with these keys draws what the folder draws whose configurations say the same."""
    keys, class_name, options, vae = EDM_FILES[name]
    model = with_config(tiny_model("sdxl", small_vocab=False), tmp_path / "model", class_name, **options)
    config = model / "vae" / "config.json"
    text = json.loads(config.read_text()) | vae
    config.unlink()  # a copy may be a link to the shared model
    config.write_text(json.dumps(text))
    want = our_picture(rocm_sd, model, tmp_path / "a.png", 64)
    assert want.std() > 5
    save_file(load_file(tiny_model("sdxl", "single")) | keys, tmp_path / "x.safetensors")
    got = our_picture(rocm_sd, tmp_path / "x.safetensors", tmp_path / "b.png", 64)
    assert psnr(got, want) >= 60
    # The keys, not the weights, tell them apart.
    save_file(load_file(tiny_model("sdxl", "single")), tmp_path / "plain.safetensors")
    assert psnr(our_picture(rocm_sd, tmp_path / "plain.safetensors", tmp_path / "c.png", 64), want) < 40


def test_a_vaes_shift_is_not_read(rocm_sd, tiny_model, tmp_path):
    """As in Diffusers' pipelines of Stable Diffusion, which divide by scaling_factor alone."""
    model = with_config(tiny_model("sd15"), tmp_path / "model", "EulerDiscreteScheduler")
    config = model / "vae" / "config.json"
    text = json.loads(config.read_text()) | {"shift_factor": 0.7}
    config.unlink()
    config.write_text(json.dumps(text))
    assert psnr(our_picture(rocm_sd, model, tmp_path / "a.png", 64), diffusers_picture(model, 64)) >= 60


@pytest.mark.bad_input
@pytest.mark.parametrize("keys,says", [({"edm_mean": torch.ones(4)}, "edm_std: is missing"), ({"edm_mean": torch.ones(3), "edm_std": torch.ones(4)}, "expected 4 values"),
                                       ({"edm_vpred.sigma_max": torch.tensor(float("nan"))}, "expected positive values"),
                                       ({"edm_vpred.sigma_max": torch.tensor(1.0), "edm_vpred.sigma_min": torch.tensor(2.0)}, "expected less than")])
def test_bad_keys_of_edm_models(rocm_sd, tiny_model, tmp_path, keys, says):
    save_file(load_file(tiny_model("sdxl", "single")) | keys, tmp_path / "x.safetensors")
    assert says in rocm_sd(*drawing(tmp_path / "x.safetensors", 64), "-o", tmp_path / "a.png", code=3).stderr


@pytest.mark.parametrize("class_name,options,part", [
    ("DPMSolverMultistepScheduler", {"use_flow_sigmas": True}, "use_flow_sigmas"),
    ("DDPMScheduler", {"variance_type": "learned"}, "variance_type"),
    ("KarrasVeScheduler", {}, "KarrasVeScheduler")])
def test_a_refused_configuration_does_not_block_the_model(rocm_sd, tiny_model, tmp_path, class_name, options, part):
    plain = tiny_model("sd15")
    model = with_config(plain, tmp_path / "model", class_name, **options)
    refused = rocm_sd(*drawing(model, 64), "-o", tmp_path / "a.png", code=3).stderr
    assert part in refused and "--sampler" in refused and "--sigmas" in refused and "did you mean" not in refused
    for args in (["--sampler", "euler", "--schedule", "karras"], ["--sampler", "euler", "--sigmas", "14,7,3,1,0.3"]):
        got = our_picture(rocm_sd, model, tmp_path / "b.png", 64, *args)
        assert np.array_equal(got, our_picture(rocm_sd, plain, tmp_path / "c.png", 64, *args))


def test_not_a_number_is_not_the_default(rocm_sd, tiny_model, tmp_path):
    """Python writes NaN and -Infinity into JSON; the second is the default of lambda_min_clipped."""
    model = with_config(tiny_model("sd15"), tmp_path / "a", "DPMSolverMultistepScheduler", beta_start=float("nan"))
    assert "beta_start" in rocm_sd(*drawing(model, 64), "-o", tmp_path / "a.png", code=3).stderr
    model = with_config(tiny_model("sd15"), tmp_path / "b", "DPMSolverMultistepScheduler", lambda_min_clipped=-float("inf"))
    rocm_sd(*drawing(model, 64), "-o", tmp_path / "a.png")
    rocm_sd("convert", model, tmp_path / "c")
    assert "lambda_min_clipped" not in json.loads((tmp_path / "c" / "scheduler" / "scheduler_config.json").read_text())
