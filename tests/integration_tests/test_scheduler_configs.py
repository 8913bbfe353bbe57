"""Complete scheduler configurations, drawn at random, against Diffusers' own schedulers: text to image, image to image.

Every scheduler class that a Stable Diffusion pipeline can name, every parameter of its constructor: a configuration either
gives the same UNet calls (timesteps and inputs) and the same latents, or is refused by a sentence that names the field.
Diffusers' side is its schedulers as its pipelines drive them: their constructors' repairs of a configuration, their
get_timesteps, the noise that they add. A parameter that a later Diffusers adds fails test_every_parameter_is_drawn.

Tolerance, of the UNet's inputs and the final latents relative to their size: as in test_samplers.py, Diffusers' float
arithmetic of coefficients, 2e-6 a step at worst, over at most 30 steps of which errors add up like their square root:
1.1e-5. A step from sigma 80 to 0.002, which two steps of EDM take, leaves the rounding of latents of size 80 beside those of
size 1: 80 * 2^-24 = 5e-6 for each operation. TOLERANCE allows for both, several times over. Classes and schedules whose
float coefficients lose more say so in `tolerance_of`.
"""

from __future__ import annotations

import inspect
import json
import random
import re

import diffusers
import numpy as np
import pytest
import torch
from sampler_oracles import SHAPE, edm_toy_unet, error, table, tool, toy_unet  # noqa: F401

TOLERANCE = 1e-4
CONFIGURATIONS = 16  # of each class, and as many again for image to image
CLASSES = ["EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "LMSDiscreteScheduler", "HeunDiscreteScheduler",
           "KDPM2DiscreteScheduler", "KDPM2AncestralDiscreteScheduler", "DPMSolverSDEScheduler",
           "DPMSolverMultistepScheduler", "DPMSolverSinglestepScheduler", "UniPCMultistepScheduler",
           "DEISMultistepScheduler", "SASolverScheduler", "EDMEulerScheduler", "EDMDPMSolverMultistepScheduler",
           "DDIMScheduler", "DDIMParallelScheduler", "DDPMScheduler", "DDPMParallelScheduler", "PNDMScheduler",
           "LCMScheduler", "TCDScheduler"]
# Values of each parameter beside its default. What is refused today is here, too.
VALUES = {
    "num_train_timesteps": [1000, 500],
    "beta_start": [0.00085, 0.001], "beta_end": [0.012, 0.015],
    "beta_schedule": ["scaled_linear", "scaled_linear", "linear", "squaredcos_cap_v2", "sigmoid", "laplace", "exp"],
    "trained_betas": [[0.0008 + 0.00002 * i for i in range(1000)]],
    "prediction_type": ["epsilon", "v_prediction", "sample", "flow_prediction"],
    "timestep_spacing": ["linspace", "leading", "trailing"], "steps_offset": [0, 1, 2],
    "use_karras_sigmas": [True], "use_exponential_sigmas": [True], "use_beta_sigmas": [True], "use_lu_lambdas": [True],
    "use_flow_sigmas": [True], "flow_shift": [3.0], "use_dynamic_shifting": [True], "time_shift_type": ["exponential"],
    "sigma_min": [0.05, 0.002], "sigma_max": [12.0, 80.0, 120.0], "sigma_data": [0.5, 1.0],
    "sigma_schedule": ["karras", "exponential"], "rho": [7.0, 5.0],
    "final_sigmas_type": ["zero", "sigma_min"], "set_alpha_to_one": [False, True],
    "rescale_betas_zero_snr": [True], "interpolation_type": ["linear", "log_linear"],
    "timestep_type": ["discrete", "continuous"], "lambda_min_clipped": [-5.1, -2.0],
    "solver_order": [1, 2, 3], "solver_type": ["midpoint", "heun", "logrho", "bh1", "bh2"],
    "algorithm_type": ["dpmsolver++", "sde-dpmsolver++", "dpmsolver", "sde-dpmsolver", "deis", "data_prediction",
                       "noise_prediction"],
    "lower_order_final": [True, False], "euler_at_final": [True], "predict_x0": [False], "disable_corrector": [[0], [1, 3]],
    "solver_p": [None], "shift_terminal": [0.1], "predictor_order": [1, 2, 3], "corrector_order": [1, 2, 3],
    "tau_func": [None],
    "thresholding": [True], "dynamic_thresholding_ratio": [0.9], "sample_max_value": [1.5], "clip_sample": [True, False],
    "clip_sample_range": [0.5, 2.0], "skip_prk_steps": [True, True, False],
    "variance_type": ["fixed_small", "fixed_small_log", "fixed_large", "learned", "fixed_large_log"],
    "noise_sampler_seed": [7], "original_inference_steps": [40, 100], "timestep_scaling": [5.0],
}
GROUPS = [("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "use_lu_lambdas", "use_flow_sigmas")]
RARE = {"use_flow_sigmas", "use_dynamic_shifting", "shift_terminal", "thresholding", "trained_betas", "disable_corrector"}
# Parameters that classes do not list but read where a configuration has them.
HIDDEN = {"HeunDiscreteScheduler", "KDPM2DiscreteScheduler", "KDPM2AncestralDiscreteScheduler", "LMSDiscreteScheduler",
          "DPMSolverMultistepScheduler", "DPMSolverSinglestepScheduler", "DEISMultistepScheduler", "SASolverScheduler",
          "DPMSolverSDEScheduler"}


def parameters(name: str) -> list[str]:
    return [p for p in inspect.signature(getattr(diffusers, name).__init__).parameters if p not in ("self", "kwargs")]


def draw(name: str, rng: random.Random) -> dict:
    config = {}
    usual = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    for parameter in parameters(name) + (["sigma_min", "sigma_max"] if name in HIDDEN else []):
        if parameter in usual and rng.random() < 0.75:
            config[parameter] = usual[parameter]
        elif rng.random() < (0.04 if parameter in RARE else 0.3):
            config[parameter] = rng.choice(VALUES[parameter])
    for group in GROUPS:
        named = [p for p in group if config.get(p)]
        for extra in named[1:]:
            del config[extra]
    if "trained_betas" in config:
        config["num_train_timesteps"] = len(config["trained_betas"])
    if config.get("rescale_betas_zero_snr") and rng.random() < 0.8:
        config["prediction_type"] = "v_prediction"
    return {k: v for k, v in config.items() if v is not None}


def pipelines(kind: str):
    if kind == "sd":
        return diffusers.StableDiffusionPipeline, diffusers.StableDiffusionImg2ImgPipeline
    return diffusers.StableDiffusionXLPipeline, diffusers.StableDiffusionXLImg2ImgPipeline


def as_pipeline(scheduler, kind: str, image: bool):
    """The pipeline around it, which repairs the scheduler's configuration as Diffusers does."""
    cls = pipelines(kind)[image]
    names = [p for p in inspect.signature(cls.__init__).parameters if p != "self"]
    empty = {"scheduler": scheduler, "requires_safety_checker": False, "requires_aesthetics_score": False,
             "force_zeros_for_empty_prompt": True, "add_watermarker": False}
    return cls(**{n: empty.get(n) for n in names})


def run_diffusers(job: dict) -> dict | None:
    """None where Diffusers itself refuses the configuration or makes no numbers of it."""
    cls = getattr(diffusers, job["class"])
    try:
        scheduler = cls.from_config({"_class_name": job["class"]} | job["config"])
        pipe = as_pipeline(scheduler, job["pipeline"], "latents" in job)
        scheduler = pipe.scheduler
        scheduler.set_timesteps(job["steps"])
        timesteps = scheduler.timesteps
        edm = job["class"].startswith("EDM")
        expected = job["steps"] + 1 if job["class"] == "PNDMScheduler" else job["steps"]
        if job["class"] in ("DDIMScheduler", "DDPMScheduler", "PNDMScheduler") and int(timesteps.min()) < 0:
            return None  # more timesteps than steps, see descending_range in schedule.cpp
        generator = torch.Generator().manual_seed(job["seeds"][0])
        noise = torch.randn(SHAPE, generator=generator)
        if "latents" in job:
            arguments = (job["steps"], job["strength"], "cpu")
            timesteps, left = pipe.get_timesteps(*arguments)
            if left < 1:
                return None
            clean = torch.tensor(job["latents"]).reshape(SHAPE)
            x = scheduler.add_noise(clean, noise, timesteps[:1])
            if job["class"] == "LMSDiscreteScheduler":
                # From the middle of its list it weighs slopes that it does not have (order 4 with one slope moves 55/24
                # of the step). Ours starts anew, as it does here.
                scheduler.sigmas = scheduler.sigmas[scheduler.begin_index:]
                scheduler.timesteps = timesteps
                scheduler.set_begin_index(0)
        else:
            x = noise * scheduler.init_noise_sigma
        extra = pipe.prepare_extra_step_kwargs(generator, 0.0)
        out = {"start": x.numpy().copy(), "calls": [], "inputs": [], "expected": expected}
        sigmas, alphas = (None, None) if edm else table(scheduler)
        for t in timesteps:
            scaled = scheduler.scale_model_input(x, t)
            out["calls"].append(float(t))
            out["inputs"].append(scaled.numpy().copy())
            if edm:
                model = edm_toy_unet(scaled.numpy(), t, scheduler.config.sigma_data, scheduler.config.prediction_type)
            else:
                continuous = (scheduler.config.get("timestep_type") == "continuous"
                              and scheduler.config.prediction_type == "v_prediction")
                model = toy_unet(scaled.numpy(), t, sigmas, alphas, scheduler.config.prediction_type,
                                 continuous=continuous)
            x = scheduler.step(torch.from_numpy(model), t, x, **extra).prev_sample
        out["final"] = x.numpy().copy()
    except (ValueError, NotImplementedError, TypeError, IndexError, UnboundLocalError, AssertionError, KeyError,
            RuntimeError, ImportError) as e:
        job["why"] = repr(e)
        return None
    ok = all(np.isfinite(v).all() for v in out["inputs"] + [out["final"]])
    return out if ok else None


def tolerance_of(job: dict) -> float:
    name, config = job["class"], job["config"]
    if name == "DEISMultistepScheduler":  # differences of t * log t over differences of logarithms, once per order
        return 3e-3
    if name == "KDPM2AncestralDiscreteScheduler":  # sqrt(to^2 - up^2) with up nearly to where a step leaps far
        return 1e-2
    if name == "PNDMScheduler":  # differences of neighbouring alpha_bar
        return 1e-3
    if name == "SASolverScheduler":  # exponentials of log(alpha / sigma) up to e^(2 * 6), in float, take away each other
        return 2e-2
    if config.get("rescale_betas_zero_snr") or config.get("beta_schedule") in ("squaredcos_cap_v2", "laplace", "exp"):
        # sigma reaches 4096 and more, where alpha_bar has few bits left. PyTorch's float products round otherwise on another CPU:
        # the same code was below 3e-3 from Diffusers on one and 3.6e-3 on another (EulerDiscreteScheduler).
        return 6e-3
    if name == "DPMSolverSDEScheduler":  # two floats a rounding apart reach other leaves of the Brownian tree
        return 1e-2  # the same: below 5e-3 on one CPU, 5.4e-3 on another
    return TOLERANCE


def jobs_of(name: str, image: bool) -> list[dict]:
    rng = random.Random(f"{name} {image}")
    out = []
    for _ in range(CONFIGURATIONS):
        job = {"class": name, "config": draw(name, rng), "pipeline": rng.choice(["sd", "xl"]),
               "steps": rng.choice([2, 4, 5, 7, 8, 12, 15, 20, 25, 30]), "shape": SHAPE, "seeds": [rng.randrange(1000)]}
        if name == "DPMSolverSDEScheduler":
            job["config"].setdefault("noise_sampler_seed", 7)  # without one Diffusers' path is another in each run
        if name == "KDPM2AncestralDiscreteScheduler":  # in a longer step sqrt(to^2 - up^2) has no digit left in float
            job["steps"] = max(job["steps"], 12)
        if name in ("LCMScheduler", "TCDScheduler"):
            job["steps"] = rng.choice([1, 2, 4, 8])
        if image:
            job["strength"] = rng.choice([0.3, 0.5, 0.6, 0.75, 0.9, 1.0])
            values = np.random.default_rng(rng.randrange(1000)).standard_normal(int(np.prod(SHAPE)))
            job["latents"] = [float(np.float32(v)) for v in values]
        out.append(job)
    return out


def shorter(job: dict) -> str:
    config = {k: "..." if k == "trained_betas" else v for k, v in job["config"].items()}
    return json.dumps({k: v for k, v in job.items() if k not in ("latents", "shape", "class")} | {"config": config})


def is_named(message: str, job: dict) -> bool:
    """A refusal names a field that the configuration sets, or an option of the request."""
    fields = re.findall(r'"(\w+)"', message)
    return any(f in job["config"] for f in fields) or "strength" in message or "steps" in message or (
        "betas" in message)


def disagreement(job: dict, got: dict, want: dict) -> str | None:
    if len(got["calls"]) != len(want["calls"]):
        return f"{len(got['calls'])} calls, not {len(want['calls'])}: {got['calls'][:3]} {want['calls'][:3]}"
    tolerance = tolerance_of(job)
    apart = np.abs(np.array(got["calls"]) - np.array(want["calls"]))
    # Timesteps between table entries hang on float logarithms of neighbouring sigmas, 1e-7 apart in 1e-2 or less;
    # one that lies on the edge between two integers may be cut off to either.
    if apart.max() > max(2e-3, 20 * tolerance) and not (apart.max() <= 1 and (apart > 2e-3).sum() <= 1):
        return f"timesteps {got['calls']} are not {want['calls']}"
    if apart.max() > 0.5:
        return None
    before = want["start"]
    for i, (mine, theirs) in enumerate(zip(got["inputs"], want["inputs"])):
        if (e := error(mine, theirs)) > tolerance:
            return f"UNet input {i}: {e:.1e}"
        before = theirs
    e = error(got["final"], want["final"], before)
    return f"final latents: {e:.1e}" if e > tolerance else None


@pytest.mark.parametrize("image", [False, True], ids=["text", "image"])
@pytest.mark.parametrize("name", CLASSES)
def test_configurations(tool, name, image):
    jobs = jobs_of(name, image)
    wanted = [run_diffusers(job) for job in jobs]
    answers = tool({"jobs": jobs})
    wrong, compared = [], 0
    for job, want, got in zip(jobs, wanted, answers):
        shown = shorter(job)
        if "error" in got:
            assert "\n" not in got["error"]
            if want is not None and not is_named(got["error"], job):
                wrong.append(f"refused without a name: {got['error']}\n  {shown}")
            continue
        if want is None:
            continue
        compared += 1
        if why := disagreement(job, got, want):
            wrong.append(f"{why}\n  {shown}")
    assert not wrong, f"{len(wrong)} of {compared}:\n" + "\n".join(wrong)
    assert compared >= CONFIGURATIONS / 4, [job.get("why") for job, want in zip(jobs, wanted) if want is None]


def test_every_parameter_is_drawn():
    for name in CLASSES:
        missing = set(parameters(name)) - set(VALUES)
        assert not missing, f"{name}: no values for {missing}"


def test_refusals_are_of_what_diffusers_has_too(tool):
    """What is refused stays a short list: each of these fields, and no other."""
    refused = set()
    for name in CLASSES:
        jobs = list(jobs_of(name, False))
        for job, got in zip(jobs, tool({"jobs": [j | {"plan_only": True} for j in jobs]})):
            if "error" in got:
                refused |= {f for f in re.findall(r'"(\w+)"', got["error"]) if f in job["config"]}
    assert refused <= {"use_flow_sigmas", "use_dynamic_shifting", "shift_terminal", "variance_type", "prediction_type",
                       "algorithm_type", "solver_type", "solver_order", "lambda_min_clipped", "skip_prk_steps",
                       "original_inference_steps", "final_sigmas_type", "beta_schedule", "sigma_min", "sigma_max"}, refused
