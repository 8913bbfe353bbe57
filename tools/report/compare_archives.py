#!/usr/bin/env python3
"""What a change did to the machine code: every kernel of OLD beside the one of that name in NEW.

    tools/report/compare_archives.py ../base/build/all-archs build/all-archs            every target that both have built
    tools/report/compare_archives.py ../base/build/all-archs build/all-archs gfx1100    this one
    tools/report/compare_archives.py old/flash.gfx1100.co new/flash.gfx1100.co          two code objects or cubins
    ... --all                                                                           lists the identical kernels, too
    ... --renamed flash_wide=flash_large_d                                              what OLD calls so (several: more of them)

OLD and NEW are build folders (with lib/kernels_<target>.rsk) or code objects. A kernel is `identical` where its instructions are
(addresses apart), `equal` where allocated registers, spills, scratch, LDS, and the numbers of instructions (of the kernel, of its main
loop, and of that loop's matrix, vector, LDS and memory instructions) are at most 1 % larger, else `WORSE`: the numbers that differ
follow as old>new. Shown and not judged: used registers, because the hardware allocates vector registers in granules (24 on RDNA, 8 on
CDNA and NVIDIA), and scalar ones never bound the waves of a SIMD on RDNA and CDNA 2 and 3; the loop's scalar instructions, which issue
beside the others.
Exits 1 where a kernel is worse or has vanished.
"""

from __future__ import annotations

import argparse
import collections
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import kernel_cost  # noqa: E402
import kernel_objects  # noqa: E402
import kernel_report  # noqa: E402

SLACK = 0.01
SHOWN = ("vgpr", "agpr", "sgpr", "registers", "loop_scalar")  # not judged
KINDS = {"loop_lds": r"ds_", "loop_memory": r"(global|buffer|flat|scratch)_", "loop_vector": r"v_", "loop_scalar": r"s_"}


@dataclass
class Code:
    numbers: dict[str, int]   # smaller is better
    code: object              # equal where the instructions are


def amd_code(path: Path, target: str) -> dict[str, Code]:
    found = {}
    for kernel in kernel_objects.amd_kernels(path, target):
        loop = kernel_cost.main_loop_body(kernel.instructions)
        numbers = {"allocated": kernel_cost.allocated_registers(kernel, target), "vgpr": kernel.vgpr, "agpr": kernel.agpr, "sgpr": kernel.sgpr, "lds": kernel.lds, "scratch": kernel.scratch,
                   "spills": kernel.spills, "instructions": len(kernel.instructions), "loop": len(loop),
                   "loop_matrix": sum(kernel_cost.is_matrix(i.name) for i in loop)}
        for kind, pattern in KINDS.items():
            numbers[kind] = sum(re.match(pattern, i.name) is not None and not kernel_cost.is_matrix(i.name) for i in loop)
        start = kernel.instructions[0].address
        text = [(i.name, "" if i.target is not None else i.operands, None if i.target is None else i.target - start)
                for i in kernel.instructions]
        found[kernel.name] = Code(numbers, text)
    return found


def sections(cubin: bytes) -> dict[str, tuple]:
    offset, = struct.unpack_from("<Q", cubin, 0x28)
    each, count, names_index = struct.unpack_from("<HHH", cubin, 0x3a)
    rows = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + i * each) for i in range(count)]
    names = rows[names_index][4]
    return {cubin[names + r[0]:cubin.index(b"\0", names + r[0])].decode(): r for r in rows}


def nvidia_code(cubin: bytes) -> dict[str, Code]:
    found = {}
    rows = sections(cubin)
    for name, code in kernel_objects.cubin_code(cubin).items():
        count = kernel_objects.count_sass(code)
        loop = kernel_objects.sass_main_loop(code)
        registers = rows[f".text.{name}"][7] >> 24  # sh_info
        numbers = {"allocated": -(-registers // 8) * 8, "registers": registers,
                   "lds": rows[f".nv.shared.{name}"][5] if f".nv.shared.{name}" in rows else 0, "local": count["local"],
                   "instructions": len(code) // 16, "loop": loop[1] if loop else 0, "loop_matrix": loop[0] if loop else 0}
        found[name] = Code(numbers, code)
    return found


def object_code(path: Path) -> dict[str, Code]:
    data = path.read_bytes()
    machine, = struct.unpack_from("<H", data, 18)
    if machine == 190:  # EM_CUDA
        return nvidia_code(data)
    flags = kernel_objects.run(kernel_objects.llvm_tool("llvm-readobj"), "--file-headers", str(path))
    target = re.search(r"EF_AMDGPU_MACH_AMDGCN_(GFX\w+)", flags)
    assert target, path
    return amd_code(path, target[1].lower())


def archive_code(build: Path, target: str) -> dict[str, Code]:
    index = kernel_report.read_index(build / "lib" / f"kernels_{target}.rsk")
    found: dict[str, Code] = {}
    for item in index["objects"]:
        found.update(nvidia_code(item["bytes"]) if target.startswith("sm_") else
                     amd_code(build / "gpu" / target / item["name"], target))
    return found


def verdict(old: Code, new: Code) -> tuple[str, str]:
    """`identical`, `equal` or `WORSE`, and the numbers that differ."""
    if old.code == new.code and old.numbers == new.numbers:
        return "identical", ""
    differ = [f"{key} {before}>{new.numbers[key]}" for key, before in old.numbers.items() if new.numbers[key] != before]
    worse = any(new.numbers[key] > before * (1 + SLACK) for key, before in old.numbers.items() if key not in SHOWN)
    return "WORSE" if worse else "equal", ", ".join(differ) or "other order"


def compare(where: str, old: dict[str, Code], new: dict[str, Code], every: bool) -> int:
    """Prints; the number of kernels that are worse or gone."""
    count: collections.Counter = collections.Counter()
    for name in sorted(old):
        if name not in new:
            word, text = "VANISHED", ""
        else:
            word, text = verdict(old[name], new[name])
        count[word] += 1
        if every or word != "identical":
            print(f"{where} {word:9} {name}  {text}".rstrip())
    count["new"] = len(new.keys() - old.keys())
    print(f"{where}: " + ", ".join(f"{n} {word}" for word, n in sorted(count.items())))
    return count["WORSE"] + count["VANISHED"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--all", action="store_true", help="list identical kernels, too")
    parser.add_argument("--renamed", metavar="OLD=NEW", action="append", default=[], help="parts of kernels' names")
    args = parser.parse_args()

    def renamed(kernels: dict[str, Code]) -> dict[str, Code]:
        names = {name: name for name in kernels}
        for before, after in (pair.split("=") for pair in args.renamed):
            names = {name: now.replace(before, after) for name, now in names.items()}
        return {names[name]: code for name, code in kernels.items()}

    if args.old.is_file():
        return int(compare(args.new.name, renamed(object_code(args.old)), object_code(args.new), args.all) > 0)
    both = [path.stem.removeprefix("kernels_") for path in sorted((args.old / "lib").glob("kernels_*.rsk"))
            if (args.new / "lib" / path.name).is_file()]
    if not both:
        raise SystemExit("compare_archives: no archive of one target is in both folders")
    return int(sum(compare(target, renamed(archive_code(args.old, target)), archive_code(args.new, target), args.all)
                   for target in args.targets or both) > 0)


if __name__ == "__main__":
    sys.exit(main())
