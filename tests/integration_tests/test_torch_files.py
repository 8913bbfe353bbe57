"""Files of torch.save against torch.load: what is accepted has the same tensors, bit for bit; what is damaged or hostile is refused."""

from __future__ import annotations

import collections
import io
import os
import pickle
import random
import shutil
import struct
import subprocess
import warnings
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file

from pictures import read_picture
from test_pipeline import SEED, STEPS

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


class Reader:
    """tensors_main: one process for many files."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self, path):
        """The tensors, or the message of the error."""
        out = path.with_suffix(".out")
        self.process.stdin.write(f"{path}\t{out}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"tensors_main ended on {path}: {self.process.poll()}"
        return load_file(out) if answer == "ok\n" else answer.removeprefix("error: ").strip()


@pytest.fixture(scope="module")
def reader(program):
    made = Reader(program("tensors_main"))
    yield made
    made.process.stdin.close()
    assert made.process.wait(30) == 0


def random_tensor(rng: random.Random) -> torch.Tensor:
    dtype = rng.choice(DTYPES + FLOAT8)
    shape = [rng.choice([0, 1, 2, 3, 5, 8]) for _ in range(rng.randrange(5))]
    bits = torch.randint(0, 256, (*shape, dtype.itemsize), generator=torch.Generator().manual_seed(rng.randrange(2**31)), dtype=torch.uint8)
    tensor = bits % 2 == 1 if dtype == torch.bool else bits
    tensor = tensor.contiguous().view(dtype).reshape(shape)
    change = rng.randrange(6)
    if change == 0 and tensor.dim() >= 2:
        return tensor.transpose(0, -1)
    if change == 1 and tensor.dim() and tensor.shape[0] > 1:
        return tensor[1:]  # an offset within its storage
    if change == 2 and tensor.dim() and tensor.shape[-1] > 2:
        return tensor[..., ::2]
    if change == 3 and dtype.is_floating_point:
        return torch.nn.Parameter(tensor, requires_grad=rng.random() < 0.5)
    return tensor


def random_object(rng: random.Random):
    """A dictionary as trainers save it, and the tensors that are to be read from it."""
    tensors, entries = {}, collections.OrderedDict() if rng.random() < 0.5 else {}
    for i in range(rng.randrange(1, 8)):
        name = rng.choice(["unet.w", "a b", "ü.weight", "model.diffusion_model.x"]) + str(i)
        entries[name] = tensors[name] = random_tensor(rng)
    if rng.random() < 0.3:  # tied weights
        entries["tied"] = tensors["tied"] = next(iter(entries.values()))
    if rng.random() < 0.3:
        entries["inner"] = {"*": random_tensor(rng), "step": 5, "deeper": {"z": random_tensor(rng)}}
        tensors["inner.*"], tensors["inner.deeper.z"] = entries["inner"]["*"], entries["inner"]["deeper"]["z"]
    entries["count"], entries["note"], entries["rate"], entries["none"] = rng.choice([3, -1, 70_000, 2**40]), "text", 0.5, None
    holder = rng.choice([None, None, "state_dict", "params_ema", "params"])
    if holder is None:
        return entries, tensors
    around = {"epoch": 1, holder: entries, "optimizer": {"state": [torch.zeros(3)], "flags": (True, False)}, "names": {"a", "b"}}
    if holder == "params_ema":
        around["params"] = {"other": torch.ones(2)}
    return around, tensors


def same(ours: dict, theirs: dict) -> None:
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        tensor = tensor.detach().contiguous()
        assert ours[name].dtype == tensor.dtype and ours[name].shape == tensor.shape, name
        assert ours[name].reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8)), name


@pytest.mark.parametrize("form", ["zip", "old"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_random_objects(reader, tmp_path, form, protocol):
    rng = random.Random(f"{form}{protocol}")
    for i in range(25):
        content, tensors = random_object(rng)
        path = tmp_path / f"{i}.pt"
        torch.save(content, path, pickle_protocol=protocol, _use_new_zipfile_serialization=form == "zip")
        got = reader.read(path)
        assert isinstance(got, dict), got
        same(got, tensors)


@pytest.mark.parametrize("form", ["zip", "old"])
@pytest.mark.parametrize("tensor", [torch.arange(12.0).reshape(3, 4), torch.arange(6).reshape(2, 3).t(), torch.tensor(2.5, dtype=torch.float16)],
                         ids=["rows", "transposed", "one"])
def test_one_tensor(reader, tmp_path, form, tensor):
    torch.save(tensor, tmp_path / "a.pt", _use_new_zipfile_serialization=form == "zip")
    same(reader.read(tmp_path / "a.pt"), {"tensor": tensor.contiguous()})


def test_a_list_of_tensors_is_refused(reader, tmp_path):
    path = tmp_path / "a.pt"
    for content, message in (([torch.ones(2)], "expected a dictionary"),
                             (torch.nn.Linear(2, 2), 'names "torch.nn.modules.linear.Linear"'),
                             ({"x": torch.ones(2).to_sparse()}, "names \"torch"), ({"x": torch.ones(1).expand(1 << 30)}, "expanded view"),
                             ({"x": torch.ones(2, dtype=torch.complex64)}, "torch.ComplexFloatStorage")):
        torch.save(content, path)
        assert message in reader.read(path), (message, reader.read(path))


class Attack:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def test_code_is_named_and_not_run(reader, tmp_path):
    mark = tmp_path / "mark"
    path = tmp_path / "a.pt"
    attacks = {"posix.system": Attack(os.system, (f"touch {mark}",)), "builtins.eval": Attack(eval, (f"open({str(mark)!r}, 'w')",)),
               "builtins.exec": Attack(exec, ("1",)), "builtins.getattr": Attack(getattr, ("x", "upper")),
               "subprocess.Popen": Attack(subprocess.Popen, (["touch", str(mark)],))}
    python2 = {"subprocess.Popen": "commands.Popen"}  # protocol 2's name
    for protocol in (2, 4):
        for form in (True, False):
            for name, attack in attacks.items():
                torch.save({"w": torch.ones(2), "x": attack}, path, pickle_protocol=protocol, _use_new_zipfile_serialization=form)
                message = reader.read(path)
                names = {name, python2.get(name, name)}
                assert isinstance(message, str) and any(f'names "{n}"' in message for n in names), message
    assert not mark.exists()


def archive(records: dict[str, bytes], **how) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **how) as z:
        for name, content in records.items():
            z.writestr(name, content)
    return out.getvalue()


def unzip(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as z:
        return {name: z.read(name) for name in z.namelist()}


def opcodes(*parts) -> bytes:
    return b"\x80\x02" + b"".join(parts) + b"."


def hostile_archives() -> dict[str, tuple[bytes, str]]:
    buffer = io.BytesIO()
    torch.save({"w": torch.arange(6, dtype=torch.float32), "u": torch.ones(2)}, buffer)
    good = buffer.getvalue()
    records = unzip(good)
    folder = next(name for name in records if name.endswith("/data.pkl")).removesuffix("data.pkl")
    plain = archive(records)
    first = plain.index(folder.encode() + b"data/0")
    twice = archive({**records, "extra/data.pkl": records[folder + "data.pkl"]})
    without = {name: content for name, content in records.items() if not name.endswith("/data/0")}

    def pickled(content: bytes) -> bytes:
        return archive({**records, folder + "data.pkl": content})

    def flag(content: bytes, bits: int) -> bytes:
        out = bytearray(content)
        for magic, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            place = content.index(magic)
            out[place + at] |= bits
        return bytes(out)

    deep = b"]" * 3_000_000 + b"a" * 2_999_999
    laughs = b"}q\0" + b"".join(b"0}(X\1\0\0\0ah%cX\1\0\0\0bh%cuq%c" % (i, i, i + 1) for i in range(60))
    return {
        "deflated": (archive(records, compression=zipfile.ZIP_DEFLATED), "is compressed"),
        "encrypted": (flag(plain, 1), "is encrypted"),
        "slip": (archive({**records, "../x": b"1"}), "leaves the archive"),
        "absolute": (archive({**records, "/etc/x": b"1"}), "leaves the archive"),
        "two pickles": (twice, "two records are named data.pkl"),
        "no pickle": (archive({"a/b": b"1"}), "without data.pkl"),
        "script": (archive({**records, folder + "constants.pkl": b""}), "TorchScript"),
        "big endian": (archive({**records, folder + "byteorder": b"big"}), 'byte order "big"'),
        "no storage": (archive(without), "is not in the file"),
        "short storage": (archive({**records, folder + "data/0": records[folder + "data/0"][:-1]}), "its storage has"),
        "local name": (plain[:first] + b"X" + plain[first + 1:], "the central directory differ"),
        "end cut": (plain[:-1], "no end of the central directory"),
        "empty pickle": (pickled(b""), "cut off"),
        "only stop": (pickled(opcodes()), "leaves 0 values"),
        "behind": (pickled(opcodes(b"}") + b"x"), "bytes after the pickle"),
        "protocol 9": (pickled(b"\x80\x09}."), "protocol 9"),
        "protocol 0": (pickled(b"(dp0\n."), "opcode"),
        "no mark": (pickled(opcodes(b"u")), "no mark"),
        "no memo": (pickled(opcodes(b"h\5")), "was never written"),
        "huge memo": (pickled(opcodes(b"}r\xff\xff\xff\xff")), "memo entry"),
        "huge text": (pickled(opcodes(b"X\xff\xff\xff\xff")), "cut off"),
        "huge text of 64 bits": (pickled(opcodes(b"\x8d" + b"\xff" * 8)), "cut off"),
        "deep": (pickled(opcodes(deep)), "expected a dictionary"),
        "laughs": (pickled(opcodes(laughs)), "nest deeper"),
        "itself": (pickled(opcodes(b"}q\0X\1\0\0\0ah\0s")), "nest deeper"),
        "values": (pickled(opcodes(b"N0" * 4_100_000, b"}")), "more than 4000000 values"),
        "storage of a list": (pickled(opcodes(b"]Q")), "persistent id"),
        "call of text": (pickled(opcodes(b"X\1\0\0\0a)R")), "no class or function"),
        "call of a dtype": (pickled(opcodes(b"ctorch\nfloat32\n)R")), "which is none"),
        "odd items": (pickled(opcodes(b"}(Nu")), "without a value"),
        "module": (pickled(opcodes(b"cos\nsystem\nX\4\0\0\0true\x85R")), 'names "os.system"'),
        "old name": (pickled(opcodes(b"c__builtin__\neval\n.")), 'names "builtins.eval"'),
        "negative": (records_with(records, folder, b"K\6\x85", b"J\xff\xff\xff\xff\x85"), "no integer >= 0"),
        "outside": (records_with(records, folder, b"K\6\x85", b"M\x07\0\x85"), "outside its storage"),
        "overflow": (records_with(records, folder, b"K\6\x85", b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85"), "2^40"),
    }


def records_with(records: dict[str, bytes], folder: str, old: bytes, new: bytes) -> bytes:
    """The archive with other bytes in the pickle, once."""
    content = records[folder + "data.pkl"]
    assert old in content
    return archive({**records, folder + "data.pkl": content.replace(old, new, 1)})


@pytest.mark.bad_input
def test_hostile_archives_are_named(reader, tmp_path):
    path = tmp_path / "a.pt"
    for name, (content, message) in hostile_archives().items():
        path.write_bytes(content)
        answer = reader.read(path)
        assert isinstance(answer, str) and message in answer and str(path) in answer, (name, answer)


def accepted_by_torch(content: bytes):
    """What torch.load reads, or None. By its own allow-list, else by Python's unpickler: only for what our reader has found harmless."""
    for weights_only in (True, False):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return torch.load(io.BytesIO(content), map_location="cpu", weights_only=weights_only)
        except Exception:  # noqa: BLE001 - it raises nearly every class
            pass
    return None


def flattened(content: dict, prefix: str = "") -> dict[str, torch.Tensor]:
    out = {}
    for name, value in content.items():
        if isinstance(value, dict):
            out |= flattened(value, f"{prefix}{name}.")
        elif isinstance(value, torch.Tensor):
            out[f"{prefix}{name}"] = value
    return out


@pytest.mark.bad_input
@pytest.mark.parametrize("form", ["zip", "old"])
def test_what_is_accepted_is_a_subset_of_torch(reader, tmp_path, form):
    """Every cut, and random bytes changed: an error, or the tensors that torch.load finds."""
    buffer = io.BytesIO()
    tensors = {"a": torch.arange(4, dtype=torch.float16), "b": torch.arange(6, dtype=torch.float32).reshape(2, 3).t()}
    torch.save({"state_dict": tensors, "step": 7}, buffer, _use_new_zipfile_serialization=form == "zip")
    content = buffer.getvalue()
    path = tmp_path / "a.pt"
    for length in sorted({*range(0, len(content), 7), *range(len(content) - 40, len(content))}):
        path.write_bytes(content[:length])
        assert isinstance(reader.read(path), str), length
    rng = random.Random(form)
    accepted = 0
    for _ in range(1500):
        changed = bytearray(content)
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        path.write_bytes(changed)
        got = reader.read(path)
        if isinstance(got, str):
            continue
        accepted += 1
        theirs = accepted_by_torch(bytes(changed))
        assert theirs is not None, f"torch.load refuses what was accepted: {bytes(changed)!r}"
        same(got, flattened(theirs.get("state_dict", theirs)))
    assert 0 < accepted < 1500


def test_checksums_of_tensors_are_checked(reader, tmp_path):
    buffer = io.BytesIO()
    torch.save({"w": torch.arange(64, dtype=torch.float32)}, buffer)
    content = bytearray(buffer.getvalue())
    place = content.index(struct.pack("<4f", 8, 9, 10, 11))
    content[place + 1] ^= 1
    path = tmp_path / "a.pt"
    path.write_bytes(content)
    assert "is damaged: its CRC-32" in reader.read(path)


def draw(rocm_sd, model, out, *more, **how):
    rocm_sd("generate", "--model", model, "--prompt", "a cat", "--seed", SEED, "--steps", STEPS, "--width", 64, "--height", 64, "-o", out, *more, **how)
    return read_picture(out)


@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_models_draw_the_same(rocm_sd, tiny_model, tmp_path, kind):
    """A folder of .bin files and a .ckpt as trainers write it draw the picture of the safetensors."""
    model = tiny_model(kind)
    expected = draw(rocm_sd, model, tmp_path / "expected.png")
    folder = tmp_path / "folder"
    shutil.copytree(model, folder)
    for path in list(folder.rglob("*.safetensors")):
        name = {"model": "pytorch_model"}.get(path.stem, path.stem)
        torch.save(load_file(path), path.with_name(name + ".bin"))
        path.unlink()
    assert (draw(rocm_sd, folder, tmp_path / "folder.png") == expected).all()
    single = tiny_model(kind, "single")
    weights = load_file(single)
    expected = draw(rocm_sd, single, tmp_path / "single.png")
    for form in (True, False):
        path = tmp_path / f"model{form}.ckpt"
        torch.save({"epoch": 3, "global_step": 470_000, "state_dict": weights, "callbacks": {}}, path, _use_new_zipfile_serialization=form)
        assert (draw(rocm_sd, path, tmp_path / "ckpt.png") == expected).all()


def test_embeddings_and_loras(rocm_sd, tiny_model, tmp_path):
    model = tiny_model("sd15")
    width = 32
    for path in (model / "text_encoder").glob("*.safetensors"):
        width = load_file(path)["text_model.embeddings.token_embedding.weight"].shape[1]
    vectors = torch.randn(2, width, generator=torch.Generator().manual_seed(3))
    save_file({"emb_params": vectors}, tmp_path / "plain.safetensors")
    expected = draw(rocm_sd, model, tmp_path / "e.png", "--embedding", f"cat={tmp_path / 'plain.safetensors'}")
    assert (expected != draw(rocm_sd, model, tmp_path / "without.png")).any()
    original = torch.nn.ParameterDict({"*": torch.nn.Parameter(vectors)})
    forms = {"a1111": {"string_to_token": {"*": 265}, "string_to_param": {"*": vectors}, "name": "x", "step": 99, "sd_checkpoint": None},
             "original": {"string_to_token": {"*": torch.tensor(265)}, "string_to_param": original},
             "diffusers": {"<thing>": vectors[0]}}
    library = tmp_path / "embeddings"
    library.mkdir()
    for name, content in forms.items():
        torch.save(content, library / f"{name}.pt")
    for name in ("a1111", "original"):
        assert (draw(rocm_sd, model, tmp_path / "p.png", "--embedding", f"cat={library / name}.pt") == expected).all(), name
    rocm_sd("generate", "--model", model, "--prompt", "an original thing", "--embedding-dir", library, "--steps", 1, "--width", 64, "--height", 64,
            "-o", tmp_path / "dir.png")
    weights = load_file(next((model / "unet").glob("*.safetensors")))
    target = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
    rows, columns = weights[f"{target}.weight"].shape
    lora = {f"unet.{target}.lora_A.weight": torch.randn(2, columns), f"unet.{target}.lora_B.weight": torch.randn(rows, 2)}
    save_file(lora, tmp_path / "lora.safetensors")
    torch.save(lora, tmp_path / "lora.bin")
    assert (draw(rocm_sd, model, tmp_path / "l.png", "--lora", tmp_path / "lora.bin") ==
            draw(rocm_sd, model, tmp_path / "m.png", "--lora", tmp_path / "lora.safetensors")).all()


def test_pickle_protocols_of_python(reader, tmp_path):
    """Pickles that torch.save did not write say so."""
    path = tmp_path / "a.pt"
    for protocol in range(2, 6):
        path.write_bytes(pickle.dumps({"a": 1}, protocol=protocol))
        assert "torch.save did not write" in reader.read(path) or "header" in reader.read(path)
