#!/usr/bin/env python3
"""How far pictures are from their references: PSNR, SSIM and FLIP.

    benchmarks/picture_quality.py REFERENCE PICTURE                     # two files, or two folders with the same names
    benchmarks/picture_quality.py A B --least-psnr 40 --least-ssim 0.99 --most-flip 0.02 --json

PSNR in dB over all channels. SSIM of luma: Wang, Bovik, Sheikh, Simoncelli, "Image Quality Assessment", 2004 (Gaussian
window of 11 with deviation 1.5, windows inside the picture only). FLIP: Andersson, Nilsson, Akenine-Moeller, Oskarsson,
Astroem, Fairchild, "FLIP: A Difference Evaluator for Alternating Images", 2020; 0 is no difference, 67 pixels a degree.
Exits 1 where a picture misses a bound, 2 where files do not fit. Needs NumPy and Pillow.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np

SUFFIXES = {".png", ".jpg", ".jpeg", ".webp"}
PIXELS_PER_DEGREE = 0.7 * 3840 / 0.7 * math.pi / 180  # 0.7 m before a display of 3840 pixels on 0.7 m
LUMA = np.array([0.299, 0.587, 0.114])
# sRGB's primaries to CIE XYZ (IEC 61966-2-1).
TO_XYZ = np.array([[10135552 / 24577794, 8788810 / 24577794, 4435075 / 24577794],
                   [2613072 / 12288897, 8788810 / 12288897, 887015 / 12288897],
                   [1425312 / 73733382, 8788810 / 73733382, 70074185 / 73733382]])
WHITE = TO_XYZ.sum(axis=1)


def convolve(image: np.ndarray, down: np.ndarray, across: np.ndarray, pad: bool = True) -> np.ndarray:
    """[H,W] under a separable filter, edges repeated (pad) or left out."""
    ry, rx = len(down) // 2, len(across) // 2
    if pad:
        image = np.pad(image, ((ry, ry), (rx, rx)), mode="edge")
    height, width = image.shape[0] - 2 * ry, image.shape[1] - 2 * rx
    rows = sum(w * image[i:i + height] for i, w in enumerate(down))
    return sum(w * rows[:, i:i + width] for i, w in enumerate(across))


def psnr(reference: np.ndarray, picture: np.ndarray) -> float:
    """dB; pictures [H,W,3] in 0..1. Infinite where they are equal."""
    error = float(np.mean((reference - picture) ** 2))
    return math.inf if error == 0 else -10 * math.log10(error)


def ssim(reference: np.ndarray, picture: np.ndarray) -> float:
    x, y = reference @ LUMA, picture @ LUMA
    if min(x.shape) < 11:
        raise ValueError(f"SSIM needs pictures of 11 x 11 pixels or more, got {x.shape[1]} x {x.shape[0]}")
    window = np.exp(-np.arange(-5, 6) ** 2 / (2 * 1.5**2))
    window /= window.sum()
    mean = lambda image: convolve(image, window, window, pad=False)  # noqa: E731
    mx, my = mean(x), mean(y)
    vx, vy, cov = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    c1, c2 = 0.01**2, 0.03**2
    return float(np.mean((2 * mx * my + c1) * (2 * cov + c2) / ((mx * mx + my * my + c1) * (vx + vy + c2))))


# ---- FLIP; the sections are the paper's ----

def to_linear(srgb: np.ndarray) -> np.ndarray:
    return np.where(srgb > 0.04045, ((srgb + 0.055) / 1.055) ** 2.4, srgb / 12.92)


def opponent(rgb: np.ndarray) -> np.ndarray:
    """Linear RGB -> YCxCz (4.1)."""
    x, y, z = np.moveaxis(rgb @ TO_XYZ.T / WHITE, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def from_opponent(color: np.ndarray) -> np.ndarray:
    y = (color[..., 0] + 16) / 116
    xyz = np.stack([y + color[..., 1] / 500, y, y - color[..., 2] / 200], axis=-1)
    return xyz * WHITE @ np.linalg.inv(TO_XYZ).T


def hunt_lab(rgb: np.ndarray) -> np.ndarray:
    """Linear RGB -> CIELab whose a and b weigh less in the dark (4.1)."""
    t = rgb @ TO_XYZ.T / WHITE
    edge = 6 / 29
    f = np.where(t > edge**3, np.cbrt(t), t / (3 * edge**2) + 4 / 29)
    light = 116 * f[..., 1] - 16
    return np.stack([light, 0.01 * light * 500 * (f[..., 0] - f[..., 1]), 0.01 * light * 200 * (f[..., 1] - f[..., 2])], axis=-1)


def hyab(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    d = a - b
    return np.abs(d[..., 0]) + np.hypot(d[..., 1], d[..., 2])


# Contrast sensitivity as sums of Gaussians (4.1): weight, width in degrees squared; luminance, red-green, blue-yellow.
SENSITIVITY = [[(1, 0.0047)], [(1, 0.0053)], [(34.1, 0.04), (13.5, 0.025)]]


def as_the_eye_sees(color: np.ndarray) -> np.ndarray:
    """YCxCz under each channel's filter, as linear RGB that a display can show."""
    radius = math.ceil(3 * math.sqrt(0.04 / (2 * math.pi**2)) * PIXELS_PER_DEGREE)
    at = np.arange(-radius, radius + 1) / PIXELS_PER_DEGREE
    channels = []
    for channel, gaussians in enumerate(SENSITIVITY):
        seen, total = 0, 0
        for weight, width in gaussians:  # a Gaussian of the distance is the product of one in x and one in y
            line = np.exp(-math.pi**2 * at**2 / width)
            scale = weight * math.sqrt(math.pi / width)
            seen = seen + scale * convolve(color[..., channel], line, line)
            total += scale * line.sum() ** 2
        channels.append(seen / total)
    return np.clip(from_opponent(np.stack(channels, axis=-1)), 0, 1)


def color_difference(reference: np.ndarray, picture: np.ndarray) -> np.ndarray:
    exponent, knee, at_knee = 0.7, 0.4, 0.95
    green, blue = hunt_lab(np.array([0.0, 1, 0])), hunt_lab(np.array([0.0, 0, 1]))
    most = hyab(green, blue) ** exponent
    d = hyab(hunt_lab(as_the_eye_sees(reference)), hunt_lab(as_the_eye_sees(picture))) ** exponent
    return np.where(d < knee * most, at_knee / (knee * most) * d,
                    at_knee + (d - knee * most) / (most - knee * most) * (1 - at_knee))


def features(light: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Strength of edges and of points (4.2)."""
    deviation = 0.5 * 0.082 * PIXELS_PER_DEGREE
    radius = math.ceil(3 * deviation)
    at = np.arange(-radius, radius + 1)
    gauss = np.exp(-at**2 / (2 * deviation**2))

    def balanced(line: np.ndarray) -> np.ndarray:
        """As the filter of two dimensions that this is a factor of: positive weights add to 1, negative ones to -1."""
        return np.where(line > 0, line / (line[line > 0].sum() * gauss.sum()), line / (-line[line < 0].sum() * gauss.sum()))

    edge, point = balanced(-at * gauss), balanced((at**2 / deviation**2 - 1) * gauss)
    strength = lambda line: np.hypot(convolve(light, gauss, line), convolve(light, line, gauss))  # noqa: E731
    return strength(edge), strength(point)


def flip_map(reference: np.ndarray, picture: np.ndarray) -> np.ndarray:
    """The difference that is seen at each pixel, 0..1; pictures [H,W,3] of sRGB values in 0..1."""
    a, b = opponent(to_linear(reference)), opponent(to_linear(picture))
    edges, points = zip(*(features((image[..., 0] + 16) / 116) for image in (a, b)))
    feature = np.maximum(np.abs(edges[0] - edges[1]), np.abs(points[0] - points[1]))
    return color_difference(a, b) ** (1 - np.sqrt(feature / math.sqrt(2)))


def flip(reference: np.ndarray, picture: np.ndarray) -> float:
    return float(np.mean(flip_map(reference, picture)))


def read(path: Path) -> np.ndarray:
    from PIL import Image
    return np.asarray(Image.open(path).convert("RGB"), dtype=np.float64) / 255


def pairs(reference: Path, picture: Path) -> list[tuple[Path, Path]]:
    if not reference.is_dir():
        return [(reference, picture)]
    names = sorted(p.name for p in reference.iterdir() if p.suffix.lower() in SUFFIXES)
    missing = [name for name in names if not (picture / name).exists()]
    if missing or not names:
        sys.exit(f"{picture}: lacks {', '.join(missing[:5])}" if missing else f"{reference}: no pictures")
    return [(reference / name, picture / name) for name in names]


def compare(reference: Path, picture: Path) -> dict[str, float | str]:
    a, b = read(reference), read(picture)
    if a.shape != b.shape:
        raise ValueError(f"{picture} is {b.shape[1]} x {b.shape[0]}, {reference} {a.shape[1]} x {a.shape[0]}")
    return {"picture": str(picture), "psnr": psnr(a, b), "ssim": ssim(a, b), "flip": flip(a, b)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--least-psnr", type=float, default=-math.inf)
    parser.add_argument("--least-ssim", type=float, default=-math.inf)
    parser.add_argument("--most-flip", type=float, default=math.inf)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        rows = [compare(a, b) for a, b in pairs(args.reference, args.picture)]
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    for row in rows:
        row["ok"] = bool(row["psnr"] >= args.least_psnr and row["ssim"] >= args.least_ssim and row["flip"] <= args.most_flip)
        if not args.json:
            print(f"{row['picture']}: PSNR {row['psnr']:.2f} dB, SSIM {row['ssim']:.5f}, FLIP {row['flip']:.5f}"
                  f"{'' if row['ok'] else '  beyond the bounds'}")
    if args.json:
        print(json.dumps([row | {"psnr": None if math.isinf(row["psnr"]) else row["psnr"]} for row in rows], indent=2))
    sys.exit(0 if all(row["ok"] for row in rows) else 1)


if __name__ == "__main__":
    main()
