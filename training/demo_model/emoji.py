"""The picture set: Noto Color Emoji bitmaps with their CLDR names and keywords, composed on plain backgrounds."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

DEFAULT_FONT = Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
DEFAULT_CLDR = Path("/usr/share/unicode/cldr/common")

PICTURE_SIZE = 128
STRIKE_SIZE = 109  # the font's only bitmap strike
GLYPH_SIZE = 136   # the strike's glyphs are 136 x 128 px

SIZES = {"small": 64, "medium": 88, "large": 120}  # side of the emoji's square, in px
COLOURS = {
    "white": (255, 255, 255),
    "black": (16, 16, 16),
    "gray": (128, 128, 128),
    "red": (214, 40, 40),
    "orange": (245, 130, 32),
    "yellow": (250, 215, 60),
    "green": (46, 160, 67),
    "teal": (0, 150, 150),
    "blue": (40, 90, 220),
    "purple": (125, 60, 190),
    "pink": (250, 160, 200),
    "brown": (120, 75, 45),
}

SKIN_TONES = {chr(c) for c in range(0x1F3FB, 0x1F400)}
GENDER_SIGNS = {"\u2640", "\u2642"}
ZERO_WIDTH_JOINER = "\u200d"
LEFT_OUT_NAMES = ("family:", "kiss:", "couple with heart:")


@dataclass
class EmojiSet:
    """Names, keywords and glyphs of N emoji in code point order."""

    sequences: list[str]
    names: list[str]
    keywords: list[list[str]]
    glyphs: np.ndarray  # [N, 136, 136, 4] uint8, straight alpha

    def __len__(self) -> int:
        return len(self.names)

    def save(self, path: Path) -> None:
        keywords = ["|".join(words) for words in self.keywords]
        np.savez_compressed(path, sequences=self.sequences, names=self.names, keywords=keywords, glyphs=self.glyphs)

    @staticmethod
    def load(path: Path) -> EmojiSet:
        with np.load(path) as data:
            keywords = [str(words).split("|") if words else [] for words in data["keywords"]]
            return EmojiSet(data["sequences"].tolist(), data["names"].tolist(), keywords, data["glyphs"])


def read_annotations(cldr: Path) -> dict[str, tuple[str, list[str]]]:
    """English name and keywords of each sequence that has both."""
    names: dict[str, str] = {}
    keywords: dict[str, list[str]] = {}
    for folder in ("annotations", "annotationsDerived"):
        for node in ElementTree.parse(cldr / folder / "en.xml").getroot().iter("annotation"):
            if node.get("type") == "tts":
                names[node.get("cp")] = node.text
            else:
                keywords[node.get("cp")] = [word.strip() for word in node.text.split("|")]
    return {sequence: (name, keywords.get(sequence, [])) for sequence, name in names.items()}


def is_wanted(sequence: str, name: str) -> bool:
    """Leaves out skin tones, gender-sign variants, families and couples: near copies of other emoji."""
    if any(c in SKIN_TONES for c in sequence) or name.startswith(LEFT_OUT_NAMES):
        return False
    if ZERO_WIDTH_JOINER in sequence and any(c in GENDER_SIGNS for c in sequence):
        return False
    return len(sequence) > 1 or not sequence.isascii()


def plain_name(name: str) -> str:
    """CLDR's name as a person would type it: 'flag: Japan' becomes 'flag of Japan'."""
    name = name.replace("flag: ", "flag of ").replace(": ", " ").replace("\u2019", "'")
    return name.replace("\u201c", "").replace("\u201d", "")


def render_glyph(font: ImageFont.FreeTypeFont, sequence: str) -> np.ndarray | None:
    """The sequence's colour bitmap centred in a square [136, 136, 4], or None where the font has no such glyph."""
    if font.getlength(sequence) > GLYPH_SIZE:  # not one glyph: the font lacks this sequence's ligature
        return None
    canvas = Image.new("RGBA", (2 * GLYPH_SIZE, 2 * GLYPH_SIZE))
    ImageDraw.Draw(canvas).text((GLYPH_SIZE // 2, GLYPH_SIZE // 2), sequence, font=font, embedded_color=True)
    box = canvas.getbbox()
    if box is None or max(box[2] - box[0], box[3] - box[1]) < GLYPH_SIZE // 4:
        return None
    left = (box[0] + box[2] - GLYPH_SIZE) // 2
    top = (box[1] + box[3] - GLYPH_SIZE) // 2
    glyph = np.asarray(canvas.crop((left, top, left + GLYPH_SIZE, top + GLYPH_SIZE)))
    is_colour_bitmap = np.ptp(glyph[..., :3][glyph[..., 3] > 0].astype(int)) > 0
    return glyph if is_colour_bitmap else None


def build_emoji_set(font_path: Path, cldr: Path) -> EmojiSet:
    """Renders every wanted emoji once; of glyphs with equal pixels only the first is kept."""
    font = ImageFont.truetype(str(font_path), STRIKE_SIZE, layout_engine=ImageFont.Layout.RAQM)
    missing = render_glyph(font, "\U0010fffd")
    seen = {missing.tobytes()} if missing is not None else set()
    found = EmojiSet([], [], [], np.empty(0))
    glyphs = []
    for sequence, (name, keywords) in sorted(read_annotations(cldr).items()):
        glyph = render_glyph(font, sequence) if is_wanted(sequence, name) else None
        if glyph is None or glyph.tobytes() in seen:
            continue
        seen.add(glyph.tobytes())
        glyphs.append(glyph)
        found.sequences.append(sequence)
        found.names.append(plain_name(name))
        found.keywords.append([plain_name(word) for word in keywords if plain_name(word) != plain_name(name)])
    found.glyphs = np.stack(glyphs)
    return found


class Composer:
    """Composes emoji pictures on one device: glyphs stay there, premultiplied, once per size."""

    def __init__(self, glyphs: np.ndarray, device: torch.device):
        layers = [self._place(glyphs, side) for side in SIZES.values()]
        self.layers = torch.stack(layers).to(device)  # [sizes, N, 4, 128, 128] uint8, premultiplied alpha
        self.palette = torch.tensor(list(COLOURS.values()), device=device) / 255.0  # [colours, 3]

    @staticmethod
    def _place(glyphs: np.ndarray, side: int) -> torch.Tensor:
        margin = (PICTURE_SIZE - side) // 2
        placed = []
        for chunk in torch.from_numpy(glyphs).split(128):
            rgba = chunk.permute(0, 3, 1, 2).float() / 255
            rgba = torch.cat([rgba[:, :3] * rgba[:, 3:], rgba[:, 3:]], dim=1)
            rgba = torch.nn.functional.interpolate(rgba, size=(side, side), mode="bicubic", antialias=True)
            rgba = torch.nn.functional.pad(rgba.clamp(0, 1), (margin,) * 4)
            placed.append((rgba * 255).round().byte())
        return torch.cat(placed)  # [N, 4, 128, 128]

    def __call__(self, emoji: torch.Tensor, size: torch.Tensor, background: torch.Tensor) -> torch.Tensor:
        """Pictures [B, 3, 128, 128] in [0, 1] of emoji[B] at size[B] on background colours [B, 3] in [0, 1]."""
        layer = self.layers[size, emoji].float() / 255
        return (layer[:, :3] + (1 - layer[:, 3:]) * background[:, :, None, None]).clamp(0, 1)
