"""Reads lists of captions: one a line, or a .tsv with a column of them."""

from __future__ import annotations

import csv
from pathlib import Path


def read_captions(path: Path) -> list[tuple[str, str]]:
    """Name and caption of each. A .tsv has a header with "caption" and, if need be, "id"."""
    if path.suffix == ".tsv":
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        if not rows or "caption" not in rows[0]:
            raise SystemExit(f"{path}: expected a column \"caption\"")
        return [(str(row.get("id") or i), row["caption"]) for i, row in enumerate(rows)]
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    prompts = [line for line in lines if line and not line.startswith("#")]
    if not prompts:
        raise SystemExit(f"{path}: no prompts")
    return [(f"{i:05}", prompt) for i, prompt in enumerate(prompts)]
