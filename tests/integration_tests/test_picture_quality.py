"""benchmarks/picture_quality.py: figures of the authors' own evaluator (flip-evaluator 1.7) and of scikit-image 0.26."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import picture_quality as quality


def base() -> np.ndarray:
    y, x = np.mgrid[0:96, 0:120]
    picture = np.stack([0.5 + 0.5 * np.sin(x / 7), 0.5 + 0.5 * np.cos(y / 9), (x + y) / 216], -1)
    return np.round(picture * 255) / 255


def shifted() -> np.ndarray:
    return np.roll(base(), 2, axis=1)


def inverted() -> np.ndarray:
    return np.round((1 - base()) * 255) / 255


def with_bar() -> np.ndarray:
    x = np.mgrid[0:96, 0:120][1][..., None]
    return np.round(np.where((x > 50) & (x < 60), 0.9, base()) * 255) / 255


# FLIP by flip-evaluator, SSIM by skimage.metrics.structural_similarity with its settings for the paper's, cropped as it does.
@pytest.mark.parametrize("other, flip, ssim", [(shifted, 0.2536436, 0.98141545), (inverted, 0.9713691, -0.35791065),
                                               (with_bar, 0.1060748, 0.91392293)])
def test_agrees_with_others(other, flip, ssim):
    assert quality.flip(base(), other()) == pytest.approx(flip, abs=5e-6)
    assert quality.ssim(base(), other()) == pytest.approx(ssim, abs=1e-7)


def test_no_difference():
    assert quality.flip(base(), base()) == 0 and quality.ssim(base(), base()) == pytest.approx(1)
    assert quality.psnr(base(), base()) == float("inf")
    assert quality.psnr(np.zeros((4, 4, 3)), np.full((4, 4, 3), 0.1)) == pytest.approx(20)


def test_maps_lie_between_zero_and_one():
    rng = np.random.default_rng(3)
    seen = quality.flip_map(rng.random((20, 33, 3)), rng.random((20, 33, 3)))
    assert seen.shape == (20, 33) and (seen >= 0).all() and (seen <= 1).all()


def save(picture, path):
    Image.fromarray(np.round(picture * 255).astype(np.uint8)).save(path)


def run(repository, *args):
    return subprocess.run([sys.executable, repository / "benchmarks" / "picture_quality.py", *map(str, args)], capture_output=True,
                          text=True)


def test_command_line(repository, tmp_path):
    for folder, picture in (("a", base()), ("b", shifted())):
        (tmp_path / folder).mkdir()
        save(picture, tmp_path / folder / "1.png")
    done = run(repository, tmp_path / "a", tmp_path / "b", "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)[0]
    assert row["flip"] == pytest.approx(0.2536436, abs=5e-6) and row["ok"]
    assert run(repository, tmp_path / "a", tmp_path / "b", "--most-flip", 0.1).returncode == 1
    assert run(repository, tmp_path / "a", tmp_path / "b", "--least-psnr", 60).returncode == 1
    save(base()[:50], tmp_path / "small.png")
    done = run(repository, tmp_path / "a" / "1.png", tmp_path / "small.png")
    assert done.returncode == 2 and "120 x 50" in done.stderr
    (tmp_path / "c").mkdir()
    assert run(repository, tmp_path / "a", tmp_path / "c").returncode == 1
