"""The LoRA, the embedding and the T2I-Adapter of models/demo_examples: small files that Diffusers reads, too, and that visibly work."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import diffusers
import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from pictures import psnr, read_picture
from test_controlnet_inputs import reference_canny

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL, EXAMPLES = REPOSITORY / "models" / "demo", REPOSITORY / "models" / "demo_examples"
LORA, EMBEDDING, ADAPTER = EXAMPLES / "dusk_lora.safetensors", EXAMPLES / "mint.safetensors", EXAMPLES / "canny_adapter"
SIZE_LIMIT = 2_000_000
DUSK = np.array([(26, 20, 74), (222, 62, 108), (255, 230, 168)], float)  # training/demo_model/example_pictures.py
MINT = np.array((150, 232, 200), float)
NEAR = 2  # pixels that an edge may lie beside the map's: a latent is one of 8 x 8 pixels

CONTROLS = [line.split(" ", 1) for line in (EXAMPLES / "control_prompts.txt").read_text().splitlines()]


@pytest.fixture(scope="module")
def draw(rocm_sd, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")

    def make(prompt, *args, steps=12) -> np.ndarray:
        path = folder / "a.png"
        rocm_sd("generate", "--model", MODEL, "--prompt", prompt, "--sampler", "DPM++ 2M Karras", "--cfg-scale", 4, "--seed", 1, "--steps", steps,
                "--dtype", "f32", "-o", path, *args)
        return read_picture(path)

    return make


def palette_distance(picture: np.ndarray) -> float:
    """Mean distance of the pixels from the two lines in RGB on which the LoRA's colours lie."""
    points = np.concatenate([a + (b - a) * np.linspace(0, 1, 65)[:, None] for a, b in zip(DUSK, DUSK[1:])])
    pixels = picture.reshape(-1, 3).astype(float)
    return float(np.sqrt(((pixels[:, None] - points[None]) ** 2).sum(2).min(1)).mean())


def edges_of(picture: np.ndarray) -> np.ndarray:
    return reference_canny(picture, 100, 200)[..., 0] > 0


def share_near(of: np.ndarray, to: np.ndarray) -> float:
    """The share of the pixels `of` that have one of `to` within NEAR pixels, in rows and columns."""
    padded = np.pad(to, NEAR)
    height, width = to.shape
    near = np.any([padded[j:j + height, i:i + width] for j in range(2 * NEAR + 1) for i in range(2 * NEAR + 1)], axis=0)
    return float((of & near).sum() / max(1, of.sum()))


def edge_agreement(picture: np.ndarray, edges: np.ndarray) -> float:
    """F1 of the image's Canny edges against the map's: 1 where each lies near the other."""
    found = edges_of(picture)
    recall, precision = share_near(edges, found), share_near(found, edges)
    return 2 * recall * precision / max(1e-9, recall + precision)


def border_colour(picture: np.ndarray) -> np.ndarray:
    inner = np.ones(picture.shape[:2], bool)
    inner[3:-3, 3:-3] = False
    return np.median(picture[inner], axis=0)


def edge_map(name: str) -> Path:
    return EXAMPLES / "edges" / f"{name}.png"


def with_edges(name: str) -> list:
    return ["--control", ADAPTER, "--control-image", edge_map(name)]


@pytest.mark.parametrize("path", [LORA, EMBEDDING, ADAPTER / "diffusion_pytorch_model.safetensors"], ids=lambda path: path.parent.name + path.name)
def test_small_finite_halves(path):
    assert path.stat().st_size <= SIZE_LIMIT
    tensors = safetensors.torch.load_file(path)
    assert tensors and all(value.dtype == torch.float16 and torch.isfinite(value).all() for value in tensors.values())


def test_the_lora_changes_the_palette(draw):
    plain = {prompt: palette_distance(draw(prompt)) for prompt in ("a red apple on a blue background", "a cat face on a green background")}
    for prompt, without in plain.items():
        half = palette_distance(draw(prompt, "--lora", f"{LORA}:0.5"))
        whole = palette_distance(draw(prompt, "--lora", LORA))
        print(f"palette distance of {prompt}: {without:.1f} without, {half:.1f} at 0.5, {whole:.1f} at 1")
        assert whole < 0.35 * without and whole < half < without


def test_the_image_follows_the_edges(draw):
    for name, prompt in CONTROLS:
        edges = np.asarray(Image.open(edge_map(name)).convert("L")) > 127
        without, followed = edge_agreement(draw(prompt), edges), edge_agreement(draw(prompt, *with_edges(name)), edges)
        print(f"edge agreement of {name}: {without:.2f} without, {followed:.2f} with")
        assert followed > without + 0.25 and followed > 0.6


def test_the_embedding_is_a_background_colour(draw):
    for subject in ("a red apple", "a cat face"):
        distance = [np.linalg.norm(border_colour(draw(f"{subject} on a {word} background", "--embedding", EMBEDDING)) - MINT)
                    for word in ("<mint>", "teal", "green", "white")]
        print(f"distance of {subject}'s background from mint: " + ", ".join(f"{d:.0f}" for d in distance))
        assert distance[0] < 40 and distance[0] < 0.5 * min(distance[1:])


@pytest.mark.parametrize("example", ["lora", "embedding", "adapter"])
def test_as_diffusers_draws(rocm_sd, tmp_path, example):
    load = partial(diffusers.StableDiffusionPipeline.from_pretrained, MODEL, torch_dtype=torch.float32)
    prompt, args, more = "a red apple on a blue background", [], {}
    if example == "adapter":
        name, prompt = CONTROLS[0]
        load = partial(diffusers.StableDiffusionAdapterPipeline.from_pretrained, MODEL, torch_dtype=torch.float32,
                       adapter=diffusers.T2IAdapter.from_pretrained(ADAPTER, torch_dtype=torch.float32))
        args, more = with_edges(name), dict(image=Image.open(edge_map(name)).convert("L"))
    pipe = load()
    pipe.set_progress_bar_config(disable=True)
    if example == "lora":
        pipe.load_lora_weights(LORA.parent, weight_name=LORA.name)
        args = ["--lora", LORA]
    if example == "embedding":
        pipe.load_textual_inversion(str(EMBEDDING))
        prompt, args = "a red apple on a <mint> background", ["--embedding", EMBEDDING]
    want = pipe(prompt, width=128, height=128, num_inference_steps=4, guidance_scale=4.0, generator=torch.Generator().manual_seed(7),
                output_type="np", **more).images[0]
    rocm_sd("generate", "--model", MODEL, "--prompt", prompt, "--plain-prompt", "--rng", "cpu", "--seed", 7, "--steps", 4, "--cfg-scale", 4,
            "-W", 128, "-H", 128, "--dtype", "f32", "-o", tmp_path / "a.png", *args)
    assert psnr(read_picture(tmp_path / "a.png"), np.rint(want * 255).astype(np.uint8)) >= 60


def test_stacked_images(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 256, (6, 5, 7, 3), dtype=np.uint8)
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    for path, value in zip(paths, values):
        Image.fromarray(value).save(path)
    stack = [sys.executable, REPOSITORY / "benchmarks" / "stack_pictures.py", tmp_path / "sheet.png", "--columns"]
    subprocess.run([*stack, "3", *paths], check=True)
    rows = [np.concatenate(list(values[i:i + 3]), 1) for i in (0, 3)]
    assert np.array_equal(read_picture(tmp_path / "sheet.png"), np.concatenate(rows, 0))
    done = subprocess.run([*stack, "4", *paths], capture_output=True, text=True)
    assert done.returncode == 1 and "do not fill rows of 4" in done.stderr


def test_prompts_name_what_is_shipped():
    tags = set(re.findall(r"<lora:(\w+):", (EXAMPLES / "lora_prompts.txt").read_text()))
    assert tags == {LORA.stem} and "<mint>" in (EXAMPLES / "lora_prompts.txt").read_text()
    assert [edge_map(name).is_file() for name, _ in CONTROLS] == [True] * 3
