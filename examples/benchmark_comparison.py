#!/usr/bin/env python3
"""The same image by Diffusers, by Diffusers with our operators and by the C++ engine: seconds and PSNR.

    examples/benchmark_comparison.py                       # the demo model, on a CPU or the first GPU
    examples/benchmark_comparison.py -m FOLDER --size 512 --steps 20 --rounds 5

All three draw Euler's method on the normal schedule from the same noise. The programs alternate, after one round that is not
counted, and the median counts. benchmarks/picture_comparison.py compares more programs and writes reports with plots.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from typing import Callable

from _checkout import DEMO_MODEL, use_checkout

use_checkout()
import numpy as np  # noqa: E402
import torch  # noqa: E402
from diffusers import DiffusionPipeline, EulerDiscreteScheduler  # noqa: E402

import rocm_sd_ops  # noqa: E402
from rocm_sd_ops.engine import ROCmOptimizedPipeline  # noqa: E402


def load(args: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> DiffusionPipeline:
    pipe = DiffusionPipeline.from_pretrained(args.model, torch_dtype=dtype).to(device)
    pipe.scheduler = EulerDiscreteScheduler.from_config(pipe.scheduler.config, timestep_spacing="linspace")
    pipe.set_progress_bar_config(disable=True)
    args.size = args.size or pipe.unet.config.sample_size * pipe.vae_scale_factor
    return pipe


def by_diffusers(args: argparse.Namespace, pipe: DiffusionPipeline) -> Callable[[], np.ndarray]:
    """Noise from PyTorch's CPU generator, as the engine's rng="cpu" draws it."""
    side = args.size // pipe.vae_scale_factor
    noise = torch.randn((1, pipe.unet.config.in_channels, side, side), generator=torch.Generator().manual_seed(args.seed))
    noise = noise.to(pipe.device, pipe.unet.dtype)
    return lambda: np.rint(255 * pipe(args.prompt, num_inference_steps=args.steps, guidance_scale=args.guidance, width=args.size,
                                      height=args.size, latents=noise.clone(), output_type="np").images[0])


def by_engine(args: argparse.Namespace, engine: ROCmOptimizedPipeline) -> Callable[[], np.ndarray]:
    return lambda: engine(args.prompt, num_inference_steps=args.steps, guidance_scale=args.guidance, width=args.size, height=args.size,
                          seed=args.seed, sampler="euler", schedule="normal", rng="cpu", plain_prompt=True, output_type="np").images[0]


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    error = float(np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255 * 255 / error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=str(DEMO_MODEL), help="Diffusers folder")
    parser.add_argument("--prompt", default="a smiling cat")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--guidance", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=0, help="pixels [the model's own]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds: expected 1 or more")
    device = torch.device("cpu") if args.device == "cpu" else rocm_sd_ops.ROCmSDBackend().device
    dtype = torch.float32 if device.type == "cpu" else torch.float16
    optimized = load(args, device, dtype)
    rocm_sd_ops.optimize_sd_model(optimized)
    engine = ROCmOptimizedPipeline(args.model, device="cpu" if device.type == "cpu" else "auto", dtype="f32" if device.type == "cpu" else "f16")
    programs = {"Diffusers": by_diffusers(args, load(args, device, dtype)),
                "Diffusers, optimize_sd_model": by_diffusers(args, optimized), "C++ engine": by_engine(args, engine)}
    images = {name: draw() for name, draw in programs.items()}  # plans and fills caches
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(args.rounds):
        for name, draw in programs.items():
            begin = time.perf_counter()
            draw()
            seconds[name].append(time.perf_counter() - begin)
    first = statistics.median(seconds["Diffusers"])
    print("| program | seconds an image | against Diffusers | PSNR to Diffusers |\n|---|---|---|---|")
    for name in programs:
        middle = statistics.median(seconds[name])
        print(f"| {name} | {middle:.3g} | {first / middle:.2f}x | {psnr(images['Diffusers'], images[name]):.1f} dB |")
    engine.close()


if __name__ == "__main__":
    main()
