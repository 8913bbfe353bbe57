"""Whole pictures of the samplers that test_pipeline.py's table of Diffusers' schedulers lacks.

Where Diffusers has the method under other options, its pipeline is the oracle. Else the sampler's formula (sampler_formulas.py,
after the papers and k-diffusion) runs around Diffusers' text encoder, UNet and VAE: same weights, sigmas, start and noise.
"""

from __future__ import annotations

import json
import shutil

import diffusers
import numpy as np
import pytest
import sampler_formulas
import torch
from pictures import psnr
from sampler_oracles import SD
from test_pipeline import (NEGATIVE, PROMPT, SCALE, SCHEDULERS, SEED, STEPS, check_three_pictures, diffusers_picture, link,
                           our_picture)

# Our sampler's name -> the schedule that the test asks for.
FORMULAS = {
    "dpmpp_2s_a": "karras",
    "dpmpp_sde": "karras",
    "dpmpp_2m_v2": "karras",
    "dpmpp_2m_sde_heun": "exponential",
    "dpmpp_3m_sde": "exponential",
    "dpm_fast": "normal",
    "restart": "karras",
    "res_multistep": "normal",
    "ipndm": "normal",
    "ipndm_v": "normal",
}
PENULTIMATE_LEFT_OUT = {"dpmpp_3m_sde"}  # A1111 drops the last sigma above 0 there
# Our sampler's name -> Diffusers' class, and the options of its scheduler_config.json that ask for the sampler. To sigma 0,
# Diffusers' bh1 is infinity times 0, so it ends at the least sigma.
OPTIONS = {
    "uni_pc": ("UniPCMultistepScheduler", {"solver_type": "bh1", "solver_order": 3, "final_sigmas_type": "sigma_min"}),
    "dpmpp_2s_sde": ("DPMSolverSinglestepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    "sa_solver": ("SASolverScheduler", {}),
    "ddim_trailing": ("DDIMScheduler", {"clip_sample": False, "timestep_spacing": "trailing"}),
}
# Names of test_pipeline.py's table (Diffusers' words) for samplers that we list under another name.
OTHER_WORDS = {"pndm": "plms", "unipc": "uni_pc_bh2"}


class Guided:
    """Clean latents by Diffusers' UNet with classifier-free guidance, at any sigma; what a formula calls."""

    def __init__(self, model):
        self.pipeline = diffusers.DiffusionPipeline.from_pretrained(model, torch_dtype=torch.float32)
        config = self.pipeline.scheduler.config
        self.velocity = config.prediction_type == "v_prediction"
        self.table = sampler_formulas.NoiseTable({key: config[key] for key in SD if key in config})
        with torch.no_grad():
            cond, uncond = self.pipeline.encode_prompt(PROMPT, "cpu", 1, True, negative_prompt=NEGATIVE)
        self.text = torch.cat([uncond, cond])

    @torch.no_grad()
    def __call__(self, x: np.ndarray, sigma: float) -> np.ndarray:
        norm = (sigma**2 + 1) ** 0.5
        pair = torch.from_numpy(np.concatenate([x, x]) / norm).float()
        uncond, cond = self.pipeline.unet(pair, self.table.timestep(sigma), encoder_hidden_states=self.text).sample.double().numpy()
        out = (uncond + SCALE * (cond - uncond))[None]
        return x / norm**2 - sigma / norm * out if self.velocity else x - sigma * out

    @torch.no_grad()
    def decode(self, latents: np.ndarray) -> np.ndarray:
        vae = self.pipeline.vae
        pixels = vae.decode(torch.from_numpy(latents).float() / vae.config.scaling_factor).sample[0].permute(1, 2, 0).numpy()
        return np.rint(np.clip(pixels / 2 + 0.5, 0, 1) * 255).astype(np.uint8)


def formula_picture(model, sampler: str, size: int) -> np.ndarray:
    guided = Guided(model)
    levels = sampler_formulas.schedule(FORMULAS[sampler], STEPS + (sampler in PENULTIMATE_LEFT_OUT), guided.table.sigmas)
    if sampler in PENULTIMATE_LEFT_OUT:
        del levels[-2]
    oracle = sampler_formulas.Oracle(SD, levels, [SEED], [1, 4, size // 8, size // 8], None)
    start = torch.randn(oracle.shape, generator=torch.Generator().manual_seed(SEED)).double().numpy() * levels[0]
    method = getattr(sampler_formulas, "lms" if sampler == "ipndm_v" else sampler)
    return guided.decode(method(guided, start, levels, oracle.noise, oracle.path))


def with_options(model, folder, sampler: str):
    """A copy of the model folder whose scheduler_config.json asks for the sampler in Diffusers' words."""
    shutil.copytree(model, folder, copy_function=lambda a, b: shutil.copy(a, b) if a.endswith(".json") else link(a, b))
    class_name, options = OPTIONS[sampler]
    config = json.loads((folder / "scheduler" / "scheduler_config.json").read_text())
    getattr(diffusers, class_name).from_config(config, **options).save_config(folder / "scheduler")
    index = json.loads((folder / "model_index.json").read_text())
    index["scheduler"] = ["diffusers", class_name]
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def oracle_and_options(model, folder, sampler: str, size: int):
    """The picture that is wanted, our model, and our options."""
    if sampler in FORMULAS:
        return formula_picture(model, sampler, size), model, ["--sampler", sampler, "--schedule", FORMULAS[sampler]]
    changed = with_options(model, folder, sampler)
    return diffusers_picture(changed, size), changed, []


GUIDED = {"euler_cfg_pp", "euler_a_cfg_pp", "dpmpp_2m_cfg_pp"}  # they read both predictions: test_guidance.py


def test_every_sampler_has_a_picture(rocm_sd):
    listed = {line.split()[0] for line in rocm_sd("list", "samplers").stdout.splitlines()}
    assert listed == {OTHER_WORDS.get(name, name) for name in SCHEDULERS} | set(FORMULAS) | set(OPTIONS) | GUIDED


@pytest.mark.parametrize("sampler", [*FORMULAS, *OPTIONS])
def test_pictures_of_formulas(rocm_sd, tiny_model, tmp_path, sampler):
    want, model, args = oracle_and_options(tiny_model("sd15"), tmp_path / "model", sampler, 64)
    assert want.std() > 5, "the oracle's picture is flat: this would prove nothing"
    assert psnr(our_picture(rocm_sd, model, tmp_path / "a.png", 64, *args), want) >= 60


@pytest.mark.parametrize("sampler", [*FORMULAS, *OPTIONS])
def test_pictures_of_formulas_with_trained_weights(rocm_sd, repository, tmp_path, sampler):
    want, model, args = oracle_and_options(repository / "models" / "demo", tmp_path / "model", sampler, 128)
    check_three_pictures(rocm_sd, model, tmp_path, want, args)
