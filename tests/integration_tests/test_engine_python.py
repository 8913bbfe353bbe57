"""rocm_sd_ops.engine: the C++ engine from Python draws what the command line draws, reports, cancels, and tells errors."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from pictures import read_picture
from torch_ops import load_package


@pytest.fixture(scope="module")
def engine(build_dir):
    os.environ["ROCM_SD_LIBRARY"] = str(build_dir / "librocm_sd.so")
    load_package(build_dir)
    import rocm_sd_ops.engine

    return rocm_sd_ops.engine


@pytest.fixture(scope="module")
def pipe(engine, tiny_model):
    with engine.ROCmOptimizedPipeline.from_pretrained(tiny_model("sd15"), device="cpu") as made:
        yield made


SIZE = dict(width=64, height=64)


def test_draws_what_the_command_line_draws(pipe, rocm_sd, tiny_model, tmp_path):
    steps: list = []
    out = pipe("a cat", num_inference_steps=2, seed=7, output_type="np", num_images_per_prompt=2, sampler="Euler",
               callback=lambda stage, step, total, seconds: steps.append((stage, step, total)) and None, **SIZE)
    assert out.images.shape == (2, 64, 64, 3) and out.images.dtype == np.uint8 and out.seeds == [7, 8]
    assert "a cat" in out.parameters[0] and ("sample", 2, 2) in steps
    rocm_sd("generate", "--model", tiny_model("sd15"), "--prompt", "a cat", "--steps", 2, "--seed", 7, "--sampler", "Euler",
            "--width", 64, "--height", 64, "--device", "cpu", "-o", tmp_path / "a.png")
    one = pipe("a cat", num_inference_steps=2, seed=7, sampler="Euler", **SIZE)
    assert np.array_equal(np.asarray(one.images[0]), read_picture(tmp_path / "a.png"))


def test_pictures_in_and_out(pipe):
    torch = pytest.importorskip("torch")
    start = np.random.default_rng(0).random((64, 64, 3))
    a = pipe("a cat", image=start, strength=0.5, num_inference_steps=4, seed=1, output_type="pt")
    b = pipe("a cat", image=torch.from_numpy(start), strength=0.5, num_inference_steps=4, seed=1, output_type="np")
    c = pipe("a cat", image=np.rint(start * 255).astype(np.uint8), strength=0.5, num_inference_steps=4, seed=1,
             output_type="np", mask_image=np.zeros((64, 64), np.uint8))
    assert np.array_equal(a.images.numpy(), b.images) and c.images.shape == b.images.shape
    assert pipe.plan(**SIZE) > 0


def test_callbacks_and_cancel(pipe, engine):
    with pytest.raises(engine.Cancelled):
        pipe("a cat", num_inference_steps=5, callback=lambda stage, *rest: stage == "sample", **SIZE)
    with pytest.raises(KeyError, match="mine"):
        pipe("a cat", num_inference_steps=5, callback=lambda *a: {}["mine"], **SIZE)
    began = threading.Event()

    def stop():
        began.wait()
        pipe.cancel()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(engine.Cancelled):
        pipe("a cat", num_inference_steps=1000, callback=lambda stage, *rest: began.set(), **SIZE)
    thread.join()
    assert pipe("a cat", num_inference_steps=1, **SIZE).images  # serves on


@pytest.mark.bad_input
def test_errors_are_the_engines_sentences(pipe, engine, tmp_path):
    with pytest.raises(engine.EngineError) as missing:
        engine.ROCmOptimizedPipeline(tmp_path / "nothing")
    assert missing.value.status == 3 and "nothing" in str(missing.value)
    for options, word in ((dict(sampler="magic"), "magic"), (dict(width=63, height=64), "63"), (dict(no_such=1), "no-such")):
        with pytest.raises(engine.EngineError, match=word):
            pipe("a cat", num_inference_steps=1, **options)
    for image in (np.zeros((4, 4, 7), np.uint8), np.zeros((4, 4, 3), np.int64)):
        with pytest.raises(ValueError, match="expected"):
            pipe("a cat", image=image)
    with pytest.raises(ValueError, match="output_type"):
        pipe("a cat", output_type="tiff")
