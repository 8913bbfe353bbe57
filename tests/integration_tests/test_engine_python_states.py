"""rocm_sd_ops.engine across calls: what a cancelled call, a failed load, a callback or another thread leaves behind."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from test_engine_python import SIZE, engine  # noqa: F401 (a fixture)

pytestmark = pytest.mark.in_python
CALL = dict(num_inference_steps=1, seed=1, output_type="np", **SIZE)


@pytest.fixture
def pipe(engine, tiny_model):  # noqa: F811
    with engine.ROCmOptimizedPipeline(tiny_model("sd15"), device="cpu", dtype="f32") as made:
        yield made


def test_a_cancelled_call_cancels_no_load(pipe, engine, tiny_model):  # noqa: F811
    want = pipe("a cat", **CALL).images
    with pytest.raises(engine.Cancelled):
        pipe("a cat", callback=lambda *_: pipe.cancel(), **(CALL | dict(num_inference_steps=50)))
    pipe.to(dtype="torch.bfloat16")
    pipe.load(tiny_model("sd15"), dtype="f32")
    assert np.array_equal(pipe("a cat", **CALL).images, want)


@pytest.mark.bad_input
def test_options_of_a_failed_load_are_forgotten(pipe, engine, tiny_model, tmp_path):  # noqa: F811
    for options in (dict(vae=str(tmp_path / "nothing")), dict(dtype="f7")):
        with pytest.raises(engine.EngineError):
            pipe.load(tiny_model("sd15"), **options)
        with pytest.raises(engine.EngineError, match="no model is loaded"):
            pipe("a cat", **CALL)
        assert pipe.load(tiny_model("sd15"))("a cat", **CALL).images.any()


def test_close_gives_live_weights_back(engine, tiny_model):  # noqa: F811
    import diffusers
    import torch

    live = diffusers.StableDiffusionPipeline.from_pretrained(tiny_model("sd15"))
    live.unet.to(memory_format=torch.channels_last)  # filters are copied
    pipe = engine.ROCmOptimizedPipeline.from_pipeline(live, device="cpu")
    copied = weakref.ref(pipe._tensors["unet"]["conv_in.weight"])
    assert copied() is not None
    pipe.close()
    gc.collect()
    assert copied() is None


@pytest.mark.bad_input
def test_a_callback_cannot_use_the_pipeline_that_calls_it(pipe, engine):  # noqa: F811
    for use in (lambda: pipe("a dog", **CALL), pipe.plan, pipe.close, lambda: pipe.to(dtype="torch.bfloat16")):
        with pytest.raises(engine.EngineError, match="callback") as told:
            pipe("a cat", callback=lambda *_, use=use: use(), **CALL)
        assert told.value.status == 2
    assert pipe("a cat", **CALL).images.any()


def test_other_threads_wait(pipe, engine):  # noqa: F811
    """close() while a picture is drawn waits for it."""
    began, closed, order = threading.Event(), threading.Event(), []

    def step(stage, *_):
        if not began.is_set():
            began.set()
            closed.wait(0.5)  # long enough for close() to be done, if it does not wait
        order.append(stage)

    def close():
        began.wait()
        pipe.close()
        order.append("closed")
        closed.set()

    thread = threading.Thread(target=close)
    thread.start()
    assert pipe("a cat", callback=step, **CALL).images.any()
    thread.join()
    assert order[-1] == "closed" and len(order) > 1


def test_pictures_of_more_than_8_bits(pipe):
    """PIL's modes I;16 and I, in which 16-bit PNGs are opened, are scaled; Pillow's convert would clip them to white."""
    from PIL import Image

    grey = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    call = CALL | dict(num_inference_steps=2, strength=0.5)
    want = pipe("a cat", image=Image.fromarray(grey), **call).images
    for wide in (grey.astype(np.uint16) * 257, grey.astype(np.int32) * 257):
        assert np.array_equal(pipe("a cat", image=Image.fromarray(wide), **call).images, want)


@pytest.mark.bad_input
def test_one_prompt_a_call(pipe):
    """A list of prompts is a batch; of what else Diffusers takes a list, joined it would be another text."""
    for given in (dict(prompt=["a cat", 3]), dict(prompt=[]), dict(prompt="a cat", negative_prompt=["blurred"])):
        with pytest.raises(TypeError, match="prompt: expected a str, got list"):
            pipe(**given, **CALL)
