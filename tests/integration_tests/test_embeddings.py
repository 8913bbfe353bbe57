"""Textual inversion on whole pictures against Diffusers' load_textual_inversion, and on tokens against the web UI's rule."""

from __future__ import annotations

import hashlib
import json
import random

import diffusers
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pictures import psnr, read_parameters, read_picture
from test_pipeline import SEED, STEPS

SIZE, SCALE = 64, 9.0
# The name touches words, is in both prompts, and comes twice.
PROMPT, NEGATIVE = "a <cat-toy> on the red cat, <cat-toy>.", "blurry <bad-one>"


def widths(pipeline) -> list[int]:
    encoders = [pipeline.text_encoder, getattr(pipeline, "text_encoder_2", None)]
    return [e.config.hidden_size for e in encoders if e is not None]


def load(model):
    pipeline = diffusers.DiffusionPipeline.from_pretrained(model, torch_dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def draw(pipeline, prompt=PROMPT, negative=NEGATIVE) -> np.ndarray:
    images = pipeline(prompt, negative_prompt=negative, num_inference_steps=STEPS, guidance_scale=SCALE, width=SIZE, height=SIZE,
                      generator=torch.Generator().manual_seed(SEED), output_type="np").images
    return np.rint(images[0] * 255).astype(np.uint8)


def vectors(count: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) * 0.7


def ours(rocm_sd, model, path, *args, prompt=PROMPT, negative=NEGATIVE, plain=True, code=0):
    return rocm_sd("generate", "--model", model, "--prompt", prompt, "--negative-prompt", negative, "--rng", "cpu", "--seed", SEED,
                   "--steps", STEPS, "--cfg-scale", SCALE, "-W", SIZE, "-H", SIZE, "--dtype", "f32", "-o", path,
                   *(["--plain-prompt"] if plain else []), *args, code=code)


def test_sd15_as_diffusers(rocm_sd, tiny_model, tmp_path):
    """Diffusers' files: three vectors and one, by the token that each file holds."""
    model = tiny_model("sd15")
    pipeline = load(model)
    width = widths(pipeline)[0]
    plain = draw(pipeline)
    files = []
    for token, count in (("<cat-toy>", 3), ("<bad-one>", 1)):
        value = vectors(count, width, count)
        files.append(tmp_path / f"{token.strip('<>')}.safetensors")
        save_file({token: value if count > 1 else value[0]}, files[-1])
        pipeline.load_textual_inversion(str(files[-1]))
    want = draw(pipeline)
    assert psnr(want, plain) < 45 and want.std() > 5, "the embeddings change too little to prove anything"
    use = [arg for file in files for arg in ("--embedding", file)]
    ours(rocm_sd, model, tmp_path / "a.png", *use)
    assert psnr(read_picture(tmp_path / "a.png"), want) >= 60
    # A1111's reading of the same text, which has no weights; its words do not touch the name.
    apart = "a <cat-toy> on the red cat, <cat-toy> ."
    ours(rocm_sd, model, tmp_path / "b.png", *use, prompt=apart, plain=False)
    assert psnr(read_picture(tmp_path / "b.png"), draw(pipeline, apart)) >= 60
    parameters = read_parameters(tmp_path / "b.png")
    short = {f.stem: hashlib.sha256(f.read_bytes()).hexdigest()[:12] for f in files}
    hashes = f'TI hashes: "<bad-one>: {short["bad-one"]}, <cat-toy>: {short["cat-toy"]}"'
    assert hashes in parameters and "<cat-toy>" in parameters


@pytest.mark.parametrize("kind", ["sd21v", "sdxl"])
def test_other_models_as_diffusers(rocm_sd, tiny_model, tmp_path, kind):
    model = tiny_model(kind)
    pipeline = load(model)
    sizes = widths(pipeline)
    keys = ["clip_l", "clip_g"] if kind == "sdxl" else ["emb_params"]
    state = {key: vectors(2, width, 3 + i).half() for i, (key, width) in enumerate(zip(keys, sizes))}
    save_file(state, tmp_path / "style.safetensors")
    pipeline.load_textual_inversion({"<cat-toy>": state[keys[0]].float()}, token="<cat-toy>")
    if kind == "sdxl":
        pipeline.load_textual_inversion({"<cat-toy>": state["clip_g"].float()}, token="<cat-toy>", text_encoder=pipeline.text_encoder_2,
                                        tokenizer=pipeline.tokenizer_2)
    want = draw(pipeline, negative="blurry")
    ours(rocm_sd, model, tmp_path / "a.png", "--embedding", f"<cat-toy>={tmp_path / 'style.safetensors'}", negative="blurry")
    assert psnr(read_picture(tmp_path / "a.png"), want) >= 60
    ours(rocm_sd, model, tmp_path / "b.png", negative="blurry")
    assert psnr(read_picture(tmp_path / "b.png"), want) < 45


def test_sdxl_in_two_files_and_in_the_negative_prompt(rocm_sd, tiny_model, tmp_path):
    """Diffusers' training of SDXL writes a file for each text encoder, under one token; an older script one of text_encoders_0 and _1."""
    model = tiny_model("sdxl")
    pipeline = load(model)
    plain, files = draw(pipeline), []
    coders = ((pipeline.text_encoder, pipeline.tokenizer), (pipeline.text_encoder_2, pipeline.tokenizer_2))
    bad = {}
    for i, (width, (encoder, tokenizer)) in enumerate(zip(widths(pipeline), coders)):
        files.append(tmp_path / f"learned_embeds{'_2' * i}.safetensors")
        save_file({"<cat-toy>": vectors(3, width, 3 + i)}, files[-1])
        pipeline.load_textual_inversion(str(files[-1]), text_encoder=encoder, tokenizer=tokenizer)
        bad[f"text_encoders_{i}"] = vectors(2, width, 7 + i)
        pipeline.load_textual_inversion({"<bad-one>": bad[f"text_encoders_{i}"]}, token="<bad-one>", text_encoder=encoder, tokenizer=tokenizer)
    want = draw(pipeline)
    assert psnr(want, plain) < 45 and want.std() > 5, "the embeddings change too little to prove anything"
    assert psnr(want, draw(pipeline, negative="blurry")) < 50, "the negative prompt's changes too little to prove anything"
    save_file(bad, tmp_path / "bad.safetensors")
    negative = ["--embedding", f"<bad-one>={tmp_path / 'bad.safetensors'}"]
    for i, order in enumerate((files, files[::-1])):
        ours(rocm_sd, model, tmp_path / f"{i}.png", *(arg for file in order for arg in ("--embedding", file)), *negative)
        assert psnr(read_picture(tmp_path / f"{i}.png"), want) >= 60
    done = ours(rocm_sd, model, tmp_path / "x.png", "--embedding", files[0], *negative, code=3)
    assert "alone: expected clip_l and clip_g, or two files of one token" in done.stderr
    save_file({"<cat-toy>": vectors(2, widths(pipeline)[1], 4)}, files[1])
    done = ours(rocm_sd, model, tmp_path / "x.png", "--embedding", files[0], "--embedding", files[1], *negative, code=3)
    assert "has 3 vectors" in done.stderr and "expected the same number" in done.stderr


@pytest.mark.parametrize("words", [66, 69, 72, 75])
def test_vectors_count_against_the_75_tokens(rocm_sd, tiny_model, tmp_path, words):
    """Behind 66 to 75 words eight vectors find 9, 6, 3 and no places; what does not fit is cut, as Diffusers cuts it."""
    model = tiny_model("sd15")
    pipeline = load(model)
    file = tmp_path / "toy.safetensors"
    save_file({"<cat-toy>": vectors(8, widths(pipeline)[0], 2)}, file)
    pipeline.load_textual_inversion(str(file))
    prompt = " ".join(["cat"] * words) + " <cat-toy> red"
    assert len(pipeline.tokenizer(" ".join(["cat"] * words)).input_ids) == words + 2
    ours(rocm_sd, model, tmp_path / "a.png", "--embedding", file, prompt=prompt, negative="blurry")
    assert psnr(read_picture(tmp_path / "a.png"), draw(pipeline, prompt, "blurry")) >= 60


def test_every_form_is_the_same(rocm_sd, tiny_model, tmp_path):
    """A1111's, Diffusers' and a bare tensor; by option, by folder and name, by ComfyUI's name, in capitals."""
    model = tiny_model("sd15")
    value = vectors(4, widths(load(model))[0], 9)
    folder = tmp_path / "embeddings" / "below"
    folder.mkdir(parents=True)
    for name, key, tensor in (("a1111", "emb_params", value), ("bare", "x", value), ("my style", "<s>", value.float())):
        save_file({key: tensor}, folder / f"{name}.safetensors")
    pictures = []
    for prompt, use in (("by a1111, red", []), ("by BARE, red", []), ("by embedding:bare, red", []),
                        ("by embedding:my style, red", []), ("by My Style, red", []), ("by embedding:bare.safetensors, red", []),
                        ("by <s>, red", ["--embedding", folder / "my style.safetensors"])):
        path = tmp_path / f"{len(pictures)}.png"
        ours(rocm_sd, model, path, "--embedding-dir", tmp_path / "embeddings", *use, prompt=prompt, plain=False)
        pictures.append(read_picture(path))
    assert [np.array_equal(picture, pictures[0]) for picture in pictures] == [True] * 7
    ours(rocm_sd, model, tmp_path / "x.png", prompt="by a1111, red", plain=False)
    assert psnr(read_picture(tmp_path / "x.png"), pictures[0]) < 45


def test_weights_act_on_its_vectors(rocm_sd, tiny_model, tmp_path):
    """(name:1.4) is what A1111 makes of it: states times 1.4, brought back to the chunk's mean."""
    model = tiny_model("sd15")
    pipeline = load(model)
    value = vectors(2, widths(pipeline)[0], 5)
    save_file({"emb_params": value}, tmp_path / "thing.safetensors")
    pipeline.load_textual_inversion({"thing": value}, token="thing")
    states, _ = pipeline.encode_prompt("a thing", "cpu", 1, False)
    negative, _ = pipeline.encode_prompt("blurry", "cpu", 1, False)
    weighted = states.clone()
    weighted[:, 2:4] *= 1.4  # behind bos and "a"
    weighted *= states.mean() / weighted.mean()
    images = pipeline(prompt_embeds=weighted, negative_prompt_embeds=negative, num_inference_steps=STEPS, guidance_scale=SCALE,
                      width=SIZE, height=SIZE, generator=torch.Generator().manual_seed(SEED), output_type="np").images
    ours(rocm_sd, model, tmp_path / "a.png", "--embedding", tmp_path / "thing.safetensors", prompt="a (thing:1.4)", negative="blurry",
         plain=False)
    assert psnr(read_picture(tmp_path / "a.png"), np.rint(images[0] * 255).astype(np.uint8)) >= 60


def chunks_of(units: list[tuple[str, int]], capacity: int = 75, backtrack: int = 20) -> list[list[str]]:
    """The web UI's rule on (word, vectors) in order, written from its description: vectors stay together, a full chunk ends at a comma
    that is near."""
    chunks, now, comma = [], [], -1
    for word, count in units:
        if word == ",":
            comma = len(now)
        elif len(now) == capacity and comma >= 0 and len(now) - comma <= backtrack:
            chunks.append(now[:comma + 1])
            now, comma = now[comma + 1:], -1
        if len(now) + count > capacity:
            chunks.append(now)
            now, comma = [], -1
        now = now + ([f"{word}#{i}" for i in range(count)] if count > 1 else [word])
    return chunks + [now] if now or not chunks else chunks


def test_chunks_by_the_web_uis_rule(rocm_sd, tmp_path):
    names = {"zqzq": 2, "vwvw": 7, "xyxyxy": 30}
    for name, count in names.items():
        save_file({"emb_params": torch.ones(count, 8)}, tmp_path / f"{name}.safetensors")
    generator = random.Random(0)
    for trial in range(12):
        words = generator.choices(["cat", "dog", "red", ",", *names], weights=[6, 6, 6, 3, 2, 1, 1], k=generator.randint(20, 140))
        out = rocm_sd("tokenize", " ".join(words), "--embedding-dir", tmp_path, "--json").stdout
        got = []
        for chunk in json.loads(out)[0]["chunks"]:
            end = chunk["eos_position"]
            pieces = [piece.removesuffix("</w>") for piece in chunk["pieces"][:end]]
            for inserted in chunk["embeddings"]:
                pieces[inserted["position"]] = f"{inserted['name']}#{inserted['vector']}"
                assert chunk["ids"][inserted["position"]] == 0
            got.append(pieces[1:])
        assert got == chunks_of([(word, names.get(word, 1)) for word in words]), (trial, words)


def test_tokenize_shows_the_vectors(rocm_sd, tmp_path):
    save_file({"<cat-toy>": torch.ones(2, 8)}, tmp_path / "toy.safetensors")
    out = rocm_sd("tokenize", "a (<cat-toy>:1.2) here", "--embedding", tmp_path / "toy.safetensors").stdout
    assert "4 tokens" in out and "embedding <cat-toy>, vector 2  weight 1.2" in out
    plain = rocm_sd("tokenize", "a<cat-toy>here", "--embedding", tmp_path / "toy.safetensors", "--plain-prompt").stdout
    assert "4 tokens" in plain and "embedding <cat-toy>, vector 1" in plain
    shown = json.loads(rocm_sd("inspect", tmp_path / "toy.safetensors", "--json").stdout)
    assert shown["embedding"] == {"vectors": 2, "token": "<cat-toy>", "sdxl": False} and shown["type"] == "textual inversion"


def bad_files(width: int) -> dict[str, tuple[dict, str]]:
    good = torch.ones(2, width)
    return {
        "wide": ({"emb_params": torch.ones(2, width + 8)}, f"takes vectors of {width} numbers"),
        "sdxl": ({"clip_l": good, "clip_g": torch.ones(2, 80)}, "trained on SDXL"),
        "nan": ({"emb_params": torch.full((2, width), float("nan"))}, f"{2 * width} of {2 * width} values are not finite"),
        "integers": ({"emb_params": torch.ones(2, width, dtype=torch.int32)}, "expected vectors in F32, F16 or BF16, found i32"),
        "many": ({"emb_params": torch.ones(10000, width)}, "at most 1024 vectors"),
        "long": ({"emb_params": torch.ones(76, width)}, "76 vectors; a chunk of the prompt has 75 places"),
        "cube": ({"emb_params": torch.ones(2, 2, width)}, "expected vectors [n,width]"),
        "none": ({"emb_params": torch.ones(0, width)}, "expected vectors [n,width]"),
        "two": ({"a": good, "b": good.clone()}, "expected one tensor, or clip_l and clip_g, found 2 (a, b)"),
        "halves": ({"clip_l": good, "clip_g": torch.ones(3, 80)}, "clip_l has 2 vectors, clip_g 3"),
    }


def test_bad_files_are_named(rocm_sd, tiny_model, tmp_path):
    model = tiny_model("sd15")
    width = widths(load(model))[0]
    for name, (tensors, message) in bad_files(width).items():
        path = tmp_path / f"{name}thing.safetensors"
        save_file(tensors, path)
        done = ours(rocm_sd, model, tmp_path / "x.png", "--embedding", path, prompt=f"a {name}thing", plain=False, code=None)
        assert done.returncode in (2, 3) and message in done.stderr and f"{name}thing" in done.stderr, (name, done.stderr)
    xl = tiny_model("sdxl")
    done = ours(rocm_sd, xl, tmp_path / "x.png", "--embedding", f"foo={tmp_path / 'widething.safetensors'}", prompt="a foo", code=3)
    assert "expected clip_l and clip_g" in done.stderr


def test_bad_names_are_named(rocm_sd, tiny_model, tmp_path):
    model = tiny_model("sd15")
    width = widths(load(model))[0]
    folder = tmp_path / "dir"
    folder.mkdir()
    for name in ("painting", "cat"):
        save_file({"emb_params": vectors(1, width, 1)}, folder / f"{name}.safetensors")
    use = ["--embedding-dir", folder]
    done = ours(rocm_sd, model, tmp_path / "x.png", *use, prompt="a embedding:paintin, red", plain=False, code=2)
    assert 'embedding:paintin: none of the 2 embeddings has this name; did you mean "painting"?' in done.stderr
    assert "neither --embedding nor" in ours(rocm_sd, model, tmp_path / "x.png", prompt="embedding:x", plain=False, code=2).stderr
    assert "no such file" in ours(rocm_sd, model, tmp_path / "x.png", "--embedding", tmp_path / "none.safetensors", code=3).stderr
    assert "embedding-dir" in ours(rocm_sd, model, tmp_path / "x.png", "--embedding-dir", tmp_path / "nowhere", code=3).stderr
    assert "expected FILE or NAME=FILE" in ours(rocm_sd, model, tmp_path / "x.png", "--embedding", "=x", code=2).stderr
    warned = ours(rocm_sd, model, tmp_path / "x.png", *use, prompt="a cat", negative="", plain=False).stderr
    assert "embedding cat: the word stands for the embedding" in warned
    both = ["--embedding", f"x={folder / 'cat.safetensors'}", "--embedding", f"x={folder / 'painting.safetensors'}"]
    assert 'have the name "x"' in ours(rocm_sd, model, tmp_path / "x.png", *both, code=2).stderr
