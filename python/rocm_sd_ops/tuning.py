"""Tables of tuned choices, as `rocm-sd tune` makes them, from Python.

    table = rocm_sd_ops.tuning.load("~/.cache/rocm-sd/tuning/sm_90.tsv")
    print(len(table), "choices,", table.bad_lines, "damaged lines")
    rocm_sd_ops.tuning.export(table.of_op("linear"), "linear.tsv")
    rocm_sd_ops.tuning.export_tunable_op(table, "gemm.csv")   # for torch.cuda.tunable.tune_gemm_in_file
    rocm_sd_ops.tuning.use("linear.tsv")                      # in place of the user's table, before the first operator

The operators look the user's and the shipped table up themselves; docs/reference/pytorch.md has the recipe for TunableOp.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Iterator, Union

HEADER = "# rocm-sd tuning table 2"
_HEADER_1 = "# rocm-sd tuning table 1"  # differs in the names of attention's kernels alone
_RENAMED = {
    "gpu flash_group_wide_": "gpu flash_wgmma_large_d_",
    "gpu flash_group_": "gpu flash_wgmma_",
    "gpu flash_bulk_": "gpu flash_tma_",
    "gpu flash_once_": "gpu flash_single_tile_kv_",
    "gpu flash_wide_": "gpu flash_large_d_",
}
_MOST_BYTES = 64 << 20
_LINEAR = re.compile(r"(\d{1,12})x(\d{1,12})x(\d{1,12}) (f32|f16|bf16)((?: \w+)*)")
_TORCH_NAMES = {"f32": "float", "f16": "Half", "bf16": "BFloat16"}


@dataclass(frozen=True)
class Record:
    """One choice. product, arch, units and code say which device and build it holds for; origin is "measured" or "model"."""

    product: str
    arch: str
    units: int
    code: str
    op: str
    problem: str
    choice: str
    default_choice: str
    microseconds: float
    default_microseconds: float
    origin: str
    date: str


@dataclass
class Table:
    records: list[Record] = field(default_factory=list)
    bad_lines: int = 0  # torn or damaged, left out

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def of_op(self, op: str) -> "Table":
        """The records of one operator: "linear", "conv2d", "attention", ..."""
        return Table([r for r in self.records if r.op == op])


def _checksum(body: str) -> str:
    value = 0xCBF29CE484222325  # FNV-1a, 64 bits
    for byte in body.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def _renamed(choice: str) -> str:
    """A choice of version 1 by its name of today."""
    for old, now in _RENAMED.items():
        if choice.startswith(old):
            return now + choice[len(old) :]
    return choice


def _parse(line: str) -> Record:
    body, _, checksum = line.rpartition("\t")
    fields = body.split("\t")
    if len(fields) != 12 or checksum != _checksum(body) or fields[10] not in ("measured", "model") or not all(fields[4:7]):
        raise ValueError(line)
    numbers: list[Any] = [*fields[:2], int(fields[2]), *fields[3:6], *map(_renamed, fields[6:8]), float(fields[8]), float(fields[9]), *fields[10:]]
    return Record(*numbers)


def load(path: Union[str, Path]) -> Table:
    """The table in a file. Damaged lines are left out and counted. Raises ValueError for a file that is no table, OSError for
    one that cannot be read."""
    path = Path(path).expanduser()
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{path}: more than {_MOST_BYTES >> 20} MiB")
    lines = content.decode("utf-8", "replace").split("\n")
    if lines[0].rstrip("\r") not in (HEADER, _HEADER_1):
        raise ValueError(f"{path}: expected a tuning table, which begins with {HEADER!r}")
    table = Table()
    for line in lines[1:]:
        if not line or line.startswith("#"):
            continue
        try:
            table.records.append(_parse(line))
        except ValueError:
            table.bad_lines += 1
    return table


def _line(r: Record) -> str:
    values = [r.product, r.arch, str(r.units), r.code, r.op, r.problem, r.choice, r.default_choice, f"{r.microseconds:.9g}",
              f"{r.default_microseconds:.9g}", r.origin, r.date]
    if any(ord(c) < 32 for value in values for c in value):
        raise ValueError(f"{r.op} {r.problem!r}: a control character in a field")
    body = "\t".join(values)
    return f"{body}\t{_checksum(body)}"


def _write(path: Union[str, Path], text: str) -> None:
    """Whole or not at all."""
    path = Path(path).expanduser()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def export(records: Iterable[Record], path: Union[str, Path]) -> None:
    """Writes records as a table that `rocm-sd tune import` and load() take."""
    _write(path, "\n".join([HEADER, *map(_line, records)]) + "\n")


def tunable_op_lines(records: Iterable[Record]) -> list[str]:
    """The matrix products of a table as PyTorch's TunableOp lists what is to be tuned offline; each once, sorted. (Results
    cannot be handed over: TunableOp's name solutions of rocBLAS and hipBLASLt.)"""
    lines = set()
    for r in records:
        found = _LINEAR.fullmatch(r.problem) if r.op == "linear" else None
        if found is None:
            continue
        rows, columns, depth = found[1], found[2], found[3]
        op = "GemmAndBiasTunableOp" if "bias" in found[5].split() else "GemmTunableOp"
        lines.add(f"{op}_{_TORCH_NAMES[found[4]]}_TN,tn_{columns}_{rows}_{depth}_ld_{depth}_{depth}_{columns}")
    return sorted(lines)


def export_tunable_op(records: Iterable[Record], path: Union[str, Path]) -> int:
    """Writes tunable_op_lines() as a file for torch.cuda.tunable.tune_gemm_in_file; the number of lines."""
    lines = tunable_op_lines(records)
    _write(path, "".join(line + "\n" for line in lines))
    return len(lines)


def use(path: Union[str, Path, None]) -> None:
    """Makes this table the only one that the operators ask, None: no table. Tables are read once: call it before the first
    operator runs. Raises what load() raises."""
    if path is not None:
        path = Path(path).expanduser().resolve()
        load(path)
    os.environ["ROCM_SD_TUNING"] = "off" if path is None else str(path)
