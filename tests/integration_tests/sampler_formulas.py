"""Samplers and schedules written out in double precision after the papers and k-diffusion: oracles of test_samplers.py.

A sampler here takes (denoise, x, sigmas, noise, path, **options): denoise(x, sigma) -> clean latents, noise() -> fresh
normal values, path(a, b) -> normal increments of a Brownian path from sigma a to b.
"""

from __future__ import annotations

import math
import sys
import types

import numpy as np
import scipy.integrate
import scipy.stats
import torch


class NoiseTable:
    """The scaled-linear schedule of a configuration, and x0 from a model that predicts epsilon."""

    def __init__(self, config: dict):
        start, end = config["beta_start"] ** 0.5, config["beta_end"] ** 0.5
        betas = torch.linspace(start, end, config["num_train_timesteps"], dtype=torch.float32) ** 2
        self.alphas_cumprod = torch.cumprod(1 - betas, dim=0).numpy()
        self.sigmas = np.sqrt((1 - self.alphas_cumprod.astype(np.float64)) / self.alphas_cumprod)

    def timestep(self, sigma: float) -> float:
        return float(np.interp(math.log(sigma), np.log(self.sigmas), np.arange(len(self.sigmas))))

    def denoise(self, x, sigma: float, unet):
        sigma = float(sigma)
        scaled = (np.asarray(x, np.float64) / math.sqrt(sigma**2 + 1)).astype(np.float32)
        return x - sigma * unet(scaled, self.timestep(sigma), self.sigmas, self.alphas_cumprod, "epsilon")


def ancestral(a, b, eta):
    up = min(b, eta * math.sqrt(b**2 * (a**2 - b**2) / a**2))
    return math.sqrt(max(b**2 - up**2, 0)), up


def churned(x, sigmas, i, noise, s_churn, s_noise):
    gamma = min(s_churn / (len(sigmas) - 1), math.sqrt(2) - 1)
    raised = sigmas[i] * (1 + gamma)
    if gamma > 0:
        x = x + noise() * s_noise * math.sqrt(raised**2 - sigmas[i] ** 2)
    return x, raised


def euler(denoise, x, sigmas, noise, path, s_churn=0, s_noise=1, **_):
    for i, after in enumerate(sigmas[1:]):
        x, s = churned(x, sigmas, i, noise, s_churn, s_noise)
        x = x + (x - denoise(x, s)) / s * (after - s)
    return x


def heun(denoise, x, sigmas, noise, path, s_churn=0, s_noise=1, **_):
    for i, after in enumerate(sigmas[1:]):
        x, s = churned(x, sigmas, i, noise, s_churn, s_noise)
        d = (x - denoise(x, s)) / s
        y = x + d * (after - s)
        if after > 0:
            y = x + (d + (y - denoise(y, after)) / after) / 2 * (after - s)
        x = y
    return x


def dpm2(denoise, x, sigmas, noise, path, s_churn=0, s_noise=1, **_):
    for i, after in enumerate(sigmas[1:]):
        x, s = churned(x, sigmas, i, noise, s_churn, s_noise)
        d = (x - denoise(x, s)) / s
        if after > 0:
            middle = math.exp((math.log(s) + math.log(after)) / 2)
            y = x + d * (middle - s)
            d = (y - denoise(y, middle)) / middle
        x = x + d * (after - s)
    return x


def euler_a(denoise, x, sigmas, noise, path, eta=1, s_noise=1, **_):
    for s, after in zip(sigmas, sigmas[1:]):
        down, up = ancestral(s, after, eta)
        x = x + (x - denoise(x, s)) / s * (down - s)
        if after > 0:
            x = x + noise() * s_noise * up
    return x


def dpm2_a(denoise, x, sigmas, noise, path, eta=1, s_noise=1, **_):
    for s, after in zip(sigmas, sigmas[1:]):
        down, up = ancestral(s, after, eta)
        d = (x - denoise(x, s)) / s
        if down > 0:
            middle = math.exp((math.log(s) + math.log(down)) / 2)
            y = x + d * (middle - s)
            d = (y - denoise(y, middle)) / middle
        x = x + d * (down - s)
        if down > 0:
            x = x + noise() * s_noise * up
    return x


def lms(denoise, x, sigmas, noise, path, order=4, **_):
    slopes = []
    for i, s in enumerate(sigmas[:-1]):
        slopes = [(x - denoise(x, s)) / s] + slopes[: order - 1]
        points = [sigmas[i - k] for k in range(len(slopes))]
        for j, slope in enumerate(slopes):
            basis = lambda t, j=j, points=points: math.prod((t - p) / (points[j] - p) for k, p in enumerate(points) if k != j)
            x = x + scipy.integrate.quad(basis, s, sigmas[i + 1], epsrel=1e-12)[0] * slope
    return x


def ipndm(denoise, x, sigmas, noise, path, **_):
    weights = [[1], [3 / 2, -1 / 2], [23 / 12, -4 / 3, 5 / 12], [55 / 24, -59 / 24, 37 / 24, -3 / 8]]
    slopes = []
    for s, after in zip(sigmas, sigmas[1:]):
        slopes = [(x - denoise(x, s)) / s] + slopes[:3]
        x = x + (after - s) * sum(w * d for w, d in zip(weights[len(slopes) - 1], slopes))
    return x


def dpmpp_2s_a(denoise, x, sigmas, noise, path, eta=1, s_noise=1, **_):
    for s, after in zip(sigmas, sigmas[1:]):
        down, up = ancestral(s, after, eta)
        first = denoise(x, s)
        if down == 0:
            x = first
        else:
            t, h = -math.log(s), math.log(s / down)
            middle = math.exp(-(t + h / 2))
            y = middle / s * x - math.expm1(-h / 2) * first
            x = down / s * x - math.expm1(-h) * denoise(y, middle)
        if after > 0:
            x = x + noise() * s_noise * up
    return x


def dpmpp_sde(denoise, x, sigmas, noise, path, eta=1, s_noise=1, **_):
    for s, after in zip(sigmas, sigmas[1:]):
        first = denoise(x, s)
        if after == 0:
            x = first
            continue
        middle = math.sqrt(s * after)
        down, up = ancestral(s, middle, eta)
        y = down / s * x - math.expm1(math.log(down / s)) * first + path(s, middle) * s_noise * up
        second = denoise(y, middle)
        down, up = ancestral(s, after, eta)
        x = down / s * x - math.expm1(math.log(down / s)) * second + path(s, after) * s_noise * up
    return x


def dpmpp_2m(denoise, x, sigmas, noise, path, **_):
    old = None
    for i, (s, after) in enumerate(zip(sigmas, sigmas[1:])):
        new = denoise(x, s)
        if old is None or after == 0:
            x = after / s * x + (1 - after / s) * new
        else:
            h, last = math.log(s / after), math.log(sigmas[i - 1] / s)
            ratio = last / h
            x = after / s * x - math.expm1(-h) * ((1 + 1 / (2 * ratio)) * new - 1 / (2 * ratio) * old)
        old = new
    return x


def dpmpp_2m_v2(denoise, x, sigmas, noise, path, **_):
    # stable-diffusion.cpp's dpm++2mv2, in log sigma: t grows while sigma falls
    old = None
    for i, (s, after) in enumerate(zip(sigmas, sigmas[1:])):
        new = denoise(x, s)
        if after == 0:
            return new
        if old is None:
            x = after / s * x + (1 - after / s) * new
        else:
            steps = sorted([math.log(s / after), math.log(sigmas[i - 1] / s)])
            share = steps[0] / steps[1] / 2
            x = after / s * x + (1 - math.exp(-sum(steps) / 2)) * (new + share * (new - old))
        old = new
    return x


def dpmpp_2m_sde(denoise, x, sigmas, noise, path, eta=1, s_noise=1, solver_type="midpoint", **_):
    old = last = None
    for s, after in zip(sigmas, sigmas[1:]):
        new = denoise(x, s)
        if after == 0:
            return new
        h = math.log(s / after)
        both = h + eta * h
        x = after / s * math.exp(-eta * h) * x - math.expm1(-both) * new
        if old is not None:
            factor = math.expm1(-both) / both + 1 if solver_type == "heun" else -0.5 * math.expm1(-both)
            x = x + factor * h / last * (new - old)
        x = x + path(s, after) * after * math.sqrt(-math.expm1(-2 * eta * h)) * s_noise
        old, last = new, h
    return x


def dpmpp_2m_sde_heun(*args, **options):
    return dpmpp_2m_sde(*args, **options, solver_type="heun")


def dpmpp_3m_sde(denoise, x, sigmas, noise, path, eta=1, s_noise=1, **_):
    old, hs = [], []
    for s, after in zip(sigmas, sigmas[1:]):
        new = denoise(x, s)
        if after == 0:
            return new
        h = math.log(s / after)
        both = h * (1 + eta)
        x = math.exp(-both) * x - math.expm1(-both) * new
        phi2 = math.expm1(-both) / both + 1
        if len(old) == 2:
            r0, r1 = hs[0] / h, hs[1] / h
            a, b = (new - old[0]) / r0, (old[0] - old[1]) / r1
            x = x + phi2 * (a + (a - b) * r0 / (r0 + r1)) - (phi2 / both - 0.5) * (a - b) / (r0 + r1)
        elif len(old) == 1:
            x = x + phi2 * (new - old[0]) / (hs[0] / h)
        x = x + path(s, after) * after * math.sqrt(-math.expm1(-2 * h * eta)) * s_noise
        old, hs = [new] + old[:1], [h] + hs[:1]
    return x


def dpm_fast(denoise, x, sigmas, noise, path, eta=1, s_noise=1, **_):
    calls, high, low = len(sigmas) - 1, sigmas[0], sigmas[-2]
    if calls == 1:
        return denoise(x, high)
    count = calls // 3 + 1
    orders = [3] * (count - 2) + [2, 1] if calls % 3 == 0 else [3] * (count - 1) + [calls % 3]
    times = np.linspace(-math.log(high), -math.log(low), count + 1)
    for order, t, after in zip(orders, times, times[1:]):
        s, to = math.exp(-t), math.exp(-after)
        t1 = min(times[-1], -math.log(max(ancestral(s, to, eta)[0], 1e-30)))
        up = math.sqrt(max(to**2 - math.exp(-2 * t1), 0))
        h = t1 - t
        slope = lambda y, time: (y - denoise(y, math.exp(-time))) / math.exp(-time)
        e = slope(x, t)
        if order == 1:
            x = x - math.exp(-t1) * math.expm1(h) * e
        elif order == 2:
            e1 = slope(x - math.exp(-(t + h / 2)) * math.expm1(h / 2) * e, t + h / 2)
            x = x - math.exp(-t1) * math.expm1(h) * e - math.exp(-t1) * math.expm1(h) * (e1 - e)
        else:
            e1 = slope(x - math.exp(-(t + h / 3)) * math.expm1(h / 3) * e, t + h / 3)
            k, s2 = 2 * h / 3, math.exp(-(t + 2 * h / 3))
            e2 = slope(x - s2 * math.expm1(k) * e - s2 * 2 * (math.expm1(k) / k - 1) * (e1 - e), t + k)
            x = x - math.exp(-t1) * (math.expm1(h) * e + 1.5 * (math.expm1(h) / h - 1) * (e2 - e))
        x = x + up * s_noise * noise()
    return x


def restart(denoise, x, sigmas, noise, path, s_noise=1, **_):
    steps = len(sigmas) - 1
    plan, length, times = list(sigmas), 0, 0
    if steps >= 20:
        length, times = (steps // 4, 2) if steps >= 36 else (9, 1)
        plan = schedule("karras", steps - length * times, np.array([sigmas[-2], sigmas[0]]))
    nearest = lambda value: int(np.abs(np.array(plan) - value).argmin())
    pairs = []
    for i, pair in enumerate(zip(plan, plan[1:])):
        pairs.append(pair)
        if times and i + 1 == nearest(0.1) and nearest(2) < i + 1:
            again = schedule("karras", length + 1, np.array([plan[i + 1], plan[nearest(2)]]))[:-1]
            pairs += list(zip(again, again[1:])) * times
    at = pairs[0][0]
    for s, after in pairs:
        if s > at:
            x = x + noise() * s_noise * math.sqrt(s**2 - at**2)
        x, at = heun(denoise, x, [s, after], None, None), after
    return x


def res_multistep(denoise, x, sigmas, noise, path, **_):
    old = None
    for i, (s, after) in enumerate(zip(sigmas, sigmas[1:])):
        new = denoise(x, s)
        if after == 0 or old is None:
            x = x + (x - new) / s * (after - s)
        else:
            h, c2 = math.log(s / after), -math.log(sigmas[i - 1] / s) / math.log(s / after)
            phi1 = math.expm1(-h) / -h
            phi2 = (phi1 - 1) / -h
            x = after / s * x + h * ((phi1 - phi2 / c2) * new + phi2 / c2 * old)
        old = new
    return x


K_DIFFUSION = {"euler": "euler", "euler_a": "euler_ancestral", "heun": "heun", "dpm2": "dpm_2",
               "dpm2_a": "dpm_2_ancestral", "lms": "lms", "dpmpp_2s_a": "dpmpp_2s_ancestral", "dpmpp_2m": "dpmpp_2m",
               "dpmpp_sde": "dpmpp_sde", "dpmpp_2m_sde": "dpmpp_2m_sde", "dpmpp_2m_sde_heun": "dpmpp_2m_sde",
               "dpmpp_3m_sde": "dpmpp_3m_sde"}


class Oracle:
    """Runs a sampler above, or k-diffusion's of that name (in float) where a checkout is given."""

    def __init__(self, config: dict, sigmas: list[float], seeds: list[int], shape: list[int], unet,
                 checkout: str | None = None):
        from diffusers.schedulers.scheduling_dpmsolver_sde import BrownianTreeNoiseSampler

        self.table, self.sigmas, self.unet, self.checkout, self.is_float = NoiseTable(config), sigmas, unet, checkout, False
        self.generators = [torch.Generator().manual_seed(s) for s in seeds]
        self.shape = shape
        self.noise()  # the initial noise
        low, high = np.float32(sigmas[-2]), np.float32(sigmas[0])
        self.tree = None
        if low < high:
            self.tree = BrownianTreeNoiseSampler(torch.zeros(shape), torch.tensor(low), torch.tensor(high), seed=list(seeds))

    def noise(self) -> np.ndarray:
        return torch.stack([torch.randn(self.shape[1:], generator=g) for g in self.generators]).numpy()

    def path(self, a, b) -> np.ndarray:
        return self.tree(torch.tensor(float(a), dtype=torch.float32), torch.tensor(float(b), dtype=torch.float32)).numpy()

    def denoise(self, x, sigma):
        return self.table.denoise(x, sigma, self.unet)

    def run(self, name: str, x: np.ndarray, options: dict) -> np.ndarray:
        if self.checkout and name in K_DIFFUSION:
            return self.run_k_diffusion(name, x, options)
        return globals()[name](self.denoise, x, [float(s) for s in self.sigmas], self.noise, self.path, **options)

    def run_k_diffusion(self, name: str, x: np.ndarray, options: dict) -> np.ndarray:
        sys.path.insert(0, self.checkout)
        for missing in ("torchdiffeq", "k_diffusion"):  # needed by functions that are not called
            sys.modules.setdefault(missing, types.ModuleType(missing))
        sys.modules["torchdiffeq"].odeint = None
        sys.modules["k_diffusion"].__path__ = [self.checkout + "/k_diffusion"]
        utils = sys.modules.setdefault("k_diffusion.utils", types.ModuleType("k_diffusion.utils"))
        utils.append_dims = lambda value, dims: value[(...,) + (None,) * (dims - value.ndim)]
        sys.modules["k_diffusion"].utils = utils
        from k_diffusion import sampling

        self.is_float = True
        function = getattr(sampling, "sample_" + K_DIFFUSION[name])
        taken = function.__code__.co_varnames[: function.__code__.co_argcount]
        model = lambda z, sigma: torch.from_numpy(np.asarray(self.denoise(z.numpy(), float(sigma[0])), np.float32))
        arguments = {key: value for key, value in options.items() if key in taken}
        if "noise_sampler" in taken:
            sampler = self.path if "sde" in name else lambda a, b: self.noise()
            arguments["noise_sampler"] = lambda a, b: torch.from_numpy(sampler(a, b))
        if name.endswith("heun") and "solver_type" in taken:
            arguments["solver_type"] = "heun"
        if "s_churn" in taken:  # draws noise in every step, used or not
            original = torch.randn_like
            torch.randn_like = lambda z: torch.from_numpy(self.noise())
        try:
            return function(model, torch.from_numpy(np.float32(x)), torch.tensor(self.sigmas, dtype=torch.float32),
                            disable=True, **arguments).numpy()
        finally:
            if "s_churn" in taken:
                torch.randn_like = original


def schedule(name: str, steps: int, table: np.ndarray) -> list[float]:
    """steps sigmas and a 0; table: the model's sigmas, least first."""
    low, high, last = table[0], table[-1], len(table) - 1
    ramp = np.linspace(0, 1, steps)
    at = lambda t: float(np.exp(np.interp(t, np.arange(last + 1), np.log(table))))
    aligned = [14.615, 6.475, 3.861, 2.697, 1.886, 1.396, 0.963, 0.652, 0.399, 0.152, 0.029]
    if name == "karras":
        out = (high ** (1 / 7) + ramp * (low ** (1 / 7) - high ** (1 / 7))) ** 7
    elif name in ("exponential", "polyexponential"):
        out = np.exp(np.linspace(math.log(high), math.log(low), steps))
    elif name == "normal":
        out = [at(t) for t in np.linspace(last, 0, steps)]
    elif name == "sgm_uniform":
        out = [at(t) for t in np.linspace(last, 0, steps + 1)[:-1]]
    elif name == "simple":
        out = [table[-(1 + int(i * (last + 1) / steps))] for i in range(steps)]
    elif name == "ddim_uniform":
        out = [table[t] for t in range(1, last + 1, max((last + 1) // steps, 1))][::-1]
    elif name == "beta":
        out = [low + scipy.stats.beta.ppf(p, 0.6, 0.6) * (high - low) for p in 1 - ramp]
    elif name == "beta_timesteps":
        quantiles = scipy.stats.beta.ppf(1 - np.linspace(0, 1, steps, endpoint=False), 0.6, 0.6)
        out = [table[t] for t in dict.fromkeys(np.rint(quantiles * last).astype(int))]
    elif name == "kl_optimal":
        out = np.tan(ramp * math.atan(low) + (1 - ramp) * math.atan(high))
    elif name == "align_your_steps":
        out = np.exp(np.interp(ramp, np.linspace(0, 1, 11), np.log(aligned)))
    elif name == "linear_quadratic":
        half = steps // 2
        line = [i * 0.025 / half for i in range(half)]
        rest = half - 0.025 * steps
        square = rest / (half * (steps - half) ** 2) if half else 0
        slope = 0.025 / half - 2 * rest / (steps - half) ** 2 if half else 0
        out = [(1 - v) * high for v in line + [square * i**2 + slope * i + square * half**2 for i in range(half, steps)]]
    return [float(s) for s in out] + [0.0]
