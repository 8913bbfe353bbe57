#!/usr/bin/env python3
"""Attention's relative costs of share/cost/<family>.json, from times of all candidates.

    rocm-sd bench --shapes tests/data/model_shapes.txt --ops attention --impl gpu --json times.json
    benchmarks/fit_costs.py times.json --family hopper --cli build/cpu/bin/rocm-sd          prints old and new costs
    ... --write                                                                             and writes the file

Each problem's candidates are timed (the record) and estimated (`bench --explain --json -` on the same GPU). A kernel's relative cost is
multiplied by how much longer it took than its estimate says, against the kernels by waves, whose cost is 1 by definition: the median over
the problems, of each problem's fastest candidate of that cost. The command, device, driver, date and commit of the record become the source
`attention`. Run it again on new times until the costs stay: an estimate is not quite proportional to the cost. Then `make kernel-map`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

COST = Path(__file__).resolve().parent.parent / "share" / "cost"
REFERENCE = "waves"


def times_of(record: dict) -> dict[str, dict[str, float]]:
    """Median seconds by problem and choice; only what was timed on a device counts."""
    if record.get("origin") != "measured":
        sys.exit("fit_costs: expected times of a device, the record's origin is " + repr(record.get("origin")))
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for row in record["rows"]:
        if row["op"] == "attention" and row["choice"].startswith("gpu ") and row.get("median_us"):
            times[row["problem"]][row["choice"].removeprefix("gpu ")] = row["median_us"] * 1e-6
    return times


def explained(cli: str, device: str, problem: str) -> list[dict]:
    """The candidates of a problem with their estimates, as this build makes them."""
    command = [cli, "bench", "--device", device, "--explain", "attention " + problem, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [c for e in json.loads(done.stdout)["implementations"] if e["impl"] == "gpu" for c in e["candidates"]]


def excess(times: dict[str, float], candidates: list[dict]) -> dict[str, float]:
    """By cost name: seconds per unit of the estimate, of the fastest candidate."""
    fastest: dict[str, tuple[float, float]] = {}
    for c in candidates:
        seconds = times.get(c["choice"])
        if seconds is not None and (c["cost_name"] not in fastest or seconds < fastest[c["cost_name"]][0]):
            fastest[c["cost_name"]] = (seconds, c["cost"])
    return {name: seconds / cost for name, (seconds, cost) in fastest.items() if cost > 0}


def fit(per_problem: list[dict[str, float]], old: dict[str, float]) -> dict[str, float]:
    """New relative costs; those that no problem compares with the reference stay."""
    factors = defaultdict(list)
    for rates in per_problem:
        for name, rate in rates.items():
            if REFERENCE in rates:
                factors[name].append(rate / rates[REFERENCE])
    return {name: cost if name == REFERENCE or name not in factors else round(cost * statistics.median(factors[name]), 3)
            for name, cost in old.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--family", required=True)
    parser.add_argument("--cli", default="rocm-sd")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    record = json.loads(args.record.read_text())
    path = COST / f"{args.family}.json"
    model = json.loads(path.read_text())
    entries = model["attention"]["relative_cost"]
    times = times_of(record)
    rates = [excess(t, explained(args.cli, args.device, problem)) for problem, t in times.items()]
    new = fit(rates, {name: e["cost"] for name, e in entries.items()})
    for name, e in entries.items():
        print(f"{name:<24} {e['cost']:>7} -> {new[name]:>7}")
    if not args.write:
        return
    model["sources"]["attention"] = {
        "origin": "measured", "device": record["device"], "driver": record["driver"], "date": record["date"][:10],
        "commit": record["commit"], "command": record["command"], "note": f"fit_costs.py: {len(times)} problems of attention"}
    for name, e in entries.items():
        entries[name] = {"source": "attention", "cost": new[name]} if any(name in r for r in rates) else e
    path.write_text(json.dumps(model, indent=1) + "\n")


if __name__ == "__main__":
    main()
