#!/usr/bin/env python3
"""Modelled times of whole models, and the time model beside published figures (docs/explanation/time-model.md).

  model_times.py times --rocm-sd build/cpu/apps/cli/rocm-sd --card "RX 7900 XTX" --target gfx1100
      models every problem of SD 1.5 and SDXL in f16 with the kernels of the build and writes share/times/rx-7900-xtx.json,
      which `rocm-sd predict` reads. Minutes to half an hour. --from FILE...: takes bench's JSON in place of running it.
  model_times.py times --card "RX 7900 XTX" --target gfx1100 --table share/tuning/gfx1100.tsv
      takes from the file's times those of the problems of which the table has the card's choices by the same model, and leaves the rest.
  model_times.py play --rocm-sd build/cpu/apps/cli/rocm-sd --kernels build/ck/lib [--only "MI300X.*product"]
      plays the kernels of share/published/kernel_times.json (`make test-ck CK_TARGETS="gfx942 gfx90a gfx1100 gfx1201"`) and writes what
      the model says of them there, and the median deviation into share/times. Minutes to an hour.
  model_times.py compare
      prints the rows of share/published/kernel_times.json as tables: each with its deviation, the sources, the medians by family.

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
FAMILIES = {"RDNA 3": "RX 7.*|Radeon 8060S", "RDNA 4": "RX 9.*", "CDNA 2": "MI2.*", "CDNA 3": "MI3.*"}


def deviation(row: dict) -> float:
    return row["modelled"] / row["published"] - 1


def deviations() -> list[float]:
    """Of the rows that count: not of those that say why the model does not hold for them."""
    return [deviation(row) for row in json.loads(PUBLISHED.read_text())["figures"] if "not_counted" not in row]


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


def bench_text(problem: str) -> str:
    """The row's problem as `rocm-sd bench` reads it."""
    kind, extents, *rest = problem.split()
    if kind == "product":
        return " ".join(["linear", extents, *rest])
    if kind == "attention":
        return " ".join(["attention", rest[0], extents, *rest[1:]])
    height, width = (int(x) // 2 for x in rest[0].split("x"))
    return " ".join(["conv2d", extents, rest[0], f"s1 p{height},{width},{height},{width}", *rest[1:], "bias"])


def play_row(args: argparse.Namespace, row: dict, folder: Path) -> float:
    """TFLOP/s of the row's kernel on the row's card, by the model."""
    target = re.fullmatch(r"ck_\w+ \((\w+)\)", row["kernel"])[1]
    out = folder / "row.json"
    env = os.environ | {"ROCM_SD_EMULATOR_TIME": str(folder / "times.jsonl"), "ROCM_SD_EMULATOR_MACHINE": row["gpu"],
                        "ROCM_SD_KERNELS": str(args.kernels)}
    subprocess.run([args.rocm_sd, "bench", "--quiet", "--impl", "=ck", "--device", f"emu:{target}", "--json", out,
                    bench_text(row["problem"])], env=env, check=True, stdout=subprocess.DEVNULL)
    report = json.loads(out.read_text())["rows"][0]
    return report["flops"] / report["median_us"] / 1e6


def write_published(data: dict) -> None:
    def lines(rows: list[str]) -> str:
        return ",\n".join(rows)

    sources = lines([f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data["sources"].items()])
    figures = lines([json.dumps(row) for row in data["figures"]])
    PUBLISHED.write_text(f'{{\n"about": {json.dumps(data["about"])},\n"sources": {{\n{sources}\n}},\n"figures": [\n{figures}\n]\n}}\n')


def play(args: argparse.Namespace) -> None:
    data = json.loads(PUBLISHED.read_text())
    played: dict[str, float] = {}
    for row in data["figures"]:
        name = f"{row['gpu']}, {row['problem']}, {row['kernel']}"
        if not re.search(args.only, name):
            continue
        if name not in played:
            with tempfile.TemporaryDirectory() as folder:
                played[name] = round(play_row(args, row, Path(folder)), 1)
            print(f"{name}: {played[name]} (published {row['published']})", flush=True)
        row["modelled"] = played[name]
        write_published(data)
    error = statistics.median(abs(x) for x in deviations())
    for path in (ROOT / "share/times").glob("*.json"):
        path.write_text(re.sub(r'^"error": [\d.]+,$', f'"error": {error:.2f},', path.read_text(), flags=re.M))


def spread(off: list[float]) -> str:
    return f"{100 * statistics.median(abs(x) for x in off):.0f} % | {100 * statistics.mean(abs(x) for x in off):.0f} % " \
           f"| {100 * min(off):+.0f} % to {100 * max(off):+.0f} % | {100 * statistics.median(off):+.0f} %"


def compare() -> None:
    data = json.loads(PUBLISHED.read_text())
    counted = [(row, deviation(row)) for row in data["figures"] if "not_counted" not in row]
    others = [(row, deviation(row)) for row in data["figures"] if "not_counted" in row]
    for part in filter(None, (counted, others)):
        print("| card | problem | kernel that was modelled | modelled TFLOP/s | published TFLOP/s | deviation | source |")
        print("|---|---|---|---|---|---|---|")
        for row, off in part:
            source = data["sources"][row["source"]]
            print(f"| {row['gpu']} | {row['problem']} | {row['kernel']} | {row['modelled']:.1f} | {row['published']:.1f} | {100 * off:+.0f} % "
                  f"| [{source['title']}]({source['url']}) |")
        print()
    print("| source | what was measured there | date |\n|---|---|---|")
    for source in data["sources"].values():
        print(f"| [{source['title']}]({source['url']}) | {source['what']} | {source['date']} |")
    print("\n| family | points | median deviation | mean | from, to | median with its sign |\n|---|---|---|---|---|---|")
    print(f"| all | {len(counted)} | {spread([off for _, off in counted])} |")
    if others:
        print(f"| with those that do not count | {len(counted + others)} | {spread([off for _, off in counted + others])} |")
    kinds = list(dict.fromkeys(row["problem"].split()[0] for row, _ in counted))
    for family, cards in FAMILIES.items():
        for kind in kinds:
            some = [off for row, off in counted if re.fullmatch(cards, row["gpu"]) and row["problem"].startswith(kind)]
            if some:
                print(f"| {family}, {kind} | {len(some)} | {spread(some)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    times = commands.add_parser("times")
    times.add_argument("--rocm-sd", type=Path, default=ROOT / "build/cpu/apps/cli/rocm-sd")
    times.add_argument("--card", required=True)
    times.add_argument("--target", required=True, help="whose kernels are played: of the card's family")
    times.add_argument("--table", type=Path, help="a tuning table that `rocm-sd tune` made by the time model")
    times.add_argument("--from", dest="source", type=Path, nargs="+", help="reports of `rocm-sd bench --json`")
    plays = commands.add_parser("play")
    plays.add_argument("--rocm-sd", type=Path, default=ROOT / "build/cpu/apps/cli/rocm-sd")
    plays.add_argument("--kernels", type=Path, default=ROOT / "build/ck/lib", help="where the archives with Composable Kernel's instances are")
    plays.add_argument("--only", default="", help="rows by a regular expression of card, problem and kernel")
    commands.add_parser("compare")
    args = parser.parse_args()
    if args.command == "compare":
        compare()
    else:
        play(args) if args.command == "play" else write_times(args)


if __name__ == "__main__":
    main()
