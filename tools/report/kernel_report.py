#!/usr/bin/env python3
"""What the compilers made of the kernels: one table per target, docs/reference/kernel-report/<target>.md.

    tools/report/kernel_report.py --build build/cpu                 writes the tables of the targets that were built
    tools/report/kernel_report.py --build build/cpu --check         compares with the tables that are there; exits 1 where a kernel
                                                             spills or uses scratch that did not, lost its matrix
                                                             instructions or wide loads, or lost 5 points of matrix share,
                                                             has vanished, or has comparisons that its compiler is known
                                                             to get wrong; where a table is not what the same compiler
                                                             makes now; where a kernel misses a goal that it reached
                                                             (kernel_goals.json; goals that are missed are printed);
                                                             and where there is no archive to look at
    ... --check --every                                      the same, and every table must have its archive (but for
                                                             NVIDIA's where no archive of NVIDIA's was built)
    tools/report/kernel_report.py --build build/ck --beside ck_ --docs docs/reference/kernel-report/ck
                                                             the kernels of that prefix, each beside ours that do the same;
                                                             exits 1 where one of them uses scratch

AMD objects are read with llvm-readobj and llvm-objdump, NVIDIA's from the archive's index and by the opcodes of their
instructions. The share is a bound by counting, not a measurement: see tools/report/kernel_cost.py. What the emulator counted while
it ran the kernel stands beside it: share/counts/<target>.json, which `make kernel-counts` writes.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import kernel_cost  # noqa: E402
import kernel_goals  # noqa: E402
import kernel_objects  # noqa: E402

COLUMNS = ("kernel", "VGPR", "SGPR", "LDS", "scratch", "spills", "waves/SIMD", "matrix", "matrix/loop", "share", "wide loads",
           "narrow loads", "generic loads", "counted share", "coalescing", "LDS conflicts", "limit")
COUNTS = Path(__file__).resolve().parents[2] / "share" / "counts"
LOST_SHARE = 5  # points of matrix share that a kernel may lose before --check fails


@dataclass
class Row:
    name: str
    vgpr: int
    sgpr: int | None
    lds: int
    scratch: int
    spills: int
    occupancy: int | None
    matrix: int                # matrix instructions in the kernel
    loop_matrix: int | None    # those of the main loop, once around
    share: int | None          # percent of the main loop's issue-cycle bound
    wide: int                  # global loads of 128 bits
    narrow: int                # smaller ones
    generic: int               # of both, those whose address space the compiler does not know: slower
    counted: int | None = None      # percent of the hottest loop's bound, as the emulator counted it
    coalescing: int | None = None   # percent of the moved 64-byte lines that lanes asked for
    conflicts: int | None = None    # percent of LDS cycles that bank conflicts take
    limit: str | None = None        # the unit that bounds the counted loop

    def cells(self) -> list[str]:
        def percent(value: int | None) -> str | None:
            return None if value is None else f"{value}%"
        values = (self.vgpr, self.sgpr, self.lds, self.scratch, self.spills, self.occupancy, self.matrix, self.loop_matrix,
                  percent(self.share), self.wide, self.narrow, self.generic, percent(self.counted), percent(self.coalescing),
                  percent(self.conflicts), self.limit)
        return [f"`{self.name}`"] + ["-" if v is None else str(v) for v in values]

    @staticmethod
    def parse(line: str) -> Row:
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        number = [None if c == "-" else int(c.rstrip("%")) for c in cells[1:16]]
        return Row(cells[0].strip("`"), *number, *(None if c == "-" else c for c in cells[16:17]))


def read_index(archive: Path) -> dict:
    data = archive.read_bytes()
    magic, version, _, size = struct.unpack_from("<8sIIQ", data)
    if magic != b"RSDKERN\n" or version != 1:
        raise SystemExit(f"{archive}: not a kernel archive of version 1")
    index = json.loads(data[24:24 + size])
    for item in index["objects"]:
        first = 24 + size + item["offset"]
        item["bytes"] = data[first:first + item["size"]]
    return index


def exchanged_comparisons(compiler: str, names: list[str]) -> int:
    """LLVM before 21 exchanges the operands of these without exchanging their sense (llvm/llvm-project pull request 146398)."""
    version = re.search(r"version (\d+)", compiler)
    if version and int(version[1]) >= 21:
        return 0
    return sum(re.fullmatch(r"v_cmpx_[gl]e_u32(_e32|_e64)?", name) is not None for name in names)


def amd_rows(target: str, code: Path, compiler: str, wrong: list[str]) -> list[Row]:
    """A row a kernel; appends to `wrong` what may be the compiler's mistake."""
    rows = []
    for kernel in kernel_objects.amd_kernels(code, target):
        if count := exchanged_comparisons(compiler, [i.name for i in kernel.instructions]):
            wrong.append(f"{kernel.name}: {count} v_cmpx_le_u32 or v_cmpx_ge_u32, whose operands {compiler} may have exchanged")
        loop = kernel_cost.main_loop(kernel.instructions, target)
        matrix = sum(kernel_cost.is_matrix(i.name) for i in kernel.instructions)
        loads = [i.name for i in kernel.instructions if re.match(r"(global|buffer|flat)_load", i.name)]
        wide = sum(name.endswith(("dwordx4", "b128")) for name in loads)
        rows.append(Row(kernel.name, kernel.vgpr, kernel.sgpr, kernel.lds, kernel.scratch, kernel.spills,
                        kernel_cost.occupancy(kernel, target), matrix, loop and loop.matrix, loop and round(100 * loop.share),
                        wide, len(loads) - wide, sum(name.startswith("flat") for name in loads)))
    return rows


def add_counts(rows: list[Row], target: str, folder: Path) -> int:
    """What the emulator counted, into the rows; how many kernels with matrix instructions it has not counted."""
    path = folder / f"{target}.json"
    if not path.is_file():
        return 0
    counts = json.loads(path.read_text())["kernels"]
    for row in rows:
        if count := counts.get(row.name):
            row.counted, row.coalescing, row.conflicts = (round(100 * count[name]) for name in
                                                          ("matrix_share", "coalescing", "lds_conflicts"))
            row.limit = count["limit"]
    return sum(row.matrix > 0 and row.counted is None for row in rows)


def nvidia_rows(index: dict) -> list[Row]:
    rows = []
    for item in index["objects"]:
        code = kernel_objects.cubin_code(item["bytes"])
        for kernel in item["kernels"]:
            count = kernel_objects.count_sass(code[kernel["name"]])
            loop = kernel_objects.sass_main_loop(code[kernel["name"]])
            rows.append(Row(kernel["name"], kernel["registers"], None, kernel["lds"], kernel["scratch"], count["local"], None,
                            count["matrix"], loop and loop[0], loop and round(100 * loop[0] / loop[1]), count["wide"], count["narrow"], count["generic"]))
    return rows


def table(target: str, index: dict, rows: list[Row]) -> str:
    lines = [f"# Kernels of {target}", "",
             "Written by `make kernel-report`; `make test` compares. LDS in bytes a group (what a launch adds is not in it), scratch",
             "in bytes a lane, spills in registers (NVIDIA: instructions that touch local memory); matrix/loop and share: of the",
             "main loop, once around; the share is the matrix instructions' part of the loop's issue-cycle bound, which is counted",
             "by tools/report/kernel_cost.py and not measured. Wide loads: of 128 bits from global memory; generic ones may be of LDS for all",
             "that the compiler knows. The last four columns are what the emulator counted of the hottest loop while it ran the kernel",
             "(docs/emulator.md, Counting): the matrix instructions' part of its bound, bytes asked for of those moved, the part of LDS",
             "cycles that bank conflicts take, and the unit that bounds the loop. Bounds, never speeds.", "",
             *(["Of NVIDIA the share is the matrix instructions' part of the main loop's instructions.", ""] if target.startswith("sm_")
               else []),
             f"Compiler: {index['compiler']}", "",
             "| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in sorted(rows, key=lambda r: r.name)]
    return "\n".join(lines) + "\n"


def read_table(path: Path) -> dict[str, Row]:
    if not path.is_file():
        return {}
    rows = [Row.parse(line) for line in path.read_text().splitlines() if line.startswith("| `")]
    return {row.name: row for row in rows}


def regressions(before: dict[str, Row], rows: list[Row]) -> list[str]:
    """What --check fails on; a kernel that is new must not spill at all."""
    found = [f"{name}: has vanished" for name in before if name not in {row.name for row in rows}]
    for row in rows:
        old = before.get(row.name)
        for what in ("scratch", "spills"):
            new, known = getattr(row, what), getattr(old, what) if old else 0
            if new > known:
                found.append(f"{row.name}: {what} {new}, was {known}")
        if old is None:
            continue
        if old.matrix and not row.matrix:
            found.append(f"{row.name}: has no matrix instructions any more")
        if old.wide and not row.wide:
            found.append(f"{row.name}: has no 128-bit loads any more")
        if old.share is not None and (row.share or 0) < old.share - LOST_SHARE:
            found.append(f"{row.name}: matrix share {row.share}%, was {old.share}%")
    return found


def compiler_of(path: Path) -> str | None:
    found = re.search(r"^Compiler: (.*)$", path.read_text(), re.MULTILINE)
    return found and found[1]


def staleness(path: Path, text: str, compiler: str) -> list[str]:
    """What is wrong with a table that should be `text`: tables of another compiler differ in every number and are let be."""
    if not path.is_file() or compiler_of(path) != compiler or path.read_text() == text:
        return []
    old, new = path.read_text().splitlines(), text.splitlines()
    first = next((line for line in new if line not in old), next((line for line in old if line not in new), ""))
    return [f"the table is stale: `make kernel-report` writes it anew; first line that differs: {first[:160]}"]


def without_archive(docs: Path, built: set[str]) -> list[str]:
    """Targets that have a table and no archive."""
    nvidia = any(target.startswith("sm_") for target in built)
    return [path.stem for path in sorted(docs.glob("*.md"))
            if path.stem not in built and (nvidia or not path.stem.startswith("sm_"))]


def same_work(name: str, prefix: str) -> re.Pattern:
    """Our kernels that compute what a library's does: ck_gemm_f16_bias -> gemm_f16_*, of any configuration."""
    op, dtype = name.removeprefix(prefix).split("_")[:2]
    ours = {"attention": "flash"}.get(op, op)
    return re.compile(rf"{ours}_{dtype}_(d\d+_|\d+x)")


def beside(target: str, index: dict, rows: list[Row], prefix: str) -> tuple[str, list[str]]:
    """A table of the kernels with the prefix and of ours for the same work; and what is wrong with the former."""
    theirs = [row for row in rows if row.name.startswith(prefix)]
    if not theirs:
        raise SystemExit(f"{target}: no kernel is called {prefix}*")
    patterns = {same_work(row.name, prefix) for row in theirs}
    ours = [row for row in rows if any(p.match(row.name) for p in patterns)]
    text = table(target, index, theirs + ours).replace(f"# Kernels of {target}", f"# {prefix}* beside our kernels, {target}", 1)
    text = text.replace("Written by `make kernel-report`; `make test` compares.",
                        f"Written by `tools/report/kernel_report.py --beside {prefix}` (`make test-ck`).", 1)
    return text, [f"{row.name}: scratch {row.scratch}" for row in theirs if row.scratch]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build/cpu"), help="build folder with lib/kernels_*.rsk and gpu/")
    parser.add_argument("--docs", type=Path, default=Path(__file__).resolve().parents[2] / "docs" / "reference" / "kernel-report")
    parser.add_argument("--counts", type=Path, default=COUNTS, help="folder of what the emulator counted")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--every", action="store_true", help="with --check: a table without an archive is an error")
    parser.add_argument("--print", action="store_true", help="print the tables, write nothing")
    parser.add_argument("--beside", metavar="PREFIX", help="only the kernels of this prefix and ours for the same work")
    parser.add_argument("targets", nargs="*", help="default: every target that was built")
    args = parser.parse_args()
    failures = 0
    goals = kernel_goals.read_goals()
    archives = sorted((args.build / "lib").glob("kernels_*.rsk"))
    for archive in archives:
        target = archive.stem.removeprefix("kernels_")
        if args.targets and target not in args.targets:
            continue
        index = read_index(archive)
        wrong: list[str] = []
        if target.startswith("sm_"):
            rows = nvidia_rows(index)
        else:
            rows = [row for item in index["objects"]
                    for row in amd_rows(target, args.build / "gpu" / target / item["name"], index["compiler"], wrong)]
        missing = add_counts(rows, target, args.counts)
        path = args.docs / f"{target}.md"
        if args.beside:
            text, found = beside(target, index, rows, args.beside)
            args.docs.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(text + f"{path}")
            for line in found:
                print(f"{target}: {line}")
            failures += len(found)
        elif args.print:
            print(table(target, index, rows))
        elif not args.check:
            args.docs.mkdir(parents=True, exist_ok=True)
            path.write_text(table(target, index, rows))
            print(f"{path}: {len(rows)} kernels")
        else:
            found = regressions(read_table(path), rows) + wrong + staleness(path, table(target, index, rows), index["compiler"])
            if not target.startswith("sm_"):
                errors, known = kernel_goals.check(target, rows, goals)
                found += errors
                for line in known:
                    print(f"{target}: {line}")
            for line in found:
                print(f"{target}: {line}")
            failures += len(found)
            print(f"kernel_report: {target}: {len(rows)} kernels, {len(found)} errors"
                  + ("" if path.is_file() else "; it has no table")
                  + (f"; {missing} matrix kernels have no counts: `make kernel-counts`" if missing else ""), file=sys.stderr)
    if not archives:
        print(f"kernel_report: {args.build}/lib has no archives: nothing was compared (was a GPU compiler found?)", file=sys.stderr)
        failures += 1
    if args.check and args.every:
        for target in without_archive(args.docs, {archive.stem.removeprefix("kernels_") for archive in archives}):
            print(f"kernel_report: {target}: {args.docs / target}.md has no archive in {args.build}/lib", file=sys.stderr)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
