"""Reading and comparing pictures in tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def read_picture(path: Path | str) -> np.ndarray:
    """uint8, [height,width,3]."""
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def read_parameters(path: Path | str) -> str:
    """The A1111 `parameters` text of a PNG; the EXIF UserComment of a JPEG or WebP. Raises KeyError without one."""
    with Image.open(path) as picture:
        picture.load()
        if "parameters" in picture.info:
            return picture.info["parameters"]
        comment = picture.getexif().get_ifd(0x8769)[0x9286]
    if isinstance(comment, str):
        return comment
    code, text = comment[:8], comment[8:]
    return text.decode("utf-16-be" if code == b"UNICODE\0" else "utf-8")


def psnr(a: np.ndarray, b: np.ndarray, peak: float = 255.0) -> float:
    """Peak signal-to-noise ratio in dB; infinite for equal arrays."""
    assert a.shape == b.shape, f"{a.shape} against {b.shape}"
    error = np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(peak * peak / error))
