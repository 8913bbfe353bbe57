"""What steers pictures, from Python: guidance by attention, FreeU and regions draw what the command line draws."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from test_engine_python import SIZE, engine, pipe  # noqa: F401 (fixtures)
from test_engine_python_images import CALL, by_command

pytestmark = pytest.mark.in_python

BOXES = ("0,0,0.4,1: a red house", "0.3,0.2,0.7,0.5: [a tree:a (big:1.2) tree:0.5]")
STEERED = {
    "attention": (dict(sag_scale=100), ["--sag-scale", 100]),
    "perturbed": (dict(pag_scale=20, pag_layers="down_blocks.0,up_blocks"), ["--pag-scale", 20, "--pag-layers", "down_blocks.0,up_blocks"]),
    "freeu": (dict(freeu=(1.2, 1.4, 0.9, 0.2)), ["--freeu", "1.2,1.4,0.9,0.2"]),
    "freeu_v2": (dict(freeu_v2=[1.3, 1.4, 0.9, 0.5]), ["--freeu-v2", "1.3,1.4,0.9,0.5"]),
    "boxes": (dict(region=list(BOXES), region_base=0.2), ["--region", BOXES[0], "--region", BOXES[1], "--region-base", 0.2]),
    "columns": (dict(region=["a house", "a tree"], region_split="columns:1,2"),
                ["--region", "a house", "--region", "a tree", "--region-split", "columns:1,2"]),
}


@pytest.mark.parametrize("name", STEERED)
def test_options(pipe, rocm_sd, tiny_model, tmp_path, name):  # noqa: F811
    options, words = STEERED[name]
    want = by_command(rocm_sd, tiny_model("sd15"), tmp_path / "a.png", *words)
    assert np.array_equal(pipe("a cat", **options, **CALL).images[0], want)
    assert not np.array_equal(pipe("a cat", **CALL).images[0], want)


@pytest.mark.parametrize("options", [dict(sag_scale=50), dict(region=list(BOXES), region_base=0.3)], ids=str)
def test_a_batch_is_its_images(pipe, options):  # noqa: F811
    both = pipe("a cat", num_images_per_prompt=2, **options, **CALL)
    for image, seed in zip(both.images, both.seeds):
        alone = pipe("a cat", **options, **CALL | dict(seed=seed)).images[0]
        assert np.abs(image.astype(int) - alone).max() <= 1


def test_masks_with_commas_in_their_names(pipe, tmp_path):  # noqa: F811
    left = np.zeros((64, 64), np.uint8)
    left[:, :32] = 255
    for name, mask in (("left, half.png", left), ("right.png", 255 - left)):
        Image.fromarray(mask).save(tmp_path / name)
    masks = pipe("a cat", region=[f"{tmp_path}/left, half.png: a house", f"{tmp_path}/right.png: a tree"], **CALL).images[0]
    boxes = pipe("a cat", region=["0,0,0.5,1: a house", "0.5,0,0.5,1: a tree"], **CALL).images[0]
    assert np.array_equal(masks, boxes)


@pytest.mark.bad_input
@pytest.mark.parametrize("options, message", [
    (dict(region=["a house"]), "no place"), (dict(region=["0,0,1,1: a"], pag_scale=2), "not with pag-scale"), (dict(sag_scale="much"), "sag-scale"),
    (dict(freeu=[1, 2]), "freeu"), (dict(region_base=0.5), "need a region")])
def test_bad_values(engine, pipe, options, message):  # noqa: F811
    with pytest.raises(engine.EngineError) as caught:
        pipe("a cat", **options, **CALL)
    assert caught.value.status == 2 and message in str(caught.value)
    assert pipe("a cat", **CALL).images.shape == (1, 64, 64, 3)  # and goes on
