"""Canny's edges by OpenCV's rules (aperture 3, L1 norm), as `--control-preprocess canny` finds them."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import label

TAN_22_5 = np.tan(np.radians(22.5))


def gradient(rgb: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sobel's dx and dy [H,W] of the channel where |dx| + |dy| is largest; the border repeats."""
    height, width, _ = rgb.shape
    padded = np.pad(rgb.astype(np.int32), ((1, 1), (1, 1), (0, 0)), mode="edge")

    def part(i: int, j: int) -> np.ndarray:
        return padded[1 + j:1 + j + height, 1 + i:1 + i + width]

    dx = part(1, -1) + 2 * part(1, 0) + part(1, 1) - part(-1, -1) - 2 * part(-1, 0) - part(-1, 1)  # [H,W,3]
    dy = part(-1, 1) + 2 * part(0, 1) + part(1, 1) - part(-1, -1) - 2 * part(0, -1) - part(1, -1)
    best = (abs(dx) + abs(dy)).argmax(2)[..., None]
    return np.take_along_axis(dx, best, 2)[..., 0], np.take_along_axis(dy, best, 2)[..., 0]


def canny(rgb: np.ndarray, low: float = 100, high: float = 200) -> np.ndarray:
    """Edges [H,W] bool of a picture [H,W,3] uint8: ridges above `low` that touch one above `high`."""
    dx, dy = gradient(rgb)
    size = abs(dx) + abs(dy)
    around = np.pad(size, 1)
    height, width = size.shape

    def near(i: int, j: int) -> np.ndarray:
        return around[1 + j:1 + j + height, 1 + i:1 + i + width]

    across = (size > near(-1, 0)) & (size >= near(1, 0))
    down = (size > near(0, -1)) & (size >= near(0, 1))
    falling = (size > near(1, -1)) & (size > near(-1, 1))
    rising = (size > near(-1, -1)) & (size > near(1, 1))
    flat, steep = abs(dy) < abs(dx) * TAN_22_5, abs(dx) < abs(dy) * TAN_22_5
    ridge = np.select([flat, steep, (dx < 0) != (dy < 0)], [across, down, falling], rising)
    parts, count = label(ridge & (size > low), structure=np.ones((3, 3)))
    strong = np.zeros(count + 1, bool)
    strong[np.unique(parts[ridge & (size > high)])] = True
    strong[0] = False
    return strong[parts]
