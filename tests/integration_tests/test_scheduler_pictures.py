"""Pictures by a model folder's own scheduler_config.json beside Diffusers' pipelines: image to image, inpainting, EDM."""

from __future__ import annotations

import json
import shutil

import diffusers
import numpy as np
import pytest
import torch
from pictures import psnr
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
