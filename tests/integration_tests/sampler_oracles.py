"""Diffusers' schedulers run on an analytic denoiser, and the program that runs ours: what test_samplers.py compares."""

from __future__ import annotations

import json
import math
import subprocess

import diffusers
import numpy as np
import pytest
import torch

diffusers.utils.logging.set_verbosity_error()

SHAPE = [1, 4, 6, 5]
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
      "clip_sample": False, "skip_prk_steps": True, "set_alpha_to_one": False, "steps_offset": 1}


@pytest.fixture(scope="module")
def tool(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    path = program("sampler_main")

    def run(job: dict, code: int = 0):
        file = folder / "job.json"
        file.write_text(json.dumps(job))
        done = subprocess.run([str(path), str(file)], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    def floats(job: dict) -> np.ndarray:
        (body,) = job.values()
        body["out"] = str(folder / "floats")
        run(job)
        return np.fromfile(folder / "floats", np.float32)

    run.floats = floats
    return run


def rms(x) -> float:
    return float(np.sqrt((np.asarray(x, np.float64) ** 2).mean()))


def error(got, want, before=0.0) -> float:
    """Largest difference relative to the root mean square of what is wanted, or of the latents that the step took away
    from: a step from sigma 14 to 0 leaves the rounding errors of 14."""
    got, want = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
    assert got.shape == want.shape and np.isfinite(got).all() and np.isfinite(want).all()
    return np.abs(got - want).max() / max(rms(want), rms(before))


def toy_unet(x: np.ndarray, t: float, sigmas: np.ndarray, alphas_cumprod: np.ndarray, prediction: str,
             conditions: int = 1, continuous: bool = False) -> np.ndarray:
    t = float(t)
    if continuous:  # the timestep is log(sigma) / 4
        alpha_bar = 1 / (1 + math.exp(8 * t))
    elif t == math.floor(t):
        alpha_bar = float(alphas_cumprod[int(t)])
    else:
        sigma = math.exp(np.interp(t, np.arange(len(sigmas)), np.log(sigmas)))
        alpha_bar = 1 / (1 + sigma**2)
    signal, spread = math.sqrt(alpha_bar), math.sqrt(1 - alpha_bar)
    x = np.asarray(x, np.float64)
    squeezed = x.copy()
    if conditions > 1:
        squeezed[: len(x) // 2] *= 0.5
    clean = 0.6 * 0.5 * math.cos(t * 0.003) + 0.4 * np.tanh(squeezed)
    out = {"epsilon": (x - signal * clean) / spread, "v_prediction": (signal * x - clean) / spread,
           "sample": clean}[prediction]
    return out.astype(np.float32)


def edm_toy_unet(x: np.ndarray, t: float, sigma_data: float, prediction: str) -> np.ndarray:
    """The same clean latents by an EDM model: clean = c_skip * latents + c_out * output."""
    sigma = math.exp(4 * float(t))
    root = math.sqrt(sigma**2 + sigma_data**2)
    x = np.asarray(x, np.float64)
    clean = 0.6 * 0.5 * math.cos(float(t) * 0.003) + 0.4 * np.tanh(x)
    sign = -1 if prediction == "v_prediction" else 1
    return ((clean - sigma_data**2 / root * x) * root / (sign * sigma * sigma_data)).astype(np.float32)


def table(scheduler):
    alphas = scheduler.alphas_cumprod.numpy()
    capped = np.maximum(alphas, np.float32(2.0**-24)) if getattr(scheduler.config, "rescale_betas_zero_snr", False) else alphas
    sigmas = np.sqrt((1 - capped.astype(np.float64)) / capped)
    raw = alphas.copy()
    if getattr(scheduler.config, "rescale_betas_zero_snr", False):
        raw[-1] = 0
    return sigmas, raw


def run_diffusers(name: str, config: dict, steps: int, seed: int = 5, step_args: dict | None = None,
                  sigmas=None) -> dict:
    scheduler = getattr(diffusers, name).from_config(dict(config))
    if sigmas is None:
        scheduler.set_timesteps(steps)
    else:
        scheduler.set_timesteps(sigmas=sigmas)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(SHAPE, generator=generator) * scheduler.init_noise_sigma
    out = {"start": x.numpy().copy(), "trajectory": [], "calls": [], "scheduler": scheduler}
    unet_sigmas, alphas = table(scheduler)
    takes_generator = "generator" in type(scheduler).step.__code__.co_varnames
    for t in scheduler.timesteps:
        scaled = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
        model = torch.from_numpy(toy_unet(scaled.numpy(), t, unet_sigmas, alphas, scheduler.config.prediction_type))
        extra = dict(step_args or {})
        if takes_generator:
            extra["generator"] = generator
        x = scheduler.step(model, t, x, **extra).prev_sample
        out["calls"].append(float(t))
        out["trajectory"].append(x.numpy().copy())
    return out
