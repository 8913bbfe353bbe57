"""The command line under odd and hostile input: options, prompts, models, pictures and files; test_cli_outputs.py
has streams and signals."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import zlib

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from pictures import psnr, read_parameters, read_picture

FAST = ["--steps", "2", "-W", "64", "-H", "64", "--seed", "1"]


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("sd15")


BAD_OPTIONS = [
    (["--width", "0"], 0, None),  # 0 means the model's own size
    (["--width", "-8"], 2, "width"), (["--width", "7"], 2, "multiple of 8"), (["--width", "2147483648"], 2, "width"),
    (["--height", "64000000000"], 2, "height"), (["--steps", "0"], 2, "steps"), (["--steps", "-1"], 2, "steps"),
    (["--steps", "1000000000"], 2, "steps"), (["--batch", "1000000"], 2, "batch"), (["--cfg-scale", "nan"], 2, "cfg-scale"),
    (["--cfg-scale", "1e999"], 2, "cfg-scale"), (["--seed", "18446744073709551616"], 2, "seed"), (["--seed", "-2"], 2, "seed"),
    (["--sampler", "no such"], 2, "no such"), (["--schedule", "no such"], 2, "no such"), (["--nonsense", "1"], 2, "nonsense"),
    (["--strength", "nan"], 2, "strength"), (["--strength", "2"], 2, "strength"), (["--rng", "dice"], 2, "dice"),
    (["--dtype", "fp4"], 2, "fp4"), (["--device", "cpu", "--dtype", "f16"], 2, "CPU does not compute in f16"),
    (["--weights", "int4"], 2, "int4"), (["--weights", "int8-"], 2, "int8-products"),
    (["--weights", "f16", "--dtype", "f32"], 2, "compute type is f32"),
    (["--device", "tpu"], 2, "tpu"), (["--device", "hip:9"], 4, "hip"), (["--device", "cuda:-1"], 2, "cuda:-1"),
    (["--vram-budget", "lots"], 2, "vram-budget"), (["--emphasis", "loud"], 2, "loud"), (["--sigmas", "1,2,3"], 2, "sigmas"),
    (["--sigmas", "nan"], 2, "sigmas"), (["--eta", "-1"], 2, "eta"), (["--prompt", "x" * 32001], 2, "32001"),
    (["--prompt", "(a:99999999)"], 2, "99999999"), (["--prompt", "<lora:../../x:1>"], 2, "lora"),
    (["--prompt", "(" * 20000], 0, None), (["--prompt", "\u0301" * 5000], 0, None), (["--prompt", "<|endoftext|> a cat"], 0, None),
    (["--prompt", "\U0001f469\u200d\U0001f4bb \u202e\uff21"], 0, None), (["--prompt", ""], 0, None),
    (["--mask", "missing.png"], 3, "missing.png"), (["--init-image", "/dev/zero"], 3, "regular file"),
    (["-o", "a.gif"], 2, "gif"), (["-o", "/proc/none/a.png"], 3, "/proc/none"), (["--config", "missing.toml"], 2, "missing.toml"),
    (["--taesd", "missing.safetensors"], 3, "missing.safetensors"), (["--vae", "/dev/null"], 3, "/dev/null"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize("args,code,word", BAD_OPTIONS, ids=[" ".join(a)[:40].encode("ascii", "replace").decode() for a, _, _ in BAD_OPTIONS])
def test_bad_options(rocm_sd, model, tmp_path, args, code, word):
    base = ["generate", "--model", model, "--steps", "1", "-W", "64", "-H", "64", "-o", tmp_path / "a.png", "--quiet"]
    done = rocm_sd(*base, *args, code=code, timeout=120)
    if code:
        assert word in done.stderr and "Traceback" not in done.stderr
        assert len([line for line in done.stderr.splitlines() if line.startswith("error:")]) == 1
        assert not list(tmp_path.iterdir())


@pytest.mark.bad_input
def test_prompt_that_is_not_utf8(rocm_sd, model, tmp_path):
    for option, text, at in ((b"--prompt", b"caf\xe9", 3), (b"--negative-prompt", b"a cat \xed\xa0\x80", 6), (b"--prompt", b"\xff", 0)):
        command = [os.fsencode(rocm_sd.path), b"generate", b"--model", os.fsencode(model), option, text, b"-o", os.fsencode(tmp_path / "a.png")]
        done = subprocess.run(command, capture_output=True)
        assert done.returncode == 2 and b"offset %d" % at in done.stderr and option[2:] in done.stderr, done.stderr
    for name, option in (("prompts", "--prompts-file"), ("config", "--config")):
        (tmp_path / name).write_bytes(b"steps = 1\nsampler = \"caf\xe9\"\n")
        done = rocm_sd("generate", "--model", model, option, tmp_path / name, "-o", tmp_path / "a.png", code=None)
        assert done.returncode in (2, 3) and "offset 24" in done.stderr and str(tmp_path / name) in done.stderr
    assert not (tmp_path / "a.png").exists()


def test_tags_without_effect_are_named(rocm_sd, model, tmp_path):
    done = rocm_sd("generate", "--model", model, *FAST, "--prompt", "a cat <style:y> <hypernet:x:1> <style:y>", "-o", tmp_path / "a.png")
    warnings = [line for line in done.stderr.splitlines() if "no effect" in line]
    assert len(warnings) == 2, done.stderr  # each once, however often it holds
    assert "<style:y>" in warnings[0] and "<hypernet:x:1>" in warnings[1]
    rocm_sd("generate", "--model", model, *FAST, "--prompt", "a cat", "-o", tmp_path / "b.png")
    assert np.array_equal(read_picture(tmp_path / "a.png"), read_picture(tmp_path / "b.png"))


@pytest.mark.bad_input
def test_prompt_cannot_forge_parameters(rocm_sd, model, tmp_path):
    rocm_sd("generate", "--model", model, *FAST, "--prompt", "cat\nSteps: 99, Sampler: x, Seed: 5", "-o", tmp_path / "a.png")
    assert read_parameters(tmp_path / "a.png").split("\n")[-1].startswith("Steps: 2, ")


@pytest.mark.bad_input
@pytest.mark.parametrize("damage", ["empty", "truncated", "directory", "missing", "lfs", "pickle", "fifo", "wrong_shape", "missing_key", "nan"])
def test_damaged_models(rocm_sd, model, tmp_path, damage):
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    unet = next((folder / "unet").glob("*.safetensors"))
    content = unet.read_bytes()
    words = {"empty": "empty", "truncated": "unet", "directory": "unet", "missing": "unet", "lfs": "LFS", "pickle": "unet", "fifo": "FIFO",
             "wrong_shape": "expected", "missing_key": "conv_norm_out.weight", "nan": "finite"}
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    if damage in ("empty", "truncated", "lfs", "pickle"):
        unet.write_bytes({"empty": b"", "truncated": content[:-100], "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
                          "pickle": b"PK\x03\x04" + bytes(100)}[damage])
    elif damage == "nan":
        start = 8 + size
        unet.write_bytes(content[:start] + b"\xff" * (len(content) - start))
    elif damage in ("wrong_shape", "missing_key"):
        if damage == "missing_key":
            header["renamed"] = header.pop("conv_norm_out.weight")
        else:
            shape = header["conv_in.weight"]["shape"]
            header["conv_in.weight"]["shape"] = [shape[1], shape[0], *shape[2:]]
        text = json.dumps(header).encode()
        unet.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size:])
    else:
        unet.unlink()
        if damage == "directory":
            unet.mkdir()
        elif damage == "fifo":
            os.mkfifo(unet)
    code = 1 if damage == "nan" else 3
    done = rocm_sd("generate", "--model", folder, *FAST, "-o", tmp_path / "a.png", code=code, timeout=60)
    assert words[damage] in done.stderr.splitlines()[-1]
    assert not (tmp_path / "a.png").exists()


@pytest.mark.bad_input
@pytest.mark.parametrize("path", ["/nonexistent", "/dev/zero", "/dev/null", "/etc/passwd", "/"])
def test_models_that_are_none(rocm_sd, tmp_path, path):
    done = rocm_sd("generate", "--model", path, *FAST, "-o", tmp_path / "a.png", code=3, timeout=60)
    assert path in done.stderr


@pytest.mark.bad_input
@pytest.mark.parametrize("field,value", [("attention_head_dim", 0), ("block_out_channels", [33, 64, 64, 64]), ("layers_per_block", 1000000),
                                         ("cross_attention_dim", "768"), ("norm_num_groups", -1), ("block_out_channels", [])])
def test_hostile_config(rocm_sd, model, tmp_path, field, value):
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    path = folder / "unet" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    assert field in rocm_sd("generate", "--model", folder, *FAST, "-o", tmp_path / "a.png", code=3, timeout=60).stderr


@pytest.mark.bad_input
def test_mask_of_another_size_and_extremes(rocm_sd, model, tmp_path):
    Image.new("RGB", (64, 64), (10, 200, 30)).save(tmp_path / "init.png")
    for name, size, value in (("small", (16, 16), 255), ("black", (64, 64), 0), ("white", (64, 64), 255)):
        Image.new("L", size, value).save(tmp_path / "mask.png")
        rocm_sd("generate", "--model", model, *FAST, "--init-image", tmp_path / "init.png", "--mask", tmp_path / "mask.png", "-o",
                tmp_path / f"{name}.png")
    assert np.array_equal(read_picture(tmp_path / "black.png"), read_picture(tmp_path / "init.png"))
    done = rocm_sd("generate", "--model", model, *FAST, "--mask", tmp_path / "mask.png", "-o", tmp_path / "x.png", code=2)
    assert "init-image" in done.stderr
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    rocm_sd("generate", "--model", model, *FAST, "--init-image", tmp_path / "dot.png", "-o", tmp_path / "dot_out.png")


@pytest.mark.bad_input
@pytest.mark.parametrize("threads", ["0", "1", "1000"])
def test_odd_thread_counts(rocm_sd, model, tmp_path, threads):
    rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "a.png", env={"OMP_NUM_THREADS": threads})


@pytest.mark.parametrize("level", ["SSE41", "AVX2", "AVX512_CORE", "nonsense"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_onednn_kept_from_instructions(rocm_sd, model, tmp_path, level, dtype):
    """A limit below what our own kernels use must not end in a product that oneDNN has no code for."""
    plain, limited = tmp_path / "plain.png", tmp_path / "limited.png"
    rocm_sd("generate", "--device", "cpu", "--model", model, *FAST, "--dtype", dtype, "-o", plain)
    rocm_sd("generate", "--device", "cpu", "--model", model, *FAST, "--dtype", dtype, "-o", limited, env={"ONEDNN_MAX_CPU_ISA": level})
    assert psnr(read_picture(plain), read_picture(limited)) >= (60 if dtype == "f32" else 35)


@pytest.mark.bad_input
@pytest.mark.parametrize("option", ["--prompts-file", "--config"])
def test_text_files_that_are_none(rocm_sd, model, tmp_path, option):
    os.mkfifo(tmp_path / "fifo")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 33)
    for path, words in (("/dev/zero", "a device"), (tmp_path / "fifo", "a FIFO"), (tmp_path, "a folder"), (tmp_path / "huge", "at most")):
        done = rocm_sd("generate", "--model", model, option, path, "-o", tmp_path / "a.png", code=3, timeout=60)
        assert words in done.stderr and str(path) in done.stderr
    rocm_sd("generate", "--model", model, option, tmp_path / "none", "-o", tmp_path / "a.png", code=3 if option == "--prompts-file" else 2)


@pytest.mark.bad_input
def test_prompts_files(rocm_sd, model, tmp_path):
    for text, code in ((b"", 3), (b"# only a comment\n", 3), (b"a" * 11_000_000, 2), (b"x\n" * 10_001, 2), (b"cat\0dog\n", 3),
                       (bytes(range(256)) * 40, 3), (b"one\n" + b"x" * 32_001, 2), (b"\xef\xbb\xbfcat\r\n", 0)):
        (tmp_path / "prompts.txt").write_bytes(text)
        rocm_sd("generate", "--model", model, *FAST, "--prompts-file", tmp_path / "prompts.txt", "-o", tmp_path / "a.png", code=code)
        assert (tmp_path / "a.png").exists() == (code == 0)
    (tmp_path / "prompts.txt").write_bytes(b"one\n# two\n" + b"x" * 32_001)
    assert "prompts.txt: line 3 has 32001 characters" in rocm_sd(
        "generate", "--model", model, "--prompts-file", tmp_path / "prompts.txt", code=2).stderr


ODD_NUMBERS = [("generate", "--threads", bad) for bad in ("0x10", " 1", "1 ", "01", "+1", "-0", "")]
ODD_NUMBERS += [("generate", "--quality", "1e1"), ("generate", "--repeat", " 1"), ("generate", "--steps", "010"), ("generate", "--strength", "1e-400"),
                ("generate", "--tune", "1e-400"), ("generate", "--tune", "-0"), ("generate", "--tune", "0x10"), ("generate", "--tune", "5\n"),
                ("generate", "--sigmas", ""), ("generate", "--grid", ""), ("generate", "--grid", "01"), ("generate", "--vae", ""),
                ("generate", "--unet", ""), ("generate", "--taesd", ""), ("generate", "--trace", ""), ("generate", "--prompts-file", ""),
                ("generate", "--config", ""), ("generate", "--variant", "../.."), ("generate", "-o", "{seed:x}.png"),
                ("bench", "--seconds", "nan"), ("bench", "--rate", "inf"), ("bench", "--threads", "0x1"), ("tune", "--budget", "1d"),
                ("tune", "--per-shape", "nan"), ("predict", "-W", "100000"), ("predict", "-H", "65"), ("predict", "--batch", "100000000"),
                ("predict", "--steps", "1 ")]


@pytest.mark.bad_input
@pytest.mark.parametrize("command,option,value", ODD_NUMBERS, ids=[" ".join(case).strip() for case in ODD_NUMBERS])
def test_odd_values_are_refused_by_name(rocm_sd, model, tmp_path, command, option, value):
    done = rocm_sd(command, "--model", "sd15" if command == "predict" else model, option, value, code=2, cwd=tmp_path, timeout=60)
    assert {"-o": "output", "-W": "width", "-H": "height"}.get(option, option.lstrip("-")) in done.stderr
    assert not list(tmp_path.iterdir())


def test_options_without_effect_are_named(rocm_sd, model, tmp_path):
    args = ["--eta", "0.5", "--sampler", "euler", "--strength", "0.5", "--mask-blur", "2", "--image-cfg-scale", "2", "--crop-top", "8",
            "--aesthetic-score", "5", "--variation-seed", "3", "--grid-labels", "--mask-blend", "latents", "--tile-batch", "2", "--target-width", "64"]
    done = rocm_sd("generate", "--model", model, *FAST, *args, "-o", tmp_path / "a.png")
    named = [line for line in done.stderr.splitlines() if line.startswith("warning: --") and "has no effect" in line]
    assert len(named) == 11, done.stderr
    done = rocm_sd("generate", "--model", model, *FAST, "--eta", "0.5", "--sampler", "euler_a", "-i", tmp_path / "a.png", "--strength", "0.5",
                   "--keep-latents", "-o", tmp_path / "b.png")
    assert "has no effect" not in done.stderr
    latents = ["--init-latents", tmp_path / "b.safetensors", "--strength", "0.5", "-o", tmp_path / "c.png"]
    assert "has no effect" not in rocm_sd("generate", "--model", model, *FAST, *latents).stderr
    done = rocm_sd("generate", "--model", model, *FAST, *latents, "--denoising-start", "0.5")
    assert "--strength has no effect: --denoising-start" in done.stderr


@pytest.mark.bad_input
@pytest.mark.parametrize("key", ["model.diffusion_model.input_blocks.1.1.transformer_blocks.0.norm1.weight",
                                 "model.diffusion_model.output_blocks.2.1.conv.bias", "first_stage_model.post_quant_conv.weight",
                                 "cond_stage_model.transformer.text_model.encoder.layers.0.layer_norm1.weight"])
def test_a_missing_tensor_is_named_everywhere(rocm_sd, tiny_model, tmp_path, key):
    """All tensors: tests/unit_tests/models/completeness_test.cpp."""
    tensors = load_file(tiny_model("sd15", "single", small_vocab=True))
    del tensors[key]
    path = tmp_path / "m.safetensors"
    save_file(tensors, path)
    assert key in rocm_sd("generate", "--model", path, *FAST, "-o", tmp_path / "a.png", code=3).stderr
    assert key in json.loads(rocm_sd("inspect", "--json", path).stdout)["problem"]
    assert key in rocm_sd("convert", path, tmp_path / "folder", code=3).stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.safetensors"]


@pytest.mark.bad_input
def test_files_missing_from_a_folder(rocm_sd, model, tmp_path):
    for missing, word in (("unet/config.json", "is missing"), ("vae/config.json", "is missing"), ("text_encoder/config.json", "is missing"),
                          ("scheduler/scheduler_config.json", "is missing"), ("tokenizer/merges.txt", "merges.txt")):
        folder = tmp_path / missing.replace("/", "-")
        shutil.copytree(model, folder)
        if missing.startswith("tokenizer"):
            (folder / missing).write_text("#version: 0.2\n")
        else:
            (folder / missing).unlink()
        done = rocm_sd("generate", "--model", folder, *FAST, "-o", tmp_path / "a.png", code=3)
        assert missing in done.stderr and word in done.stderr
    folder = tmp_path / "nan"
    shutil.copytree(model, folder)
    path = folder / "scheduler" / "scheduler_config.json"
    for field, value in (("beta_start", "NaN"), ("beta_end", "1.5")):
        path.write_text(json.dumps(json.loads(path.read_text()) | {field: float(value)}))
        done = rocm_sd("generate", "--model", folder, *FAST, "-o", tmp_path / "a.png", code=3)
        assert field in done.stderr and str(path) in done.stderr
        path.write_text((model / "scheduler" / "scheduler_config.json").read_text())


@pytest.mark.bad_input
def test_seeds_do_not_overflow(rocm_sd, model, tmp_path):
    largest = 2**63 - 1
    args = ["generate", "--model", model, "--steps", 1, "-W", 64, "-H", 64, "-o", tmp_path / "{seed}.png"]
    for more in (["--batch", 2], ["--repeat", 3], ["--batch", 2, "--variation-seed", largest, "--variation-strength", 0.5]):
        assert "seed: " in rocm_sd(*args, "--seed", largest, *more, code=2).stderr
    assert not list(tmp_path.iterdir())
    rocm_sd(*args, "--seed", largest)
    assert (tmp_path / f"{largest}.png").exists()


@pytest.mark.bad_input
@pytest.mark.parametrize("name,damage", [("inf.png", 0x7c00), ("huge.png", 0x7bff)])
def test_weights_that_overflow(rocm_sd, tiny_model, tmp_path, name, damage):
    """Weights all infinite or the largest half: an error that names the stage, never a black picture."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("sd15", dtype="fp16"), folder)
    unet = next((folder / "unet").glob("*.safetensors"))
    content = unet.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    unet.write_bytes(content[:start] + struct.pack("<H", damage) * ((len(content) - start) // 2))
    done = rocm_sd("generate", "--model", folder, *FAST, "-o", tmp_path / name, code=None, timeout=60)
    if damage == 0x7c00 or done.returncode != 0:  # norms tame weights that are only huge
        assert done.returncode == 1 and "finite" in done.stderr.splitlines()[-1] and not (tmp_path / name).exists()
    else:
        assert read_picture(tmp_path / name).shape == (64, 64, 3)


@pytest.mark.bad_input
@pytest.mark.parametrize("mode", ["RGBA", "P", "1", "L", "I;16", "CMYK", "apng", "icc", "rotated"])
def test_odd_pictures_are_read(rocm_sd, model, tmp_path, mode):
    path = tmp_path / ("in.jpg" if mode in ("CMYK", "rotated") else "in.png")
    plain = Image.new("RGB", (64, 32), (10, 200, 30))
    exif = Image.Exif()
    exif[0x112] = 6
    {"P": lambda: plain.convert("P").save(path, transparency=0), "I;16": lambda: Image.new("I;16", (64, 64), 40000).save(path),
     "apng": lambda: plain.save(path, save_all=True, append_images=[Image.new("RGB", (64, 32))]),
     "icc": lambda: plain.save(path, icc_profile=b"garbage" * 20),
     "rotated": lambda: plain.save(path, exif=exif)}.get(mode, lambda: plain.convert(mode).save(path))()
    rocm_sd("generate", "--model", model, *FAST, "--strength", 1, "--init-image", path, "-o", tmp_path / "out.png")
    assert read_picture(tmp_path / "out.png").shape == (64, 64, 3)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.bad_input
def test_hostile_pictures(rocm_sd, model, tmp_path):
    Image.new("RGB", (64, 64), (10, 200, 30)).save(tmp_path / "good.png")
    good = (tmp_path / "good.png").read_bytes()
    header, rest = good[:33], good[33:]
    packed = zlib.compress(bytes(100_000_000), 9)
    cases = {"crc": (header[:-1] + bytes([header[-1] ^ 1]) + rest, 3), "twice": (header + header[8:] + rest, 3),
             "long": (header + png_chunk(b"tEXt", b"parameters\0" + b"a" * 60_000_000) + rest, 3),
             "bomb": (good[:8] + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 65500, 65500, 8, 2, 0, 0, 0)) + rest, 3),
             "tall": (good[:8] + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 10**9, 8, 2, 0, 0, 0)) + rest, 3),
             "ztxt": (header + png_chunk(b"zTXt", b"parameters\0\0" + packed) + rest, 0)}
    for name, (content, code) in cases.items():
        path = tmp_path / f"{name}.png"
        path.write_bytes(content)
        done = rocm_sd("generate", "--model", model, *FAST, "--strength", 1, "--init-image", path, "-o", tmp_path / "out.png", code=code, timeout=60)
        assert code == 0 or f"{name}.png: " in done.stderr
    assert "parameters" in rocm_sd("params", tmp_path / "ztxt.png", code=None).stderr
    frames = [Image.new("RGB", (64, 64), (i, 0, 0)) for i in (0, 200)]
    frames[0].save(tmp_path / "moving.webp", save_all=True, append_images=frames[1:])
    assert "animated" in rocm_sd("generate", "--model", model, *FAST, "-i", tmp_path / "moving.webp", "-o", tmp_path / "out.png", code=3).stderr


def test_interlaced_picture(rocm_sd, model, tmp_path):
    """Adam7: seven passes, each with every dy-th row and dx-th column; the picture is that of the file without."""
    y, x = np.mgrid[0:45, 0:70]
    pixels = np.stack([x * 3, y * 5, (x * y) % 256], -1).astype(np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for x0, y0, dx, dy in
                    [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
                    for row in pixels[y0::dy, x0::dx])
    content = (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 70, 45, 8, 2, 0, 0, 1))
               + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b""))
    (tmp_path / "interlaced.png").write_bytes(content)
    assert np.array_equal(read_picture(tmp_path / "interlaced.png"), pixels)
    Image.fromarray(pixels).save(tmp_path / "plain.png")
    for name in "interlaced", "plain":
        rocm_sd("generate", "--model", model, *FAST, "-i", tmp_path / f"{name}.png", "-o", tmp_path / f"{name}_out.png")
    assert np.array_equal(read_picture(tmp_path / "interlaced_out.png"), read_picture(tmp_path / "plain_out.png"))
