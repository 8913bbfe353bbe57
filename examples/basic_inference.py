#!/usr/bin/env python3
"""One picture with the C++ engine, from Python: examples/basic_inference.py [PROMPT] [-o FILE]

Runs as it stands on a CPU with the shipped demo model, in a checkout after `make build torch-ops` or with the installed package.
"""

from __future__ import annotations

import argparse
import sys

from _checkout import DEMO_MODEL, use_checkout

use_checkout()
from rocm_sd_ops.engine import EngineError, ROCmOptimizedPipeline  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="a smiling cat")
    parser.add_argument("-m", "--model", default=str(DEMO_MODEL), help="Diffusers folder or .safetensors file")
    parser.add_argument("-o", "--output", default="basic_inference.png")
    parser.add_argument("--device", default="auto", help="auto, cpu, hip:0, cuda:0, ...")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    def progress(stage: str, step: int, total: int, seconds: float) -> None:
        print(f"\r{stage} {step}/{total}, {seconds:.1f} s   ", end="", file=sys.stderr)

    try:
        with ROCmOptimizedPipeline.from_pretrained(args.model, device=args.device) as pipe:
            drawn = pipe(args.prompt, num_inference_steps=args.steps, guidance_scale=4.0, seed=args.seed, callback=progress)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    drawn.images[0].save(args.output)
    print(f"\n{drawn.parameters[0]}\n{args.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
