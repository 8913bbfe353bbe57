#!/usr/bin/env python3
"""The same picture by Diffusers, by Diffusers with our operators, and by the C++ engine: seconds and distance.

    examples/benchmark_comparison.py [--steps N] [--rounds N] [--compile]

Interleaved rounds after one that is not counted; the distance is that of the latents' UNet output for the same input (engine:
none, its samplers have their own noise). Runs on a CPU with the demo model.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Callable

from _checkout import DEMO_MODEL, use_checkout

use_checkout()
import rocm_sd_ops  # noqa: E402
import torch  # noqa: E402
from diffusers import DiffusionPipeline, EulerDiscreteScheduler  # noqa: E402
from rocm_sd_ops.engine import ROCmOptimizedPipeline  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=str(DEMO_MODEL), help="Diffusers folder")
    parser.add_argument("--prompt", default="a smiling cat")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="also torch.compile the optimised UNet")
    args = parser.parse_args()

    device = rocm_sd_ops.ROCmSDBackend().device
    dtype = torch.float16 if device.type == "cuda" else torch.float32

    def load() -> DiffusionPipeline:
        pipe = DiffusionPipeline.from_pretrained(args.model, torch_dtype=dtype).to(device)
        pipe.scheduler = EulerDiscreteScheduler.from_config(pipe.scheduler.config)
        pipe.set_progress_bar_config(disable=True)
        return pipe

    def diffusers(pipe: DiffusionPipeline) -> Callable[[], object]:
        return lambda: pipe(args.prompt, num_inference_steps=args.steps, generator=torch.Generator().manual_seed(1))

    plain, ours = load(), rocm_sd_ops.optimize_sd_model(load())
    rows: dict[str, Callable[[], object]] = {"Diffusers": diffusers(plain), "Diffusers, optimize_sd_model": diffusers(ours)}
    if args.compile:
        compiled = rocm_sd_ops.optimize_sd_model(load())
        compiled.unet.compile(fullgraph=True)
        rows["the same, torch.compile"] = diffusers(compiled)
    size = plain.unet.config.sample_size * plain.vae_scale_factor
    engine = ROCmOptimizedPipeline(args.model, device="auto")
    rows["C++ engine"] = lambda: engine(args.prompt, num_inference_steps=args.steps, sampler="Euler", seed=1, width=size,
                                        height=size)

    times: dict[str, list[float]] = {name: [] for name in rows}
    for counted in range(args.rounds + 1):
        for name, draw in rows.items():
            begin = time.perf_counter()
            draw()
            if counted:
                times[name].append(time.perf_counter() - begin)
    print(f"{args.model}, {size}x{size}, {args.steps} steps, {dtype}, {device}")
    base = statistics.median(times["Diffusers"])
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{name:<30}{median:>9.3f} s   x{base / median:.2f}")
    print(f"UNet output, optimised against plain: {distance(plain, ours, dtype, device):.1f} dB")


def distance(plain: DiffusionPipeline, ours: DiffusionPipeline, dtype: torch.dtype, device: torch.device) -> float:
    size, width = plain.unet.config.sample_size, plain.unet.config.cross_attention_dim
    generator = torch.Generator().manual_seed(0)
    latents = torch.randn(2, plain.unet.config.in_channels, size, size, generator=generator).to(device, dtype)
    text = torch.randn(2, 77, width, generator=generator).to(device, dtype)
    with torch.no_grad():
        a, b = (p.unet(latents, 500, text, return_dict=False)[0].double() for p in (plain, ours))
    return float(10 * torch.log10((a.max() - a.min()) ** 2 / (a - b).square().mean().clamp_min(1e-30)))


if __name__ == "__main__":
    main()
