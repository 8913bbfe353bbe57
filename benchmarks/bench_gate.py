#!/usr/bin/env python3
"""Compares a benchmark with a stored baseline of the same device: fails on a slow-down that nobody explained.

    rocm-sd bench --model sd15 --json now.json
    benchmarks/bench_gate.py now.json --baselines ~/.cache/rocm-sd/baselines --baselines benchmarks/baselines   # exit code 1 on a slow-down
    benchmarks/bench_gate.py now.json --baselines ~/.cache/rocm-sd/baselines --update    # keeps what is there now, with a reason
    benchmarks/bench_gate.py now.json ... --explain "linear 8192x320x320 f16=clocks are locked lower since driver 580"

A folder of baselines holds one file for each product, by the device's name: NVIDIA_H200.json. The first folder that has it counts;
--update writes to the first folder. benchmarks/baselines is the repository's (benchmarks/gpu_record.py makes its files).
--baseline names one file instead. A problem is slower where its median exceeds the baseline's by more than --most (default 1.10)
and by more than both runs' spreads together. Both files are written by `rocm-sd bench --json`; only what each picks for a problem is
compared. Another device is no baseline: exit code 2.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from pathlib import Path


def read(path: Path) -> dict:
    try:
        report = json.loads(path.read_text())
        rows = {f"{row['op']} {row['problem']}": row for row in report["rows"] if row.get("chosen") and "median_us" in row}
        return {"device": device_of(report["device"]), "origin": report["origin"], "rows": rows, "report": report}
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{path}: no report of `rocm-sd bench --json`: {error}", file=sys.stderr)
        sys.exit(2)


def device_of(name: str) -> str:
    """Without the ordinal: the same card in another slot is the same."""
    return name.split(": ", 1)[-1]


def product_of(device: str) -> str:
    """"NVIDIA H200, sm_90, 132 compute units" -> "NVIDIA_H200"."""
    return re.sub(r"[^A-Za-z0-9]+", "_", device.split(",")[0]).strip("_")


def chosen_baseline(args: argparse.Namespace, device: str) -> Path:
    """The file to compare with: where it is to be written first, the first that exists otherwise."""
    if args.baseline:
        return args.baseline
    files = [folder / f"{product_of(device)}.json" for folder in args.baselines]
    return next((file for file in files if file.is_file()), files[0])


def write(path: Path, report: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def compare(now: dict, then: dict, most: float) -> tuple[list[dict], float]:
    """Slower problems, worst first, and the geometric mean of all ratios."""
    shared = now["rows"].keys() & then["rows"].keys()
    slower, logs = [], []
    for problem in sorted(shared):
        a, b = now["rows"][problem], then["rows"][problem]
        ratio = a["median_us"] / b["median_us"]
        logs.append(math.log(ratio))
        if ratio > most and ratio > 1 + a["spread"] + b["spread"]:
            slower.append({"problem": problem, "ratio": ratio, "now": a, "then": b})
    slower.sort(key=lambda s: -s["ratio"])
    return slower, math.exp(sum(logs) / len(logs)) if logs else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("now", type=Path)
    parser.add_argument("--baseline", type=Path, help="one file")
    parser.add_argument("--baselines", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--most", type=float, default=1.10)
    parser.add_argument("--explain", action="append", default=[], metavar="PROBLEM=REASON")
    parser.add_argument("--update", action="store_true", help="write the baseline anew")
    parser.add_argument("--keep-first", action="store_true", help="where there is no baseline, this run becomes one")
    args = parser.parse_args()
    if not args.baseline and not args.baselines:
        parser.error("expected --baseline FILE or --baselines FOLDER")
    now = read(args.now)
    kept = args.baseline or args.baselines[0] / f"{product_of(now['device'])}.json"
    args.baseline = chosen_baseline(args, now["device"])
    if not now["rows"]:
        print(f"{args.now}: nothing was timed", file=sys.stderr)
        sys.exit(2)
    if (args.update or args.keep_first) and not args.baseline.exists():
        write(kept, now["report"])
        print(f"{kept}: {len(now['rows'])} problems on {now['device']}")
        return
    if not args.baseline.exists():
        print(f"{args.baseline}: there is no baseline of {now['device']} yet; --update (`make bench-gate UPDATE=1`) keeps this run "
              "as one", file=sys.stderr)
        sys.exit(2)
    then = read(args.baseline)
    if (now["device"], now["origin"]) != (then["device"], then["origin"]):
        print(f"{args.baseline} is of {then['device']} ({then['origin']}), this run of {now['device']} ({now['origin']})",
              file=sys.stderr)
        sys.exit(2)
    reasons = dict(item.split("=", 1) for item in args.explain if "=" in item)
    slower, mean = compare(now, then, args.most)
    missing = sorted(then["rows"].keys() - now["rows"].keys())
    unexplained = 0
    for s in slower:
        reason = reasons.get(s["problem"], "")
        unexplained += not reason
        print(f"{'explained' if reason else 'SLOWER'}: {s['problem']}: {s['then']['median_us']:.2f} -> {s['now']['median_us']:.2f} us "
              f"({100 * (s['ratio'] - 1):+.1f}%), {s['then']['choice']} -> {s['now']['choice']}{': ' + reason if reason else ''}")
    for problem in missing:
        print(f"not timed any more: {problem}")
    print(f"{len(now['rows'].keys() & then['rows'].keys())} problems on {now['device']}: {100 * (mean - 1):+.1f}% on the whole, "
          f"{len(slower)} slower")
    if args.update and unexplained == 0:
        write(kept, now["report"])
    sys.exit(1 if unexplained else 0)


if __name__ == "__main__":
    main()
