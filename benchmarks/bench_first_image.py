#!/usr/bin/env python3
"""From the start of the program to its first image: `generate` in a new process each time, the model's file in the system's cache.

The time ends when the name of the written file is printed. The first process of each program is left out: it reads the file from the disk
and hashes it, which later ones remember (~/.cache/rocm-sd/hashes.json). Several programs (--program, say of two commits) take turns, and with
them other commands (--beside, say benchmarks/diffusers_first_image.py) that draw such an image to the file named last and print a line.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def generate(program: str, args: argparse.Namespace) -> list[str]:
    return [program, "generate", "--model", args.model, "--device", args.device, "-p", args.prompt, "--steps", str(args.steps),
            "-W", str(args.size), "-H", str(args.size), "--seed", "1", "-q", "-o"]


def first_image(command: list[str]) -> tuple[float, float]:
    """Seconds to the file's name, and to the end of the process."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run = subprocess.Popen([*command, f"{folder}/image.png"], stdout=subprocess.PIPE, text=True)
        line = run.stdout.readline()
        seconds = time.perf_counter() - begin
        if run.wait() != 0 or not line or not Path(f"{folder}/image.png").stat().st_size:
            raise SystemExit(f"bench_first_image: {shlex.join(command)} failed")
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
    parser.add_argument("--beside", action="append", default=[], help="another command, its arguments but for the file")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    programs = args.program or [str(REPOSITORY / "build" / "cpu" / "apps" / "cli" / "rocm-sd")]
    commands = {program: generate(program, args) for program in programs} | {text: shlex.split(text) for text in args.beside}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for command in commands.values():
        first_image(command)
    for _ in range(args.runs):
        for name, command in commands.items():
            times[name].append(first_image(command))
    print("| | to the image, median | least | most | to the end, median |\n|---|---|---|---|---|")
    for name, taken in times.items():
        to_image, to_end = zip(*taken)
        print(f"| {name} | {statistics.median(to_image):.3f} s | {min(to_image):.3f} s | {max(to_image):.3f} s | {statistics.median(to_end):.3f} s |")
    if args.json:
        args.json.write_text(json.dumps(times))


if __name__ == "__main__":
    main()
