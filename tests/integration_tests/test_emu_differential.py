"""The emulated AMD GPU against another emulator: the same code objects, the same buffers, the same bits.

ROCM_SD_REFERENCE_EMULATOR is a command that runs `COMMAND JOB.json`; without it these tests are skipped. A job:

    {"object": FILE, "target": "gfx1100", "kernel": NAME, "entry": offset in the image, "grid": [x, y, z], "block": [x, y, z],
     "lds_bytes", "scratch_bytes", "descriptor": {"rsrc1", "rsrc2", "rsrc3", "properties", "kernarg_preload"},
     "kernarg": hex, "pointers": [{"offset": in kernarg, "buffer": index}], "buffers": [FILE of raw bytes, ...]}

The command runs the kernel and writes what the buffers hold then into their files; its exit status is 0. Such a command for
tinygrad is `python tests/support/emulators/tinygrad_mockgpu.py TINYGRAD_FOLDER`.
"""

from __future__ import annotations

import json
import os
import shlex
import struct
import subprocess

import numpy as np
import pytest

COMMAND = os.environ.get("ROCM_SD_REFERENCE_EMULATOR")
TARGETS = ["gfx1100", "gfx1201", "gfx942"]
RNG = np.random.default_rng(11)
EDGES = np.array([0.0, -0.0, 1.0, -1.5, 1e-40, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan, 0.5, 2.5, -2.5, 1e-20, 7.0], np.float32)
FLOATS = np.concatenate([EDGES, (RNG.standard_normal(112) * 10).astype(np.float32)])
INTEGERS = RNG.integers(-2**63, 2**63 - 1, 128, np.int64) >> RNG.integers(0, 60, 128)
HALVES = (RNG.standard_normal(256) * 2).astype(np.float16)


def out(dtype, *shape):
    return np.full(shape, 0xff, np.uint8).repeat(np.dtype(dtype).itemsize, -1).view(dtype)


# kernel: object, grid, block, members of its struct, units in the last place that its results may differ by
JOBS = {
    "vector_add": ("basic", [1, 1, 1], [256, 1, 1],
                   [FLOATS, np.roll(FLOATS, 5), out(np.float32, 128), np.int32(128)], 0),
    "division": ("basic", [2, 1, 1], [64, 1, 1],
                 [INTEGERS, np.where(np.roll(INTEGERS, 3) == 0, 7, np.roll(INTEGERS, 3)), *[out(np.int64, 128)] * 4,
                  *[out(np.int32, 128)] * 4, np.int32(128)], 0),
    "float64": ("basic", [2, 1, 1], [64, 1, 1],
                [FLOATS.astype(np.float64), np.roll(FLOATS, 3).astype(np.float64), out(np.float64, 8, 128), np.int32(128)], 0),
    "float32": ("basic", [2, 1, 1], [64, 1, 1], [FLOATS, np.roll(FLOATS, 3), out(np.float32, 8, 128), np.int32(128)], 0),
    "bits": ("basic", [2, 1, 1], [64, 1, 1],
             [INTEGERS.astype(np.uint32), out(np.uint32, 10, 128), out(np.uint64, 4, 128), np.int32(128)], 0),
    "halves": ("maths", [2, 1, 1], [64, 1, 1],
               [HALVES, np.roll(HALVES, 3), np.roll(HALVES, 7), out(np.float16, 8, 256), out(np.float32, 256), np.int32(256)], 0),
    "softmax": ("lanes", [3, 1, 1], [128, 1, 1],
                [RNG.standard_normal((3, 200)).astype(np.float32), out(np.float32, 3, 200), np.int32(3), np.int32(200)], 4),
    "lane_moves": ("lanes", [1, 1, 1], [64, 1, 1], [np.arange(1, 65, dtype=np.int32) * 77, out(np.int32, 16, 64)], 0),
    "transpose": ("lanes", [2, 2, 1], [32, 8, 1],
                  [RNG.standard_normal((50, 50)).astype(np.float32), out(np.float32, 50, 50), np.int32(50)], 0),
    "tile_f16": ("matrix", [1, 1, 1], [None, 1, 1],
                 [RNG.integers(-8, 8, (16, 16)).astype(np.float16), RNG.integers(-8, 8, (16, 16)).astype(np.float16),
                  RNG.integers(-8, 8, (16, 16)).astype(np.float32), out(np.float32, 16, 16)], 0),
}


def pack(members: list, buffers: list) -> tuple[bytes, list[dict]]:
    """The struct's bytes as C++ lays it out, and where its pointers are."""
    data, pointers = b"", []
    for member in members:
        if isinstance(member, np.ndarray):
            data += b"\0" * (-len(data) % 8)
            pointers.append({"offset": len(data), "buffer": len(buffers)})
            buffers.append(member)
            data += b"\0" * 8
        else:
            data += b"\0" * (-len(data) % member.itemsize) + member.tobytes()
    return data + b"\0" * (-len(data) % 8), pointers


def hidden(kernel: dict, data: bytes) -> bytes:
    """Room for what the runtime would fill in; none of these kernels reads it."""
    return data + b"\0" * max(0, kernel["kernarg_bytes"] - len(data))


def ordered(array: np.ndarray) -> np.ndarray:
    """Floats as integers that count units in the last place; every NaN the same."""
    width = array.itemsize
    bits = array.view({2: np.int16, 4: np.int32, 8: np.int64}[width]).astype(object)
    low = -(1 << (8 * width - 1))
    out_ = np.where(bits < 0, low - bits, bits)
    return np.where(np.isnan(array), 1 << 70, out_)


@pytest.mark.skipif(not COMMAND, reason="ROCM_SD_REFERENCE_EMULATOR names no emulator to compare with")
@pytest.mark.parametrize("level", ["O1", "O3"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", JOBS)
def test_same_results_as_another_emulator(rocm_sd, build_dir, tmp_path, name, target, level):
    source, grid, block, members, ulps = JOBS[name]
    code = build_dir / "emulator" / target / f"{source}.{level}.co"
    if not code.exists():
        pytest.skip(f"{code} was not built")
    kernel = next(k for k in json.loads(rocm_sd("emu", "list", code, "--json").stdout)[0]["kernels"] if k["name"] == name)
    block = [b or kernel["wave"] for b in block]
    buffers: list[np.ndarray] = []
    data, pointers = pack(members, buffers)
    job = {"object": str(code), "target": target, "kernel": name, "entry": kernel["entry"], "grid": grid, "block": block,
           "lds_bytes": kernel["lds_bytes"], "scratch_bytes": kernel["scratch_bytes"], "descriptor": kernel["descriptor"],
           "kernarg": hidden(kernel, data).hex(), "pointers": pointers, "buffers": []}
    texts = []
    for i, member in enumerate(members):
        if not isinstance(member, np.ndarray):
            texts.append(f"{member.dtype.kind}{member.dtype.itemsize * 8}:{member}")
            continue
        np.save(tmp_path / f"{i}.npy", member)
        (tmp_path / f"{i}.raw").write_bytes(member.tobytes())
        job["buffers"].append(str(tmp_path / f"{i}.raw"))
        texts.append(f"inout:{tmp_path}/{i}.npy:{tmp_path}/{i}.out.npy")
    (tmp_path / "job.json").write_text(json.dumps(job))
    rocm_sd("emu", "run", code, name, "--grid", ",".join(map(str, grid)), "--block", ",".join(map(str, block)), "--arg",
            "{" + ",".join(texts) + "}")
    done = subprocess.run([*shlex.split(COMMAND), str(tmp_path / "job.json")], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    differences = []
    for i, member in enumerate(members):
        if not isinstance(member, np.ndarray):
            continue
        ours = np.load(tmp_path / f"{i}.out.npy")
        theirs = np.frombuffer((tmp_path / f"{i}.raw").read_bytes(), member.dtype).reshape(member.shape)
        if member.dtype.kind == "f":
            wrong = np.abs(ordered(ours) - ordered(theirs)) > ulps
        else:
            wrong = ours != theirs
        for at in np.argwhere(wrong)[:5]:
            where = tuple(at)
            differences.append(f"member {i} {list(map(int, at))}: ours {ours[where]!r}, theirs {theirs[where]!r}")
        if wrong.any():
            differences.append(f"member {i}: {int(wrong.sum())} of {wrong.size} differ")
    assert not differences, "\n".join(differences)


def test_jobs_are_laid_out_as_the_kernels_expect(rocm_sd, build_dir):
    """Without another emulator: the struct that a job packs has the size that the kernel's metadata says."""
    for name, (source, _, _, members, _) in JOBS.items():
        code = build_dir / "emulator" / "gfx1100" / f"{source}.O3.co"
        if not code.exists():
            pytest.skip(f"{code} was not built")
        kernel = next(k for k in json.loads(rocm_sd("emu", "list", code, "--json").stdout)[0]["kernels"] if k["name"] == name)
        assert len(pack(members, [])[0]) == kernel["arguments"][0]["size"], name
        assert struct.calcsize("P") == 8
