"""The goals of AMD's kernels, by what their machine code holds and what the emulator counted: kernel_goals.json.

A goal that is reached is held: a kernel below it fails the check. What misses a goal stands in the file with the value
that it has, which is held in its place, and with the reason; an entry that no kernel needs any more fails the check too,
so that a goal once reached is held from then on.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).resolve().parent / "kernel_goals.json"

# What a row can be held to: whether more is better, how it is told, and of which kernels it is asked.
MEASURES = {
    "counted": (True, "counted share {} %"),
    "conflicts": (False, "LDS conflicts {} %"),
    "occupancy": (True, "{} waves per SIMD"),
    "spills": (False, "{} spilled registers"),
    "scratch": (False, "{} bytes of scratch"),
}


@dataclass(frozen=True)
class Rule:
    """A goal, or the value that is held in its place: entries of the file."""
    targets: str
    kernels: str
    values: tuple[tuple[str, int], ...]
    why: str = ""

    def of(self, target: str, kernel: str) -> dict[str, int]:
        both = re.fullmatch(self.targets, target) and re.fullmatch(self.kernels, kernel)
        return dict(self.values) if both else {}


@dataclass
class Goals:
    goals: list[Rule]
    missed: list[Rule]


def read_goals(path: Path = FILE) -> Goals:
    data = json.loads(path.read_text())
    def rules(name: str) -> list[Rule]:
        out = []
        for entry in data[name]:
            values = {key: value for key, value in entry.items() if key in MEASURES}
            unknown = set(entry) - set(values) - {"targets", "kernels", "why"}
            if unknown or not values or (name == "missed" and not entry.get("why")):
                raise SystemExit(f"{path}: {name}: {entry}: expected targets, kernels, values of {', '.join(MEASURES)}"
                                 + (" and why" if name == "missed" else ""))
            out.append(Rule(entry["targets"], entry["kernels"], tuple(values.items()), entry.get("why", "")))
        return out
    return Goals(rules("goals"), rules("missed"))


def reaches(measure: str, value: int, goal: int) -> bool:
    return value >= goal if MEASURES[measure][0] else value <= goal


def told(measure: str, value: int) -> str:
    return MEASURES[measure][1].format(value)


def check(target: str, rows: list, goals: Goals) -> tuple[list[str], list[str]]:
    """Of the rows of kernel_report.py with matrix instructions: what is wrong, and which goals are known to be missed."""
    errors, known, used = [], {}, set()
    for row in rows:
        if row.matrix == 0:
            continue
        for goal in goals.goals:
            for measure, wanted in goal.of(target, row.name).items():
                value = getattr(row, measure)
                if value is None or reaches(measure, value, wanted):
                    continue
                held = [(rule, rule.of(target, row.name)[measure]) for rule in goals.missed
                        if measure in rule.of(target, row.name)]
                used.update((rule, measure) for rule, _ in held)
                if any(reaches(measure, value, floor) for _, floor in held):
                    rule = next(rule for rule, floor in held if reaches(measure, value, floor))
                    known.setdefault((rule, measure, wanted), []).append(value)
                else:
                    kept = "".join(f", held at {floor}" for _, floor in held)
                    errors.append(f"{row.name}: {told(measure, value)}, goal {wanted}{kept}")
    for rule in goals.missed:
        for measure, floor in rule.values:
            matched = any(row.matrix and rule.of(target, row.name) for row in rows)
            if matched and (rule, measure) not in used:
                errors.append(f"{rule.kernels}: every kernel reaches its goal where kernel_goals.json still holds "
                              f"{told(measure, floor)}: take that entry out for {target}")
    texts = [f"goal missed: {rule.kernels}: {told(measure, min(values) if MEASURES[measure][0] else max(values))}, goal {wanted}: {rule.why}"
             for (rule, measure, wanted), values in known.items()]
    return errors, texts
