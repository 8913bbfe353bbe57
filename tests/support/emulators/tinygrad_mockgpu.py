"""Runs one job of test_emu_differential.py on tinygrad's emulator of AMD machine code (its test/mockgpu).

    python tinygrad_mockgpu.py TINYGRAD_FOLDER JOB.json

TINYGRAD_FOLDER is a checkout of tinygrad, which compiles with the `clang` of the PATH (or $CC).
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from pathlib import Path


def load_image(path: str) -> tuple[ctypes.Array, int]:
    """The ELF file's segments as they are loaded, at an address that is a multiple of 4096."""
    data = Path(path).read_bytes()
    phoff, = struct.unpack_from("<Q", data, 32)
    phentsize, phnum = struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", data, phoff + i * phentsize) for i in range(phnum)]
    loaded = [s for s in segments if s[0] == 1]
    size = max(s[3] + s[6] for s in loaded)
    memory = ctypes.create_string_buffer(size + 8192)
    base = (ctypes.addressof(memory) + 4095) & ~4095
    for _, _, offset, address, _, file_size, _, _ in loaded:
        ctypes.memmove(base + address, data[offset:offset + file_size], file_size)
    return memory, base


def user_scalars(job: dict, kernarg_address: int, kernarg: bytes) -> list[int]:
    """The scalar registers that the descriptor asks for, in their order; what this does not model is 0."""
    properties, preload = job["descriptor"]["properties"], job["descriptor"]["kernarg_preload"]
    out: list[int] = []
    for bit, count in ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1)):
        if properties >> bit & 1:
            out += [kernarg_address & 0xffffffff, kernarg_address >> 32] if bit == 3 else [0] * count
    first = preload >> 7
    for i in range(preload & 127):
        out.append(struct.unpack_from("<I", kernarg, (first + i) * 4)[0])
    return out


def main() -> None:
    folder, job_path = sys.argv[1:3]
    sys.path.insert(0, folder)
    os.environ.setdefault("CC", "clang")
    from test.mockgpu.amd.emu import run_asm  # noqa: PLC0415

    job = json.loads(Path(job_path).read_text())
    arch = {"gfx11": "rdna3", "gfx12": "rdna4"}.get(job["target"][:5], "cdna")
    memory, base = load_image(job["object"])
    buffers = []
    for path in job["buffers"]:
        data = Path(path).read_bytes()
        buffers.append(ctypes.create_string_buffer(data, max(len(data), 1) + 64))
    kernarg = bytearray(bytes.fromhex(job["kernarg"]))
    for pointer in job["pointers"]:
        struct.pack_into("<Q", kernarg, pointer["offset"], ctypes.addressof(buffers[pointer["buffer"]]))
    arguments = ctypes.create_string_buffer(bytes(kernarg), len(kernarg) + 256)
    rsrc2 = job["descriptor"]["rsrc2"] & ~(0x1ff << 15) | (job["lds_bytes"] + 511) // 512 << 15
    address = ctypes.addressof(arguments)
    run_asm(base + job["entry"], len(memory), *job["grid"], *job["block"], address, rsrc2, job["scratch_bytes"], arch,
            user_scalars(job, address, bytes(kernarg)))
    for path, buffer in zip(job["buffers"], buffers):
        size = Path(path).stat().st_size
        Path(path).write_bytes(buffer.raw[:size])


if __name__ == "__main__":
    main()
