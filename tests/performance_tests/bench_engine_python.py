#!/usr/bin/env python3
"""The engine from Python (rocm_sd_ops.engine.ROCmOptimizedPipeline) beside the command line: the same pictures, in seconds.

    ROCM_SD_LIBRARY=build/cpu/librocm_sd.so ROCM_SD_TORCH_LIBRARY=build/cpu/lib/librocm_sd_torch.so PYTHONPATH=python \\
        tests/performance_tests/bench_engine_python.py build/cpu/apps/cli/rocm-sd MODEL [--device auto] [--steps 20 200]

Each side loads the model once a round and draws --pictures pictures of rising seeds; the first plans and records, so the others are
compared: of Python the whole call, from the prompt to the array; of the command what it prints as "time:", its stages, without the
file. Prints the least and the median over the rounds, and the stages of the quickest picture of each. All pictures must be the same, or
the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command does; before PyTorch reads it
PROMPT = "a photo of a cat"
Drawn = list[tuple[float, dict[str, float]]]  # of each picture: seconds in all, of each stage


def by_python(pipe: Any, steps: int, size: int, count: int) -> tuple[Drawn, list]:
    drawn: Drawn = []
    pictures = []
    for seed in range(1, count + 1):
        stages: dict[str, float] = {}

        def note(stage: str, _step: int, _total: int, seconds: float, _stages: dict[str, float] = stages) -> None:
            _stages[stage] = seconds

        begin = time.perf_counter()
        made = pipe(PROMPT, num_inference_steps=steps, width=size, height=size, seed=seed, sampler="Euler", output_type="np", callback=note)
        drawn.append((time.perf_counter() - begin, stages))
        pictures.append(made.images[0])
    return drawn, pictures


def by_command(args: argparse.Namespace, steps: int) -> tuple[Drawn, list]:
    import numpy as np
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([args.command, "generate", "--model", args.model, "--device", args.device, "--prompt", PROMPT,
                               "--steps", str(steps), "--width", str(args.size), "--height", str(args.size), "--seed", "1",
                               "--sampler", "Euler", "--repeat", str(args.pictures), "-o", str(Path(folder) / "{index}.png")],
                              capture_output=True, text=True)
        lines = re.findall(r"^time: ([\d.]+) s \((.*)\)", done.stderr, re.M)
        if done.returncode or len(lines) != args.pictures:
            raise SystemExit(f"{args.command}: {done.returncode}: {done.stderr[-800:]}")
        drawn = [(float(seconds), {name: float(taken) for name, taken in re.findall(r"(\w+) ([\d.]+) s", stages)})
                 for seconds, stages in lines]
        return drawn, [np.asarray(Image.open(path).convert("RGB")) for path in done.stdout.splitlines()]


def shown(drawn: Drawn) -> str:
    seconds, stages = min(drawn, key=lambda row: row[0])
    named = ", ".join(f"{name} {stages[name] * 1e3:.1f}" for name in ("text", "sample", "decode") if name in stages)
    return f"{seconds * 1e3:.1f} ms ({named}, the rest {(seconds - sum(s for n, s in stages.items() if n != 'plan')) * 1e3:.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="the rocm-sd to compare with")
    parser.add_argument("model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--pictures", type=int, default=5, help="in each round, 2 or more")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    if args.pictures < 2:
        parser.error("--pictures: 2 or more; the first is not compared")
    from rocm_sd_ops.engine import ROCmOptimizedPipeline

    ours: dict[int, Drawn] = {steps: [] for steps in args.steps}
    theirs: dict[int, Drawn] = {steps: [] for steps in args.steps}
    different = False
    for _ in range(args.rounds):
        with ROCmOptimizedPipeline(args.model, device=args.device) as pipe:
            python = {steps: by_python(pipe, steps, args.size, args.pictures) for steps in args.steps}
        for steps in args.steps:
            command = by_command(args, steps)
            same = all((a == b).all() for a, b in zip(python[steps][1], command[1]))
            different = different or not same
            ours[steps] += python[steps][0][1:]
            theirs[steps] += command[0][1:]
    for steps in args.steps:
        (least, median), (other, other_median) = ((min(times), statistics.median(times)) for times in (
            [seconds for seconds, _ in drawn] for drawn in (ours[steps], theirs[steps])))
        print(f"{steps} steps, {len(ours[steps])} pictures each: ROCmOptimizedPipeline {least:.4f} s, rocm-sd generate {other:.4f} s "
              f"({least / other - 1:+.1%}); medians {median:.4f}, {other_median:.4f} ({median / other_median - 1:+.1%})")
        print(f"  Python: {shown(ours[steps])}; command: {shown(theirs[steps])}", flush=True)
    print("PICTURES DIFFER" if different else "the same pictures")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
