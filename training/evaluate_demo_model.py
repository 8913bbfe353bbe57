#!/usr/bin/env python3
"""Measures the demo model: which emoji does each of its pictures look most like, and is the background right?

Prompts are drawn from the combinations of emoji, size and background that training held out. A picture's feature is
the picture itself, averaged down to 32 x 32 RGB. It is compared (mean squared difference) with every emoji of the
set, composed at the prompt's size on the prompt's background; the rank of the prompted emoji gives top-1 and top-5.
The background is the named colour nearest to the median colour of the picture's outermost 3 pixels.

--source says what is measured: the model's pictures drawn with Diffusers or, with --cli, by the rocm-sd binary; or,
to check the measure itself, the true pictures (`real`) or the autoencoder's copies of them (`vae`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import avg_pool2d

from demo_model.captions import plain_caption
from demo_model.diffusion import held_out_mask
from demo_model.emoji import COLOURS, DEFAULT_CLDR, DEFAULT_FONT, SIZES, Composer, EmojiSet, build_emoji_set

BORDER = 3
FEATURE_POOL = 4


@dataclass
class Task:
    """One prompt and the indices of what it asks for."""

    emoji: int
    size: int
    colour: int
    prompt: str


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    parser.add_argument("--font", type=Path, default=DEFAULT_FONT)
    parser.add_argument("--cldr", type=Path, default=DEFAULT_CLDR)
    parser.add_argument("--dataset", type=Path, help="dataset.npz of the training script, instead of font and names")
    parser.add_argument("--source", choices=("model", "real", "vae"), default="model")
    parser.add_argument("--cli", type=Path, help="draw with this rocm-sd binary instead of Diffusers")
    parser.add_argument("--prompts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7, help="seed of the choice of prompts and of the pictures")
    parser.add_argument("--steps", type=int, default=20, help="DPM++ 2M Karras steps")
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sheet", type=Path, help="write the first 64 pictures here as one PNG")
    parser.add_argument("--report", type=Path, help="write the figures here as JSON")
    return parser.parse_args()


def choose_tasks(emoji: EmojiSet, count: int, seed: int) -> list[Task]:
    """`count` combinations that training never saw, each with its full plain caption."""
    unseen = torch.nonzero(held_out_mask(len(emoji)))
    order = torch.randperm(len(unseen), generator=torch.Generator().manual_seed(seed))[:count]
    sizes, colours = list(SIZES), list(COLOURS)
    return [Task(e, s, c, plain_caption(emoji.names[e], sizes[s], colours[c])) for e, s, c in unseen[order].tolist()]


def to_tensor(picture: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.asarray(picture.convert("RGB")).copy()).permute(2, 0, 1).float() / 255


def draw_with_diffusers(tasks: list[Task], args: argparse.Namespace) -> torch.Tensor:
    """Pictures [B, 3, 128, 128] in [0, 1]; picture n starts from seed --seed + n."""
    from diffusers import DPMSolverMultistepScheduler, StableDiffusionPipeline

    pipe = StableDiffusionPipeline.from_pretrained(args.model, torch_dtype=torch.float32).to(args.device)
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config, use_karras_sigmas=True)
    pipe.set_progress_bar_config(disable=True)
    pictures = []
    for start in range(0, len(tasks), args.batch):
        part = tasks[start:start + args.batch]
        generators = [torch.Generator().manual_seed(args.seed + start + n) for n in range(len(part))]
        drawn = pipe([task.prompt for task in part], width=128, height=128, num_inference_steps=args.steps,
                     guidance_scale=args.guidance, generator=generators).images
        pictures += [to_tensor(picture) for picture in drawn]
    return torch.stack(pictures)


def draw_with_cli(tasks: list[Task], args: argparse.Namespace) -> torch.Tensor:
    """The same, from the same starting noise, with the rocm-sd binary: one process a picture."""
    pictures = []
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "picture.png"
        for n, task in enumerate(tasks):
            subprocess.run(
                [args.cli, "generate", "--model", args.model, "--prompt", task.prompt, "--width", "128",
                 "--height", "128", "--steps", str(args.steps), "--cfg-scale", str(args.guidance),
                 "--sampler", "dpm++2m", "--schedule", "karras", "--rng", "cpu", "--seed", str(args.seed + n),
                 "--output", output],
                check=True, stdout=subprocess.DEVNULL)
            with Image.open(output) as picture:
                pictures.append(to_tensor(picture))
            output.unlink()
    return torch.stack(pictures)


def true_pictures(tasks: list[Task], compose: Composer) -> torch.Tensor:
    device = compose.layers.device
    emoji, size, colour = (torch.tensor([getattr(task, field) for task in tasks], device=device)
                           for field in ("emoji", "size", "colour"))
    return compose(emoji, size, compose.palette[colour])


@torch.no_grad()
def autoencoder_copies(pictures: torch.Tensor, model: Path) -> torch.Tensor:
    from diffusers import AutoencoderKL

    vae = AutoencoderKL.from_pretrained(model / "vae", torch_dtype=torch.float32).to(pictures.device)
    copies = [vae.decode(vae.encode(part * 2 - 1).latent_dist.mean).sample for part in pictures.split(16)]
    return (torch.cat(copies) / 2 + 0.5).clamp(0, 1)


def feature(pictures: torch.Tensor) -> torch.Tensor:
    return avg_pool2d(pictures, FEATURE_POOL).flatten(1)  # [B, 3 * 32 * 32]


def retrieval_ranks(pictures: torch.Tensor, tasks: list[Task], compose: Composer) -> list[int]:
    """For each picture, how many emoji look more like it than the prompted one: 0 is a hit."""
    device, count = compose.layers.device, compose.layers.shape[1]
    found = feature(pictures.to(device))
    ranks = [0] * len(tasks)
    for size, colour in sorted({(task.size, task.colour) for task in tasks}):
        candidates = []
        for emoji in torch.arange(count, device=device).split(128):
            background = compose.palette[colour].expand(len(emoji), 3)
            candidates.append(feature(compose(emoji, torch.full_like(emoji, size), background)))
        candidates = torch.cat(candidates)                                       # [N, 3072]
        for n, task in enumerate(tasks):
            if (task.size, task.colour) == (size, colour):
                distance = (candidates - found[n]).square().mean(dim=1)          # [N]
                ranks[n] = int((distance < distance[task.emoji]).sum())
    return ranks


def background_colours(pictures: torch.Tensor, compose: Composer) -> list[int]:
    """Index of the named colour nearest to the median colour of each picture's border."""
    inner = torch.zeros(pictures.shape[-2:], dtype=torch.bool)
    inner[BORDER:-BORDER, BORDER:-BORDER] = True
    median = pictures.cpu()[:, :, ~inner].median(dim=2).values                   # [B, 3]
    return torch.cdist(median, compose.palette.cpu()).argmin(dim=1).tolist()


def summarise(tasks: list[Task], ranks: list[int], backgrounds: list[int]) -> dict[str, float]:
    """Percentages over all prompts, and top-1 of each size."""
    def percent(hits: list[bool]) -> float:
        return round(100 * sum(hits) / max(1, len(hits)), 1)

    figures = {
        "prompts": len(tasks),
        "top1": percent([rank < 1 for rank in ranks]),
        "top5": percent([rank < 5 for rank in ranks]),
        "background": percent([found == task.colour for found, task in zip(backgrounds, tasks)]),
    }
    for index, size in enumerate(SIZES):
        figures[f"top1_{size}"] = percent([rank < 1 for rank, task in zip(ranks, tasks) if task.size == index])
    return figures


def write_sheet(pictures: torch.Tensor, path: Path) -> None:
    columns = 8
    rows = min(64, len(pictures)) // columns
    grid = pictures[:rows * columns].cpu().reshape(rows, columns, 3, 128, 128).permute(0, 3, 1, 4, 2)
    pixels = grid.reshape(rows * 128, columns * 128, 3)
    Image.fromarray((pixels.numpy() * 255).round().astype(np.uint8)).save(path)


def main() -> None:
    args = parse_arguments()
    emoji = EmojiSet.load(args.dataset) if args.dataset else build_emoji_set(args.font, args.cldr)
    compose = Composer(emoji.glyphs, torch.device(args.device))
    tasks = choose_tasks(emoji, args.prompts, args.seed)
    if args.source != "model":
        pictures = true_pictures(tasks, compose)
        pictures = autoencoder_copies(pictures, args.model) if args.source == "vae" else pictures
    elif args.cli:
        pictures = draw_with_cli(tasks, args)
    else:
        pictures = draw_with_diffusers(tasks, args)
    ranks = retrieval_ranks(pictures, tasks, compose)
    figures = summarise(tasks, ranks, background_colours(pictures, compose))
    print(json.dumps(figures))
    if args.report:
        rows = [{"prompt": task.prompt, "rank": rank} for task, rank in zip(tasks, ranks)]
        args.report.write_text(json.dumps({**figures, "ranks": rows}, indent=1) + "\n")
    if args.sheet:
        write_sheet(pictures, args.sheet)


if __name__ == "__main__":
    main()
