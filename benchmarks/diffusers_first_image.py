#!/usr/bin/env python3
"""Draws one image with Diffusers and ends: the peer of benchmarks/bench_first_image.py, which times it from its start.

    benchmarks/bench_first_image.py ... --beside "benchmarks/diffusers_first_image.py FOLDER --device cuda --size 512"

FOLDER is a model in Diffusers' layout. fp16 weights from safetensors, put on the device whole; no compilation.
"""

from __future__ import annotations

import argparse

import torch
from diffusers import DiffusionPipeline, EulerDiscreteScheduler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("output")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prompt", default="a red apple on a white background")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", type=int, default=512)
    args = parser.parse_args()
    dtype = torch.float32 if args.device == "cpu" else torch.float16
    pipeline = DiffusionPipeline.from_pretrained(args.folder, torch_dtype=dtype, use_safetensors=True, safety_checker=None, local_files_only=True)
    pipeline.scheduler = EulerDiscreteScheduler.from_config(pipeline.scheduler.config)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.to(args.device)
    image = pipeline(args.prompt, num_inference_steps=args.steps, width=args.size, height=args.size).images[0]
    image.save(args.output)
    print(args.output, flush=True)


if __name__ == "__main__":
    main()
