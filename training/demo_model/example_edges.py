"""The edge maps that `make demo-control` follows: what the demo model drew itself, moved off the centre, then Canny's edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from diffusers import DPMSolverMultistepScheduler, StableDiffusionPipeline
from PIL import Image

from demo_model.canny import canny
from demo_model.emoji import PICTURE_SIZE

# file, what is drawn, pixels to the right and down
MAPS = (("1_apple", "a small red apple", -26, 24), ("2_heart", "a red heart", -16, 16), ("3_lemon", "a lemon", 18, -14))


def write_edges(model: Path, folder: Path) -> None:
    pipe = StableDiffusionPipeline.from_pretrained(model, torch_dtype=torch.float32)
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config, use_karras_sigmas=True)
    pipe.set_progress_bar_config(disable=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name, subject, right, down in MAPS:
        drawn = pipe(f"{subject} on a white background", width=PICTURE_SIZE, height=PICTURE_SIZE, num_inference_steps=20, guidance_scale=4,
                     generator=torch.Generator().manual_seed(1)).images[0]
        moved = drawn.transform(drawn.size, Image.AFFINE, (1, 0, -right, 0, 1, -down), fillcolor=(255, 255, 255))
        edges = canny(np.asarray(moved))
        Image.fromarray(edges).convert("RGB").save(folder / f"{name}.png", optimize=True)
