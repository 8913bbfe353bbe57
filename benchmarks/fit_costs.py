#!/usr/bin/env python3
"""The numbers of share/cost/<family>.json, from times of all candidates.

    rocm-sd bench --shapes tests/data/model_shapes.txt --ops attention,linear,conv2d --impl gpu --json times.json
    benchmarks/fit_costs.py times.json --family hopper --cli build/cpu/bin/rocm-sd          prints old and new costs of attention
    ... --section gemm                                                                      those of another section, by its op's times:
                                                                                            gemm, gemm_eight_bit, conv, conv_wgmma, tma, tma_ping_pong
    ... --write                                                                             and writes the file

Each problem's candidates are timed (the record) and estimated (`bench --explain --json -` on the same GPU).

attention: a kernel's relative cost is multiplied by how much longer it took than its estimate says, against the kernels by waves, whose cost
is 1 by definition: the median over the problems, of each problem's fastest candidate of that cost. Run it again on new times until the costs
stay: an estimate is not quite proportional to the cost.

Other sections: coordinate descent. Each number is tried larger and smaller, by 50, 20 and 5 percent, and a change stays where the estimates
(by a file that holds it, ROCM_SD_COST) then follow the times better: the root mean square of log(time / estimate) about its mean over all
candidates of all problems. Numbers that change no estimate stay. What fits is not always what the hardware does.

The command, device, driver, date and commit of the record become the section's source. Then `make kernel-map`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

COST = Path(__file__).resolve().parent.parent / "share" / "cost"
REFERENCE = "waves"
# The ops whose candidates a section estimates.
OPS = {"attention": ("attention",), "gemm": ("linear",), "gemm_eight_bit": ("linear",), "conv": ("conv2d",),
       "conv_wgmma": ("conv2d",), "tma": ("linear", "conv2d"), "tma_ping_pong": ("linear", "conv2d")}
TRIED = (1.5, 1.2, 1.05)

Times = dict[tuple[str, str], dict[str, float]]


def times_of(record: dict, ops: tuple[str, ...] = ("attention",)) -> Times:
    """Median seconds by (op, problem) and choice; only what was timed on a device counts."""
    if record.get("origin") != "measured":
        sys.exit("fit_costs: expected times of a device, the record's origin is " + repr(record.get("origin")))
    times: Times = defaultdict(dict)
    for row in record["rows"]:
        if row["op"] in ops and row["choice"].startswith("gpu ") and row.get("median_us"):
            times[row["op"], row["problem"]][row["choice"].removeprefix("gpu ")] = row["median_us"] * 1e-6
    return times


def explained(cli: str, device: str, problem: tuple[str, str], costs: Path | None = None) -> list[dict]:
    """The candidates of a problem with their estimates, as this build makes them; costs: a folder of other numbers."""
    command = [cli, "bench", "--device", device, "--explain", " ".join(problem), "--json", "-"]
    environment = os.environ | ({"ROCM_SD_COST": str(costs)} if costs else {})
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [c for e in json.loads(done.stdout)["implementations"] if e["impl"] == "gpu" for c in e["candidates"]]


# ---- attention ----

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


# ---- the other sections ----

def numbers_of(section: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths to the numbers of a section that may change. Zero says that there is no such unit; the shapes of steps are no costs."""
    pairs = section.items() if isinstance(section, dict) else enumerate(section) if isinstance(section, list) else ()
    for key, value in pairs:
        if isinstance(value, (dict, list)):
            yield from numbers_of(value, (*path, key))
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 and key not in ("rows", "columns"):
            yield (*path, key)


def changed(section: dict, path: tuple, factor: float) -> dict:
    out = json.loads(json.dumps(section))
    place = out
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = float(f"{place[path[-1]] * factor:.4g}")
    return out


def misfit(times: Times, estimates: Callable[[tuple[str, str]], list[dict]]) -> float:
    """How far estimates are from proportional to times, over all candidates that have both."""
    logs = [math.log(timed[c["choice"]] / c["cost"]) for problem, timed in times.items() for c in estimates(problem)
            if c["choice"] in timed and c["cost"] > 0]
    if len(logs) < 2:
        sys.exit("fit_costs: the record has no two candidates with estimates")
    return statistics.pstdev(logs)


def descend(section: dict, error: Callable[[dict], float]) -> tuple[dict, float]:
    """The section with the numbers changed that make the error smaller, and that error."""
    best = error(section)
    for step in TRIED:
        improved = True
        while improved:
            improved = False
            for path in list(numbers_of(section)):
                for factor in (step, 1 / step):
                    trial = changed(section, path, factor)
                    found = error(trial)
                    if found < best * (1 - 1e-4):
                        section, best, improved = trial, found, True
                        break
    return section, best


def fit_section(model: dict, name: str, times: Times, args: argparse.Namespace) -> tuple[dict, float, float]:
    with tempfile.TemporaryDirectory() as folder:
        # The families that the program reads at the same time stay as they are.
        for path in args.costs.glob("*.json"):
            (Path(folder) / path.name).write_bytes(path.read_bytes())

        def error(section: dict) -> float:
            (Path(folder) / f"{model['family']}.json").write_text(json.dumps(model | {name: section}))
            return misfit(times, lambda problem: explained(args.cli, args.device, problem, Path(folder)))

        before = error(model[name])
        section, after = descend(model[name], error)
        return section, before, after


def source_of(record: dict, note: str) -> dict:
    return {"origin": "measured", "device": record["device"], "driver": record["driver"], "date": record["date"][:10],
            "commit": record["commit"], "command": record["command"], "note": note}


def fit_attention(model: dict, times: Times, args: argparse.Namespace, record: dict) -> None:
    entries = model["attention"]["relative_cost"]
    rates = [excess(t, explained(args.cli, args.device, problem)) for problem, t in times.items()]
    new = fit(rates, {name: e["cost"] for name, e in entries.items()})
    for name, e in entries.items():
        print(f"{name:<24} {e['cost']:>7} -> {new[name]:>7}")
    model["sources"]["attention"] = source_of(record, f"fit_costs.py: {len(times)} problems of attention")
    for name, e in entries.items():
        entries[name] = {"source": "attention", "cost": new[name]} if any(name in r for r in rates) else e


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--family", required=True)
    parser.add_argument("--section", choices=OPS, default="attention")
    parser.add_argument("--cli", default="rocm-sd")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--costs", type=Path, default=COST, help="the folder of the family's file (share/cost)")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    record = json.loads(args.record.read_text())
    path = args.costs / f"{args.family}.json"
    model = json.loads(path.read_text())
    times = times_of(record, OPS[args.section])
    if args.section not in model:
        sys.exit(f"fit_costs: {path.name} has no section {args.section}")
    if args.section == "attention":
        fit_attention(model, times, args, record)
    else:
        old = model[args.section]
        new, before, after = fit_section(model, args.section, times, args)
        for place in numbers_of(old):
            was, now = old, new
            for key in place:
                was, now = was[key], now[key]
            print(f"{'.'.join(map(str, place)):<32} {was:>9} -> {now:>9}")
        print(f"misfit {before:.3f} -> {after:.3f}")
        model["sources"][args.section] = source_of(
            record, f"fit_costs.py --section {args.section}: {len(times)} problems; misfit {before:.3f} -> {after:.3f}")
        model[args.section] = new | {"source": args.section}
    if args.write:
        path.write_text(json.dumps(model, indent=1) + "\n")


if __name__ == "__main__":
    main()
