#!/usr/bin/env python3
"""A Diffusers pipeline with our operators inside: examples/optimized_pipeline.py [PROMPT] [-o FILE]

The plain pipeline draws first, then the optimised one the same picture; prints what was changed, the distance of the two and
where the time went. Runs on a CPU with the demo model, and on a GPU where PyTorch has one.
"""

from __future__ import annotations

import argparse

from _checkout import DEMO_MODEL, use_checkout

use_checkout()
import numpy as np  # noqa: E402
import rocm_sd_ops  # noqa: E402
import torch  # noqa: E402
from diffusers import DPMSolverMultistepScheduler, DiffusionPipeline  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="a smiling cat")
    parser.add_argument("-m", "--model", default=str(DEMO_MODEL), help="Diffusers folder")
    parser.add_argument("-o", "--output", default="optimized_pipeline.png")
    parser.add_argument("--level", default="auto", choices=["auto", "performance", "memory"])
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()

    backend = rocm_sd_ops.ROCmSDBackend()
    print(backend)
    dtype = torch.float16 if backend.device.type == "cuda" else torch.float32
    pipe = DiffusionPipeline.from_pretrained(args.model, torch_dtype=dtype).to(backend.device)
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config)
    pipe.set_progress_bar_config(disable=True)

    def draw() -> np.ndarray:
        generator = torch.Generator().manual_seed(1)
        return pipe(args.prompt, num_inference_steps=args.steps, guidance_scale=4.0, generator=generator,
                    output_type="np").images[0]

    plain = draw()
    rocm_sd_ops.optimize_sd_model(pipe, args.level)
    print("changed:", ", ".join(f"{count} {what}" for what, count in rocm_sd_ops.report(pipe).items()))
    with rocm_sd_ops.profile() as profile:
        ours = draw()
    error = float(np.mean((plain.astype(np.float64) - ours) ** 2))
    print("the same picture to", "the last bit" if error == 0 else f"{-10 * np.log10(error):.1f} dB")
    print(profile.table(12))
    pipe.image_processor.numpy_to_pil(ours[None])[0].save(args.output)
    print(args.output)


if __name__ == "__main__":
    main()
