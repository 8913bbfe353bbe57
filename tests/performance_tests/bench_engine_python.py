#!/usr/bin/env python3
"""The engine from Python (rocm_sd_ops.engine.ROCmOptimizedPipeline) beside the command line: the same picture, in seconds.

    ROCM_SD_LIBRARY=build/cpu/librocm_sd.so PYTHONPATH=python tests/performance_tests/bench_engine_python.py \\
        build/cpu/apps/cli/rocm-sd MODEL [--device auto] [--steps 20 200] [--size 512] [--rounds 3]

Both load the model, plan, and draw two pictures: the first records, the second replays. Prints the seconds of each (planning and
weights left out), the least of the rounds; every round is a process of the command line and a new pipeline. The first pictures must be
the same, or the exit code is 1.
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

    times, pictures = [], []
    with ROCmOptimizedPipeline(model, device=device) as pipe:
        pipe.plan(width=size, height=size, steps=steps, cfg_scale=7.0, sampler="Euler")
        for seed in (1, 2):
            begin = time.perf_counter()
            made = pipe(PROMPT, num_inference_steps=steps, width=size, height=size, seed=seed, sampler="Euler", output_type="np")
            times.append(time.perf_counter() - begin)
            pictures.append(made.images[0])
    return times, pictures[0]


def by_command(command: str, model: str, device: str, steps: int, size: int):
    import numpy as np
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([command, "generate", "--model", model, "--device", device, "--prompt", PROMPT, "--steps", str(steps),
                               "--width", str(size), "--height", str(size), "--seed", "1", "--sampler", "Euler", "--repeat", "2",
                               "-o", str(Path(folder) / "picture.png")], capture_output=True, text=True)
        lines = re.findall(r"^time: ([\d.]+) s \((.*)\)", done.stderr, re.M)
        if done.returncode or len(lines) != 2:
            raise SystemExit(f"{command}: {done.returncode}: {done.stderr[-800:]}")
        return [float(seconds) for seconds, _ in lines], np.asarray(Image.open(done.stdout.splitlines()[0]).convert("RGB")), lines[1][1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="the rocm-sd to compare with")
    parser.add_argument("model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    different = False
    for steps in args.steps:
        made = [(by_python(args.model, args.device, steps, args.size), by_command(args.command, args.model, args.device, steps, args.size))
                for _ in range(args.rounds)]
        same = all((python[1] == command[1]).all() for python, command in made)
        different = different or not same
        for i, which in enumerate(("first", "second")):
            ours, other = (min(pair[k][0][i] for pair in made) for k in (0, 1))
            print(f"{steps} steps, {which} picture: ROCmOptimizedPipeline {ours:.3f} s, rocm-sd generate {other:.3f} s "
                  f"({ours / other - 1:+.1%})", flush=True)
        print(f"  the command's second: {made[-1][1][2]}; {'the same pictures' if same else 'PICTURES DIFFER'}", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
