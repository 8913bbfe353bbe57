"""What Diffusers' pipelines do beside the sampler, against them: conditioning, latents of pictures, masks, VAEs, models that
differ from Stable Diffusion's own by a field of their configuration. Small random models, fp32 on the CPU, >= 60 dB."""

from __future__ import annotations

import json
import shutil

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image

from pictures import psnr, read_parameters, read_picture
from pipelines_oracle import (ANCESTRAL, BETAS, DDIM, EULER, LCM, NEGATIVE, PROMPT, SCALE, SEED, SIZE, SOLVER, TURBO, as_bytes, command,
                              copied, ours, same, theirs)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """model(kind, scheduler=EULER, unet={...}, vae={...}, text={...}, ...): a random Diffusers folder, made once each."""
    made: dict[str, object] = {}

    def make(kind, scheduler=EULER, unet=(), vae=(), text=(), index=(), pipeline=None, vae_class=None, **options):
        from make_random_checkpoint import write_checkpoint

        def change(spec):
            spec["unet"] |= dict(unet)
            spec["vae"] = dict(vae) if vae_class else spec["vae"] | dict(vae)
            spec["vae_class"] = vae_class or spec["vae_class"]
            spec["scheduler"] = scheduler
            spec["pipeline"] = pipeline or spec["pipeline"]
            spec["pipeline_args"] |= dict(index)
            for name, (class_name, encoder, config) in spec["text"].items():
                spec["text"][name] = (class_name, encoder, config | dict(text))

        key = repr((kind, scheduler, unet, vae, text, index, pipeline, vae_class, options))
        if key not in made:
            made[key] = write_checkpoint(kind, tmp_path_factory.mktemp("models") / kind, tiny=True, dtype="fp32", small_vocab=True,
                                         change=change, **options)
        return made[key]

    return make


# --- guidance ---

@pytest.mark.parametrize("pipeline,scheduler", [("LatentConsistencyModelPipeline", LCM), ("StableDiffusionPipeline", EULER)])
@pytest.mark.parametrize("scale", [1.0, 8.5])
def test_guidance_as_an_input_of_the_unet(rocm_sd, model, tmp_path, pipeline, scheduler, scale):
    folder = model("sd15", scheduler, unet=(("time_cond_proj_dim", 32),), pipeline=pipeline)
    options = {} if pipeline.startswith("Latent") else dict(negative_prompt=None)
    want = theirs(folder, pipeline, guidance_scale=scale, **({"negative_prompt": None} | options)) if options else lcm(folder, scale)
    same(ours(rocm_sd, folder, tmp_path / "a.png", scale=scale, negative=None), want)


def lcm(folder, scale):
    pipe = diffusers.LatentConsistencyModelPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    return as_bytes(pipe(PROMPT, num_inference_steps=3, guidance_scale=scale, width=SIZE, height=SIZE, output_type="np",
                         generator=torch.Generator().manual_seed(SEED)).images[0])


@pytest.mark.parametrize("scale", [0, 0.5, 1])
def test_no_guidance_below_one_for_distilled_models(rocm_sd, model, tmp_path, scale):
    folder = model("sdxl", TURBO)
    want = theirs(folder, guidance_scale=float(scale), negative_prompt=None)
    done = rocm_sd(*command(folder, tmp_path / "a.png", "--plain-prompt", negative=None, scale=scale))
    same(read_picture(tmp_path / "a.png"), want)
    assert ("distilled" in done.stderr) == (scale < 1)


def test_guidance_below_one_elsewhere(rocm_sd, model, tmp_path):
    """A1111's arithmetic: uncond + scale (cond - uncond). At 0 the negative prompt alone is drawn."""
    folder = model("sd15")
    done = rocm_sd(*command(folder, tmp_path / "a.png", "--plain-prompt", scale=0))
    assert "warning: cfg-scale 0" in done.stderr and "vocabulary" not in done.stderr
    same(read_picture(tmp_path / "a.png"), ours(rocm_sd, folder, tmp_path / "b.png", scale=1, prompt=NEGATIVE))


# --- prompts ---

@pytest.mark.parametrize("forced", [True, False, None])
@pytest.mark.parametrize("negative", [None, "", NEGATIVE])
def test_negative_prompts_that_are_absent_and_empty(rocm_sd, model, tmp_path, forced, negative):
    folder = copied(model("sdxl"), tmp_path / "model", force_zeros_for_empty_prompt=forced)
    want = theirs(folder, negative_prompt=negative, num_inference_steps=2)
    same(ours(rocm_sd, folder, tmp_path / "a.png", negative=negative, steps=2), want)


def test_prompts_of_the_second_text_encoder(rocm_sd, model, tmp_path):
    folder = model("sdxl")
    want = theirs(folder, prompt_2="the thing", negative_prompt_2="in the photo")
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--prompt-2", "the thing", "--negative-prompt-2", "in the photo"), want)
    assert psnr(want, theirs(folder)) < 40
    assert "Prompt 2: the thing" in read_parameters(tmp_path / "a.png")


def test_hidden_padding(rocm_sd, model, tmp_path):
    folder = model("sd15", text=(("use_attention_mask", True),))
    config = json.loads((folder / "text_encoder" / "config.json").read_text())
    assert config["use_attention_mask"] is True
    same(ours(rocm_sd, folder, tmp_path / "a.png"), theirs(folder))
    assert psnr(read_picture(tmp_path / "a.png"), theirs(model("sd15"))) < 50


def test_prompts_of_different_lengths_act_apart(rocm_sd, model, tmp_path):
    """As in A1111, where each has a call of the UNet of its own: 2 and 3 chunks of 75 tokens, and 2 and 1."""
    folder = model("sd15")
    pipe = diffusers.StableDiffusionPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    special = pipe.tokenizer.bos_token_id, pipe.tokenizer.eos_token_id

    def states(text):
        ids = pipe.tokenizer(text, add_special_tokens=False).input_ids
        chunks = [ids[i:i + 75] for i in range(0, len(ids), 75)]
        rows = [[special[0], *chunk, *[special[1]] * (76 - len(chunk))] for chunk in chunks]
        return torch.cat(list(pipe.text_encoder(torch.tensor(rows))[0]))[None]

    @torch.no_grad()
    def picture(prompt, negative, steps=3):
        scheduler = pipe.scheduler
        scheduler.set_timesteps(steps)
        both = [states(negative), states(prompt)]
        x = torch.randn((1, 4, 8, 8), generator=torch.Generator().manual_seed(SEED)) * scheduler.init_noise_sigma
        for t in scheduler.timesteps:
            scaled = scheduler.scale_model_input(x, t)
            without, with_prompt = (pipe.unet(scaled, t, encoder_hidden_states=s).sample for s in both)
            x = scheduler.step(without + SCALE * (with_prompt - without), t, x).prev_sample
        decoded = pipe.vae.decode(x / pipe.vae.config.scaling_factor).sample
        return as_bytes((decoded / 2 + 0.5).clamp(0, 1)[0].permute(1, 2, 0))

    long, longer = "a photo of the red cat " * 20, "the photo on the cat " * 38
    for prompt, negative in ((long, NEGATIVE), (long, longer)):
        got = ours(rocm_sd, folder, tmp_path / "a.png", prompt=prompt, negative=negative, plain=False)
        same(got, picture(prompt.strip(), negative.strip()))


def test_a_long_prompt_warns_once(rocm_sd, model, tmp_path):
    done = rocm_sd(*command(model("sdxl"), tmp_path / "a.png", "--plain-prompt", prompt="the red cat " * 60, steps=1))
    assert done.stderr.count("left out") == 1, done.stderr


def test_a_tokenizer_in_one_file(rocm_sd, model, tmp_path):
    """Only tokenizer.json, with an added token: transformers 5 writes it so."""
    folder = model("sd15", more_rows=2)
    target = copied(folder, tmp_path / "model")
    import transformers

    tokenizer = transformers.CLIPTokenizer.from_pretrained(folder / "tokenizer")
    tokenizer.add_tokens(["<fox>"])
    shutil.rmtree(target / "tokenizer")
    tokenizer.save_pretrained(target / "tokenizer")
    for name in ("vocab.json", "merges.txt"):
        (target / "tokenizer" / name).unlink(missing_ok=True)
    want = theirs(target, prompt="a photo of <fox>")
    same(ours(rocm_sd, target, tmp_path / "a.png", prompt="a photo of <fox>"), want)
    assert psnr(want, theirs(folder, prompt="a photo of <fox>")) < 50
    rocm_sd("convert", target, tmp_path / "again")  # nothing of it is lost
    same(ours(rocm_sd, tmp_path / "again", tmp_path / "b.png", prompt="a photo of <fox>"), want)
    (target / "tokenizer" / "tokenizer.json").unlink()
    done = rocm_sd(*command(target, tmp_path / "a.png"), code=3)
    assert "expected vocab.json and merges.txt, or tokenizer.json" in done.stderr


# --- pictures, masks, latents ---

@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    y, x = np.mgrid[0:SIZE, 0:SIZE] * 255 // SIZE
    path = tmp_path_factory.mktemp("pictures") / "init.png"
    Image.fromarray(np.stack([x, y, np.full_like(x, 90)], -1).astype(np.uint8)).save(path)
    return path


@pytest.fixture(scope="module")
def mask(tmp_path_factory):
    """Off the latents' grid of 8 pixels on every side."""
    values = np.zeros((SIZE, SIZE), np.uint8)
    values[13:45, 19:51] = 255
    path = tmp_path_factory.mktemp("masks") / "mask.png"
    Image.fromarray(values).save(path)
    return path


IMG2IMG = {"sd15": "StableDiffusionImg2ImgPipeline", "sdxl": "StableDiffusionXLImg2ImgPipeline",
           "refiner": "StableDiffusionXLImg2ImgPipeline"}


@pytest.mark.parametrize("kind,scheduler,strength,sample", [
    ("sd15", EULER, 0.7, "posterior"), ("sd15", ANCESTRAL, 0.7, "posterior"), ("sdxl", EULER, 0.7, "posterior"),
    ("refiner", EULER, 0.7, "posterior"), ("sd15", EULER, 1.0, "mean"), ("sd15", DDIM, 1.0, "mean"), ("sdxl", EULER, 1.0, "posterior")])
def test_image_to_image(rocm_sd, model, tmp_path, picture, kind, scheduler, strength, sample):
    folder = model(kind, scheduler)
    scores = dict(aesthetic_score=6.0, negative_aesthetic_score=2.5) if kind == "refiner" else {}
    want = theirs(folder, IMG2IMG[kind], mean=sample == "mean", image=Image.open(picture), strength=strength, **scores)
    got = ours(rocm_sd, folder, tmp_path / "a.png", "-i", picture, "--strength", strength, "--vae-sample", sample)
    same(got, want)


def test_a_batch_draws_each_posterior_from_its_own_seed(rocm_sd, model, tmp_path, picture):
    folder = model("sd15")
    generators = [torch.Generator().manual_seed(SEED + i) for i in range(2)]
    want = theirs(folder, IMG2IMG["sd15"], mean=False, image=Image.open(picture), strength=0.7, num_images_per_prompt=2, generator=generators)
    ours(rocm_sd, folder, tmp_path / "{index}.png", "-i", picture, "--strength", 0.7, "--vae-sample", "posterior", "--batch", 2)
    for i in range(2):
        same(read_picture(tmp_path / f"{i + 1}.png"), want[i])


@pytest.mark.parametrize("kind,scheduler,strength,sample", [
    ("sd15", EULER, 0.7, "mean"), ("sd15", EULER, 0.7, "posterior"), ("sd15", ANCESTRAL, 1.0, "posterior"),
    ("sd15", SOLVER, 0.7, "mean"), ("sd15", DDIM, 1.0, "posterior"), ("sd15-inpaint", EULER, 1.0, "mean"), ("sd15-inpaint", ANCESTRAL, 1.0, "posterior"), ("sd15-inpaint", EULER, 0.7, "posterior")])
def test_inpainting_off_the_grid(rocm_sd, model, tmp_path, picture, mask, kind, scheduler, strength, sample):
    folder = model(kind, scheduler)
    want = theirs(folder, "StableDiffusionInpaintPipeline", mean=sample == "mean", image=Image.open(picture), mask_image=Image.open(mask),
                  strength=strength, width=SIZE, height=SIZE)
    nearest = [] if kind.endswith("inpaint") else ["--mask-downscale", "nearest", "--mask-blend", "latents"]
    args = ["-i", picture, "--mask", mask, "--mask-blur", 0, "--strength", strength, "--vae-sample", sample]
    got = ours(rocm_sd, folder, tmp_path / "a.png", *args, *nearest)
    inside = read_picture(mask)[..., 0] > 0  # outside we put the original back; Diffusers leaves the decoded picture
    same(got[inside], want[inside])
    area = ours(rocm_sd, folder, tmp_path / "b.png", *args, "--mask-downscale", "area")
    assert psnr(area[inside], want[inside]) < 60


def test_a_depth_model(rocm_sd, model, tmp_path, picture):
    folder = model("sd21v", unet=(("in_channels", 5),), pipeline="StableDiffusionDepth2ImgPipeline")
    parts = diffusers.StableDiffusionPipeline.from_pretrained(folder, torch_dtype=torch.float32).components
    pipe = diffusers.StableDiffusionDepth2ImgPipeline(
        **{name: parts[name] for name in ("vae", "text_encoder", "tokenizer", "unet", "scheduler")}, depth_estimator=None, feature_extractor=None)
    depth = np.random.default_rng(0).integers(0, 256, (48, 80)).astype(np.uint8)
    Image.fromarray(depth).save(tmp_path / "depth.png")
    want = theirs(folder, pipe, image=Image.open(picture), strength=0.7, depth_map=torch.from_numpy(depth.astype(np.float32) / 255)[None])
    got = ours(rocm_sd, folder, tmp_path / "a.png", "-i", picture, "--strength", 0.7, "--depth", tmp_path / "depth.png", "--prediction", "epsilon")
    same(got, want)
    done = rocm_sd(*command(folder, tmp_path / "b.png", "-i", picture), code=2)
    assert "depth map" in done.stderr


# --- sizes ---

def test_size_conditions(rocm_sd, model, tmp_path):
    folder = model("sdxl")
    want = theirs(folder, original_size=(70, 80), crops_coords_top_left=(3, 5), target_size=(96, 88), negative_original_size=(40, 50),
                  negative_crops_coords_top_left=(1, 2), negative_target_size=(33, 44))
    positive = ["--original-height", 70, "--original-width", 80, "--crop-top", 3, "--crop-left", 5, "--target-height", 96, "--target-width", 88]
    negative = ["--negative-original-height", 40, "--negative-original-width", 50, "--negative-crop-top", 1, "--negative-crop-left", 2,
                "--negative-target-height", 33, "--negative-target-width", 44]
    same(ours(rocm_sd, folder, tmp_path / "a.png", *positive, *negative), want)
    want = theirs(folder, original_size=(70, 80), crops_coords_top_left=(3, 5), target_size=(96, 88))
    same(ours(rocm_sd, folder, tmp_path / "b.png", *positive), want)


def test_crop_of_the_refiner(rocm_sd, model, tmp_path, picture):
    folder = model("refiner")
    want = theirs(folder, image=Image.open(picture), strength=0.7, crops_coords_top_left=(30, 50), aesthetic_score=6.0, negative_aesthetic_score=2.5)
    got = ours(rocm_sd, folder, tmp_path / "a.png", "-i", picture, "--strength", 0.7, "--crop-top", 30, "--crop-left", 50)
    same(got, want)


def test_the_models_own_size(rocm_sd, model, tmp_path):
    folder = model("sd15", unet=(("sample_size", [8, 16]),))
    want = theirs(folder, width=None, height=None, num_inference_steps=1)
    assert want.shape == (64, 128, 3)
    same(ours(rocm_sd, folder, tmp_path / "a.png", size=None, steps=1), want)


# --- VAEs ---

TINY_VAE = dict(encoder_block_out_channels=(32, 32, 32, 32), decoder_block_out_channels=(32, 32, 32, 32), num_encoder_blocks=(1, 1, 1, 1),
                num_decoder_blocks=(1, 1, 1, 1))


def test_an_autoencoder_tiny_as_the_vae(rocm_sd, model, tmp_path, picture):
    folder = model("sd15", vae=tuple(TINY_VAE.items()), vae_class="AutoencoderTiny")
    same(ours(rocm_sd, folder, tmp_path / "a.png"), theirs(folder))
    want = theirs(folder, IMG2IMG["sd15"], image=Image.open(picture), strength=0.7)
    for sample in ("mean", "posterior"):
        same(ours(rocm_sd, folder, tmp_path / "b.png", "-i", picture, "--strength", 0.7, "--vae-sample", sample), want)


def test_mean_and_deviation_of_latents(rocm_sd, model, tmp_path, picture):
    numbers = (("latents_mean", [-1.6, 0.5, 2.0, 0.1]), ("latents_std", [8.4, 7.0, 5.2, 4.0]), ("scaling_factor", 0.5))
    folder = model("sdxl", vae=numbers)
    same(ours(rocm_sd, folder, tmp_path / "a.png"), theirs(folder))
    want = theirs(folder, IMG2IMG["sdxl"], mean=False, image=Image.open(picture), strength=0.7)
    same(ours(rocm_sd, folder, tmp_path / "b.png", "-i", picture, "--strength", 0.7, "--vae-sample", "posterior"), want)
    older = model("sd15", vae=numbers)  # which Diffusers' SD 1 pipelines do not read
    same(ours(rocm_sd, older, tmp_path / "c.png"), theirs(older))


# --- one picture by two models ---

@pytest.mark.parametrize("scheduler", [EULER, DDIM, SOLVER, ("UniPCMultistepScheduler", BETAS), LCM])
def test_from_base_to_refiner(rocm_sd, model, tmp_path, scheduler):
    base, refiner = model("sdxl", scheduler), model("refiner", scheduler)
    first = diffusers.DiffusionPipeline.from_pretrained(base, torch_dtype=torch.float32)
    first.set_progress_bar_config(disable=True)
    latents = first(PROMPT, negative_prompt=NEGATIVE, num_inference_steps=5, denoising_end=0.6, guidance_scale=SCALE, width=SIZE, height=SIZE,
                    generator=torch.Generator().manual_seed(SEED), output_type="latent").images
    want = theirs(refiner, image=latents, num_inference_steps=5, denoising_start=0.6, aesthetic_score=6.0, negative_aesthetic_score=2.5)
    ours(rocm_sd, base, tmp_path / "a.png", "--denoising-end", 0.6, steps=5)
    assert "Denoising end: 0.6" in read_parameters(tmp_path / "a.png")
    got = ours(rocm_sd, refiner, tmp_path / "b.png", "--init-latents", tmp_path / "a.safetensors", "--denoising-start", 0.6, steps=5, size=None)
    same(got, want)


# --- single files ---

@pytest.mark.parametrize("layers,unused_layer,projection", [(3, False, False), (23, True, True), (23, True, False),
                                                            (23, False, False)])
def test_text_layers_of_sd2_single_files(rocm_sd, tmp_path, layers, unused_layer, projection):
    """Published files carry a layer and a projection that SD 2 does not run; those of common converters do not."""
    from make_random_checkpoint import write_checkpoint

    def change(spec):
        class_name, encoder, config = spec["text"]["text_encoder"]
        spec["text"]["text_encoder"] = (class_name, encoder, config | dict(num_hidden_layers=layers))
        spec |= dict(unused_layer=unused_layer, unused_projection=projection, scheduler=EULER)

    single = write_checkpoint("sd21v", tmp_path / "single.safetensors", tiny=True, dtype="fp16", change=change)
    folder = write_checkpoint("sd21v", tmp_path / "folder", tiny=True, dtype="fp16", change=change)
    args = ["--prediction", "v", "--sampler", "euler", "--schedule", "leading"]
    got = [ours(rocm_sd, path, tmp_path / f"{path.stem}.png", *args, steps=2) for path in (single, folder)]
    same(*got)


# --- what is refused, what does not matter ---

def test_a_unet_without_attention_is_refused_at_once(rocm_sd, model, tmp_path):
    plain = dict(down_block_types=("DownBlock2D",) * 4, up_block_types=("UpBlock2D",) * 4, mid_block_type="UNetMidBlock2D")
    done = rocm_sd(*command(model("sd15", unet=tuple(plain.items())), tmp_path / "a.png", "--plan"), code=3)
    assert "no block attends to the text" in done.stderr and "memory plan" not in done.stderr


def test_the_file_does_not_depend_on_threads(rocm_sd, model, tmp_path):
    for threads in (1, 2):
        ours(rocm_sd, model("sd15"), tmp_path / f"{threads}.png", "--threads", threads, "--no-receipt", steps=1)
    assert (tmp_path / "1.png").read_bytes() == (tmp_path / "2.png").read_bytes()


@pytest.mark.bad_input
@pytest.mark.parametrize("args,word", [
    (["--vae-sample", "mode"], "vae-sample: expected mean or posterior"), (["--mask-downscale", "lanczos"], "mask-downscale: expected"),
    (["--mask-blend", "hard"], "mask-blend: expected"),
    (["--denoising-start", 0.5], "denoising-start: needs latents"), (["--denoising-end", 0], "expected the first below the second"),
    (["--denoising-end", 1.5], "denoising-end: expected a number from 0 to 1"), (["--init-latents", "nothing.safetensors"], "nothing.safetensors")])
def test_bad_requests(rocm_sd, model, tmp_path, args, word):
    done = rocm_sd(*command(model("sd15"), tmp_path / "a.png", *args), code=None)
    assert done.returncode in (2, 3) and word in done.stderr, done.stderr
