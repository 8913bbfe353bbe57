"""Samplers and schedules, step by step, against Diffusers' schedulers and k-diffusion's formulas.

Both sides run the same analytic denoiser (toy_unet of sampler_oracles.py, ToyUnet of tests/tools/sampler_main.cpp) from the
same noise.
The samplers that Diffusers lacks are written out in sampler_formulas.py, after the papers and k-diffusion; where
ROCM_SD_K_DIFFUSION points at a checkout of k-diffusion, its own functions are the oracle instead.

Tolerance of a trajectory: Diffusers keeps latents, sigmas and step coefficients in float. A coefficient that is a
difference of logarithms of size 3 over a step of 0.1 carries about 3 * 2^-24 / 0.1 = 2e-6; errors of a stable method
add up over steps like their square root at worst, 7 at 50 steps: 1.4e-5 of the latents' size. TRAJECTORY is 2e-5.
Wider ones say why.
"""

from __future__ import annotations

import math
import os

import diffusers
import numpy as np
import pytest
import sampler_formulas
import torch
from sampler_oracles import SD, SHAPE, error, run_diffusers, table, tool, toy_unet  # noqa: F401

TRAJECTORY = 2e-5
SOLVERS = {"DPMSolverMultistepScheduler", "DPMSolverSinglestepScheduler", "UniPCMultistepScheduler",
           "DEISMultistepScheduler"}
TWO_CALLS = {"HeunDiscreteScheduler", "KDPM2DiscreteScheduler", "KDPM2AncestralDiscreteScheduler",
             "DPMSolverSDEScheduler"}
SPACINGS = ["linspace", "leading", "trailing"]
RESHAPES = [{}, {"use_karras_sigmas": True}, {"use_exponential_sigmas": True}, {"use_beta_sigmas": True}]


def compare(tool, name: str, config: dict, steps: int, step_args: dict | None = None, tolerance: float = TRAJECTORY,
            **job):
    config = SD | config
    want = run_diffusers(name, config, steps, step_args=step_args)
    got = tool({"config": config, "class": name, "steps": steps, "shape": SHAPE, "seeds": [5]} | job)
    assert error(got["start"], want["start"]) < 1e-6 or name in SOLVERS
    # Timesteps between table entries hang on float logarithms of neighbouring sigmas, 1e-7 apart in 1e-2 or less.
    np.testing.assert_allclose(got["calls"], want["calls"], rtol=0, atol=max(2e-3, 20 * tolerance))
    trajectory = want["trajectory"]
    if name in TWO_CALLS:
        trajectory = trajectory[1::2] + trajectory[-1:]
    elif name == "PNDMScheduler" and steps > 1:
        trajectory = trajectory[1:]
    assert len(got["trajectory"]) == len(trajectory) == steps
    if want["scheduler"].config.get("final_sigmas_type", "zero") == "zero" and name != "DEISMultistepScheduler":
        assert got["unet_calls"] == len(got["calls"])
    for i, (mine, theirs) in enumerate(zip(got["trajectory"], trajectory)):
        mine = np.array(mine)
        if name in SOLVERS:
            mine = mine / math.sqrt(1 + got["sigmas"][i + 1] ** 2)
        before = trajectory[i - 1] if i else want["start"]
        assert error(mine, theirs, before) < tolerance, f"step {i + 1} of {steps}"
    assert error(got["final"], got["trajectory"][-1]) < (1e-3 if name in SOLVERS else 1e-7)
    return got, want


STEPS = [1, 2, 5, 20, 50]


def tolerance_of(name: str, steps: int, order: int = 2) -> float:
    """Wider where float is not enough in Diffusers itself: DEIS' coefficients are differences of t * log t, ten times their
    size, divided by a logarithm's difference once per order; the ancestral down-step is sqrt(to^2 - up^2) with up nearly
    to where few steps leap far."""
    if name == "DEISMultistepScheduler":
        return 1e-3 if order == 3 else 1e-4
    if name == "KDPM2AncestralDiscreteScheduler" and steps <= 5:
        return 1e-2 if steps == 2 else 1e-3
    return TRAJECTORY


@pytest.mark.parametrize("spacing,steps", [("linspace", n) for n in STEPS] + [("leading", 1), ("leading", 20),
                                                                              ("leading", 30), ("trailing", 2),
                                                                              ("trailing", 7), ("trailing", 20)])
@pytest.mark.parametrize("name", ["EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "LMSDiscreteScheduler",
                                  "HeunDiscreteScheduler", "KDPM2DiscreteScheduler", "KDPM2AncestralDiscreteScheduler",
                                  "DPMSolverMultistepScheduler", "UniPCMultistepScheduler", "DEISMultistepScheduler",
                                  "DDIMScheduler", "DDPMScheduler"])
def test_against_diffusers(tool, name, spacing, steps):
    compare(tool, name, {"timestep_spacing": spacing}, steps, tolerance=tolerance_of(name, steps))


@pytest.mark.parametrize("steps", [2, 5, 20])
@pytest.mark.parametrize("reshape", RESHAPES[1:], ids=["karras", "exponential", "beta"])
@pytest.mark.parametrize("name", ["EulerDiscreteScheduler", "LMSDiscreteScheduler", "HeunDiscreteScheduler",
                                  "KDPM2DiscreteScheduler", "KDPM2AncestralDiscreteScheduler",
                                  "DPMSolverMultistepScheduler", "DPMSolverSinglestepScheduler",
                                  "UniPCMultistepScheduler", "DEISMultistepScheduler"])
def test_reshaped_sigmas(tool, name, reshape, steps):
    compare(tool, name, reshape, steps, tolerance=tolerance_of(name, steps))


@pytest.mark.parametrize("prediction", ["v_prediction", "sample"])
@pytest.mark.parametrize("name", ["EulerDiscreteScheduler", "DPMSolverMultistepScheduler", "UniPCMultistepScheduler",
                                  "DEISMultistepScheduler", "DDIMScheduler", "DDPMScheduler", "LMSDiscreteScheduler",
                                  "EulerAncestralDiscreteScheduler", "HeunDiscreteScheduler", "PNDMScheduler"])
def test_prediction_types(tool, name, prediction):
    if prediction == "sample" and name in ("LMSDiscreteScheduler", "EulerAncestralDiscreteScheduler",
                                           "HeunDiscreteScheduler", "PNDMScheduler"):
        name = "DDIMScheduler"  # Diffusers does not implement sample prediction there
    compare(tool, name, {"prediction_type": prediction, "timestep_spacing": "leading"}, 20,
            tolerance=tolerance_of(name, 20))


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("to_one", [False, True])
def test_pndm(tool, to_one, steps):
    compare(tool, "PNDMScheduler", {"set_alpha_to_one": to_one}, steps)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", ["DPMSolverMultistepScheduler", "DPMSolverSinglestepScheduler",
                                  "UniPCMultistepScheduler", "DEISMultistepScheduler"])
def test_solver_orders(tool, name, order, steps):
    compare(tool, name, {"solver_order": order}, steps, tolerance=tolerance_of(name, steps, order))


@pytest.mark.parametrize("name,options", [
    ("DPMSolverMultistepScheduler", {"solver_type": "heun"}),
    ("DPMSolverMultistepScheduler", {"lower_order_final": False}),
    ("DPMSolverMultistepScheduler", {"final_sigmas_type": "sigma_min", "lower_order_final": False}),
    ("DPMSolverMultistepScheduler", {"final_sigmas_type": "sigma_min"}),
    ("DPMSolverSinglestepScheduler", {"solver_type": "heun"}),
    ("DPMSolverSinglestepScheduler", {"solver_type": "heun", "solver_order": 3}),
    # To sigma 0, Diffusers' bh1 is infinity * 0.
    ("UniPCMultistepScheduler", {"solver_type": "bh1", "final_sigmas_type": "sigma_min"}),
    ("UniPCMultistepScheduler", {"solver_type": "bh1", "solver_order": 3, "final_sigmas_type": "sigma_min"}),
    ("UniPCMultistepScheduler", {"final_sigmas_type": "sigma_min", "lower_order_final": False}),
    ("DEISMultistepScheduler", {"lower_order_final": False}),
    ("EulerDiscreteScheduler", {"final_sigmas_type": "sigma_min"}),
    ("EulerDiscreteScheduler", {"use_karras_sigmas": True, "sigma_min": 0.05, "sigma_max": 13.0}),
    ("EulerDiscreteScheduler", {"beta_schedule": "linear"}),
    ("DDIMScheduler", {"beta_schedule": "squaredcos_cap_v2"}),
    ("EulerDiscreteScheduler", {"trained_betas": [0.001 + 0.00002 * i for i in range(500)], "num_train_timesteps": 500}),
])
@pytest.mark.parametrize("steps", [5, 20])
def test_options(tool, name, options, steps):
    # The cosine schedule reaches sigma 20,000 and more, where its last betas leave alpha_bar few bits.
    tolerance = 1e-3 if options.get("beta_schedule") == "squaredcos_cap_v2" else tolerance_of(name, steps)
    compare(tool, name, options, steps, tolerance=tolerance)


@pytest.mark.parametrize("beta_schedule", ["scaled_linear", "linear", "squaredcos_cap_v2"])
@pytest.mark.parametrize("reshape", RESHAPES, ids=["none", "karras", "exponential", "beta"])
@pytest.mark.parametrize("name", ["EulerDiscreteScheduler", "DPMSolverMultistepScheduler"])
def test_levels_of_configurations(tool, name, reshape, beta_schedule):
    for spacing in SPACINGS:
        for steps in (1, 7, 30, 900):
            config = SD | reshape | {"beta_schedule": beta_schedule, "timestep_spacing": spacing}
            scheduler = getattr(diffusers, name).from_config(config)
            scheduler.set_timesteps(steps)
            got = tool({"config": config, "class": name, "steps": steps, "plan_only": True})
            np.testing.assert_allclose(got["sigmas"], scheduler.sigmas.numpy(), rtol=2e-6)
            np.testing.assert_allclose(got["timesteps"][:-1], scheduler.timesteps.numpy(), rtol=0, atol=2e-3)


@pytest.mark.parametrize("solver", ["midpoint", "heun"])
@pytest.mark.parametrize("steps", STEPS)
def test_sde_solver(tool, solver, steps):
    compare(tool, "DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++", "solver_type": solver}, steps)


@pytest.mark.parametrize("eta", [0.3, 1.0])
def test_ddim_eta(tool, eta):
    compare(tool, "DDIMScheduler", {}, 20, step_args={"eta": eta}, eta=eta)


@pytest.mark.parametrize("steps", [1, 4, 8, 50])
@pytest.mark.parametrize("name,gamma", [("LCMScheduler", None), ("TCDScheduler", 0.3), ("TCDScheduler", 0.0),
                                        ("TCDScheduler", 1.0)])
def test_distilled(tool, name, gamma, steps):
    extra = {} if gamma is None else {"eta": gamma}
    compare(tool, name, {}, steps, step_args=extra, **extra)


@pytest.mark.parametrize("name", ["EulerDiscreteScheduler", "DDIMScheduler", "DPMSolverMultistepScheduler",
                                  "UniPCMultistepScheduler", "EulerAncestralDiscreteScheduler", "LCMScheduler"])
def test_zero_terminal_snr(tool, name):
    # From sigma 4096 to 160 in one step, latents of 4096: what is left of them is float noise of 4096 * 2^-24 in the
    # later states, whose size is 160 and less.
    config = {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing"}
    got, _ = compare(tool, name, config, 20, tolerance=1e-4)
    assert got["calls"][0] == 999


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("karras", [False, True])
def test_dpm_solver_sde(tool, karras, steps):
    """Same Brownian path: the scheduler's is asked for our sigmas, which differ from its own in the last float digit."""
    from diffusers.schedulers.scheduling_dpmsolver_sde import BrownianTreeNoiseSampler

    config = SD | {"use_karras_sigmas": karras}
    sigmas = tool({"config": config, "class": "DPMSolverSDEScheduler", "steps": steps, "plan_only": True})["sigmas"]
    pairs = [(a, to) for a, b in zip(sigmas, sigmas[1:]) if b > 0 for to in (math.sqrt(a * b), b)]
    path = steps > 1 and BrownianTreeNoiseSampler(torch.zeros(SHAPE), np.float32(sigmas[-2]), np.float32(sigmas[0]), seed=[5])

    def recorded(a, b):
        ours = pairs.pop(0)
        assert float(a) == pytest.approx(ours[0], rel=1e-5) and float(b) == pytest.approx(ours[1], rel=1e-5)
        return path(torch.tensor(ours[0], dtype=torch.float32), torch.tensor(ours[1], dtype=torch.float32))

    original = diffusers.DPMSolverSDEScheduler.set_timesteps

    def set_timesteps(self, *args, **kwargs):
        original(self, *args, **kwargs)
        self.noise_sampler = recorded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diffusers.DPMSolverSDEScheduler, "set_timesteps", set_timesteps)
        compare(tool, "DPMSolverSDEScheduler", {"use_karras_sigmas": karras}, steps, tolerance=5e-5)
    assert not pairs


def test_ipndm(tool):
    """IPNDMScheduler has a schedule and a parametrisation of its own; given epsilon at its levels it is our iPNDM."""
    steps = 20
    scheduler = diffusers.IPNDMScheduler()
    scheduler.set_timesteps(steps)
    levels = (scheduler.betas / scheduler.alphas).double().numpy()
    sigmas = [float(s) for s in levels[1:]]  # the first is infinite
    got = tool({"sampler": "ipndm", "sigmas": sigmas, "shape": SHAPE, "seeds": [5]})
    alphas, betas = scheduler.alphas.double().numpy(), scheduler.betas.double().numpy()
    x = np.array(got["start"]) * alphas[1]
    scheduler._step_index, noise = 1, sampler_formulas.NoiseTable(SD)
    for i in range(1, steps):
        sigma = betas[i] / alphas[i]
        epsilon = (x / alphas[i] - noise.denoise(x / alphas[i], np.float32(sigma), toy_unet)) / sigma
        output = (epsilon - betas[i] * x) / alphas[i]  # so that its sample * beta + output * alpha is epsilon
        x = scheduler.step(torch.from_numpy(output), scheduler.timesteps[i], torch.from_numpy(x)).prev_sample.numpy()
        assert error(np.array(got["trajectory"][i - 1]) * alphas[i + 1], x) < TRAJECTORY


# k-diffusion's and A1111's

K_SAMPLERS = ["euler", "euler_a", "heun", "dpm2", "dpm2_a", "lms", "dpmpp_2s_a", "dpmpp_2m", "dpmpp_2m_v2", "dpmpp_sde",
              "dpmpp_2m_sde", "dpmpp_2m_sde_heun", "dpmpp_3m_sde", "dpm_fast", "restart", "res_multistep", "ipndm"]


@pytest.mark.parametrize("options", [{}, {"eta": 0.5, "s_noise": 1.01}], ids=["default", "eta"])
@pytest.mark.parametrize("schedule", ["karras", "normal"])
@pytest.mark.parametrize("name", K_SAMPLERS)
def test_against_k_diffusion(tool, name, schedule, options):
    for steps in (1, 2, 5, 21, 40):
        job = {"sampler": name, "schedule": schedule, "steps": steps, "shape": [2] + SHAPE[1:], "seeds": [5, 9]}
        if name in ("euler", "heun", "dpm2") and options:
            job["s_churn"] = 10.0
        got = tool(job | options)
        oracle = sampler_formulas.Oracle(SD, got["sigmas"], job["seeds"], job["shape"], toy_unet,
                                         checkout=os.environ.get("ROCM_SD_K_DIFFUSION"))
        want = oracle.run(name, np.array(got["start"]).reshape(job["shape"]), options | {"s_churn": job.get("s_churn", 0)})
        # Two floats a rounding apart in sigma reach different leaves of the Brownian tree: 1e-6 of its range of 14.6,
        # whose increment is about sqrt(1e-6) = 1e-3 of a step's, in the float oracle only.
        tolerance = 5e-3 if oracle.is_float and "sde" in name else 5e-5 if oracle.is_float else 1e-5
        assert error(got["final"], want, (got["trajectory"][:-1] or [got["start"]])[-1]) < tolerance, steps
        assert len(got["calls"]) == got["unet_calls"]


@pytest.mark.parametrize("schedule", ["normal", "karras", "exponential", "polyexponential", "sgm_uniform", "simple",
                                      "ddim_uniform", "beta", "beta_timesteps", "kl_optimal", "align_your_steps",
                                      "linear_quadratic"])
@pytest.mark.parametrize("steps", [1, 2, 7, 10, 11, 20, 30])
def test_schedules(tool, schedule, steps):
    got = tool({"sampler": "euler", "schedule": schedule, "steps": steps, "plan_only": True})["sigmas"]
    want = sampler_formulas.schedule(schedule, steps, sampler_formulas.NoiseTable(SD).sigmas)
    assert got[-1] == 0 and len(got) == len(want)
    np.testing.assert_allclose(got, want, rtol=2e-6)


# Guidance

@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("scale,rescale", [(7.5, 0.0), (7.5, 0.7), (0.0, 0.0), (1.0, 0.0), (-2.0, 1.0)])
def test_guidance(tool, prediction, scale, rescale):
    """One Euler run: guidance on the raw model output, then Diffusers' rescale_noise_cfg, per image."""
    job = {"config": SD | {"prediction_type": prediction}, "class": "EulerDiscreteScheduler", "steps": 5,
           "shape": [2] + SHAPE[1:], "seeds": [5, 9], "cfg_scale": scale, "rescale": rescale}
    got = tool(job)
    scheduler = diffusers.EulerDiscreteScheduler.from_config(job["config"])
    scheduler.set_timesteps(5)
    unet_sigmas, alphas = table(scheduler)
    x = torch.tensor(got["start"]).reshape(job["shape"])
    for i, t in enumerate(scheduler.timesteps):
        pair = torch.cat([scheduler.scale_model_input(x, t)] * (1 if scale == 1 else 2))
        out = torch.from_numpy(toy_unet(pair.numpy(), t, unet_sigmas, alphas, prediction, conditions=len(pair) // 2))
        if scale != 1:
            uncond, cond = out.chunk(2)
            out = uncond + scale * (cond - uncond)
            if rescale > 0:
                std = [z.std(dim=(1, 2, 3), keepdim=True) for z in (cond, out)]
                out = rescale * out * (std[0] / std[1]) + (1 - rescale) * out
        before = x
        x = scheduler.step(out, t, x).prev_sample
        assert error(got["trajectory"][i], x.numpy(), before.numpy()) < 1e-4  # guidance of 7.5 multiplies errors


# Configurations and bad input

def test_bad_jobs_have_one_line_errors(tool):
    base = {"shape": SHAPE, "seeds": [1]}
    for job, part in [({"sampler": "dpm++ 2mm", "steps": 3}, 'did you mean "DPM++ 2M"?'),
                      ({"sampler": "euler", "schedule": "karas"}, 'did you mean "karras"?'),
                      ({"sampler": "euler", "steps": 0}, "1..1000"), ({"sampler": "euler", "steps": 1001}, "1..1000"),
                      ({"sampler": "ddim", "eta": 1.5}, "eta"), ({"sampler": "euler", "sigmas": [1, 2]}, "sigmas"),
                      ({"sampler": "lms", "order": 9}, "order"), ({"sampler": "lcm", "steps": 51}, "original"),
                      ({"sampler": "euler", "strength": 1.5}, "strength"), ({"sampler": "euler", "steps": 20, "strength": 0.01}, "strength")]:
        message = tool(base | job, code=2)
        assert part in message and message.count("\n") == 1, message


def test_cancelling(tool):
    message = tool({"sampler": "euler", "steps": 9, "cancel_after": 4, "shape": SHAPE, "seeds": [1]}, code=6)
    assert "step 4 of 9" in message


@pytest.mark.parametrize("config,part", [({"trained_betas": []}, "trained_betas"), ({"trained_betas": [2.0]}, "beta"),
                                         ({"beta_start": "x"}, "beta_start"), ({"num_train_timesteps": 0}, "num_train"),
                                         ({"num_train_timesteps": 1e9}, "num_train"),
                                         ({"interpolation_type": "odd"}, "interpolation_type"),
                                         ({"use_karras_sigmas": True, "use_beta_sigmas": True}, "use_beta_sigmas"),
                                         ({"timestep_spacing": "odd"}, "timestep_spacing"),
                                         ({"beta_schedule": "odd"}, "beta schedule"),
                                         ({"prediction_type": "odd"}, "prediction type"),
                                         ({"steps_offset": -1}, "steps_offset"), ({"_class_name": "EulerDiscretScheduler"}, "did you mean")])
def test_bad_configurations(tool, config, part):
    job = {"config": {"_class_name": "EulerDiscreteScheduler"} | config, "shape": SHAPE, "seeds": [1]}
    message = tool(job, code=2 if config.get("trained_betas") else 3)
    assert part in message and message.count("\n") == 1, message
