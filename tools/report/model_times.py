#!/usr/bin/env python3
"""Modelled times of whole models, and the time model beside published figures (docs/explanation/time-model.md).

  model_times.py times --rocm-sd build/cpu/apps/cli/rocm-sd --card "RX 7900 XTX" --target gfx1100
      models every problem of SD 1.5 and SDXL in f16 with the kernels of the build and writes share/times/rx-7900-xtx.json,
      which `rocm-sd predict` reads. Minutes to half an hour. --from FILE...: takes bench's JSON in place of running it.
  model_times.py times --card "RX 7900 XTX" --target gfx1100 --table share/tuning/gfx1100.tsv
      takes from the file's times those of the problems of which the table has the card's choices by the same model, and leaves the rest.
  model_times.py compare
      prints the rows of share/published/kernel_times.json as a table, each with its deviation, and the median deviation.

Nothing here is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "share/published/kernel_times.json"


def deviations() -> list[float]:
    rows = json.loads(PUBLISHED.read_text())["figures"]
    return [row["modelled"] / row["published"] - 1 for row in rows]


def bench(program: Path, card: str, target: str, model: str, folder: Path) -> dict:
    out = folder / f"{model}.json"
    env = os.environ | {"ROCM_SD_EMULATOR_TIME": str(folder / "times.jsonl"), "ROCM_SD_EMULATOR_MACHINE": card}
    subprocess.run([program, "bench", "--model", model, "--dtype", "f16", "--device", f"emu:{target}", "--json", out], env=env,
                   check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


def write_times(args: argparse.Namespace) -> None:
    name = re.sub("[^a-z0-9]+", "-", args.card.lower())
    path = ROOT / "share/times" / f"{name}.json"
    times = {}
    if args.table:
        if path.exists():
            times = json.loads(path.read_text())["microseconds"]
        rows = [line.split("\t") for line in args.table.read_text().splitlines() if not line.startswith("#")]
        times |= {f"{row[4]} {row[5]}": round(float(row[8]), 2) for row in rows if row[0] == args.card and row[10] == "model"}
        reports = []
    elif args.source:
        reports = [json.loads(path.read_text()) for path in args.source]
    else:
        with tempfile.TemporaryDirectory() as folder:
            reports = [bench(args.rocm_sd, args.card, args.target, model, Path(folder)) for model in ("sd15", "sdxl")]
    for report in reports:
        for row in report["rows"]:
            if row.get("chosen") and row.get("median_us", 0) > 0:
                times[f"{row['op']} {row['problem']}"] = round(row["median_us"], 2)
    error = statistics.median(abs(x) for x in deviations())
    path.parent.mkdir(exist_ok=True)
    about = ("microseconds of problems in f16 by the time model (docs/explanation/time-model.md), written by "
             "tools/report/model_times.py: modelled, not measured")
    lines = [f' {json.dumps(key)}: {value}' for key, value in sorted(times.items())]
    path.write_text("{\n" + f'"card": {json.dumps(args.card)},\n"target": {json.dumps(args.target)},\n"about": {json.dumps(about)},\n'
                    f'"error": {error:.2f},\n"microseconds": {{\n' + ",\n".join(lines) + "\n}\n}\n")
    print(f"{path.relative_to(ROOT)}: {len(times)} problems")


def compare() -> None:
    data = json.loads(PUBLISHED.read_text())
    print("| card | problem | kernel that was modelled | modelled TFLOP/s | published TFLOP/s | deviation | published: what, where, when |")
    print("|---|---|---|---|---|---|---|")
    for row, off in zip(data["figures"], deviations(), strict=True):
        source = data["sources"][row["source"]]
        print(f"| {row['gpu']} | {row['problem']} | {row['kernel']} | {row['modelled']:.1f} | {row['published']:.1f} | {100 * off:+.0f} % "
              f"| {source['what']}, [{source['title']}]({source['url']}), {source['date']} |")
    off = [abs(x) for x in deviations()]
    print(f"\n{len(off)} points, median deviation {100 * statistics.median(off):.0f} %, mean {100 * statistics.mean(off):.0f} %.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    times = commands.add_parser("times")
    times.add_argument("--rocm-sd", type=Path, default=ROOT / "build/cpu/apps/cli/rocm-sd")
    times.add_argument("--card", required=True)
    times.add_argument("--target", required=True, help="whose kernels are played: of the card's family")
    times.add_argument("--table", type=Path, help="a tuning table that `rocm-sd tune` made by the time model")
    times.add_argument("--from", dest="source", type=Path, nargs="+", help="reports of `rocm-sd bench --json`")
    commands.add_parser("compare")
    args = parser.parse_args()
    compare() if args.command == "compare" else write_times(args)


if __name__ == "__main__":
    main()
