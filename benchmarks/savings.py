#!/usr/bin/env python3
"""What savings cost and save: rocm-sd generate --compare-exact over seeds, a row for each saving.

    benchmarks/savings.py --model models/demo --steps 25 --seeds 8
    benchmarks/savings.py --model SDXL --device cuda --steps 25 --seeds 4 -- --width 1024 --height 1024 --sampler "DPM++ 2M"

With the files of picture_lpips.py (--lpips-backbone and --lpips-linear, or the environment) there is a column of LPIPS, too; for it
each seed's exact picture is drawn once more, and written.

The exact picture is our own with the same seed. Figures are medians over the seeds. Times are the sampling's, with the capture of its programs; on a
GPU of the second picture of a process, when kernels are loaded. Options after -- go to rocm-sd.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from picture_lpips import BACKBONE, LINEAR, Lpips, add_options, read_picture  # noqa: E402
from picture_scores import Refused  # noqa: E402

SAVINGS = ["--deep-cache 2", "--deep-cache 3", "--deep-cache 5", "--deep-cache 3:3", "--t-gate {40}", "--t-gate {60}", "--deep-cache 2 --t-gate {60}", "--sada",
           "--token-merge 0.5", "--token-merge 0.5:2"]
LINE = re.compile(r"PSNR ([\d.infa]+) dB, SSIM ([\d.-]+), FLIP ([\d.]+); sampling ([\d.]+) s, exact ([\d.]+) s")
SHARE = re.compile(r"([\d.]+) % of the UNet's operations")


def draw(args: argparse.Namespace, seed: int, name: str, options: list[str]) -> tuple[str, Path]:
    """What the program said, and the file of its last picture: of two, the second, as kernels are loaded then."""
    pictures = 2 if args.device != "cpu" else 1
    command = [str(args.program), "generate", "--model", args.model, "--prompt", args.prompt, "--seed", str(seed), "--steps", str(args.steps),
               "--device", args.device, "--repeat", str(pictures), "-o", str(args.output / f"{name}{{index}}.png"), *options, *args.rest]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stderr, args.output / f"{name}{pictures}.png"


def measure(args: argparse.Namespace, saving: str, lpips: Lpips | None, exact: dict[int, Path]) -> dict:
    options = re.sub(r"\{(\d+)\}", lambda share: str(max(1, args.steps * int(share[1]) // 100)), saving)
    rows, share = [], None
    for seed in range(1, args.seeds + 1):
        said, picture = draw(args, seed, "", ["--compare-exact", *options.split()])
        rows.append([float(value) for value in LINE.findall(said)[-1]])
        if lpips:
            rows[-1].append(lpips(read_picture(exact[seed]), read_picture(picture)))
        share = float(SHARE.findall(said)[-1])
    figures = [statistics.median(column) for column in zip(*rows)]
    row = {"options": options, "share": share, "psnr": figures[0], "ssim": figures[1], "flip": figures[2], "seconds": figures[3],
           "exact_seconds": figures[4], "times": figures[4] / figures[3]}
    return row | ({"lpips": figures[5]} if lpips else {})


def table(args: argparse.Namespace, lpips: Lpips | None) -> None:
    args.output.mkdir(parents=True, exist_ok=True)
    exact = {seed: draw(args, seed, f"exact_{seed}_", [])[1] for seed in range(1, args.seeds + 1)} if lpips else {}
    rows = []
    print("| option | operations | PSNR, dB | SSIM | FLIP | " + ("LPIPS | " if lpips else "") + "sampling, s | exact, s | times as fast |\n|"
          + "---|" * (9 if lpips else 8))
    for saving in args.saving or SAVINGS:
        row = measure(args, saving, lpips, exact)
        rows.append(row)
        print(f"| `{row['options']}` | {row['share']:.0f} % | {row['psnr']:.1f} | {row['ssim']:.3f} | {row['flip']:.3f} | "
              + (f"{row['lpips']:.4f} | " if lpips else "")
              + f"{row['seconds']:.3f} | {row['exact_seconds']:.3f} | {row['times']:.2f} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


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
    add_options(parser)
    parser.add_argument("rest", nargs="*")
    args = parser.parse_args()
    try:
        # One file without the other is refused.
        wanted = args.lpips_backbone or args.lpips_linear or os.environ.get(BACKBONE) or os.environ.get(LINEAR)
        table(args, Lpips(args.lpips_backbone, args.lpips_linear) if wanted else None)
    except Refused as refused:
        sys.exit(f"error: {refused}")


if __name__ == "__main__":
    main()
