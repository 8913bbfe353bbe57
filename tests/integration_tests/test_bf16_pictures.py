"""Whole pictures of every sampler in products of bf16, as models of 256 channels and more compute them.

Every other test model is narrower, and a narrow model in bf16 takes another way (docs/architecture.md, "Numerics"): here are a
random model of few wide layers, and the demo model, whose weights are trained, made to take the wide way
(ROCM_SD_BF16=products). The variable also stands in for bf16 instructions where this CPU has none: the same roundings, slower.

What a picture may lose is measured beside it: white noise of the rounding's size on f32's predictions, and the rounding itself with
the other sign, say how far the sampler and the model carry such an error where nothing else is rounded
(tests/tools/rounding_main.cpp).
"""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pytest
from pictures import read_picture

# By ComfyUI's and k-diffusion's groups; together all of `rocm-sd list samplers`.
GROUPS = {
    "euler": ["euler", "euler_a", "heun", "dpm2", "dpm2_a", "lms", "ddim", "ddim_trailing", "ddpm", "plms"],
    "dpmpp": ["dpmpp_2s_a", "dpmpp_2s", "dpmpp_2m", "dpmpp_2m_v2", "dpmpp_sde", "dpmpp_2m_sde", "dpmpp_2m_sde_heun",
              "dpmpp_3m_sde", "dpmpp_2s_sde", "dpm_fast"],
    "others": ["restart", "res_multistep", "ipndm", "ipndm_v", "deis", "uni_pc", "uni_pc_bh2", "sa_solver", "lcm", "tcd"],
    "cfg_pp": ["euler_cfg_pp", "euler_a_cfg_pp", "dpmpp_2m_cfg_pp"],
}
# dB between medians of few seeds of pictures that are disturbed alike: one picture in ten turns into another one.
MARGIN = 8


@pytest.fixture
def rounding(program, tmp_path):
    """rounding(job): the program's results on one job, its environment set to compute as wide models do."""

    def run(**job) -> dict:
        (tmp_path / "job.json").write_text(json.dumps(job, default=str))
        done = subprocess.run([program("rounding_main"), tmp_path / "job.json"], capture_output=True, text=True, timeout=600,
                              env=os.environ | {"ROCM_SD_BF16": "products"})
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout)

    return run


def misses(found: dict, samplers: list[str]) -> dict[str, str]:
    """The samplers whose median picture is below 40 dB and further off than what is disturbed alike, with the figures."""
    assert found["products"] == "bf16", "this would prove nothing: the model did not multiply in bf16"
    assert set(found["results"]) == set(samplers)
    out = {}
    for sampler, rows in found["results"].items():
        errors = [row["error"] for row in rows]
        # Of bf16's 2^-9 a sum leaves less; none at all, or whole per cents, would be another way of computing.
        assert all(2e-3 < error < 2e-2 for error in errors), (sampler, errors)
        picture, noise, mirrored = (float(np.median([row[key] for row in rows])) for key in ("picture", "noise", "mirrored"))
        if picture < min(40, noise - MARGIN, mirrored - MARGIN):
            out[sampler] = f"{picture:.1f} dB; noise {noise:.1f}, mirrored {mirrored:.1f}"
    return out


def test_the_groups_are_all_samplers(rocm_sd):
    listed = {line.split()[0] for line in rocm_sd("list", "samplers").stdout.splitlines()}
    assert listed == {name for group in GROUPS.values() for name in group}


@pytest.mark.parametrize("group", GROUPS)
def test_a_wide_model_in_bf16(rounding, tiny_model, group):
    job = dict(model=tiny_model("sd15-wide", dtype="fp16"), size=64, steps=4)
    assert not misses(rounding(**job, samplers=GROUPS[group], seeds=[1]), GROUPS[group])


@pytest.mark.parametrize("group", GROUPS)
def test_trained_weights_as_wide_models_compute(rounding, repository, group):
    """Single pictures scatter by 10 dB: samplers that two seeds show too far off are measured with seven."""
    job = dict(model=repository / "models" / "demo", size=64, steps=8)
    far = list(misses(rounding(**job, samplers=GROUPS[group], seeds=[1, 2]), GROUPS[group]))
    assert not far or not misses(rounding(**job, samplers=far, seeds=[*range(1, 8)]), far)


def test_wide_models_multiply_in_bf16_by_themselves(rocm_sd, tiny_model, tmp_path):
    """Without the variable: the same picture where this CPU's products of bf16 pay, and bf16 in the log; else f32's products."""
    args = ["generate", "-m", tiny_model("sd15-wide", dtype="fp16"), "-p", "a cat", "-s", 1, "--steps", 2, "-W", 64, "-H", 64, "--dtype", "bf16"]
    plain = rocm_sd(*args, "-o", tmp_path / "a.png", env={"ROCM_SD_LOG": "dispatch"})
    forced = rocm_sd(*args, "-o", tmp_path / "b.png", env={"ROCM_SD_LOG": "dispatch", "ROCM_SD_BF16": "products"})

    def products(done) -> set[str]:
        return {line.split(": ", 1)[1] for line in done.stderr.splitlines() if "conv2d" in line and "320" in line and "bf16" in line}

    assert products(forced), forced.stderr[-2000:]
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "")
    if "avx512_bf16" in flags and ("amx_bf16" in flags or "AuthenticAMD" in open("/proc/cpuinfo").read()):
        assert products(plain) == products(forced)
        assert np.array_equal(read_picture(tmp_path / "a.png"), read_picture(tmp_path / "b.png"))
