#!/usr/bin/env python3
"""The engine from Python (rocm_sd_ops.engine.ROCmOptimizedPipeline) beside the command line: the same picture, in seconds.

    ROCM_SD_LIBRARY=build/cpu/librocm_sd.so PYTHONPATH=python tests/performance_tests/bench_engine_python.py \\
        build/cpu/apps/cli/rocm-sd MODEL [--device auto] [--steps 20 200] [--size 512] [--rounds 3]

Prints, for each number of steps, what a first picture takes (plans and recordings included, weights not) and what its sampling
takes, each the least of the rounds; every round is a process of the command line and a new pipeline. Both draw the same picture, or
the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMPT = "a photo of a cat"


def by_python(model: str, device: str, steps: int, size: int):
    from rocm_sd_ops.engine import ROCmOptimizedPipeline

    ends: dict[tuple[str, int], float] = {}

    def note(stage: str, step: int, total: int, seconds: float) -> None:
        ends[stage, step] = time.perf_counter()

    with ROCmOptimizedPipeline(model, device=device) as pipe:
        begin = time.perf_counter()
        made = pipe(PROMPT, num_inference_steps=steps, width=size, height=size, seed=1, sampler="Euler", callback=note, output_type="np")
        whole = time.perf_counter() - begin
    rest = (ends["sample", steps] - ends["sample", 1]) / (steps - 1) if steps > 1 else 0.0
    return whole, rest, made.images[0]


def by_command(command: str, model: str, device: str, steps: int, size: int):
    import numpy as np
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "picture.png"
        done = subprocess.run([command, "generate", "--model", model, "--device", device, "--prompt", PROMPT, "--steps", str(steps),
                               "--width", str(size), "--height", str(size), "--seed", "1", "--sampler", "Euler", "-o", str(out)],
                              capture_output=True, text=True)
        line = re.search(r"^time: ([\d.]+) s \((.*)\)", done.stderr, re.M)
        if done.returncode or not line:
            raise SystemExit(f"{command}: {done.returncode}: {done.stderr[-800:]}")
        stages = {name: float(s) for name, s in re.findall(r"(\w+) ([\d.]+) s", line[2])}
        return float(line[1]), stages, np.asarray(Image.open(out).convert("RGB"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="the rocm-sd to compare with")
    parser.add_argument("model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    differ = False
    for steps in args.steps:
        python, command = [], []
        for _ in range(args.rounds):
            python.append(by_python(args.model, args.device, steps, args.size))
            command.append(by_command(args.command, args.model, args.device, steps, args.size))
        differ = differ or bool((python[0][2] != command[0][2]).any())
        whole, other = min(p[0] for p in python), min(c[0] for c in command)
        print(f"{steps} steps: ROCmOptimizedPipeline {whole:.3f} s, rocm-sd generate {other:.3f} s ({whole / other - 1:+.1%}); "
              f"a later step of the pipeline {min(p[1] for p in python) * 1e3:.3f} ms, the command's sampling "
              f"{min(c[1].get('sample', 0.0) for c in command) / steps * 1e3:.3f} ms a step with the first; "
              f"{'the same picture' if not differ else 'PICTURES DIFFER'}", flush=True)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
