"""Pictures and captions that the demo model's LoRA, embedding and T2I-Adapter are trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import affine_grid, grid_sample, interpolate

from demo_model.canny import canny
from demo_model.captions import plain_caption
from demo_model.emoji import COLOURS, PICTURE_SIZE, SIZES, EmojiSet

DUSK = ((26, 20, 74), (222, 62, 108), (255, 230, 168))  # of dark, medium and light places
MINT = (150, 232, 200)  # a background that no colour word of the demo model means
EMBEDDING_TOKEN = "<mint>"
UNNAMED = 0.25  # of the adapter's captions do not say what the edges are of


@dataclass
class Lesson:
    """N pictures [N,3,128,128] in [0,1], their captions and, for the adapter, what it sees [N,1,128,128]."""

    pictures: torch.Tensor
    captions: list[str]
    maps: torch.Tensor | None = None


def dusk_palette(pictures: torch.Tensor) -> torch.Tensor:
    """Each pixel's luma in the colours of DUSK: [N,3,H,W] in [0,1], in and out."""
    luma = (pictures * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
    dark, medium, light = (torch.tensor(colour).view(1, 3, 1, 1) / 255 for colour in DUSK)
    lower, upper = (2 * luma).clamp(0, 1), (2 * luma - 1).clamp(0, 1)
    return dark + (medium - dark) * lower + (light - medium) * upper


def draw_moved(glyphs: torch.Tensor, sides: torch.Tensor, centres: torch.Tensor, backgrounds: torch.Tensor) -> torch.Tensor:
    """Glyphs [N,4,S,S] (premultiplied) of `sides` pixels around `centres` [N,2] in pixels: [N,3,128,128]."""
    scale, zero = PICTURE_SIZE / sides, torch.zeros_like(sides)
    x, y = (2 * centres / PICTURE_SIZE - 1).unbind(1)
    rows = torch.stack([scale, zero, -scale * x, zero, scale, -scale * y], 1)
    grid = affine_grid(rows.view(-1, 2, 3), [len(glyphs), 4, 2 * PICTURE_SIZE, 2 * PICTURE_SIZE], align_corners=False)
    layer = grid_sample(glyphs, grid, align_corners=False)
    layer = interpolate(layer, size=(PICTURE_SIZE, PICTURE_SIZE), mode="area")                # [N,4,128,128]
    return (layer[:, :3] + (1 - layer[:, 3:]) * backgrounds[:, :, None, None]).clamp(0, 1)


class PictureMaker:
    """Draws random emoji of a set, from a seed of its own."""

    def __init__(self, emoji: EmojiSet, seed: int):
        self.emoji = emoji
        self.random = np.random.default_rng(seed)

    def glyphs(self, chosen: np.ndarray) -> torch.Tensor:
        rgba = torch.from_numpy(self.emoji.glyphs[chosen]).permute(0, 3, 1, 2).float() / 255
        return torch.cat([rgba[:, :3] * rgba[:, 3:], rgba[:, 3:]], 1)

    def draw(self, count: int, moved: bool, background: tuple[int, int, int] | None = None,
             word: str | None = None) -> Lesson:
        """`count` pictures; `moved`: off the centre and of other sizes, else as the model knows them."""
        rng, sizes, colours = self.random, list(SIZES), list(COLOURS)
        chosen = rng.integers(len(self.emoji), size=count)
        kinds, tones = rng.integers(len(sizes), size=count), rng.integers(len(colours), size=count)
        sides = torch.tensor([SIZES[sizes[kind]] for kind in kinds], dtype=torch.float32)
        centres = torch.full((count, 2), PICTURE_SIZE / 2)
        if moved:
            sides = sides * torch.from_numpy(rng.uniform(0.85, 1.1, count)).float()
            room = (PICTURE_SIZE - sides).clamp(min=0) / 2
            centres = centres + 0.8 * room[:, None] * torch.from_numpy(rng.uniform(-1, 1, (count, 2))).float()
        tone = torch.tensor([background or COLOURS[colours[t]] for t in tones]) / 255
        pictures = [draw_moved(self.glyphs(chosen[part]), sides[part], centres[part], tone[part])
                    for part in np.array_split(np.arange(count), max(1, count // 64))]
        names = ["emoji" if moved and rng.random() < UNNAMED else self.emoji.names[e] for e in chosen]
        captions = [plain_caption(name, "medium" if moved else sizes[k], word or colours[t]) for name, k, t in zip(names, kinds, tones)]
        return Lesson(torch.cat(pictures), captions)

    def dusk(self, count: int) -> Lesson:
        lesson = self.draw(count, moved=False)
        lesson.pictures = dusk_palette(lesson.pictures)
        return lesson

    def mint(self, count: int) -> Lesson:
        return self.draw(count, moved=False, background=MINT, word=EMBEDDING_TOKEN)

    def edges(self, count: int) -> Lesson:
        lesson = self.draw(count, moved=True)
        pixels = (lesson.pictures.permute(0, 2, 3, 1) * 255).round().byte().numpy()
        lesson.maps = torch.from_numpy(np.stack([canny(picture) for picture in pixels]))[:, None].float()
        return lesson
