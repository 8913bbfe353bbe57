"""Receipts: what a picture's file says about its drawing, and `rocm-sd reproduce`, which draws it again from that."""

from __future__ import annotations

import json
import shutil
import zlib

import numpy as np
import pytest
from PIL import Image

from pictures import read_parameters, read_picture

FAST = ["--steps", "2", "-W", "64", "-H", "64"]


@pytest.fixture(scope="module")
def demo(repository):
    return repository / "models" / "demo"


@pytest.fixture(scope="module")
def examples(repository):
    return repository / "models" / "demo_examples"


def receipt_of(path) -> dict:
    return json.loads(Image.open(path).text["rocm-sd"])


def chosen(receipt: dict) -> dict:
    """The last value of each option."""
    return dict(map(tuple, receipt["options"]))


def reproduced(rocm_sd, path, *more) -> str:
    return rocm_sd("reproduce", "-q", path, *more).stdout


def test_the_receipt_says_how_it_was_drawn(rocm_sd, demo, tmp_path):
    rocm_sd("generate", "-m", demo, "-p", "a red apple, \"ü\" €", "-n", "blurry", *FAST, "-o", tmp_path / "a.png")
    receipt = receipt_of(tmp_path / "a.png")
    options = chosen(receipt)
    assert options["prompt"] == 'a red apple, "ü" €' and options["negative-prompt"] == "blurry" and options["steps"] == "2"
    assert int(options["seed"]) >= 0 and options["sampler"] and options["cfg-scale"]
    assert f"Seed: {options['seed']}" in read_parameters(tmp_path / "a.png")
    assert receipt["version"] and receipt["device"] and receipt["precision"] and receipt["driver"].startswith("linux ")
    assert len(receipt["kernel_choices"]) == 16 and set(receipt["seconds"]) >= {"plan", "text", "sample", "decode"}
    assert receipt["planned_bytes"] > 1e6
    model, = receipt["files"]
    assert model["option"] == "model" and model["name"] == "demo" and model["path"] == str(demo) and len(model["sha256"]) == 64
    assert model["bytes"] == sum(path.stat().st_size for path in demo.rglob("*") if path.is_file())
    for option in ("--no-receipt", "--no-metadata"):
        rocm_sd("generate", "-m", demo, *FAST, option, "-o", tmp_path / "b.png")
        assert set(Image.open(tmp_path / "b.png").text) == ({"parameters"} if option == "--no-receipt" else set())
        assert "carries no receipt" in rocm_sd("reproduce", tmp_path / "b.png", code=3).stderr


@pytest.mark.parametrize("ending", ["png", "jpg", "webp"])
def test_batches_are_drawn_again(rocm_sd, demo, tmp_path, ending):
    """Each picture of a batch, with a random seed and the file's own format."""
    rocm_sd("generate", "-m", demo, "-p", "a red apple", *FAST, "--batch", "2", "--variation-strength", "0.3", "--quality", "80",
            "-o", tmp_path / f"{{index}}.{ending}")
    for i in (1, 2):
        out = reproduced(rocm_sd, tmp_path / f"{i}.{ending}")
        assert "the same picture, every byte of it" in out and "nothing differs" in out, out


def test_every_kind_of_input(rocm_sd, demo, examples, tmp_path):
    """img2img with a mask, a LoRA of the prompt and one of the options, an embedding, a T2I-Adapter: found again by their hashes elsewhere."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (there / "deeper").mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(here / "init.png")
    Image.fromarray(np.eye(64, dtype=np.uint8) * 255).save(here / "mask.png")
    shutil.copytree(demo, here / "model")
    lora, control, edges = examples / "dusk_lora.safetensors", examples / "canny_adapter", examples / "edges" / "1_apple.png"
    shutil.copy(lora, here / "one.safetensors")
    shutil.copy(lora, here / "two.safetensors")
    args = ["generate", "-m", here / "model", "-p", "a mint red apple <lora:one:0.5>", "--lora-dir", here, "--lora", f"{here / 'two.safetensors'}:0.25",
            "--init-image", here / "init.png", "--mask", here / "mask.png", "--strength", "0.9", "--control", control, "--control-image", edges,
            "--embedding", f"mint={examples / 'mint.safetensors'}", *FAST]
    rocm_sd(*args, "-o", tmp_path / "a.png")
    files = {file["option"]: file for file in receipt_of(tmp_path / "a.png")["files"]}
    assert set(files) >= {"model", "lora", "init-image", "mask", "control", "control-image", "embedding"}
    assert "every byte of it" in reproduced(rocm_sd, tmp_path / "a.png")
    for source, target in (("model", "deeper/other"), ("init.png", "renamed.png"), ("mask.png", "deeper/m.png"), ("one.safetensors", "x.safetensors"),
                           ("two.safetensors", "deeper/y.safetensors")):
        shutil.move(here / source, there / target)
    message = rocm_sd("reproduce", tmp_path / "a.png", code=3).stderr
    assert "is not there" in message and "SHA-256" in message
    out = reproduced(rocm_sd, tmp_path / "a.png", "--model-dir", there, "-o", tmp_path / "again.png")
    assert "every byte of it" in out, out
    assert (read_picture(tmp_path / "again.png") == read_picture(tmp_path / "a.png")).all()
    assert "every byte of it" in reproduced(rocm_sd, tmp_path / "again.png")  # its receipt has the new places


def test_what_differs_is_named(rocm_sd, demo, tmp_path):
    """Another version, device and model; a picture that was changed; a receipt that is none."""
    path = tmp_path / "a.png"
    rocm_sd("generate", "-m", demo, "-p", "a red apple", *FAST, "-o", path)
    receipt, pixels = receipt_of(path), read_picture(path).copy()

    def write(changed: dict | str, values=pixels):
        from PIL.PngImagePlugin import PngInfo
        info = PngInfo()
        info.add_text("rocm-sd", changed if isinstance(changed, str) else json.dumps(changed))
        Image.fromarray(values).save(path, pnginfo=info)

    write(receipt | {"version": "0.0.1", "device": "an abacus", "kernel_choices": "0" * 16})
    out = reproduced(rocm_sd, path)
    assert "every byte of it" in out and "differs: version: 0.0.1 then" in out and "differs: device: an abacus then" in out and "differs: kernel choices" in out
    pixels[0, 0, 0] ^= 4
    write(receipt)
    out = reproduced(rocm_sd, path)
    assert "PSNR 76.98 dB" in out and "differ by at most 4 of 255" in out and "nothing differs" in out, out
    write(receipt, pixels[:32])
    assert "drawn again 64 x 64" in rocm_sd("reproduce", "-q", path, code=1).stderr
    for changed, message in (("{", "syntax"), ("[]", "no receipt of rocm-sd"), (receipt | {"rocm_sd_receipt": 2}, "version 2, expected 1"),
                             (receipt | {"options": [["prompt"]]}, "pairs of name and value"), (receipt | {"picture": 5}, "is none of a batch of 1"),
                             (receipt | {"picture": -1}, "expected 0 to"), (receipt | {"options": receipt["options"] + [["nonsense", "1"]]}, "nonsense"),
                             ({key: value for key, value in receipt.items() if key != "device"}, 'no proper "device"'),
                             (receipt | {"files": [{"option": "model", "path": "/nowhere", "name": "x", "bytes": 5, "sha256": "0" * 64}]}, "/nowhere is not there")):
        write(changed)
        done = rocm_sd("reproduce", "-q", path, code=None)
        assert done.returncode in (2, 3) and message in done.stderr, (message, done.stderr)


def test_workflows_of_comfyui_are_left_alone(rocm_sd, demo, tmp_path):
    """Chunks are told apart by their keywords, compressed ones too."""
    from PIL.PngImagePlugin import PngInfo
    rocm_sd("generate", "-m", demo, "-p", "a red apple", *FAST, "-o", tmp_path / "a.png")
    text = Image.open(tmp_path / "a.png").text
    info = PngInfo()
    info.add_text("workflow", "{}")
    info.add_itxt("rocm-sd", text["rocm-sd"], zip=True)
    info.add_text("parameters", text["parameters"], zip=True)
    Image.fromarray(read_picture(tmp_path / "a.png")).save(tmp_path / "b.png", pnginfo=info)
    assert "every byte of it" in reproduced(rocm_sd, tmp_path / "b.png")
    assert zlib.crc32(read_picture(tmp_path / "a.png").tobytes()) == zlib.crc32(read_picture(tmp_path / "b.png").tobytes())
