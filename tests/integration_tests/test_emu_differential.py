"""The emulated AMD GPU against another emulator: the same code objects, the same buffers, the same bits in memory and, after
each instruction of a wave, in registers.

ROCM_SD_REFERENCE_EMULATOR is a command that runs `COMMAND JOB.json`; without it these tests are skipped. A job:

    {"object": FILE, "target": "gfx1100", "kernel": NAME, "entry": offset in the image, "grid": [x, y, z], "block": [x, y, z],
     "lds_bytes", "scratch_bytes", "descriptor": {"rsrc1", "rsrc2", "rsrc3", "properties", "kernarg_preload"},
     "kernarg": hex, "pointers": [{"offset": in kernarg, "buffer": index}], "buffers": [FILE of raw bytes, ...],
     "trace": {"ours": FILE, "theirs": FILE}}

The command runs the kernel and writes what the buffers hold then into their files; its exit status is 0. With a "trace" it
runs wave 0 of group 0 in step with ours and writes its own (tests/support/emulators/register_trace.py); exit status 75 says
that the addresses of ours are not free there, and the test tries again with others. Such a command for tinygrad is
`python tests/support/emulators/tinygrad_mockgpu.py TINYGRAD_FOLDER`. ROCM_SD_REFERENCE_TARGETS names the targets that the
other emulator knows [all three].
"""

from __future__ import annotations

import json
import os
import shlex
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "emulators"))
import register_trace  # noqa: E402

ADDRESS_TAKEN = 75
COMMAND = os.environ.get("ROCM_SD_REFERENCE_EMULATOR")
TARGETS = os.environ.get("ROCM_SD_REFERENCE_TARGETS", "gfx1100,gfx1201,gfx942").split(",")
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


# Those whose groups of one wave are short enough to be looked at instruction by instruction.
TRACED = ("vector_add", "bits", "float32", "halves", "lane_moves", "tile_f16")


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


class Job:
    """A kernel with its buffers, run here and by the command."""

    def __init__(self, rocm_sd, build_dir, folder, name, target, level):
        self.rocm_sd, self.folder, self.name = rocm_sd, folder, name
        source, grid, block, self.members, self.ulps = JOBS[name]
        self.code = build_dir / "emulator" / target / f"{source}.{level}.co"
        if not self.code.exists():
            pytest.skip(f"{self.code} was not built")
        kernels = json.loads(rocm_sd("emu", "list", self.code, "--json").stdout)[0]["kernels"]
        kernel = next(k for k in kernels if k["name"] == name)
        self.wave, self.grid, self.block = kernel["wave"], grid, [b or kernel["wave"] for b in block]
        buffers: list[np.ndarray] = []
        data, pointers = pack(self.members, buffers)
        self.job = {"object": str(self.code), "target": target, "kernel": name, "entry": kernel["entry"], "grid": grid,
                    "block": self.block, "lds_bytes": kernel["lds_bytes"], "scratch_bytes": kernel["scratch_bytes"],
                    "descriptor": kernel["descriptor"], "kernarg": hidden(kernel, data).hex(), "pointers": pointers,
                    "buffers": [str(folder / f"{i}.raw") for i, m in enumerate(self.members) if isinstance(m, np.ndarray)]}

    def run_here(self, *options):
        texts = []
        for i, member in enumerate(self.members):
            if isinstance(member, np.ndarray):
                np.save(self.folder / f"{i}.npy", member)
                texts.append(f"inout:{self.folder}/{i}.npy:{self.folder}/{i}.out.npy")
            else:
                texts.append(f"{member.dtype.kind}{member.dtype.itemsize * 8}:{member}")
        return self.rocm_sd("emu", "run", self.code, self.name, "--grid", ",".join(map(str, self.grid)), "--block",
                            ",".join(map(str, self.block)), "--arg", "{" + ",".join(texts) + "}", *options)

    def run_there(self):
        for i, member in enumerate(self.members):
            if isinstance(member, np.ndarray):
                (self.folder / f"{i}.raw").write_bytes(member.tobytes())
        (self.folder / "job.json").write_text(json.dumps(self.job))
        return subprocess.run([*shlex.split(COMMAND), str(self.folder / "job.json")], capture_output=True, text=True,
                              timeout=900)

    def differences(self) -> list[str]:
        found = []
        for i, member in enumerate(self.members):
            if not isinstance(member, np.ndarray):
                continue
            ours = np.load(self.folder / f"{i}.out.npy")
            theirs = np.frombuffer((self.folder / f"{i}.raw").read_bytes(), member.dtype).reshape(member.shape)
            wrong = np.abs(ordered(ours) - ordered(theirs)) > self.ulps if member.dtype.kind == "f" else ours != theirs
            for at in np.argwhere(wrong)[:5]:
                where = tuple(at)
                found.append(f"member {i} {list(map(int, at))}: ours {ours[where]!r}, theirs {theirs[where]!r}")
            if wrong.any():
                found.append(f"member {i}: {int(wrong.sum())} of {wrong.size} differ")
        return found


needs_another = pytest.mark.skipif(not COMMAND, reason="ROCM_SD_REFERENCE_EMULATOR names no emulator to compare with")


@needs_another
@pytest.mark.parametrize("level", ["O1", "O3"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", JOBS)
def test_same_results_as_another_emulator(rocm_sd, build_dir, tmp_path, name, target, level):
    job = Job(rocm_sd, build_dir, tmp_path, name, target, level)
    job.run_here()
    done = job.run_there()
    assert done.returncode == 0, done.stderr[-3000:]
    differences = job.differences()
    assert not differences, "\n".join(differences)


@needs_another
@pytest.mark.parametrize("level", ["O1", "O3"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TRACED)
def test_same_registers_as_another_emulator(rocm_sd, build_dir, tmp_path, name, target, level):
    job = Job(rocm_sd, build_dir, tmp_path, name, target, level)
    ours, theirs = tmp_path / "ours.txt", tmp_path / "theirs.txt"
    job.job["trace"] = {"ours": str(ours), "theirs": str(theirs)}
    for _ in range(5):
        ours.write_text(job.run_here("--trace").stdout)
        done = job.run_there()
        if done.returncode != ADDRESS_TAKEN:
            break
    assert done.returncode == 0, done.stderr[-3000:]
    a, b = (register_trace.parse(path.read_text(), job.wave) for path in (ours, theirs))
    assert len(a.steps) > 5
    differences, agreed = register_trace.compare(a, b)
    print(f"{name} {target} {level}: {sum(agreed.values())} executions of {len(agreed)} mnemonics agree", *(f"; {name}: {why}" for name, why in b.deviations.items()))
    assert not differences, "\n".join(differences)


def test_the_comparison_of_traces_sees_differences():
    """Without another emulator: a trace equals itself, and each kind of difference is told."""
    text = ("image 0x10000\nmemory 0x20000 64 in:a\nstart of wave 0 of group (0, 0, 0)\n    s0 = 00000001\n    scc = 00000000\n"
            "    v0 = 00000000 00000001 00000002 00000003\n    v1 = deadbeef in every lane\n     100:  v_mov_b32_e32 v1, v0\n"
            "    v1 = 00000000 00000001 00000002 00000003\n     104:  v_add_f32_e32 v1, v1, v1\n     108:  s_endpgm\n")
    ours = register_trace.parse(text, 4)
    assert (ours.image, ours.memory, len(ours.steps), ours.start["v1"]) == (0x10000, [(0x20000, 64)], 3, (0xdeadbeef,) * 4)
    assert register_trace.compare(ours, register_trace.parse(text, 4))[0] == []
    for old, new, message in (
            ("    v1 = 00000000 00000001", "    v1 = 00000000 00000011", "v1 lane 1: ours 00000001, theirs 00000011"),
            ("     104:", "     118:", "ours is at 104, theirs at 118"),
            ("v1, v1\n", "v1, v1\n    scc = 00000001\n", "scc lane 0: ours 00000000, theirs 00000001"),
            ("v1, v1\n", "v1, v1\n    pc = 140\n", "went on to 140"),
            ("    s0 = 00000001", "    s0 = 00000002", "at the start s0")):
        found, _ = register_trace.compare(ours, register_trace.parse(text.replace(old, new), 4))
        assert len(found) == 1 and message in found[0], (found, message)
    waived = register_trace.parse("deviates v_mov_b32_e32: a reason\n" + text.replace("v1 = 00000000", "v1 = 00000009"), 4)
    assert register_trace.compare(ours, waived)[0] == []


def test_jobs_are_laid_out_as_the_kernels_expect(rocm_sd, build_dir):
    """Without another emulator: the struct that a job packs has the size that the kernel's metadata says."""
    for name, (source, _, _, members, _) in JOBS.items():
        code = build_dir / "emulator" / "gfx1100" / f"{source}.O3.co"
        if not code.exists():
            pytest.skip(f"{code} was not built")
        kernel = next(k for k in json.loads(rocm_sd("emu", "list", code, "--json").stdout)[0]["kernels"] if k["name"] == name)
        assert len(pack(members, [])[0]) == kernel["arguments"][0]["size"], name
        assert struct.calcsize("P") == 8
