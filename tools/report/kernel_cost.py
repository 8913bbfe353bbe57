"""Issue-cycle bounds of AMD main loops, and how many waves fit on a SIMD.

A bound counts what one wave's trip around the loop costs each unit of its SIMD and takes the largest: other waves are
assumed to fill every gap, and memory to answer in time. So it is never a time, but a loop whose matrix instructions take
little of it cannot be fast. Cycles are those of one SIMD; what a compute unit's SIMDs share costs as many times more:

- matrix: from AMD's published peaks. A 16x16x16 instruction is 8192 operations; gfx11 does 512 of 16 bits a clock and
  compute unit (2 SIMDs), gfx12 1024, gfx942 2048 (4 SIMDs), gfx90a 1024; 8-bit ones twice that on gfx12 and gfx942.
- vector: a wave's instruction takes lanes / 32 cycles on RDNA, 4 on CDNA; transcendentals four times that. On RDNA matrix
  instructions occupy the vector unit, on CDNA they have their own.
- LDS: 128 bytes a clock and compute unit, without bank conflicts.  - global memory: 64 bytes a clock and compute unit.
- scalar and branch: 1 cycle (CDNA: 4) each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_objects import AmdKernel, Instruction

MATRIX = re.compile(r"v_(wmma|swmmac|mfma|smfmac)_")
SLOW = re.compile(r"v_(s_)?(exp|log|rcp|rsq|sqrt|sin|cos)_")


def is_rdna(target: str) -> bool:
    return not target.startswith("gfx9")


def is_matrix(name: str) -> bool:
    return MATRIX.match(name) is not None


def matrix_cycles(name: str, target: str) -> float:
    shape = re.search(r"_(\d+)x(\d+)x(\d+)", name)
    assert shape, name
    operations = 2 * int(shape[1]) * int(shape[2]) * int(shape[3])
    narrow = re.search(r"(fp8|bf8|iu8|i8)", name) is not None
    if target.startswith("gfx11"):
        rate = 512
    elif target.startswith("gfx12"):
        rate = 2048 if narrow else 1024
    elif target == "gfx90a":
        rate = 1024
    else:
        rate = 4096 if narrow else 2048
    return operations / (rate / (2 if is_rdna(target) else 4))


def bytes_per_lane(name: str) -> int:
    found = re.search(r"(?:_b|_u|_i|_f)(8|16|32|64|96|128)(?:_|$)", name)
    if "dwordx" in name:
        return 4 * int(name.split("dwordx")[1][0])
    if "dword" in name:
        return 4
    size = int(found[1]) // 8 if found else 2 if "short" in name or "d16" in name else 4
    return size * (2 if re.search(r"(read|load|write|store)_?2", name) or "2addr" in name else 1)


@dataclass
class Loop:
    matrix: int
    share: float


def loop_cost(body: list[Instruction], target: str) -> Loop:
    rdna = is_rdna(target)
    lanes, simds = (32, 2) if rdna else (64, 4)
    vector_cycle = 1 if rdna else 4
    matrix = vector = lds = memory = scalar = 0.0
    for i in body:
        if is_matrix(i.name):
            matrix += matrix_cycles(i.name, target)
        elif i.name.startswith("v_"):
            vector += vector_cycle * (4 if SLOW.match(i.name) else 1)
        elif i.name.startswith("ds_"):
            lds += bytes_per_lane(i.name) * lanes / 128 * simds
        elif i.name.startswith(("global_", "buffer_", "flat_", "scratch_")) and re.search("load|store|atomic", i.name):
            memory += bytes_per_lane(i.name) * lanes / 64 * simds
        elif i.name.startswith("s_"):
            scalar += 1 if rdna else 4
    units = [matrix + vector] if rdna else [matrix, vector]
    bound = max(*units, lds, memory, scalar)
    return Loop(sum(is_matrix(i.name) for i in body), matrix / bound if bound else 0)


def main_loop_body(instructions: list[Instruction]) -> list[Instruction]:
    """The innermost loop with the most matrix instructions; empty where no loop has any."""
    loops = []
    for i in instructions:
        if i.target is not None and i.target <= i.address and "branch" in i.name:
            loops.append((i.target, i.address))
    best: list[Instruction] = []
    for first, last in loops:
        body = [i for i in instructions if first <= i.address <= last]
        if not any(is_matrix(i.name) for i in body):
            continue
        inner = any((f, l) != (first, last) and first <= f and l <= last
                    and any(is_matrix(i.name) for i in instructions if f <= i.address <= l) for f, l in loops)
        if not inner and sum(is_matrix(i.name) for i in body) > sum(is_matrix(i.name) for i in best):
            best = body
    return best


def main_loop(instructions: list[Instruction], target: str) -> Loop | None:
    """The cost of main_loop_body; None where there is none."""
    body = main_loop_body(instructions)
    return loop_cost(body, target) if body else None


def allocated_registers(kernel: AmdKernel, target: str) -> int:
    """Vector registers that the hardware gives a lane: the kernel's, rounded up to the granule."""
    granule = register_file(target)[1]
    return max(granule, -(-kernel.vgpr // granule) * granule)  # the notes count accumulators in


def register_file(target: str) -> tuple[int, int, int]:
    """Vector registers of a SIMD's lane, their granule, and the waves that a SIMD holds at most."""
    if not is_rdna(target):
        return 512, 8, 8
    return (1536, 24, 16) if target in ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201") else (1024, 16, 16)


def occupancy(kernel: AmdKernel, target: str) -> int:
    """Waves of the kernel that a SIMD holds at once, by its registers and the LDS that it declares."""
    registers, _, most = register_file(target)
    if is_rdna(target):
        lds, simds = (128 << 10, 4)  # of a work-group processor
    else:
        lds, simds = ((160 << 10) if target == "gfx950" else (64 << 10), 4)
    waves = min(most, registers // allocated_registers(kernel, target))
    if kernel.lds:
        group_waves = -(-kernel.threads // kernel.lanes)
        groups = lds // kernel.lds
        waves = min(waves, max(1, groups * group_waves // simds))
    return waves
