"""rocm-sd grid: sheets over the values of options, whose cells are the pictures that generate draws."""

from __future__ import annotations

import numpy as np
import pytest

from pictures import read_parameters, read_picture

FAST = ["--steps", "1", "-W", "64", "-H", "64"]
CELL = 64 + 8


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("sd15")


def cells_of(path, columns: int, rows: int) -> list[np.ndarray]:
    """The pictures of a sheet of 64 x 64 ones: labels stand left of them and above."""
    sheet = read_picture(path)
    top, left = sheet.shape[0] - rows * CELL, sheet.shape[1] - columns * CELL
    assert top > 0 and left >= 0
    return [sheet[top + y * CELL + 4:top + y * CELL + 68, left + x * CELL + 4:left + x * CELL + 68] for y in range(rows) for x in range(columns)]


def test_cells_are_generates_pictures(rocm_sd, model, tmp_path):
    """x, y and z; the labels differ from white; every cell is the picture of its options."""
    rocm_sd("grid", "-m", model, *FAST, "-p", "a red cat", "-s", "4", "--x", "cfg-scale=2-6 (+2)", "--y", "prompt-sr=red,\"blue, old\"", "--z", "sampler=euler,ddim",
            "-o", tmp_path / "g{index}.png", "--cells", tmp_path / "cells" / "{index}.png")
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["g1.png", "g2.png"]
    index = 0
    for k, sampler in enumerate(("euler", "ddim")):
        cells = cells_of(tmp_path / f"g{k + 1}.png", 3, 2)
        for j, prompt in enumerate(("a red cat", "a blue, old cat")):
            for i, scale in enumerate(("2", "4", "6")):
                index += 1
                kept = tmp_path / "cells" / f"{index}.png"
                assert (cells[3 * j + i] == read_picture(kept)).all()
                assert read_parameters(kept).startswith(prompt) and f"CFG scale: {scale}," in read_parameters(kept)
                if (i, j) in ((0, 0), (2, 1)):
                    rocm_sd("generate", "-m", model, *FAST, "-p", prompt, "-s", "4", "--cfg-scale", scale, "--sampler", sampler, "-o", tmp_path / "one.png")
                    assert (read_picture(tmp_path / "one.png") == cells[3 * j + i]).all()
    sheet = read_picture(tmp_path / "g1.png")
    left, top = sheet.shape[1] - 3 * CELL, sheet.shape[0] - 2 * CELL
    for label in (sheet[:top, left + CELL:left + 2 * CELL], sheet[top:top + CELL, :left], sheet[:top, :left]):
        assert label.min() < 100 and label.mean() > 150  # dark letters on white


def test_a_random_seed_is_that_of_all_cells(rocm_sd, model, tmp_path):
    rocm_sd("grid", "-m", model, *FAST, "--x", "steps=1,2", "-o", tmp_path / "g.png", "--cells", tmp_path / "{index}-{seed}.png", "--journal", tmp_path / "j")
    names = sorted(path.name for path in tmp_path.glob("*-*.png"))
    assert len(names) == 2 and names[0].split("-")[1] == names[1].split("-")[1]
    before = read_picture(tmp_path / "g.png")
    (tmp_path / names[1]).unlink()
    rocm_sd("grid", "-m", model, *FAST, "--x", "steps=1,2", "-o", tmp_path / "g.png", "--cells", tmp_path / "{index}-{seed}.png", "--journal", tmp_path / "j")
    assert (read_picture(tmp_path / "g.png") == before).all() and (tmp_path / names[1]).exists()


@pytest.mark.bad_input
def test_axes_that_cannot_be(rocm_sd, model, tmp_path):
    for more, message in ((["--x", "steps"], "expected OPTION=VALUE"), (["--x", "nonsense=1"], "nonsense"), (["--x", "steps=many"], "steps: expected"),
                          (["--x", "steps=1-5 (-1)"], "a range without an end"), (["--x", "seed=0-100000"], "more than 1000"), (["--x", "batch=1,2"], "a cell has one picture"),
                          (["--x", "steps=1", "--repeat", "2"], "a cell has one picture"), (["--x", "steps=1", "-b", "2"], "a cell has one picture"),
                          (["--x", "prompt-sr=dog,owl"], "is not in the prompt"), (["--x", 'steps="1'], "a quote is not closed"), (["--x", "model=a,b"], "model"),
                          (["--x", "steps=1", "--journal", tmp_path / "j"], "--cells"), (["--x", "steps=1", "--cells", "a.jpg"], ".png"), ([], "expected --x")):
        done = rocm_sd("grid", "-m", model, *FAST, "-p", "a cat", "-o", tmp_path / "g.png", *more, code=2)
        assert message in done.stderr, (more, done.stderr)
    assert not list(tmp_path.glob("*"))
