"""Samplers, schedules and noise, step by step, against Diffusers' schedulers, torch, torchsde and k-diffusion's formulas.

Both sides run the same analytic denoiser (toy_unet here, ToyUnet in tests/tools/sampler_main.cpp) from the same noise.
The samplers that Diffusers lacks are written out in sampler_formulas.py, after the papers and k-diffusion; where
ROCM_SD_K_DIFFUSION points at a checkout of k-diffusion, its own functions are the oracle instead.

Tolerance of a trajectory: Diffusers keeps latents, sigmas and step coefficients in float. A coefficient that is a
difference of logarithms of size 3 over a step of 0.1 carries about 3 * 2^-24 / 0.1 = 2e-6; errors of a stable method
add up over steps like their square root at worst, 7 at 50 steps: 1.4e-5 of the latents' size. TRAJECTORY is 2e-5.
Wider ones say why.
"""

from __future__ import annotations

import json
import math
import os
import subprocess

import diffusers
import numpy as np
import pytest
import sampler_formulas
import torch

diffusers.utils.logging.set_verbosity_error()

TRAJECTORY = 2e-5
SHAPE = [1, 4, 6, 5]
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
      "clip_sample": False, "skip_prk_steps": True, "set_alpha_to_one": False, "steps_offset": 1}


@pytest.fixture(scope="module")
def tool(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    path = program("sampler_tool")

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


def assert_same_bits(got, want):
    got, want = np.asarray(got, np.float32).ravel(), np.asarray(want, np.float32).ravel()
    assert got.shape == want.shape
    wrong = got.view(np.int32) != want.view(np.int32)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} differ, first at {wrong.argmax()}"


def rms(x) -> float:
    return float(np.sqrt((np.asarray(x, np.float64) ** 2).mean()))


def error(got, want, before=0.0) -> float:
    """Largest difference relative to the root mean square of what is wanted, or of the latents that the step took away
    from: a step from sigma 14 to 0 leaves the rounding errors of 14."""
    got, want = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
    assert got.shape == want.shape and np.isfinite(got).all() and np.isfinite(want).all()
    return np.abs(got - want).max() / max(rms(want), rms(before))


# Noise

@pytest.mark.parametrize("seed", [0, 1, 42, 2**31, 2**32 + 7, 2**63])
def test_torch_cpu_noise(tool, seed):
    sizes = [4 * 64 * 64, 3, 17, 1, 5, 65537, 15, 16, 31, 2, 4 * 128 * 128]
    generator = torch.Generator().manual_seed(seed)
    want = torch.cat([torch.randn(n, generator=generator) for n in sizes])
    assert_same_bits(tool.floats({"noise": {"kind": "cpu", "seed": seed, "sizes": sizes}}), want)


def test_torch_cpu_noise_over_millions(tool):
    for seed in range(4):
        want = torch.randn(1 << 22, generator=torch.Generator().manual_seed(1000 + seed))
        assert_same_bits(tool.floats({"noise": {"kind": "cpu", "seed": 1000 + seed, "sizes": [1 << 22]}}), want)


def philox_randn(seed: int, call: int, count: int) -> np.ndarray:
    """Philox 4x32-10 after Salmon et al. 2011 with counter (call, 0, i, 0), Box-Muller in double from float factors."""
    counter = [np.full(count, call, np.uint64), np.zeros(count, np.uint64), np.arange(count, dtype=np.uint64),
               np.zeros(count, np.uint64)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        counter = [(second >> np.uint64(32)) ^ counter[1] ^ np.uint64(key[0]), second & low,
                   (first >> np.uint64(32)) ^ counter[3] ^ np.uint64(key[1]), first & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    scale, angle = np.float32(2.3283064e-10), np.float32(2.3283064e-10 * 6.2831855)
    u = counter[0].astype(np.float64) * float(scale) + float(scale / np.float32(2))
    v = counter[1].astype(np.float64) * float(angle) + float(angle / np.float32(2))
    return (np.sqrt(-2 * np.log(u)) * np.sin(v)).astype(np.float32)


@pytest.mark.parametrize("seed", [0, 123456789, 2**40 + 3, 2**64 - 1])
def test_philox_noise(tool, seed):
    sizes = [4 * 64 * 64, 5, 4 * 64 * 64]
    got = tool.floats({"noise": {"kind": "gpu", "seed": seed, "sizes": sizes}})
    want = np.concatenate([philox_randn(seed, k, n) for k, n in enumerate(sizes)])
    # libm's and NumPy's double functions may differ in the last bit, which may tip a rounding to float.
    assert (got != want).mean() < 1e-5 and np.abs(got - want).max() < 1e-6


@pytest.mark.parametrize("seeds", [[7], [0, 2**40 + 5, 3]])
def test_brownian_path(tool, seeds):
    from diffusers.schedulers.scheduling_dpmsolver_sde import BrownianTreeNoiseSampler

    rng = np.random.default_rng(len(seeds))
    low, high = np.float32(0.0291675), np.float32(14.614647)
    sigmas = sorted([float(s) for s in rng.uniform(low, high, 20).astype(np.float32)] + [float(low), float(high)])[::-1]
    pairs = list(zip(sigmas, sigmas[1:])) + [(sigmas[3], sigmas[9]), (sigmas[0], sigmas[-1]), (sigmas[12], sigmas[4])]
    shape = [len(seeds), 4, 8, 6]
    path = BrownianTreeNoiseSampler(torch.zeros(shape), torch.tensor(low), torch.tensor(high), seed=list(seeds))
    want = [path(torch.tensor(a), torch.tensor(b)).permute(0, 2, 3, 1).numpy() for a, b in pairs]
    got = tool.floats({"brownian": {"kind": "cpu", "seeds": seeds, "shape": shape, "sigma_min": float(low),
                                    "sigma_max": float(high), "pairs": pairs}}).reshape(np.shape(want))
    # Increments are the same bits; torch's square root of the interval's length may be off by one in the last place.
    np.testing.assert_allclose(got, np.array(want), rtol=2.0**-22, atol=0)


# Samplers

def toy_unet(x: np.ndarray, t: float, sigmas: np.ndarray, alphas_cumprod: np.ndarray, prediction: str,
             conditions: int = 1) -> np.ndarray:
    t = float(t)
    if t == math.floor(t):
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


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("spacing", SPACINGS)
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
        for steps in (1, 3, 7, 30, 50, 900):
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

K_SAMPLERS = ["euler", "euler_a", "heun", "dpm2", "dpm2_a", "lms", "dpmpp_2s_a", "dpmpp_2m", "dpmpp_sde", "dpmpp_2m_sde",
              "dpmpp_2m_sde_heun", "dpmpp_3m_sde", "dpm_fast", "restart", "res_multistep", "ipndm"]


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
                                         ({"thresholding": True}, "thresholding"), ({"clip_sample": True}, "clip_sample"),
                                         ({"timestep_spacing": "odd"}, "timestep_spacing"),
                                         ({"beta_schedule": "odd"}, "beta schedule"),
                                         ({"prediction_type": "odd"}, "prediction type"),
                                         ({"steps_offset": -1}, "steps_offset"), ({"_class_name": "Odd"}, "did you mean")])
def test_bad_configurations(tool, config, part):
    job = {"config": {"_class_name": "EulerDiscreteScheduler"} | config, "shape": SHAPE, "seeds": [1]}
    message = tool(job, code=2 if config.get("trained_betas") else 3)
    assert part in message and message.count("\n") == 1, message
