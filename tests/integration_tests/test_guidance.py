"""When and how guidance acts: CFG++ and mimicked scales against their formulas in double precision, intervals and minimum sigmas
against loops by hand on Diffusers' models, thresholds against Diffusers' schedulers; what distilled models propose."""

from __future__ import annotations

import os

import diffusers
import numpy as np
import pytest
import torch

import sampler_formulas
from pictures import psnr, read_parameters, read_picture
from sampler_oracles import SD, SHAPE, error, table, tool, toy_unet  # noqa: F401 (tool is a fixture)
from test_pipeline import diffusers_picture, our_picture, with_scheduler
from test_prompt_control import SCALE, SEED, SIZE, STEPS, encoded, load, ours

BATCH = [2] + SHAPE[1:]
SEEDS = [5, 9]


def pair(x: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Clean latents without and with the prompt."""
    both = sampler_formulas.NoiseTable(SD).denoise(np.concatenate([x, x]), sigma, lambda *args: toy_unet(*args, conditions=2))
    return both[:len(x)], both[len(x):]


def plus_plus(name: str, x: np.ndarray, sigmas: list[float], scale: float, eta: float) -> np.ndarray:
    """ComfyUI's forms: the noise is the unconditional prediction's."""
    generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    for generator in generators:
        torch.randn(SHAPE[1:], generator=generator)  # what x came from
    old = None
    for i, (now, after) in enumerate(zip(sigmas, sigmas[1:])):
        u, c = pair(x, now)
        denoised = u + scale * (c - u)
        if name == "dpmpp_2m_cfg_pp":
            ratio = after / now
            mix = -ratio * u
            if old is not None and after > 0:
                h, last = np.log(now / after), np.log(sigmas[i - 1] / now)
                mix = mix + (1 - ratio) / (2 * last / h) * (denoised - old)
            x, old = denoised + mix + ratio * x, u
            continue
        down, up = sampler_formulas.ancestral(now, after, eta)
        x = denoised + down * (x - u) / now
        if up > 0:
            x = x + up * np.stack([torch.randn(SHAPE[1:], generator=g).double().numpy() for g in generators])
    return x


@pytest.mark.parametrize("scale", [0.6, 1.0, 1.8])
@pytest.mark.parametrize("name,eta", [("euler_cfg_pp", 0.0), ("euler_a_cfg_pp", 1.0), ("euler_a_cfg_pp", 0.5), ("dpmpp_2m_cfg_pp", 0.0)])
def test_cfg_plus_plus(tool, name, eta, scale):  # noqa: F811
    for steps, schedule in ((1, "karras"), (2, "normal"), (9, "karras"), (20, "sgm_uniform")):
        job = {"sampler": name, "schedule": schedule, "steps": steps, "shape": BATCH, "seeds": SEEDS, "cfg_scale": scale}
        got = tool(job | ({"eta": eta} if "euler_a" in name else {}))
        want = plus_plus(name, np.array(got["start"]).reshape(BATCH), got["sigmas"], scale, eta)
        assert error(got["final"], want, (got["trajectory"][:-1] or [got["start"]])[-1]) < 2e-5, steps


def mimicked(u: torch.Tensor, c: torch.Tensor, scale: float, mimic: float, percentile: float) -> torch.Tensor:
    """The Dynamic Thresholding extension's default mode, by its description: each image and channel."""
    target, small = (u + s * (c - u) for s in (scale, mimic))
    means = target.mean(dim=(2, 3), keepdim=True)
    wanted = (small - small.mean(dim=(2, 3), keepdim=True)).abs().amax(dim=(2, 3), keepdim=True)
    centred = target - means
    limit = torch.quantile(centred.abs().flatten(2), percentile, dim=2)[..., None, None]
    most = torch.maximum(wanted, limit)
    return centred.clamp(-most, most) / most * wanted + means


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
@pytest.mark.parametrize("mimic,percentile", [(3.0, 1.0), (5.0, 0.8), (30.0, 0.9)])
def test_mimicked_scale(tool, prediction, mimic, percentile):  # noqa: F811
    job = {"config": SD | {"prediction_type": prediction}, "class": "EulerDiscreteScheduler", "steps": 4, "shape": BATCH, "seeds": SEEDS,
           "cfg_scale": 12.0, "mimic_scale": mimic, "mimic_percentile": percentile}
    got = tool(job)
    scheduler = diffusers.EulerDiscreteScheduler.from_config(job["config"])
    scheduler.set_timesteps(4)
    unet_sigmas, alphas = table(scheduler)
    before = torch.tensor(got["start"]).reshape(BATCH).double()
    for i, t in enumerate(scheduler.timesteps):
        sigma = float(scheduler.sigmas[i])
        scaled = torch.cat([before, before]) / (sigma**2 + 1) ** 0.5
        out = torch.from_numpy(toy_unet(scaled.float().numpy(), t, unet_sigmas, alphas, prediction, conditions=2)).double()
        x = torch.cat([before, before])
        clean = x - sigma * out if prediction == "epsilon" else x / (sigma**2 + 1) - out * sigma / (sigma**2 + 1) ** 0.5
        want = mimicked(*clean.chunk(2), 12.0, mimic, percentile)
        assert error(got["denoised"][i], want.numpy(), before.numpy()) < 1e-4
        before = torch.tensor(got["trajectory"][i]).reshape(BATCH).double()


def by_hand(pipeline, prompt: str, negative: str, is_guided) -> np.ndarray:
    """Euler on the pipeline's UNet; is_guided(step, sigma) says whether guidance acts."""
    state = encoded(pipeline, prompt, negative)
    scheduler = diffusers.EulerDiscreteScheduler.from_config(pipeline.scheduler.config)
    scheduler.set_timesteps(STEPS)
    x = torch.randn(1, 4, SIZE // 8, SIZE // 8, generator=torch.Generator().manual_seed(SEED)) * scheduler.init_noise_sigma
    text = torch.cat([state["negative_prompt_embeds"], state["prompt_embeds"]])
    with torch.no_grad():
        for i, t in enumerate(scheduler.timesteps):
            inputs = scheduler.scale_model_input(x, t).repeat(2, 1, 1, 1)
            u, c = pipeline.unet(inputs, t, encoder_hidden_states=text).sample.chunk(2)
            out = u + SCALE * (c - u) if is_guided(i, float(scheduler.sigmas[i])) else c
            x = scheduler.step(out, t, x).prev_sample
        image = pipeline.vae.decode(x / pipeline.vae.config.scaling_factor).sample
    return np.rint((image[0] / 2 + 0.5).clamp(0, 1).permute(1, 2, 0).numpy() * 255).astype(np.uint8)


def test_when_guidance_acts(rocm_sd, tiny_model, tmp_path):
    model = with_scheduler(tiny_model("sd15"), tmp_path / "model", "euler")
    pipeline = load(model)
    text = ("a red cat", "blurry")
    scheduler = diffusers.EulerDiscreteScheduler.from_config(pipeline.scheduler.config)
    scheduler.set_timesteps(STEPS)
    least = float(scheduler.sigmas[1]) + 1e-3
    cases = {"always": ([], lambda i, s: True),
             "interval": (["--guidance-start", 0.2, "--guidance-end", 0.7], lambda i, s: 1 <= i < 4),
             "every second": (["--negative-min-sigma", least], lambda i, s: not (s < least and i % 2)),
             "all": (["--negative-min-sigma", least, "--negative-min-sigma-all"], lambda i, s: s >= least)}
    pictures = {}
    for name, (args, rule) in cases.items():
        want = by_hand(pipeline, *text, rule)
        ours(rocm_sd, model, tmp_path / "a.png", *text, *args)
        assert psnr(read_picture(tmp_path / "a.png"), want) >= 60, name
        pictures[name] = (want, read_parameters(tmp_path / "a.png"))
    assert max(psnr(pictures[name][0], pictures["always"][0]) for name in cases if name != "always") < 55
    assert "Guidance start: 0.2, Guidance end: 0.7" in pictures["interval"][1] and "NGMS" not in pictures["interval"][1]
    assert "NGMS: " in pictures["all"][1] and "NGMS all steps: True" in pictures["all"][1]
    # No guidance at any step is the picture of a scale of 1.
    ours(rocm_sd, model, tmp_path / "none.png", *text, "--guidance-end", 0)
    ours(rocm_sd, model, tmp_path / "one.png", *text, "--cfg-scale", 1)
    assert psnr(read_picture(tmp_path / "none.png"), read_picture(tmp_path / "one.png")) >= 60


def test_threshold_as_diffusers(rocm_sd, tiny_model, tmp_path):
    model = with_scheduler(tiny_model("sd15"), tmp_path / "plain", "dpmpp_2m")
    limited = tmp_path / "limited"
    os.mkdir(limited)
    for entry in model.iterdir():
        if entry.name != "scheduler":
            os.symlink(entry, limited / entry.name)
    config = dict(diffusers.DPMSolverMultistepScheduler.from_pretrained(model, subfolder="scheduler").config)
    config |= dict(thresholding=True, dynamic_thresholding_ratio=0.9, sample_max_value=1.5)
    diffusers.DPMSolverMultistepScheduler.from_config(config).save_pretrained(limited / "scheduler")
    want = diffusers_picture(limited, 64)
    got = our_picture(rocm_sd, model, tmp_path / "a.png", 64, "--dynamic-threshold", 0.9, "--dynamic-threshold-max", 1.5)
    assert psnr(got, want) >= 60 and psnr(diffusers_picture(model, 64), want) < 45


def test_bad_combinations(rocm_sd, tiny_model, tmp_path):
    model = tiny_model("sd15")
    for prompt, args, message in (
            ("a", ["--guidance-start", 0.6, "--guidance-end", 0.5], "expected the first not above the second"),
            ("a", ["--guidance-start", 1.5], "expected a number from 0 to 1"),
            ("a", ["--mimic-scale", 5, "--mimic-percentile", 0], "mimic-percentile: expected a number above 0"),
            ("a AND b", ["--mimic-scale", 5], "mimic-scale: not defined for AND"),
            ("a", ["--mimic-scale", 5, "--guidance-rescale", 0.5], "expected one of them")):
        assert message in ours(rocm_sd, model, tmp_path / "x.png", prompt, "", *args, code=2).stderr
    quiet = ["--steps", 1, "--cfg-scale", 1]
    assert "there is no guidance" in ours(rocm_sd, model, tmp_path / "x.png", "a", "", "--guidance-end", 0.5, *quiet).stderr
    assert "--mimic-percentile has no effect" in ours(rocm_sd, model, tmp_path / "x.png", "a", "", "--mimic-percentile", 0.5, *quiet).stderr


# Name of a file, and the steps, scale and sampler that its model is drawn with where nobody asks for others.
DISTILLED = [("sd_turbo_fp16", 4, 1, "Euler a"), ("sdxl_lightning_8step_unet", 8, 1, "Euler"), ("DreamShaper8_LCM", 4, 1.5, "LCM"),
             ("Hyper-SD15-12steps-CFG", 12, 5, "DDIM trailing"), ("dmd2_sdxl_4step", 4, 1, "LCM"), ("my-tcd-model", 4, 1, "TCD"),
             ("plainmodel", 20, 7, "DPM++ 2M"), ("lcmonster", 20, 7, "DPM++ 2M")]


@pytest.mark.parametrize("name,steps,scale,sampler", DISTILLED)
def test_distilled_models_by_name(rocm_sd, tiny_model, tmp_path, name, steps, scale, sampler):
    model = tmp_path / f"{name}.safetensors"
    os.symlink(tiny_model("sd15", layout="single"), model)
    args = ["generate", "--model", model, "--prompt", "a", "-W", 64, "-H", 64, "-o", tmp_path / "a.png", "--seed", 1]
    done = rocm_sd(*args)
    parameters = read_parameters(tmp_path / "a.png")
    assert f"Steps: {steps}, Sampler: {sampler}," in parameters and f"CFG scale: {scale}," in parameters
    assert ("a distilled model (its name" in done.stderr) == (steps != 20)
    if steps != 20:  # what is asked for counts, by option and by config file
        (tmp_path / "c.toml").write_text("steps = 3\n")
        rocm_sd(*args, "--config", tmp_path / "c.toml", "--cfg-scale", 2.5, "--sampler", "Euler")
        parameters = read_parameters(tmp_path / "a.png")
        assert "Steps: 3, Sampler: Euler," in parameters and "CFG scale: 2.5," in parameters


def test_distilled_models_by_configuration(rocm_sd, tiny_model, tmp_path):
    model = with_scheduler(tiny_model("sd15"), tmp_path / "anything", "lcm")
    done = rocm_sd("generate", "--model", model, "--prompt", "a", "-W", 64, "-H", 64, "-o", tmp_path / "a.png")
    assert "its scheduler is LCMScheduler" in done.stderr
    assert "Steps: 4, Sampler: LCM," in read_parameters(tmp_path / "a.png")


@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_perturbed_attention_as_diffusers(rocm_sd, tiny_model, tmp_path, kind, scale):
    model = tiny_model(kind)
    side = 64 if kind == "sdxl" else 192  # a middle block of one pixel would have nothing to perturb
    made = diffusers.StableDiffusionXLPAGPipeline if kind == "sdxl" else diffusers.StableDiffusionPAGPipeline
    pipeline = made.from_pretrained(model, torch_dtype=torch.float32, pag_applied_layers="mid")
    pipeline.set_progress_bar_config(disable=True)
    size = ["-W", side, "-H", side]
    pictures = []
    for pag in (0.0, 60.0):  # the random models follow it little
        images = pipeline("a red cat", negative_prompt="blurry", num_inference_steps=STEPS, guidance_scale=scale, width=side, height=side,
                          generator=torch.Generator().manual_seed(SEED), output_type="np", pag_scale=pag).images
        pictures.append(np.rint(images[0] * 255).astype(np.uint8))
    ours(rocm_sd, model, tmp_path / "a.png", "a red cat", "blurry", "--cfg-scale", scale, "--pag-scale", 60, *size, "--plain-prompt")
    assert psnr(read_picture(tmp_path / "a.png"), pictures[1]) >= 60 and psnr(*pictures) < 50
    assert "PAG scale: 60" in read_parameters(tmp_path / "a.png")
    # In a batch, with other seeds beside it.
    ours(rocm_sd, model, tmp_path / "b{index}.png", "a red cat", "blurry", "--cfg-scale", scale, "--pag-scale", 60, *size, "--batch", 2)
    assert psnr(read_picture(tmp_path / "b1.png"), pictures[1]) >= 60


def test_perturbed_attention_needs_a_layer_to_perturb(rocm_sd, tiny_model, tmp_path):
    done = ours(rocm_sd, tiny_model("sd15"), tmp_path / "x.png", "a AND b", "", "--pag-scale", 2, code=2)
    assert "pag-scale: not with AND" in done.stderr


def test_parts_without_the_negative_prompt(rocm_sd, tiny_model, tmp_path):
    """Where guidance is left out, parts joined by AND are weighed against the first of them, at a scale of 1 (A1111's rule)."""
    model = with_scheduler(tiny_model("sd15"), tmp_path / "model", "euler")
    pipeline = load(model)
    states = [encoded(pipeline, text, "blurry") for text in ("a red cat", " a big house")]
    text = torch.cat([state["prompt_embeds"] for state in states])
    scheduler = diffusers.EulerDiscreteScheduler.from_config(pipeline.scheduler.config)
    scheduler.set_timesteps(STEPS)
    x = torch.randn(1, 4, SIZE // 8, SIZE // 8, generator=torch.Generator().manual_seed(SEED)) * scheduler.init_noise_sigma
    with torch.no_grad():
        for t in scheduler.timesteps:
            a, b = pipeline.unet(scheduler.scale_model_input(x, t).repeat(2, 1, 1, 1), t, encoder_hidden_states=text).sample.chunk(2)
            x = scheduler.step(a + 40 * (b - a), t, x).prev_sample
        image = pipeline.vae.decode(x / pipeline.vae.config.scaling_factor).sample
    want = np.rint((image[0] / 2 + 0.5).clamp(0, 1).permute(1, 2, 0).numpy() * 255).astype(np.uint8)
    ours(rocm_sd, model, tmp_path / "a.png", "a red cat AND a big house :40", "blurry", "--guidance-end", 0)
    assert psnr(read_picture(tmp_path / "a.png"), want) >= 60
    ours(rocm_sd, model, tmp_path / "one.png", "a red cat", "blurry", "--guidance-end", 0)
    assert psnr(read_picture(tmp_path / "one.png"), want) < 50
