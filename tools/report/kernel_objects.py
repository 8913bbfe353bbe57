"""Kernels of a code object: registers and memory from its notes, instructions from its disassembly."""

from __future__ import annotations

import collections
import glob
import os
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Instruction:
    address: int
    name: str
    operands: str
    target: int | None  # where a branch goes


@dataclass
class AmdKernel:
    name: str
    vgpr: int
    agpr: int
    sgpr: int
    lds: int
    scratch: int
    spills: int
    threads: int  # of a group, at most
    lanes: int
    instructions: list[Instruction] = field(default_factory=list)


def llvm_tool(name: str) -> str:
    """llvm-objdump of ROCm, else the newest of the system."""
    root = os.environ.get("ROCM_PATH", "/opt/rocm")
    places = [f"{root}/llvm/bin/{name}", f"{root}/lib/llvm/bin/{name}"]
    places += sorted(glob.glob(f"/usr/bin/{name}-[0-9]*"), key=lambda p: -int(p.rsplit("-", 1)[1]))
    for place in places + [shutil.which(name) or ""]:
        if place and Path(place).exists():
            return place
    raise SystemExit(f"kernel_report: {name} not found: install llvm-19 (or set ROCM_PATH)")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def amd_kernels(code: Path, target: str) -> list[AmdKernel]:
    notes = run(llvm_tool("llvm-readobj"), "--notes", str(code))
    kernels = [notes_of(part) for part in re.split(r"\n  - (?=\.a)", notes)[1:]]
    instructions = disassemble(code, target)
    for kernel in kernels:
        kernel.instructions = instructions.get(kernel.name, [])
    return [k for k in kernels if k.instructions]


def notes_of(text: str) -> AmdKernel:
    """One element of amdhsa.kernels, which llvm-readobj prints as YAML."""
    def number(key: str) -> int:
        found = re.search(rf"\.{key}:\s+(\d+)", text)
        return int(found[1]) if found else 0

    name = re.search(r"\n    \.name:\s+(\S+)", text)
    assert name, text
    return AmdKernel(name[1].strip("'\""), number("vgpr_count"), number("agpr_count"), number("sgpr_count"),
                     number("group_segment_fixed_size"), number("private_segment_fixed_size"),
                     number("vgpr_spill_count") + number("sgpr_spill_count"), number("max_flat_workgroup_size"),
                     number("wavefront_size"))


def disassemble(code: Path, target: str) -> dict[str, list[Instruction]]:
    functions: dict[str, list[Instruction]] = {}
    starts: dict[str, int] = {}
    current: list[Instruction] = []
    for line in run(llvm_tool("llvm-objdump"), "-d", f"--mcpu={target}", str(code)).splitlines():
        header = re.match(r"([0-9a-f]+) <(\S+)>:", line)
        if header:
            current = functions.setdefault(header[2], [])
            starts[header[2]] = int(header[1], 16)
            continue
        found = re.match(r"\s+(\S+)\s*(.*?)\s*// ([0-9A-F]+):(?: [0-9A-F]+)+(?: <([^+>]+)(?:\+0x([0-9a-f]+))?>)?", line)
        if found:
            goes = None if found[4] is None else starts[found[4]] + int(found[5] or "0", 16)
            current.append(Instruction(int(found[3], 16), found[1], found[2], goes))
    # What follows s_endpgm pads the code cache.
    for instructions in functions.values():
        while instructions and instructions[-1].name in ("s_code_end", "s_nop"):
            instructions.pop()
    return functions


# The low 12 bits of an instruction of sm_80 to sm_90 (16 bytes each); found by compiling one of each.
SASS = {0x23c: "matrix", 0xdf0: "matrix", 0x980: "load", 0x981: "load", 0xfae: "load", 0x983: "local", 0x387: "local"}


def cubin_code(cubin: bytes) -> dict[str, bytes]:
    """The machine code of each kernel: section .text.<kernel>."""
    offset, = struct.unpack_from("<Q", cubin, 0x28)
    each, count, names_index = struct.unpack_from("<HHH", cubin, 0x3a)
    sections = [struct.unpack_from("<IIQQQQ", cubin, offset + i * each) for i in range(count)]
    names = sections[names_index]

    def name(section: tuple) -> str:
        start = names[4] + section[0]
        return cubin[start:cubin.index(b"\0", start)].decode()

    return {name(s)[6:]: cubin[s[4]:s[4] + s[5]] for s in sections if name(s).startswith(".text.")}


def sass_loops(code: bytes) -> list[tuple[int, int]]:
    """Loops of a kernel of sm_90 as (first, last) instruction: branches that go back. Found by compiling loops: the distance counts
    dwords from the next instruction, its low 8 bits stand in bits 16 to 23, the others from bit 34 on."""
    loops = []
    for i, (low, high) in enumerate(struct.iter_unpack("<QQ", code)):
        if low & 0xfff != 0x947:
            continue
        far = low >> 34 | (high & 0x3ffff) << 30
        distance = ((far - (1 << 48) if far >> 47 else far) << 8 | low >> 16 & 0xff) * 4
        target = i + 1 + distance // 16
        if distance % 16 == 0 and 0 <= target < i:
            loops.append((target, i))
    return loops


def sass_main_loop(code: bytes) -> tuple[int, int] | None:
    """Matrix instructions, and all, of the innermost loop that has the most of them; None where no loop has any."""
    is_matrix = [SASS.get(low & 0xfff) == "matrix" for low, _ in struct.iter_unpack("<QQ", code)]
    loops = [(first, last) for first, last in sass_loops(code) if any(is_matrix[first:last + 1])]
    inner = [loop for loop in loops if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)]
    if not inner:
        return None
    return max((sum(is_matrix[first:last + 1]), last + 1 - first) for first, last in inner)


def count_sass(code: bytes) -> collections.Counter:
    count: collections.Counter = collections.Counter()
    for low, high in struct.iter_unpack("<QQ", code):
        kind = SASS.get(low & 0xfff)
        if kind == "load":
            count["generic"] += low & 0xfff == 0x980
            kind = "wide" if high >> 9 & 7 == 6 else "narrow"  # bits 73 to 75: the size, 6 = 128 bits
        if kind:
            count[kind] += 1
    return count
