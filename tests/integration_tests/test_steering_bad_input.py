"""Bad inputs of what steers images, by the command line: files of LoRAs, embeddings, ControlNets, T2I-Adapters and IP-Adapters that are damaged
or none, their numbers, prompts, masks and pictures. Each is one line that says what is wrong with what, or an image."""

from __future__ import annotations

import io
import json
import os
import pickle
import socket
import struct
import time

import diffusers
import numpy as np
import pytest
import torch
from control_models import adapter_folder, control_folder, drawing, single_file
from ip_models import FACE, adapter_file, encoder_folder, image_encoder
from PIL import Image
from pictures import read_parameters, read_picture
from safetensors.torch import load_file, save, save_file

pytestmark = pytest.mark.bad_input
SIZE = 64


@pytest.fixture(scope="module")
def place(tiny_model, tmp_path_factory):
    """A model, one good file of each kind, and pictures."""
    folder = tmp_path_factory.mktemp("steering")
    model = tiny_model("sd15")
    (folder / "model").symlink_to(model)
    unet = diffusers.UNet2DConditionModel.from_pretrained(model / "unet")
    single_file(control_folder(model, folder / "net"), folder / "control.safetensors")
    channels = diffusers.UNet2DConditionModel.load_config(model / "unet")["block_out_channels"]
    adapter_folder(folder / "sketch", "full_adapter", channels)
    (folder / "t2i.safetensors").write_bytes((folder / "sketch" / "diffusion_pytorch_model.safetensors").read_bytes())
    encoder_folder(folder / "image_encoder")
    for kind in ("plain", "faceid"):
        adapter_file(folder / f"{kind}.safetensors", kind, unet, image_encoder())
    generator, lora = torch.Generator().manual_seed(5), {}
    for name, module in unet.named_modules():
        if name.endswith("attn1.to_v"):
            out, wide = module.weight.shape
            stem = f"lora_unet_{name.replace('.', '_')}"
            lora[f"{stem}.lora_down.weight"] = torch.randn(2, wide, generator=generator) * wide ** -0.5
            lora[f"{stem}.lora_up.weight"] = torch.randn(out, 2, generator=generator)
            lora[f"{stem}.alpha"] = torch.tensor(2.0)
    save_file(lora, folder / "lora.safetensors")
    width = json.loads((model / "text_encoder" / "config.json").read_text())["hidden_size"]
    save_file({"emb_params": torch.randn(2, width, generator=generator)}, folder / "style.safetensors")
    save_file({"face": torch.randn(1, FACE, generator=generator)}, folder / "face.safetensors")
    drawing(folder / "seen.png", SIZE, SIZE)
    drawing(folder / "init.png", SIZE, SIZE, seed=2)
    return folder


def run(rocm_sd, place, out, *args, prompt="a cat", code=None, timeout=120):
    args = [str(arg).replace("PLACE", str(place)) for arg in args]
    return rocm_sd("generate", "--model", place / "model", "--prompt", prompt, "--steps", 1, "-W", SIZE, "-H", SIZE, "--seed", 1, "--dtype", "f32",
                   "--quiet", "-o", out, *args, code=code, timeout=timeout)


def refused(done, out, *words, codes=(2, 3)):
    """One line of an error with each of the words ("a|b": one of them), no image, and no crash."""
    assert done.returncode in codes, (done.returncode, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(lines) == 1 and len(done.stderr) < 4000, done.stderr
    for word in words:
        assert any(one in lines[0] for one in word.split("|")), (word, done.stderr)
    assert not out.exists()


# --- files ---

KINDS = {  # options that read a file, and the good one
    "lora": (["--lora", "FILE"], "lora.safetensors"),
    "runtime lora": (["--lora-mode", "runtime", "--lora", "FILE"], "lora.safetensors"),
    "embedding": (["--embedding", "style=FILE"], "style.safetensors"),
    "control": (["--control", "FILE", "--control-image", "PLACE/seen.png"], "control.safetensors"),
    "t2i": (["--control", "FILE", "--control-image", "PLACE/seen.png"], "t2i.safetensors"),
    "ip-adapter": (["--ip-adapter", "FILE", "--ip-image", "PLACE/seen.png", "--image-encoder", "PLACE/image_encoder"], "plain.safetensors"),
    "ip-embeds": (["--ip-adapter", "PLACE/faceid.safetensors", "--ip-embeds", "FILE"], "face.safetensors"),
}


def header_of(data: bytes) -> tuple[dict, bytes]:
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + size]), data[8 + size:]


def with_header(header: str | bytes, rest: bytes) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text)) + text + rest


def changed_first(data: bytes, **fields) -> bytes:
    header, rest = header_of(data)
    name = next(key for key in header if key != "__metadata__")
    return with_header(json.dumps(header | {name: header[name] | fields}), rest)


class Attack:
    def __reduce__(self):
        return os.system, ("touch /tmp/rocm_sd_was_attacked",)


def filled(path, value):
    return save({key: torch.full_like(tensor, value) for key, tensor in load_file(path).items()})


DAMAGES = {  # of the good file's bytes, and a word of the sentence; the file's name is in all of them
    "empty": (lambda path, data: b"", "empty"),
    "seven bytes": (lambda path, data: data[:7], "7 bytes"),
    "a header beyond all": (lambda path, data: b"\xff" * 8 + data[8:], "header"),
    "a header of the file's size": (lambda path, data: struct.pack("<Q", len(data)) + data[8:], "header"),
    "a header above the limit": (lambda path, data: struct.pack("<Q", 100_000_001) + data[8:], "header"),
    "no UTF-8": (lambda path, data: with_header(b'{"\xff\xfe": 1}', b""), "UTF-8"),
    "a list": (lambda path, data: with_header("[]", b""), "{"),
    "a leading space": (lambda path, data: with_header(" " + json.dumps(header_of(data)[0]), header_of(data)[1]), "{"),
    "an overflow": (lambda path, data: changed_first(data, shape=[1 << 33, 1 << 33]), ""),
    "a size that its bytes contradict": (lambda path, data: changed_first(data, shape=[1, 3]), ""),
    "a negative size": (lambda path, data: changed_first(data, shape=[-1]), ""),
    "a size in words": (lambda path, data: changed_first(data, shape=["4"]), ""),
    "an unknown type": (lambda path, data: changed_first(data, dtype="F5"), "F5"),
    "an end before its begin": (lambda path, data: changed_first(data, data_offsets=[8, 4]), ""),
    "truncated": (lambda path, data: data[:-5], "truncated: 5 of"),
    "bytes behind": (lambda path, data: data + b"x", "1 byte"),
    "NaN": (lambda path, data: filled(path, float("nan")), "nan|finite"),
    "infinity": (lambda path, data: filled(path, float("inf")), "inf|finite"),
    "git-LFS": (lambda path, data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "LFS"),
    "HTML": (lambda path, data: b"<!DOCTYPE html><html>sign in</html>", "HTML"),
    "pickled code": (lambda path, data: pickle.dumps({"x": Attack()}), ""),
    "torch.save of code": (lambda path, data: torch_saved({"x": Attack()}), ""),
    "a picture": (lambda path, data: (path.parent / "seen.png").read_bytes(), ""),
    "tensors of something else": (lambda path, data: save({"other.weight": torch.zeros(3, 3), "more": torch.zeros(2)}), ""),
}


def torch_saved(content) -> bytes:
    out = io.BytesIO()
    torch.save(content, out)
    return out.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files(rocm_sd, place, tmp_path, kind, damage):
    args, good = KINDS[kind]
    change, word = DAMAGES[damage]
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(change(place / good, (place / good).read_bytes()))
    done = run(rocm_sd, place, tmp_path / "a.png", *(str(arg).replace("FILE", str(path)) for arg in args), prompt="a style cat")
    refused(done, tmp_path / "a.png", "damaged.safetensors", word)
    assert not os.path.exists("/tmp/rocm_sd_was_attacked")


@pytest.mark.parametrize("kind", KINDS)
def test_good_files(rocm_sd, place, tmp_path, kind):
    """What the tests above damage draws."""
    args, good = KINDS[kind]
    done = run(rocm_sd, place, tmp_path / "a.png", *(str(arg).replace("FILE", str(place / good)) for arg in args), prompt="a style cat", code=0)
    run(rocm_sd, place, tmp_path / "b.png", prompt="a style cat", code=0)
    assert not np.array_equal(read_picture(tmp_path / "a.png"), read_picture(tmp_path / "b.png")), done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["missing", "folder", "fifo", "socket", "dangling", "zero", "unreadable"])
def test_what_is_no_file(rocm_sd, place, tmp_path, monkeypatch, kind, what):
    path = tmp_path / "none.safetensors"
    if what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "socket":
        holder = socket.socket(socket.AF_UNIX)
        with monkeypatch.context() as here:
            here.chdir(tmp_path)  # its name has at most 108 bytes
            holder.bind("none.safetensors")
    elif what == "dangling":
        path.symlink_to(tmp_path / "gone")
    elif what == "zero":
        path.symlink_to("/dev/zero")
    elif what == "unreadable":
        path.write_bytes(b"x" * 100)
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("root reads every file")
    done = run(rocm_sd, place, tmp_path / "a.png", *(str(arg).replace("FILE", str(path)) for arg in KINDS[kind][0]))
    refused(done, tmp_path / "a.png", "none.safetensors")


# --- LoRAs and embeddings by their contents ---

def one_layer(tensors: dict, **changes) -> dict:
    """The LoRA of one layer with parts changed; None leaves one out."""
    stem = next(iter(tensors)).split(".")[0]
    own = {key: value for key, value in tensors.items() if key.startswith(stem + ".")}
    for part, value in changes.items():
        key = f"{stem}.{part.replace('_weight', '.weight')}"
        own.pop(key, None)
        if value is not None:
            own[key] = value(tensors[key]) if callable(value) else value
    return own


@pytest.mark.parametrize("mode", ["merge", "runtime"])
@pytest.mark.parametrize("changes, word", [
    (dict(lora_down_weight=lambda t: t[:0], lora_up_weight=lambda t: t[:, :0].contiguous()), "at least one value"),
    (dict(alpha=torch.tensor(float("nan"))), "alpha: expected a number, got nan"), (dict(alpha=torch.tensor(float("inf"))), "got inf"), (dict(alpha=torch.zeros(3)), "alpha"),
    (dict(lora_down_weight=None), "no down"), (dict(lora_up_weight=None), "no up"),
    (dict(lora_down_weight=lambda t: torch.cat([t, t])), "rank"), (dict(lora_up_weight=lambda t: t[:-1].contiguous()), "lora_unet_"),
    (dict(lora_up_weight=lambda t: t[0].contiguous()), "lora_unet_"), (dict(lora_up_weight=lambda t: t[None, None, None].contiguous()), "lora_unet_")])
def test_parts_of_a_lora(rocm_sd, place, tmp_path, mode, changes, word):
    save_file(one_layer(load_file(place / "lora.safetensors"), **changes), tmp_path / "x.safetensors")
    refused(run(rocm_sd, place, tmp_path / "a.png", "--lora", tmp_path / "x.safetensors", "--lora-mode", mode), tmp_path / "a.png", "x.safetensors", word)


@pytest.mark.parametrize("count, width, word", [(0, None, ""), (10_000, None, "10000"), (2, 63, "63"), (2, 65, "65"), (1, 1, "")])
def test_vectors_of_an_embedding(rocm_sd, place, tmp_path, count, width, word):
    own = load_file(place / "style.safetensors")["emb_params"].shape[1]
    save_file({"emb_params": torch.zeros(count, width or own)}, tmp_path / "x.safetensors")
    refused(run(rocm_sd, place, tmp_path / "a.png", "--embedding", tmp_path / "x.safetensors", prompt="an x cat"), tmp_path / "a.png", "x.safetensors",
            word)


def test_an_embedding_named_as_a_word(rocm_sd, place, tmp_path):
    """A word of the vocabulary: the embedding counts, as in A1111."""
    (tmp_path / "cat.safetensors").write_bytes((place / "style.safetensors").read_bytes())
    for name, args in (("a", ["--embedding", tmp_path / "cat.safetensors"]), ("b", [])):
        run(rocm_sd, place, tmp_path / f"{name}.png", *args, code=0)
    assert "TI hashes: \"cat: " in read_parameters(tmp_path / "a.png")
    assert not np.array_equal(read_picture(tmp_path / "a.png"), read_picture(tmp_path / "b.png"))


def test_the_same_lora_twice_counts_twice(rocm_sd, place, tmp_path):
    lora = place / "lora.safetensors"
    run(rocm_sd, place, tmp_path / "a.png", "--lora", f"{lora}:0.3", "--lora", f"{lora}:0.4", code=0)
    run(rocm_sd, place, tmp_path / "b.png", "--lora", f"{lora}:0.7", code=0)
    assert np.abs(read_picture(tmp_path / "a.png").astype(int) - read_picture(tmp_path / "b.png")).max() <= 1
    run(rocm_sd, place, tmp_path / "c.png", "--lora-dir", place, prompt="a cat <lora:lora:0.3> <lora:lora:0.4>", code=0)
    assert np.abs(read_picture(tmp_path / "c.png").astype(int) - read_picture(tmp_path / "b.png")).max() <= 1


# --- values ---

VALUES = [
    (["--lora", "PLACE/lora.safetensors:1e9"], "lora"), (["--lora", "PLACE/lora.safetensors:nan"], "lora"), (["--lora", "PLACE/lora.safetensors:inf:1"], "lora"),
    (["--lora", "PLACE/lora.safetensors:1:-inf"], "lora"), (["--lora", ""], "lora"), (["--lora", ":1"], "lora"), (["--lora-mode", "later"], "lora-mode"),
    (["--lora", "../lora", "--lora-dir", "PLACE"], "lora"), (["--embedding", ""], "embedding"), (["--embedding", "=PLACE/style.safetensors"], "embedding"),
    (["--embedding", "x="], "embedding"),
    (["--control-image", "PLACE/seen.png"], "control"), (["--control", "", "--control-image", "PLACE/seen.png"], "control"),
    (["--control", "PLACE/net", "--control-image", "PLACE/seen.png", "--control-strength", "1e999"], "control-strength"),
    (["--control", "PLACE/net", "--control-image", "PLACE/seen.png", "--control-start", "-0.1"], "control-start"),
    (["--control", "PLACE/net", "--control-image", "PLACE/seen.png", "--control-start", "nan"], "control-start"),
    (["--ip-image", "PLACE/seen.png"], "ip-"), (["--ip-adapter", ""], "ip-adapter"),
    (["--ip-adapter", "PLACE/plain.safetensors", "--ip-image", ""], "ip-image"), (["--ip-adapter", "PLACE/plain.safetensors", "--ip-image", ",,"], "ip-image"),
    (["--ip-adapter", "PLACE/plain.safetensors", "--ip-image", "PLACE/seen.png", "--ip-weight", "inf"], "ip-weight"),
    (["--ip-adapter", "PLACE/plain.safetensors", "--ip-image", "PLACE/seen.png", "--ip-end", "1.01"], "ip-end"),
    (["--ip-adapter", "PLACE/plain.safetensors", "--ip-image", "PLACE/seen.png", "--ip-embeds", "PLACE/face.safetensors"], "ip-image, ip-embeds: given 2 times in all"),
    (["--region", "0,0,1: a"], "region"), (["--region", "0,0,2,1: a"], "region"), (["--region", "0.5,0,0.6,1: a"], "region"), (["--region", "a"], "region"),
    (["--region", "0,0,0,1: a"], "region"), (["--region", "0,0,1,1: a", "--region-base", "nan"], "region-base"),
    (["--region", "a", "--region-split", "rows"], "region-split"), (["--region", "a", "--region-split", "rows:0"], "region-split"),
    (["--region", "a", "--region-split", "rows:1,1"], "region-split"), (["--region", "none.png: a"], "none.png"),
    (["--sag-scale", "nan"], "sag-scale"), (["--pag-scale", "-1"], "pag-scale"), (["--pag-layers", "", "--pag-scale", "1"], "pag-layers"),
    (["--freeu", "1,2,3"], "freeu"), (["--freeu", "1,1,1,nan"], "freeu"), (["--guidance-rescale", "2"], "guidance-rescale"),
    (["--guidance-start", "0.7", "--guidance-end", "0.2"], "guidance"), (["--mimic-scale", "inf"], "mimic-scale"), (["--clip-skip", "13"], "clip-skip"),
]


@pytest.mark.parametrize("args, word", VALUES, ids=[" ".join(args).replace("PLACE/", "") for args, _ in VALUES])
def test_values(rocm_sd, place, tmp_path, args, word):
    refused(run(rocm_sd, place, tmp_path / "a.png", *args), tmp_path / "a.png", word)


# --- prompts ---

REFUSED_PROMPTS = [("(a:nan)", None), ("(a:1e308)", None), ("[a:b:-1]", None), ("a <lora:../../x:1>", "lora"), ("a <lora:none>", "none"),
                   ("a <lora:lora:nan>", "nan"), ("a <lora:lora:1e9>", "1e9"), ("a AND b:nan", None), ("a AND b:1e999", None),
                   (" AND ".join("abcdefghijkl"), "11"), ("x" * 32_001, "32001"), ("\u0300" * 32_001, "32001")]


@pytest.mark.parametrize("prompt, word", REFUSED_PROMPTS, ids=[prompt[:30].encode("ascii", "replace").decode() for prompt, _ in REFUSED_PROMPTS])
def test_prompts_that_are_refused_or_text(rocm_sd, place, tmp_path, prompt, word):
    """None: what A1111's grammar takes for text. It is drawn as such."""
    done = run(rocm_sd, place, tmp_path / "a.png", "--lora-dir", place, prompt=prompt)
    if word is None:
        assert done.returncode == 0, done.stderr
    else:
        refused(done, tmp_path / "a.png", word, codes=(2,))


DRAWN_PROMPTS = {
    "empty": "", "spaces": " \t\n ", "brackets that stay open": "(" * 16_000, "square ones": "[" * 16_000, "that close": ")" * 8_000 + "]" * 8_000,
    "alternating": "[" + "a|" * 5_000 + "b]", "nested edits": "[" * 2_000 + "a" + ":b:0.5]" * 2_000, "combining marks": "e" + "\u0301" * 30_000,
    "growing under NFC": "\ufb2c" * 10_000, "joined emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467" * 100, "right to left": "\u202e\u05d0\u0301 a \u202c",
    "full width": "\uff21\uff22\uff23", "an end of text": "a <|endoftext|> cat <|startoftext|>", "HTML": "<script>alert(1)</script><img src=x onerror=y>",
    "BREAKs": "a BREAK " * 3_000, "escapes": "\\" * 30_000, "colons": ":" * 30_000, "ESC": "a \x1b[31m cat \x07",
}


ENDLESS = {"BREAKs": "512 chunks", "growing under NFC": "512 chunks", "combining marks": "512 chunks", "nested edits": "64 brackets"}


@pytest.mark.parametrize("name", DRAWN_PROMPTS)
def test_prompts_that_are_drawn(rocm_sd, place, tmp_path, name):
    prompt, begin = DRAWN_PROMPTS[name], time.monotonic()
    done = run(rocm_sd, place, tmp_path / "a.png", prompt=prompt)
    if name in ENDLESS:
        refused(done, tmp_path / "a.png", "prompt", ENDLESS[name], codes=(2,))
    else:
        assert done.returncode == 0 and tmp_path.joinpath("a.png").exists(), done.stderr
        assert read_parameters(tmp_path / "a.png").split("\n")[-1].startswith("Steps: 1, "), name
    assert time.monotonic() - begin < 60 and "\x1b" not in done.stderr
    run(rocm_sd, place, tmp_path / "b.png", "--negative-prompt", prompt, code=done.returncode)


# --- masks and pictures ---

def grey(path, values) -> str:
    Image.fromarray(values.astype(np.uint8)).save(path)
    return str(path)


MASKS = {"black": np.zeros((SIZE, SIZE)), "white": np.full((SIZE, SIZE), 255), "one pixel": np.full((1, 1), 255), "wide": np.full((3, 4097), 255),
         "other": np.eye(37) * 255, "colours": np.stack([np.eye(64) * 255] * 3 + [np.full((64, 64), 255)], -1)}
USES = {"control": ["--control", "PLACE/net", "--control-image", "PLACE/seen.png", "--control-mask", "MASK"],
        "ip": ["--ip-adapter", "PLACE/plain.safetensors", "--ip-image", "PLACE/seen.png", "--ip-mask", "MASK"],
        "region": ["--region", "MASK: a dog"], "inpaint": ["--init-image", "PLACE/init.png", "--strength", 1, "--mask", "MASK"]}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("mask", MASKS)
def test_masks(rocm_sd, place, tmp_path, use, mask):
    """Of other sizes and shapes they are resized; what nothing is left of is the image without it, or what a sentence says."""
    path = grey(tmp_path / "m.png", MASKS[mask])
    done = run(rocm_sd, place, tmp_path / "a.png", *(str(arg).replace("MASK", path) for arg in USES[use]))
    if done.returncode:
        refused(done, tmp_path / "a.png", "mask", codes=(2,))
        assert (use, mask) in {("inpaint", "black"), ("inpaint", "one pixel"), ("inpaint", "wide"), ("inpaint", "other")}, done.stderr
        return
    got = read_picture(tmp_path / "a.png")
    plain = run(rocm_sd, place, tmp_path / "b.png", code=0) and read_picture(tmp_path / "b.png")
    if mask == "black" and use != "inpaint":
        assert np.abs(got.astype(int) - plain).max() <= 1
    elif mask == "white" and use != "inpaint":  # all of an image that is drawn from noise alone
        assert not np.array_equal(got, plain)


PICTURES = {"nothing": b"", "text": b"a picture", "a cut PNG": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>"}


def bomb(width: int, height: int) -> bytes:
    import zlib

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b""))


@pytest.mark.parametrize("option", ["--control-image", "--control-mask", "--ip-image", "--ip-mask", "--region", "--mask", "--init-image"])
@pytest.mark.parametrize("picture", [*PICTURES, "1 x 10^9", "65500 x 65500"])
def test_pictures(rocm_sd, place, tmp_path, option, picture):
    path = tmp_path / "bad.png"
    path.write_bytes(PICTURES[picture] if picture in PICTURES else bomb(1, 10 ** 9) if picture.startswith("1 ") else bomb(65_500, 65_500))
    control = ["--control", "PLACE/net"] + ([] if option == "--control-image" else ["--control-image", "PLACE/seen.png"])
    ip = ["--ip-adapter", "PLACE/plain.safetensors"] + ([] if option == "--ip-image" else ["--ip-image", "PLACE/seen.png"])
    args = {"--control-image": control, "--control-mask": control, "--ip-image": ip, "--ip-mask": ip, "--mask": ["--init-image", "PLACE/init.png"]}
    value = f"{path}: a dog" if option == "--region" else path
    refused(run(rocm_sd, place, tmp_path / "a.png", *args.get(option, []), option, value), tmp_path / "a.png", "bad.png", codes=(3,))
