"""GGUF files against the Python package gguf: what is accepted has the same values, bit for bit; what is damaged or hostile is refused."""

from __future__ import annotations

import json
import random
import struct
import warnings

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from safetensors.torch import load_file, save_file

from pictures import psnr
from test_torch_files import Reader, draw

BLOCKS = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K]
WRITTEN = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1]
PLAIN = {Type.F32: np.float32, Type.F16: np.float16, Type.F64: np.float64, Type.I8: np.int8, Type.I16: np.int16, Type.I32: np.int32, Type.I64: np.int64}


@pytest.fixture(scope="module")
def reader(program):
    made = Reader(program("tensors_main"))
    yield made
    made.process.stdin.close()
    assert made.process.wait(30) == 0


def random_blocks(rng: np.random.Generator, kind: Type, shape: tuple[int, ...]) -> np.ndarray:
    """Random bytes, but for scales that are numbers: infinities times 0 are a NaN of any sign."""
    block, size = GGML_QUANT_SIZES[kind]
    out = rng.integers(0, 256, (*shape[:-1], shape[-1] // block, size), dtype=np.uint8)
    scales = {Type.Q2_K: (80, 82), Type.Q3_K: (108,), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,), Type.Q4_1: (0, 2), Type.Q5_1: (0, 2)}
    for at in scales.get(kind, (0,)):
        bits = rng.integers(0, 0x7c00, out.shape[:-1], dtype=np.uint16) | rng.integers(0, 2, out.shape[:-1], dtype=np.uint16) << 15
        out[..., at:at + 2] = bits[..., None].view(np.uint8)
    return out.reshape(*shape[:-1], -1)


def random_tensors(rng: np.random.Generator) -> dict[str, tuple[Type, np.ndarray]]:
    """Every type, in odd shapes; the arrays are what the file has."""
    out = {}
    for kind in BLOCKS:
        for i in range(2):
            rank = int(rng.integers(1, 5))
            shape = (*rng.integers(1, 4, rank - 1).tolist(), GGML_QUANT_SIZES[kind][0] * int(rng.choice([1, 2, 3, 70 if rank == 1 else 5])))
            out[f"{kind.name}.{i}"] = (kind, random_blocks(rng, kind, shape))
    for kind, dtype in (PLAIN | {Type.BF16: np.uint16}).items():
        shape = rng.integers(1, 6, int(rng.integers(1, 5))).tolist()
        bits = rng.integers(0, 256, (*shape, np.dtype(dtype).itemsize), dtype=np.uint8)
        out[kind.name] = (kind, bits.view(np.uint8 if kind == Type.BF16 else dtype).reshape(*shape[:-1], -1))
    return out


def write(path, tensors: dict, entries=lambda writer: None) -> None:
    writer = gguf.GGUFWriter(path, "sd1")
    entries(writer)
    for name, (kind, values) in tensors.items():
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def theirs(path) -> dict[str, np.ndarray]:
    """What GGUFReader finds: values of blocks as float32, others as they are (bfloat16 as float32)."""
    out = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = tensor.data if tensor.tensor_type in PLAIN else gguf.dequantize(tensor.data, tensor.tensor_type)
        out[tensor.name] = np.array(values).reshape(tuple(reversed(tensor.shape.tolist())))
    return out


def same(ours: dict[str, torch.Tensor], expected: dict[str, np.ndarray]) -> None:
    assert set(ours) == set(expected)
    for name, values in expected.items():
        got = (ours[name].float() if ours[name].dtype == torch.bfloat16 else ours[name]).numpy()
        assert got.dtype == values.dtype and got.shape == values.shape, name
        assert got.tobytes() == np.ascontiguousarray(values).tobytes(), name


def test_random_blocks(reader, tmp_path):
    """Every type read, bit for bit; scales from denormal to the largest, as the package computes them."""
    rng = np.random.default_rng(5)
    for i in range(8):
        path = tmp_path / f"{i}.gguf"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write(path, random_tensors(rng))
            got = reader.read(path)
            assert isinstance(got, dict), got
            same(got, theirs(path))


def test_metadata_of_every_type_is_stepped_over(reader, tmp_path):
    def entries(writer):
        writer.add_uint8("a", 1), writer.add_int16("b", -1), writer.add_uint64("c", 2**63), writer.add_float64("d", 0.5), writer.add_bool("e", True)
        writer.add_array("f", ["x", "", "yz"]), writer.add_array("g", list(range(999))), writer.add_array("h", [0.5]), writer.add_string("i", "ü" * 70_000)
        writer.add_custom_alignment(128)

    path = tmp_path / "a.gguf"
    write(path, {"w": (Type.F32, np.arange(5, dtype=np.float32)), "v": (Type.F16, np.ones((3, 1), np.float16))}, entries)
    same(reader.read(path), theirs(path))


def test_reshaped_convolutions(reader, tmp_path):
    """ComfyUI-GGUF writes convolutions as matrices of 256 columns, with their shapes in the metadata."""
    values = np.random.default_rng(1).standard_normal((16, 32, 3, 3)).astype(np.float32)
    path = tmp_path / "a.gguf"
    packed = gguf.quantize(values.reshape(-1, 256), Type.Q8_0)
    write(path, {"conv.weight": (Type.Q8_0, packed)}, lambda writer: writer.add_array("comfy.gguf.orig_shape.conv.weight", (16, 32, 3, 3)))
    same(reader.read(path), {"conv.weight": gguf.dequantize(packed, Type.Q8_0).reshape(values.shape)})
    for shape, message in (((16, 32, 3), "orig_shape. says [16,32,3]"), ((0, 1), "expected at least 1"), ((1,) * 9, "1 to 8 integers")):
        write(path, {"conv.weight": (Type.Q8_0, packed)}, lambda writer, shape=shape: writer.add_array("comfy.gguf.orig_shape.conv.weight", shape))
        assert message in reader.read(path)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(name: bytes, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def container(tensors: list[bytes], entries: list[bytes] = (), data: bytes = b"", version: int = 3, counts=None, alignment: int = 32) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(entries)))) + b"".join(entries) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment) + data


def hostile_files() -> dict[str, tuple[bytes, str]]:
    w = tensor(b"w", (4,), 0, 0)
    data = b"\0" * 32

    def entry(key: bytes, kind: int, value: bytes) -> bytes:
        return text(key) + struct.pack("<I", kind) + value

    def aligned(value: int) -> tuple[bytes, str]:
        return container([w], [entry(b"general.alignment", 4, struct.pack("<I", value))], data), "expected a power of two"

    return {
        "magic alone": (b"GGUF", "truncated GGUF file: the version"),
        "version 1": (container([w], (), data, version=1), "GGUF version 1"),
        "version 4": (container([w], (), data, version=4), "GGUF version 4"),
        "big endian": (container([w], (), data, version=3 << 24), "big-endian"),
        "tensors": (container([], counts=(2**61, 0)), "tensors, at most 1000000"),
        "entries": (container([], counts=(0, 2**61)), "metadata entries, at most 100000"),
        "fewer tensors": (container([w], counts=(2, 0)), "a tensor"),
        "empty key": (container([w], [entry(b"", 4, b"1234")], data), "key of the metadata is empty"),
        "long key": (container([w], [entry(b"k" * 65_536, 4, b"1234")], data), "a key of the metadata has 65536 bytes"),
        "key twice": (container([w], [entry(b"k", 4, b"1234")] * 2, data), 'metadata "k" stands twice'),
        "value's type": (container([w], [entry(b"k", 13, b"1234")], data), "unknown type 13"),
        "string of 2^63": (container([w], [entry(b"k", 8, struct.pack("<Q", 2**63))], data), "at most 67108864"),
        "string of 1 GiB": (container([w], [entry(b"k", 8, struct.pack("<Q", 2**30))], data), "at most 67108864"),
        "string beyond the end": (container([w], [entry(b"k", 8, struct.pack("<Q", 2**20))], data), "truncated GGUF file"),
        "array of 2^61": (container([w], [entry(b"k", 9, struct.pack("<IQ", 0, 2**61))], data), "items, at most 16777216"),
        "array of arrays": (container([w], [entry(b"k", 9, struct.pack("<IQ", 9, 1))], data), "an array of type 9"),
        "array of type 99": (container([w], [entry(b"k", 9, struct.pack("<IQ", 99, 1))], data), "an array of type 99"),
        "alignment 0": aligned(0), "alignment 3": aligned(3), "alignment 2^30": aligned(2**30),
        "alignment as text": (container([w], [entry(b"general.alignment", 8, text(b"32"))], data), "expected an unsigned number"),
        "dimension 0": (container([tensor(b"w", (0,), 0, 0)], (), data), "dimension 0, expected 1 to 2^40"),
        "dimension 2^63": (container([tensor(b"w", (2**63,), 0, 0)], (), data), "expected 1 to 2^40"),
        "product": (container([tensor(b"w", (2**40, 2**40), 0, 0)], (), data), "overflows"),
        "five dimensions": (container([tensor(b"w", (1,) * 5, 0, 0)], (), data), "5 dimensions, at most 4"),
        "unknown type": (container([tensor(b"w", (32,), 20, 0)], (), data), "ggml type 20, which is not read"),
        "removed type": (container([tensor(b"w", (32,), 4, 0)], (), data), "ggml type 4, which is not read"),
        "row of 33": (container([tensor(b"w", (33,), 8, 0)], (), data * 2), "rows of 33 do not divide into q8_0's blocks of 32"),
        "offset": (container([tensor(b"w", (4,), 0, 32)], (), data * 2), "offset 32, expected 0"),
        "overlap": (container([w, tensor(b"v", (4,), 0, 0)], (), data * 2), "offset 0, expected 32"),
        "hole": (container([w, tensor(b"v", (4,), 0, 64)], (), data * 3), "offset 64, expected 32"),
        "name twice": (container([w, tensor(b"w", (4,), 0, 32)], (), data * 2), 'tensor "w" stands twice'),
        "name of 2 kB": (container([tensor(b"n" * 2000, (4,), 0, 0)], (), data), "has 2000 bytes, at most 1024"),
        "name with escape": (container([tensor(b"\x1b[31m", (4,), 0, 0)], (), data), "control byte"),
        "name with \\xff": (container([tensor(b"\xff", (4,), 0, 0)], (), data), "not UTF-8"),
        "short": (container([w], (), data[:15]), "truncated: ends at byte"),
        "behind": (container([w], (), data + b"\0"), "bytes after the last tensor"),
        "shape of nothing": (container([w], [entry(b"comfy.gguf.orig_shape.v", 9, struct.pack("<IQi", 5, 1, 4))], data), "no such tensor"),
        "shape of floats": (container([w], [entry(b"comfy.gguf.orig_shape.w", 9, struct.pack("<IQf", 6, 1, 4))], data), "integers of 32 bits"),
    }


@pytest.mark.bad_input
def test_hostile_files_are_named(reader, tmp_path):
    path = tmp_path / "a.gguf"
    good = container([tensor(b"w", (4,), 0, 0)], (), b"\0" * 16)
    path.write_bytes(good)
    assert isinstance(reader.read(path), dict)
    for name, (content, message) in hostile_files().items():
        path.write_bytes(content)
        answer = reader.read(path)
        assert isinstance(answer, str) and message in answer and str(path) in answer, (name, answer)


@pytest.mark.bad_input
def test_what_is_accepted_is_a_subset_of_the_package(reader, tmp_path):
    """Every cut, and random bytes changed: an error, or the tensors that GGUFReader finds."""
    path = tmp_path / "a.gguf"
    values = np.random.default_rng(3).standard_normal((2, 64)).astype(np.float32)
    tensors = {kind.name: (kind, gguf.quantize(values, kind)) for kind in (Type.Q8_0, Type.Q4_1, Type.F16, Type.F32)}
    write(path, tensors, lambda writer: (writer.add_string("note", "text"), writer.add_array("numbers", [1, 2, 3])))
    content = path.read_bytes()
    for length in range(len(content) - 31):
        path.write_bytes(content[:length])
        assert isinstance(reader.read(path), str), length
    rng = random.Random(2)
    accepted = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(1500):
            changed = bytearray(content)
            for _ in range(rng.choice([1, 1, 1, 2, 5])):
                changed[rng.randrange(360 if rng.random() < 0.9 else len(changed))] = rng.randrange(256)
            path.write_bytes(changed)
            got = reader.read(path)
            if isinstance(got, str):
                continue
            accepted += 1
            expected = {name: np.nan_to_num(array) for name, array in theirs(path).items()}
            same({name: torch.from_numpy(np.nan_to_num(array.float().numpy() if array.is_floating_point() else array.numpy()).astype(expected[name].dtype))
                  for name, array in got.items()}, expected)
    assert 0 < accepted < 1500


def rows(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in weights.items() if value.dim() == 2 and value.shape[1] % 32 == 0}


def test_written_files_are_the_packages(rocm_sd, tiny_model, tmp_path):
    """rocm-sd convert against gguf.quantize, byte by byte, and sizes, types and names as the package reads them."""
    single = tiny_model("sd15", "single")
    weights = {name: value.float() for name, value in load_file(single).items() if value.is_floating_point()}
    fine = ("time_embed", "label_emb.", "token_embedding.", "position_embedding")
    for kind in [*WRITTEN, Type.F16, Type.BF16, Type.F32]:
        path = tmp_path / "a.gguf"
        rocm_sd("convert", single, path, "--dtype", kind.name.lower(), "--overwrite")
        read = gguf.GGUFReader(path)
        assert read.get_field("general.architecture").contents() == "sd1"
        found = {tensor.name: tensor for tensor in read.tensors}
        quantised = 0
        for name, tensor in found.items():
            value = weights[name]
            assert tuple(reversed(tensor.shape.tolist())) == tuple(value.shape), name
            packed = kind in WRITTEN and name in rows(weights) and not any(part in name for part in fine)
            expected = Type.F32 if value.dim() < 2 else kind if packed or kind not in WRITTEN else Type.F16
            assert tensor.tensor_type == expected, name
            quantised += packed
            assert tensor.data.tobytes() == gguf.quantize(value.numpy(), expected).tobytes(), name
        assert set(found) <= set(weights) and len(found) > 100 and (quantised > 20) == (kind in WRITTEN)


def test_types_that_do_not_fit(rocm_sd, tiny_model, tmp_path):
    single = tiny_model("sd15", "single")
    assert "expected f32, f16, bf16 or fp8" in rocm_sd("convert", single, tmp_path / "a.safetensors", "--dtype", "q8_0", code=2).stderr
    assert "expected f32, f16, bf16, q8_0" in rocm_sd("convert", single, tmp_path / "a.gguf", "--dtype", "q4_k", code=2).stderr
    weights = load_file(single)
    name = next(name for name in rows(weights) if name.endswith("attn1.to_q.weight"))
    weights[name] = torch.full_like(weights[name], float("nan"))
    save_file(weights, tmp_path / "nan.safetensors")
    assert name in rocm_sd("convert", tmp_path / "nan.safetensors", tmp_path / "b.gguf", "--dtype", "q8_0", code=3).stderr
    assert not list(tmp_path.glob("*.gguf*"))


@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl"])
def test_models_draw_the_same(rocm_sd, tiny_model, tmp_path, kind):
    """A file in f32 draws the picture of the safetensors; one in q8_0 that of its dequantised values, which is nearly the same."""
    single = tiny_model(kind, "single")
    rocm_sd("convert", single, tmp_path / "f32.safetensors", "--dtype", "f32")
    expected = draw(rocm_sd, tmp_path / "f32.safetensors", tmp_path / "single.png")
    rocm_sd("convert", single, tmp_path / "f32.gguf", "--dtype", "f32")
    assert (draw(rocm_sd, tmp_path / "f32.gguf", tmp_path / "f32.png") == expected).all()
    rocm_sd("convert", single, tmp_path / "q8.gguf", "--dtype", "q8_0")
    packed = draw(rocm_sd, tmp_path / "q8.gguf", tmp_path / "q8.png")
    rocm_sd("convert", tmp_path / "q8.gguf", tmp_path / "back.safetensors", "--dtype", "f32")
    assert (draw(rocm_sd, tmp_path / "back.safetensors", tmp_path / "back.png") == packed).all()
    assert psnr(packed, expected) > 25 and (packed != expected).any()
    report = json.loads(rocm_sd("inspect", "--json", tmp_path / "q8.gguf").stdout)
    assert any("q8_0" in part["dtypes"] for part in report["components"])


def test_unet_of_comfyui(rocm_sd, tiny_model, tmp_path):
    """A bare UNet as ComfyUI-GGUF's convert.py writes it: no prefix, convolutions reshaped."""
    weights = load_file(tiny_model("sd15", "single"))
    prefix = "model.diffusion_model."
    unet = {name.removeprefix(prefix): value.float().numpy() for name, value in weights.items() if name.startswith(prefix)}
    writer = gguf.GGUFWriter(tmp_path / "unet.gguf", "sd1")
    back = dict(weights)
    for name, value in unet.items():
        kind, stored = Type.F32, value
        if value.ndim > 1 and value.size % 256 == 0:
            kind = Type.Q8_0
            stored = gguf.quantize(value.reshape(-1, 256), kind)
            writer.add_array(f"comfy.gguf.orig_shape.{name}", value.shape)
            back[prefix + name] = torch.from_numpy(gguf.dequantize(stored, kind).reshape(value.shape))
        writer.add_tensor(name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(back, tmp_path / "back.safetensors")
    expected = draw(rocm_sd, tmp_path / "back.safetensors", tmp_path / "expected.png")
    got = draw(rocm_sd, tiny_model("sd15", "single"), tmp_path / "got.png", "--unet", tmp_path / "unet.gguf")
    assert (got == expected).all()


def test_second_encoder_by_stable_diffusion_cpp(rocm_sd, tiny_model, tmp_path):
    """Older files of stable-diffusion.cpp name SDXL's encoders cond_stage_model. and cond_stage_model.1., in transformers' names."""
    single, folder = tiny_model("sdxl", "single"), tmp_path / "folder"
    rocm_sd("convert", single, folder)
    tensors = {}
    for name, value in load_file(single).items():
        if name.startswith(("model.diffusion_model.", "first_stage_model.")):
            tensors[name] = value
    for part, prefix in (("text_encoder", "cond_stage_model.transformer."), ("text_encoder_2", "cond_stage_model.1.transformer.")):
        for name, value in load_file(folder / part / "model.safetensors").items():
            if name == "text_projection.weight":
                name, value = "text_model.text_projection", value.t().contiguous()
            if "position_ids" not in name:
                tensors[prefix + name] = value
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "none")
    for name, value in tensors.items():
        writer.add_tensor(name, value.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expected = draw(rocm_sd, single, tmp_path / "expected.png")
    assert (draw(rocm_sd, path, tmp_path / "got.png") == expected).all()
