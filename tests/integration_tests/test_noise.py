"""Noise generators and the Brownian path against torch and torchsde, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sampler_oracles import tool  # noqa: F401, a fixture


def assert_same_bits(got, want):
    got, want = np.asarray(got, np.float32).ravel(), np.asarray(want, np.float32).ravel()
    assert got.shape == want.shape
    wrong = got.view(np.int32) != want.view(np.int32)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} differ, first at {wrong.argmax()}"


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
