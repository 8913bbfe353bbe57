"""Prompt editing, alternating words and AND: which text is drawn when against an oracle by A1111's grammar, and pictures against
Diffusers with the text changed by hand."""

from __future__ import annotations

import json
import random

import diffusers
import numpy as np
import pytest
import torch

from pictures import psnr, read_parameters, read_picture
from prompt_schedules import parts, schedule, texts_of_calls
from test_pipeline import with_scheduler

SIZE, SCALE, SEED, STEPS = 64, 30.0, 7, 6  # the random models follow their text little
PIECES = ["a", "b ", " ", "[", "[", "]", "]", "(", ")", ":", ":", "|", "3", "0.5", "-1", "2", ".", "\\", "\\(", "1e1", "[a:b:2]", "[c|d|]",
          "(a:1.2)", "\n", " AND ", "[x::.4]", "[:y:3]", "é", " :1.5", "AND"]


def test_the_web_uis_examples():
    """The oracle itself, on the examples of the web UI's documentation."""
    assert schedule("a [b: 3]", 10) == [(3, "a "), (10, "a b")]
    assert schedule("a[b:[c:d:2]:1]e", 10) == [(1, "abe"), (2, "ace"), (10, "ade")]
    assert schedule("((a][:b:c [d:3]", 10) == [(3, "((a][:b:c "), (10, "((a][:b:c d")]
    assert schedule("[fe|||]male", 10)[:5] == [(1, "female"), (2, "male"), (3, "male"), (4, "male"), (5, "female")]
    assert [text for _, text in schedule("a [b : c : 1] d", 10)] == ["a b  d", "a  c  d"]
    assert parts("a cat :0.5 AND a dog: -2 AND ANDREW ") == [("a cat", 0.5), (" a dog", -2.0), (" ANDREW", 1.0)]


def told(rocm_sd, prompt: str, steps: int) -> list[tuple[float, list[str]]]:
    out = json.loads(rocm_sd("tokenize", "--json", "--steps", steps, "--", prompt).stdout)[0]["parts"]
    texts = [[run["text"] for run in part["texts"] for _ in range(run["from"], run["to"] + 1)] for part in out]
    return [(part["weight"], own) for part, own in zip(out, texts)]


def test_texts_of_random_prompts(rocm_sd):
    generator = random.Random(5)
    changing = 0
    for _ in range(150):
        prompt = "".join(generator.choice(PIECES) for _ in range(generator.randint(1, 16)))
        steps = generator.choice([1, 4, 7])
        want = [(weight, texts_of_calls(text, steps)) for text, weight in parts(prompt)]
        assert told(rocm_sd, prompt, steps) == want, repr(prompt)
        changing += any(len(set(texts)) > 1 for _, texts in want)
    assert changing > 15, "too few of the prompts change"


def load(model):
    pipeline = diffusers.DiffusionPipeline.from_pretrained(model, torch_dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def encoded(pipeline, prompt: str, negative: str) -> dict[str, torch.Tensor]:
    names = ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds")
    kwargs = {} if hasattr(pipeline, "text_encoder_2") else dict(device="cpu", num_images_per_prompt=1)
    values = pipeline.encode_prompt(prompt, negative_prompt=negative, do_classifier_free_guidance=True, **kwargs)
    return dict(zip(names, values))


def switched(pipeline, texts: list[tuple[str, str]]) -> np.ndarray:
    """texts: the prompt and negative prompt of each step; changed by a callback at the end of the step before."""
    states = [encoded(pipeline, *text) for text in texts]
    xl = "pooled_prompt_embeds" in states[0]

    def callback(_pipe, step, _t, tensors):
        if step + 1 < len(states):
            now = states[step + 1]
            tensors["prompt_embeds"] = torch.cat([now["negative_prompt_embeds"], now["prompt_embeds"]])
            if xl:
                tensors["add_text_embeds"] = torch.cat([now["negative_pooled_prompt_embeds"], now["pooled_prompt_embeds"]])
        return tensors

    inputs = ["prompt_embeds"] + (["add_text_embeds"] if xl else [])
    images = pipeline(**states[0], num_inference_steps=len(texts), guidance_scale=SCALE, width=SIZE, height=SIZE, output_type="np",
                      generator=torch.Generator().manual_seed(SEED), callback_on_step_end=callback,
                      callback_on_step_end_tensor_inputs=inputs).images
    return np.rint(images[0] * 255).astype(np.uint8)


def ours(rocm_sd, model, path, prompt, negative, *args, steps=STEPS, code=0):
    return rocm_sd("generate", "--model", model, "--prompt", prompt, "--negative-prompt", negative, "--rng", "cpu", "--seed", SEED,
                   "--steps", steps, "--cfg-scale", SCALE, "-W", SIZE, "-H", SIZE, "--dtype", "f32", "-o", path, *args, code=code)


@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl"])
@pytest.mark.parametrize("prompt,negative", [("a [red cat:dog in a big house:2] here", "blurry"), ("a [cow|horse|]", "[dark::0.4] big")])
def test_pictures_are_those_of_switching_by_hand(rocm_sd, tiny_model, tmp_path, kind, prompt, negative):
    model = tiny_model(kind)
    pipeline = load(model)
    texts = list(zip(texts_of_calls(prompt, STEPS), texts_of_calls(negative, STEPS)))
    want, still = switched(pipeline, texts), switched(pipeline, texts[:1] * STEPS)
    assert psnr(want, still) < 53, "the texts change too little to prove anything"
    ours(rocm_sd, model, tmp_path / "a.png", prompt, negative)
    assert psnr(read_picture(tmp_path / "a.png"), want) >= 60
    assert prompt in read_parameters(tmp_path / "a.png")


def test_batches_tiles_and_image_to_image_change_their_text_too(rocm_sd, tiny_model, tmp_path):
    """The text at work is one for all images of a batch and all windows; image to image counts its own steps from 0."""
    model = tiny_model("sd15")
    prompt = "a [red cat:dog:1] here"
    ours(rocm_sd, model, tmp_path / "b{index}.png", prompt, "", "--batch", 2, "--sampler", "Euler")
    ours(rocm_sd, model, tmp_path / "one.png", prompt, "", "--sampler", "Euler")
    assert psnr(read_picture(tmp_path / "b1.png"), read_picture(tmp_path / "one.png")) >= 60
    ours(rocm_sd, model, tmp_path / "t.png", prompt, "", "--sampler", "Euler", "--tile-size", 64)
    assert psnr(read_picture(tmp_path / "t.png"), read_picture(tmp_path / "one.png")) >= 60
    start = ["--init-image", tmp_path / "one.png", "--strength", 0.5, "--sampler", "Euler", "--seed", 3]
    ours(rocm_sd, model, tmp_path / "i.png", prompt, "", *start)
    ours(rocm_sd, model, tmp_path / "first.png", "a red cat here", "", *start)
    ours(rocm_sd, model, tmp_path / "second.png", "a dog here", "", *start)
    edited, first, second = (read_picture(tmp_path / f"{name}.png") for name in ("i", "first", "second"))
    assert not np.array_equal(edited, first) and not np.array_equal(edited, second)


def test_two_calls_of_a_step_count_as_in_the_web_ui(rocm_sd, tiny_model, tmp_path):
    """Heun calls the UNet twice a step: [a:b:2] of 4 steps changes behind call 2, [a:b:0.5] behind call 4 of 8."""
    model = tiny_model("sd15")
    args = ["--sampler", "Heun"]
    for name, prompt in (("half", "a [red cat:dog:0.5]"), ("four", "a [red cat:dog:4]"), ("two", "a [red cat:dog:2]")):
        ours(rocm_sd, model, tmp_path / f"{name}.png", prompt, "", *args, steps=4)
    half, four, two = (read_picture(tmp_path / f"{name}.png") for name in ("half", "four", "two"))
    assert np.array_equal(half, four) and not np.array_equal(half, two)


def composed(pipeline, texts: list[str], weights: list[float], negative: str) -> np.ndarray:
    """Euler by hand on the pipeline's UNet: unconditional + scale * sum of weight * (part - unconditional)."""
    states = [encoded(pipeline, text, negative) for text in texts]
    scheduler = diffusers.EulerDiscreteScheduler.from_config(pipeline.scheduler.config)
    scheduler.set_timesteps(STEPS)
    x = torch.randn(1, 4, SIZE // 8, SIZE // 8, generator=torch.Generator().manual_seed(SEED)) * scheduler.init_noise_sigma
    text = torch.cat([states[0]["negative_prompt_embeds"], *[state["prompt_embeds"] for state in states]])
    with torch.no_grad():
        for t in scheduler.timesteps:
            inputs = scheduler.scale_model_input(x, t).repeat(len(text), 1, 1, 1)
            out = pipeline.unet(inputs, t, encoder_hidden_states=text).sample
            guided = out[:1] + SCALE * sum(w * (part[None] - out[:1]) for w, part in zip(weights, out[1:]))
            x = scheduler.step(guided, t, x).prev_sample
        image = pipeline.vae.decode(x / pipeline.vae.config.scaling_factor).sample
    return np.rint((image[0] / 2 + 0.5).clamp(0, 1).permute(1, 2, 0).numpy() * 255).astype(np.uint8)


def test_parts_joined_by_and(rocm_sd, tiny_model, tmp_path):
    model = with_scheduler(tiny_model("sd15"), tmp_path / "model", "euler")
    pipeline = load(model)
    want = composed(pipeline, ["a red cat", " a big house", " snow"], [1.0, 0.6, -0.3], "blurry")
    ours(rocm_sd, model, tmp_path / "plain.png", "a red cat", "blurry")
    alone = composed(pipeline, ["a red cat"], [1.0], "blurry")
    assert psnr(read_picture(tmp_path / "plain.png"), alone) >= 60, "the loop by hand is not the sampler"
    ours(rocm_sd, model, tmp_path / "a.png", "a red cat AND a big house :0.6 AND snow: -0.3", "blurry")
    assert psnr(want, alone) < 50 and psnr(read_picture(tmp_path / "a.png"), want) >= 60
    # Each part may change; a part for all of the steps is one that does not.
    ours(rocm_sd, model, tmp_path / "b.png", "a [red cat:red cat:2] AND a big house :0.6 AND [snow|snow]: -0.3", "blurry")
    assert psnr(read_picture(tmp_path / "b.png"), want) >= 60
    # A weight at the end of the only part is the prompt's.
    done = ours(rocm_sd, model, tmp_path / "c.png", "a red cat :0.5", "blurry")
    assert "weight of the whole prompt" in done.stderr
    ours(rocm_sd, model, tmp_path / "d.png", "a red cat", "blurry", "--cfg-scale", SCALE / 2)
    assert psnr(read_picture(tmp_path / "c.png"), read_picture(tmp_path / "d.png")) >= 60


def test_bad_prompts_are_named(rocm_sd, tiny_model, tmp_path):
    model = tiny_model("sd15")
    deep = "[" * 80 + "a" + ":1]" * 80
    for prompt, message in ((deep, "more than 64 brackets"), (" AND ".join("abcdefghijkl"), "12 parts joined by AND; at most 11"),
                            ("a AND b:1e", None), ("a cat:99999", "expected a number within"),
                            ("a [b:c:1e400] [d:e:-3] [f:g:0]", None), ("[" * 20000, None), ("\\", None)):
        done = rocm_sd("tokenize", "--", prompt, code=None)
        assert done.returncode == (2 if message else 0) and (message or "") in done.stderr, (prompt[:40], done.stderr)
    many = "".join(f"[{'|'.join(chr(97 + i) for i in range(n))}]" for n in (7, 9, 11, 13))
    done = ours(rocm_sd, model, tmp_path / "x.png", many, "", steps=400, code=2)
    assert "more than 256 texts" in done.stderr
    done = ours(rocm_sd, model, tmp_path / "x.png", "a AND b", "", "--guidance-rescale", 0.5, code=2)
    assert "guidance-rescale: not defined for a prompt of 2 parts" in done.stderr
    done = ours(rocm_sd, tiny_model("sdxl"), tmp_path / "x.png", "a AND b", "", "--prompt-2", "a AND b AND c", code=2)
    assert "prompt-2: 3 parts joined by AND; expected 2" in done.stderr
