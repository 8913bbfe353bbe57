#!/usr/bin/env python3
"""From the start of the program to its first image: `generate` in a new process each time, the model's file in the system's cache.

The time ends when the name of the written file is printed. The first process is left out: it reads the file from the disk and
hashes it, which later ones remember (~/.cache/rocm-sd/hashes.json). Several programs (--program, say of two commits) take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def first_image(program: str, args: argparse.Namespace) -> tuple[float, float]:
    """Seconds to the file's name, and to the end of the process."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run = subprocess.Popen([program, "generate", "--model", args.model, "--device", args.device, "-p", args.prompt, "--steps", str(args.steps),
                                "-W", str(args.size), "-H", str(args.size), "--seed", "1", "-q", "-o", f"{folder}/image.png"],
                               stdout=subprocess.PIPE, text=True)
        line = run.stdout.readline()
        seconds = time.perf_counter() - begin
        if run.wait() != 0 or not line:
            raise SystemExit(f"bench_first_image: {program} failed")
        return seconds, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", help="rocm-sd, may be given several times [that of build/cpu]")
    parser.add_argument("--model", default=str(REPOSITORY / "models" / "demo"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--prompt", default="a red apple on a white background")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", type=int, default=512, help="width and height")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    programs = args.program or [str(REPOSITORY / "build" / "cpu" / "apps" / "cli" / "rocm-sd")]
    times: dict[str, list[tuple[float, float]]] = {program: [] for program in programs}
    first_image(programs[0], args)
    for _ in range(args.runs):
        for program in programs:
            times[program].append(first_image(program, args))
    print("| | to the image, median | least | most | to the end, median |\n|---|---|---|---|---|")
    for program, taken in times.items():
        to_image, to_end = zip(*taken)
        print(f"| {program} | {statistics.median(to_image):.3f} s | {min(to_image):.3f} s | {max(to_image):.3f} s | {statistics.median(to_end):.3f} s |")
    if args.json:
        args.json.write_text(json.dumps(times))


if __name__ == "__main__":
    main()
