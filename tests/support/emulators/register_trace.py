"""The register traces of `rocm-sd emu run --trace`, and how two of them are compared.

    image 0x7f0000000000                        where the code object is loaded
    memory 0x7f0000100000 4096 inout:0.npy      a buffer: its address and bytes
    start of wave 0 of group (0, 0, 0)
        s0 = 00100000                           every register of the wave
        v0 = 00000000 00000001 ...              a dword for each lane, or "... in every lane"
        1a40:  v_add_f32_e32 v1, v2, v3         an instruction at an offset of the image
        v1 = 3f800000 in every lane             the registers that it changed

The other emulator takes the first one's registers before each instruction, so that every instruction is compared on its own:
its trace says what the instruction changed from there, `pc = OFFSET` where it went elsewhere, and "deviates NAME: why" for
instructions that it is known to get wrong.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from dataclasses import dataclass, field

Registers = dict[str, tuple[int, ...]]


@dataclass
class Step:
    offset: int
    text: str
    changed: Registers = field(default_factory=dict)


@dataclass
class Trace:
    image: int = 0
    memory: list[tuple[int, int]] = field(default_factory=list)   # address, bytes
    start: Registers = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    deviations: dict[str, str] = field(default_factory=dict)


def parse(text: str, lanes: int) -> Trace:
    out = Trace()
    into = out.start
    for line in text.splitlines():
        if change := re.fullmatch(r"    (\w+) = ([0-9a-f ]+?)( in every lane)?", line):
            values = tuple(int(word, 16) for word in change[2].split())
            into[change[1]] = values * lanes if change[3] else values
        elif step := re.fullmatch(r" *([0-9a-f]+):  (.*)", line):
            offset = int(step[1], 16)
            # A dual instruction is traced as its halves.
            if not (out.steps and out.steps[-1].offset == offset and " :: " in step[2]):
                out.steps.append(Step(offset, step[2]))
            into = out.steps[-1].changed
        elif line.startswith("image "):
            out.image = int(line.split()[1], 16)
        elif line.startswith("memory "):
            out.memory.append((int(line.split()[1], 16), int(line.split()[2])))
        elif deviation := re.fullmatch(r"deviates (\S+): (.*)", line):
            out.deviations[deviation[1]] = deviation[2]
    return out


def format_registers(registers: Registers) -> str:
    return "".join(f"    {name} = {' '.join(f'{v:08x}' for v in values)}\n" for name, values in registers.items())


# What the ISA leaves to the implementation: units in the last place of a float result that two emulators may differ by.
APPROXIMATE = re.compile(r"v_(s_)?(exp|log|rcp|rsq|sqrt|sin|cos|rcp_iflag)_(f16|f32|f64)")


def ordered(bits: int) -> int:
    if bits & 0x7fffffff > 0x7f800000:
        return 1 << 40  # any NaN
    return -(bits & 0x7fffffff) if bits >> 31 else bits


def near(name: str, ours: int, theirs: int) -> bool:
    if APPROXIMATE.match(name):
        if "f32" in name:
            return abs(ordered(ours) - ordered(theirs)) <= 2
        if "f16" in name:
            return abs((ours & 0xffff) - (theirs & 0xffff)) <= 1 or (ours & 0x7c00 == 0x7c00 and theirs & 0x7c00 == 0x7c00)
        return True  # halves of a double: its results are compared where they are stored
    if re.search(r"_f32", name):  # the payload of a NaN is not stated
        f = [struct.unpack("<f", struct.pack("<I", bits))[0] for bits in (ours, theirs)]
        return f[0] != f[0] and f[1] != f[1]
    return False


def compare(ours: Trace, theirs: Trace) -> tuple[list[str], Counter]:
    """Differences, one line each, and how many executions agreed by mnemonic."""
    differences, agreed = [], Counter()
    state = dict(ours.start)
    for name, values in theirs.start.items():  # those that the launch sets up; the others hold what ours had
        if values != state.get(name):
            differences.append(f"at the start {name}: ours {show(state.get(name))}, theirs {show(values)}")
    for i, (a, b) in enumerate(zip(ours.steps, theirs.steps)):
        name = a.text.split()[0]
        if a.offset != b.offset:
            differences.append(f"step {i}: ours is at {a.offset:x}, theirs at {b.offset:x}")
            break
        found = []
        for register in sorted(a.changed.keys() | b.changed.keys()):
            if register == "pc":
                found.append(f"went on to {b.changed['pc'][0]:x}")
                continue
            before = state.get(register)
            mine, other = a.changed.get(register, before), b.changed.get(register, before)
            if mine is None or other is None:
                found.append(f"{register}: ours {show(mine)}, theirs {show(other)}")
                continue
            lanes = [lane for lane, (x, y) in enumerate(zip(mine, other)) if x != y and not near(name, x, y)]
            if lanes:
                lane = lanes[0]
                found.append(f"{register} lane {lane}: ours {mine[lane]:08x}, theirs {other[lane]:08x}, before "
                             f"{before[lane] if before else 0:08x} ({len(lanes)} lanes)")
        if not found:
            agreed[name] += 1
        elif name not in theirs.deviations:
            differences.append(f"step {i}, {a.offset:x}: {a.text}: " + "; ".join(found))
        state.update(a.changed)
    if len(ours.steps) - len(theirs.steps) > 1:  # the last instruction ends the wave: nothing is left to look at
        differences.append(f"ours ran {len(ours.steps)} instructions, theirs {len(theirs.steps)}")
    return differences, agreed


def show(values: tuple[int, ...] | None) -> str:
    return "nothing" if values is None else " ".join(f"{v:08x}" for v in values[:4]) + (" ..." if len(values) > 4 else "")
