"""The shipped demo model: its folder is whole, loads in Diffusers, reads any text and draws what was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "models" / "demo"
SIZE_LIMIT = 24_000_000

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.CLIPTokenizer.from_pretrained(MODEL / "tokenizer")


@pytest.fixture(scope="module")
def pipeline():
    pipe = diffusers.StableDiffusionPipeline.from_pretrained(MODEL, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def encode_by_hand(word: str, tokenizer_folder: Path) -> list[int]:
    """Byte-pair encoding of one lower-case ASCII word, written from CLIP's definition."""
    vocab = json.loads((tokenizer_folder / "vocab.json").read_text(encoding="utf-8"))
    lines = (tokenizer_folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    rank = {tuple(line.split(" ")): number for number, line in enumerate(lines)}
    parts = [*word[:-1], word[-1] + "</w>"]
    while pairs := [pair for pair in zip(parts, parts[1:]) if pair in rank]:
        best = min(pairs, key=rank.__getitem__)
        merged, at = [], 0
        while at < len(parts):
            step = 2 if tuple(parts[at:at + 2]) == best else 1
            merged.append("".join(parts[at:at + step]))
            at += step
        parts = merged
    return [vocab[part] for part in parts]


def test_folder_is_small_enough():
    assert sum(file.stat().st_size for file in MODEL.rglob("*") if file.is_file()) <= SIZE_LIMIT


def test_sixteen_demo_prompts():
    assert len((MODEL / "demo_prompts.txt").read_text(encoding="utf-8").splitlines()) == 16


@pytest.mark.parametrize("part", ["text_encoder", "unet", "vae"])
def test_weights_are_finite_halves(part):
    (file,) = (MODEL / part).glob("*.safetensors")
    tensors = safetensors.load_file(file)
    assert all(tensor.dtype == torch.float16 for tensor in tensors.values())
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())


def test_text_encoder_has_the_customary_names():
    tensors = safetensors.load_file(MODEL / "text_encoder" / "model.safetensors")
    assert "text_model.embeddings.token_embedding.weight" in tensors
    assert all(name.startswith("text_model.") for name in tensors)


def test_vocabulary_covers_every_byte():
    vocab = json.loads((MODEL / "tokenizer" / "vocab.json").read_text(encoding="utf-8"))
    assert sorted(vocab.values()) == list(range(len(vocab)))
    letters = list(vocab)[:256]
    assert all(len(letter) == 1 and letter + "</w>" in vocab for letter in letters)
    assert vocab["<|endoftext|>"] == len(vocab) - 1


@pytest.mark.parametrize("text", ["a small red apple", "café", "日本の旗", "🦊 fox", "x1y22", "  spaces\tand\nlines "])
def test_tokenizer_round_trip(tokenizer, text):
    decoded = tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True)
    assert decoded.replace(" ", "") == "".join(text.lower().split())


@pytest.mark.parametrize("word", ["apple", "background", "flag", "zyzzyva", "q"])
def test_tokenizer_agrees_with_the_definition(tokenizer, word):
    assert tokenizer(word).input_ids[1:-1] == encode_by_hand(word, MODEL / "tokenizer")


def test_tokenizer_pads_to_77_with_the_end_token(tokenizer):
    ids = tokenizer("a red apple", padding="max_length").input_ids
    assert len(ids) == 77
    assert ids[0] == tokenizer.bos_token_id and ids[-1] == tokenizer.eos_token_id


def test_draws_the_background_that_the_prompt_names(pipeline):
    generator = torch.Generator().manual_seed(1)
    drawn = pipeline("a red apple on a blue background", width=128, height=128, num_inference_steps=12,
                     guidance_scale=3.0, generator=generator, output_type="np").images[0]  # [128, 128, 3]
    assert np.isfinite(drawn).all()
    border = np.concatenate([drawn[:3].reshape(-1, 3), drawn[-3:].reshape(-1, 3)])
    assert np.abs(np.median(border, axis=0) * 255 - (40, 90, 220)).max() < 20
    red, green, blue = drawn[48:80, 48:80].reshape(-1, 3).mean(axis=0)
    assert red > 1.5 * max(green, blue)
