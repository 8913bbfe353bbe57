#!/usr/bin/env python3
"""What savings cost and save: rocm-sd generate --compare-exact over seeds, a row for each saving.

    benchmarks/savings.py --model models/demo --steps 25 --seeds 8
    benchmarks/savings.py --model SDXL --device cuda --steps 25 --seeds 4 -- --width 1024 --height 1024 --sampler "DPM++ 2M"

The exact picture is our own with the same seed. Figures are medians over the seeds. Times are the sampling's, with the capture of its programs; on a
GPU of the second picture of a process, when kernels are loaded. Options after -- go to rocm-sd.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

SAVINGS = ["--deep-cache 2", "--deep-cache 3", "--deep-cache 5", "--deep-cache 3:3", "--t-gate {40}", "--t-gate {60}", "--deep-cache 2 --t-gate {60}", "--sada",
           "--token-merge 0.5", "--token-merge 0.5:2"]
LINE = re.compile(r"PSNR ([\d.infa]+) dB, SSIM ([\d.-]+), FLIP ([\d.]+); sampling ([\d.]+) s, exact ([\d.]+) s")
SHARE = re.compile(r"([\d.]+) % of the UNet's operations")


def measure(args: argparse.Namespace, saving: str) -> dict:
    options = re.sub(r"\{(\d+)\}", lambda share: str(max(1, args.steps * int(share[1]) // 100)), saving)
    rows, share = [], None
    for seed in range(1, args.seeds + 1):
        command = [str(args.program), "generate", "--model", args.model, "--prompt", args.prompt, "--seed", str(seed), "--steps", str(args.steps),
                   "--device", args.device, "--repeat", "2" if args.device != "cpu" else "1", "-o", str(args.output / "{index}.png"),
                   "--compare-exact", *options.split(), *args.rest]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        if said.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{said.stderr}")
        rows.append([float(value) for value in LINE.findall(said.stderr)[-1]])  # of two, the second: kernels are loaded
        share = float(SHARE.findall(said.stderr)[-1])
    figures = [statistics.median(column) for column in zip(*rows)]
    return {"options": options, "share": share, "psnr": figures[0], "ssim": figures[1], "flip": figures[2], "seconds": figures[3],
            "exact_seconds": figures[4], "times": figures[4] / figures[3]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path("build/cpu/apps/cli/rocm-sd"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", default="a red apple")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--output", type=Path, default=Path("out/savings"))
    parser.add_argument("--saving", action="append", help="these alone, as --saving=--sada")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    parser.add_argument("rest", nargs="*")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    rows = []
    print("| option | operations | PSNR, dB | SSIM | FLIP | sampling, s | exact, s | times as fast |\n|---|---|---|---|---|---|---|---|")
    for saving in args.saving or SAVINGS:
        row = measure(args, saving)
        rows.append(row)
        print(f"| `{row['options']}` | {row['share']:.0f} % | {row['psnr']:.1f} | {row['ssim']:.3f} | {row['flip']:.3f} | {row['seconds']:.3f} | "
              f"{row['exact_seconds']:.3f} | {row['times']:.2f} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
