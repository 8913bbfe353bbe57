#!/usr/bin/env python3
"""Kernels of src/composable_kernels: what their heads say, and what an algorithm's text may hold.

- A file of fused/ or hopper/ that defines a kernel's body (a function ..._body, or a class with a run()) begins with a comment that
  has five labels (Problem, Mapping, Traffic, Numerics, Limits), each at the start of a line of its own, in this order.
- No unroll pragma (ROCM_SD_UNROLL, ROCM_SD_ROLLED) and no array of fragments in fused/: the nouns of tile/ have the verbs. Files that
  are not so yet are named in tools/lint/kernels.json with the number that they have; a number that fell must fall there too.

Prints file:line for each violation and exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

LABELS = ("Problem", "Mapping", "Traffic", "Numerics", "Limits")
BODY = re.compile(r"^ROCM_SD_DEVICE void \w+_body\(|^  ROCM_SD_DEVICE void run\(", re.MULTILINE)
LABEL = re.compile(rf"\b({'|'.join(LABELS)})(?=   |  \S|$)")
RAW = re.compile(r"ROCM_SD_UNROLL|ROCM_SD_ROLLED|\bAtom::[ABC] \w+\[")
Finding = tuple[int, str]


def head_of(text: str) -> list[str]:
    """The lines of the comment that a file begins with, without their //."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").removeprefix(" "))
    return lines


def check_head(text: str) -> list[Finding]:
    found, seen = [], []
    for number, line in enumerate(head_of(text), start=1):
        for label in LABEL.finditer(line):
            if label.start() == 0:
                seen.append(label[1])
            else:
                found.append((number, f"{label[1]} is not at the start of its line"))
    missing = [label for label in LABELS if label not in seen]
    if missing:
        found.append((1, f"a kernel's head has no line for {', '.join(missing)}"))
    elif seen != list(LABELS):
        found.append((1, f"labels are {', '.join(seen)}: expected {', '.join(LABELS)}"))
    return found


def check_body(text: str, allowed: int) -> list[Finding]:
    raw = [text.count("\n", 0, match.start()) + 1 for match in RAW.finditer(text)]
    if len(raw) > allowed:
        return [(raw[allowed], f"{len(raw)} unroll pragmas and arrays of fragments, {allowed} are allowed here: use the verbs of tile/")]
    if len(raw) < allowed:
        return [(1, f"{len(raw)} unroll pragmas and arrays of fragments: tools/lint/kernels.json still allows {allowed}")]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    root = parser.parse_args().root.resolve()
    allowed: dict[str, int] = json.loads((root / "tools" / "lint" / "kernels.json").read_text())["raw"]
    kernels = root / "src" / "composable_kernels"
    files = sorted([*(kernels / "fused").glob("*.hpp"), *(kernels / "hopper").glob("*.hpp")])
    count = 0
    for path in files:
        text, found = path.read_text(encoding="utf-8"), []
        if BODY.search(text):
            found += check_head(text)
        if path.parent.name == "fused":
            found += check_body(text, allowed.pop(path.name, 0))
        for line, message in found:
            print(f"{path.relative_to(root)}:{line}: {message}")
        count += len(found)
    for name in allowed:
        print(f"tools/lint/kernels.json:1: {name} is no file of src/composable_kernels/fused")
    count += len(allowed)
    print(f"check_kernels: {len(files)} files, {count} violations", file=sys.stderr)
    return 1 if count or not files else 0


if __name__ == "__main__":
    raise SystemExit(main())
