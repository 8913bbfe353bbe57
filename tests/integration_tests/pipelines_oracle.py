"""Diffusers' pipelines as the oracle of test_diffusers_pipelines.py: the same request to both, and what they must agree in."""

from __future__ import annotations

import json
import os
import shutil

import diffusers
import numpy as np
import torch

from pictures import psnr, read_picture

PROMPT, NEGATIVE = "a photo of the red cat", "blurry"
SCALE, SEED, SIZE = 5.0, 7, 64
BETAS = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", num_train_timesteps=1000, steps_offset=1)
EULER = ("EulerDiscreteScheduler", BETAS)
ANCESTRAL = ("EulerAncestralDiscreteScheduler", BETAS)
DDIM = ("DDIMScheduler", BETAS | dict(clip_sample=False, set_alpha_to_one=False))
SOLVER = ("DPMSolverMultistepScheduler", BETAS)
LCM = ("LCMScheduler", BETAS | dict(clip_sample=False))
TURBO = ("EulerAncestralDiscreteScheduler", BETAS | dict(timestep_spacing="trailing"))


def copied(folder, target, **fields):
    """The model with other fields in its model_index.json; None removes one."""
    shutil.copytree(folder, target, copy_function=lambda a, b: shutil.copy(a, b) if a.endswith(".json") else os.symlink(a, b))
    index = json.loads((target / "model_index.json").read_text()) | fields
    (target / "model_index.json").write_text(json.dumps({k: v for k, v in index.items() if v is not None}))
    return target


def as_bytes(picture) -> np.ndarray:
    return np.rint(np.asarray(picture) * 255).astype(np.uint8)


def theirs(folder, pipeline="DiffusionPipeline", prompt=PROMPT, mean=True, **kwargs) -> np.ndarray:
    """The picture by Diffusers. mean: of the VAE's posterior, instead of a sample. pipeline: a class's name, or an object."""
    pipe = pipeline
    if isinstance(pipeline, str):
        pipe = getattr(diffusers, pipeline).from_pretrained(folder, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    if mean:
        encode = pipe.vae.encode

        def wrapped(*args, **more):
            out = encode(*args, **more)
            if hasattr(out, "latent_dist"):
                out.latent_dist.sample = lambda generator=None: out.latent_dist.mode()
            return out

        pipe.vae.encode = wrapped
    if "image" not in kwargs and "width" not in kwargs:
        kwargs |= dict(width=SIZE, height=SIZE)
    kwargs = dict(num_inference_steps=3, guidance_scale=SCALE, negative_prompt=NEGATIVE,
                  generator=torch.Generator().manual_seed(SEED), output_type="np") | kwargs
    pictures = [as_bytes(image) for image in pipe(prompt, **kwargs).images]
    assert pictures[0].std() > 5, "the oracle's picture is flat: this would prove nothing"
    return pictures if len(pictures) > 1 else pictures[0]


def command(folder, path, *args, prompt=PROMPT, negative=NEGATIVE, steps=3, scale=SCALE, size=SIZE) -> list:
    texts = ["--prompt", prompt] + (["--negative-prompt", negative] if negative is not None else [])
    sides = ["-W", size, "-H", size] if size else []
    return ["generate", "--model", folder, *texts, "--rng", "cpu", "--seed", SEED, "--steps", steps, "--cfg-scale", scale, *sides,
            "--device", "cpu", "--dtype", "f32", "-o", path, *args]


def ours(rocm_sd, folder, path, *args, plain=True, **kwargs) -> np.ndarray:
    done = rocm_sd(*command(folder, path, *(["--plain-prompt"] if plain else []), *args, **kwargs))
    assert done.stdout
    return read_picture(path) if "{index}" not in str(path) else None


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert psnr(got, want) >= 60, psnr(got, want)
