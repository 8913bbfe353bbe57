#!/usr/bin/env python3
"""PyTorch and Diffusers on the CPU, one picture: the times that benchmarks/bench_cpu.py compares with. Prints one line of JSON.

    benchmarks/bench_torch.py MODEL_FOLDER --dtype f32 --size 512 --steps 3 --image out.png
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import diffusers
import numpy as np
import torch
from PIL import Image

from bench_cpu import PROMPT, SCALE, SEED


class Timed:
    """Replaces a function and keeps the duration of each call."""

    def __init__(self, function):
        self.function, self.seconds = function, []

    def __call__(self, *args, **kwargs):
        begin = time.perf_counter()
        try:
            return self.function(*args, **kwargs)
        finally:
            self.seconds.append(time.perf_counter() - begin)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--dtype", choices=("f32", "bf16"), required=True)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--image", type=Path, required=True)
    args = parser.parse_args()

    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    pipe = diffusers.DiffusionPipeline.from_pretrained(args.model, torch_dtype=dtype)
    pipe.set_progress_bar_config(disable=True)
    pipe.unet.to(memory_format=torch.channels_last)
    pipe.vae.to(memory_format=torch.channels_last)
    pipe.unet.forward = unet = Timed(pipe.unet.forward)
    pipe.vae.decode = vae = Timed(pipe.vae.decode)
    images = pipe([PROMPT] * args.batch, num_inference_steps=args.steps, guidance_scale=SCALE, width=args.size, height=args.size,
                  generator=[torch.Generator().manual_seed(SEED + i) for i in range(args.batch)], output_type="np").images
    Image.fromarray(np.rint(images[0] * 255).astype(np.uint8)).save(args.image)
    print(json.dumps({"step": min(unet.seconds), "decode": min(vae.seconds), "torch": torch.__version__,
                      "threads": torch.get_num_threads()}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
