#!/usr/bin/env python3
"""Trains the examples of models/demo_examples on a CPU: what steers the demo model, each in minutes.

lora       dusk_lora.safetensors: draws in three colours
embedding  mint.safetensors: a word <mint> for a background that the model has no word for
adapter    canny_adapter: a T2I-Adapter, which makes images follow edges
edges      edges: three maps for it, of images that the model draws itself
Needs PyTorch, Diffusers, transformers, PEFT, SciPy and Pillow with Raqm.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from demo_model.emoji import DEFAULT_CLDR, DEFAULT_FONT, EmojiSet, build_emoji_set
from demo_model.example_edges import write_edges
from demo_model.example_pictures import PictureMaker
from demo_model.examples import Course, Model, train_adapter, train_embedding, train_lora

EXAMPLES = ("lora", "embedding", "adapter", "edges")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", default=EXAMPLES, choices=EXAMPLES)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    parser.add_argument("--output", type=Path, default=Path("models/demo_examples"))
    parser.add_argument("--font", type=Path, default=DEFAULT_FONT)
    parser.add_argument("--cldr", type=Path, default=DEFAULT_CLDR)
    parser.add_argument("--dataset", type=Path, help="dataset.npz of train_demo_model.py, instead of font and names")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--pictures", type=int, default=1024)
    parser.add_argument("--resume", action="store_true", help="embedding, adapter: go on from that in --output; the adapter at all noise levels alike")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    emoji = None
    if tuple(args.examples) != ("edges",):
        emoji = EmojiSet.load(args.dataset) if args.dataset else build_emoji_set(args.font, args.cldr)
    if "edges" in args.examples:
        write_edges(args.model, args.output / "edges")
    for example in (name for name in args.examples if name != "edges"):
        maker, model = PictureMaker(emoji, args.seed), Model.load(args.model)
        if example == "lora":
            course = Course(args.minutes, batch=8, rate=1e-3, noisy=False)
            train_lora(model, maker.dusk(args.pictures), course, args.output / "dusk_lora.safetensors")
        elif example == "embedding":
            course = Course(args.minutes, batch=8, rate=5e-3, noisy=True)
            train_embedding(model, maker.mint(args.pictures), course, args.output / "mint.safetensors", args.resume)
        else:
            course = Course(args.minutes, batch=8, rate=7e-4 if args.resume else 1e-3, noisy=not args.resume)
            train_adapter(model, maker.edges(args.pictures), course, args.output / "canny_adapter", args.resume)


if __name__ == "__main__":
    main()
