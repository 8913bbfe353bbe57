#!/usr/bin/env python3
"""Trains the demo model of models/demo from the Noto Color Emoji font and the CLDR names, stage by stage.

Stages, each leaving its result in --work so that the next session can go on from there:
dataset, tokenizer, vae, unet, export. Needs PyTorch, Diffusers, transformers and Pillow with Raqm.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from demo_model.autoencoder import train_autoencoder
from demo_model.bpe import write_tokenizer
from demo_model.captions import caption_words
from demo_model.diffusion import create_scheduler, train_diffusion
from demo_model.emoji import DEFAULT_CLDR, DEFAULT_FONT, Composer, EmojiSet, build_emoji_set
from demo_model.schedule import Course

STAGES = ("dataset", "tokenizer", "vae", "unet", "export")
VOCAB_SIZE = 2048


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="which stages to run")
    parser.add_argument("--font", type=Path, default=DEFAULT_FONT, help="NotoColorEmoji.ttf")
    parser.add_argument("--cldr", type=Path, default=DEFAULT_CLDR, help="CLDR's folder with annotations/en.xml")
    parser.add_argument("--work", type=Path, default=Path("build/demo_model"), help="where stages leave their results")
    parser.add_argument("--output", type=Path, default=Path("models/demo"), help="where export writes the model")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1, help="seed of the weights and of the training draws")
    parser.add_argument("--session-minutes", type=float, default=1e9, help="stop a stage then; run again to go on")
    parser.add_argument("--vae-batch", type=int, default=128)
    parser.add_argument("--vae-steps", type=int, default=30000)
    parser.add_argument("--vae-minutes", type=float, default=1e9, help="end the vae stage's course after this long")
    parser.add_argument("--unet-batch", type=int, default=1024)
    parser.add_argument("--unet-steps", type=int, default=30000)
    parser.add_argument("--unet-minutes", type=float, default=1e9, help="end the unet stage's course after this long")
    parser.add_argument("--caption-pool", type=int, default=8, help="captions prepared for each picture")
    parser.add_argument("--max-emoji", type=int, default=None, help="use only the first so many emoji, for a trial")
    return parser.parse_args()


def load_composer(args: argparse.Namespace) -> tuple[EmojiSet, Composer]:
    emoji = EmojiSet.load(args.work / "dataset.npz")
    limit = args.max_emoji or len(emoji)
    emoji = EmojiSet(emoji.sequences[:limit], emoji.names[:limit], emoji.keywords[:limit], emoji.glyphs[:limit])
    return emoji, Composer(emoji.glyphs, torch.device(args.device))


def run_dataset(args: argparse.Namespace) -> None:
    emoji = build_emoji_set(args.font, args.cldr)
    emoji.save(args.work / "dataset.npz")
    print(f"dataset: {len(emoji)} emoji")


def run_tokenizer(args: argparse.Namespace) -> None:
    emoji = EmojiSet.load(args.work / "dataset.npz")
    write_tokenizer(caption_words(emoji.names, emoji.keywords), VOCAB_SIZE, args.work / "tokenizer")


def run_vae(args: argparse.Namespace) -> None:
    _, compose = load_composer(args)
    course = Course(args.vae_steps, args.vae_minutes, args.session_minutes)
    train_autoencoder(compose, args.work, args.vae_batch, course)


def run_unet(args: argparse.Namespace) -> None:
    emoji, compose = load_composer(args)
    course = Course(args.unet_steps, args.unet_minutes, args.session_minutes)
    train_diffusion(emoji, compose, args.work, args.unet_batch, args.caption_pool, course)


def restore_text_model_prefix(weights: Path) -> None:
    """Gives the text encoder's tensors the prefix of every published checkpoint, which transformers 5 drops."""
    prefix = "text_model."
    tensors = {prefix + name.removeprefix(prefix): tensor for name, tensor in load_file(weights).items()}
    save_file(tensors, weights, metadata={"format": "pt"})


def run_export(args: argparse.Namespace) -> None:
    """Puts the parts together as a StableDiffusionPipeline folder."""
    args.output.mkdir(parents=True, exist_ok=True)
    for part in ("tokenizer", "text_encoder", "unet", "vae"):
        shutil.copytree(args.work / part, args.output / part, dirs_exist_ok=True)
    restore_text_model_prefix(args.output / "text_encoder" / "model.safetensors")
    create_scheduler().save_pretrained(args.output / "scheduler")
    for weights in args.output.glob("*/*.safetensors"):
        weights.chmod(0o644)
    index = {
        "_class_name": "StableDiffusionPipeline",
        "feature_extractor": [None, None],
        "image_encoder": [None, None],
        "requires_safety_checker": False,
        "safety_checker": [None, None],
        "scheduler": ["diffusers", "DDIMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    (args.output / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
    total = sum(file.stat().st_size for file in args.output.rglob("*") if file.is_file())
    print(f"export: {args.output}, {total / 1e6:.2f} MB")


def main() -> None:
    args = parse_arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    for stage, runner in zip(STAGES, (run_dataset, run_tokenizer, run_vae, run_unet, run_export)):
        if stage in args.stages:
            runner(args)


if __name__ == "__main__":
    main()
