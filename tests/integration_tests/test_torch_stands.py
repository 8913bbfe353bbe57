"""EngineUNet and EngineVAE where a Diffusers model is expected: names of weights, pipelines that optimise their models, the engine's own
pipeline."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from test_torch_engine import tiny_vae
from test_torch_optimize import pipeline, tiny_unet, unet_inputs
from torch import nn
from torch_ops import load_package, randn

pytestmark = pytest.mark.in_python


@pytest.fixture(scope="module")
def ops(build_dir):
    os.environ["ROCM_SD_LIBRARY"] = str(build_dir / "librocm_sd.so")
    return load_package(build_dir)


def test_weights_have_the_models_names(ops):
    """In both directions, alone and as a part of another module."""
    for plain, stand in ((tiny_unet("sd15"), ops.EngineUNet(tiny_unet("sd15"))), (tiny_vae(), ops.EngineVAE(tiny_vae()))):
        assert list(stand.state_dict()) == list(plain.state_dict())
        for holds, held in ((plain, stand), (nn.ModuleList([plain]), nn.ModuleList([stand]))):
            other = {k: v * 2 if v.is_floating_point() else v for k, v in holds.state_dict().items()}
            assert list(held.state_dict()) == list(other)
            held.load_state_dict(other)
            assert all(torch.equal(v, other[k]) for k, v in held.state_dict().items())
    with pytest.raises(RuntimeError, match="Missing key"):
        stand.load_state_dict({})


def test_loaded_weights_are_drawn_with(ops):
    plain, other = tiny_unet("sd15"), tiny_unet("sd15")
    engine, inputs = ops.EngineUNet(plain), unet_inputs(plain)
    with torch.no_grad():
        other.conv_out.weight.mul_(2)
        before = engine(**inputs).sample
        engine.load_state_dict(other.state_dict())
        after = engine(**inputs).sample
        assert engine.declined == "" and not torch.equal(before, after)
        assert torch.equal(after, ops.EngineUNet(other)(**inputs).sample)


def test_the_engines_pipeline_of_one_with_stands(ops, tiny_model):
    live, call = pipeline(tiny_model, "sd15"), dict(num_inference_steps=1, seed=1, output_type="np", width=64, height=64)
    with ops.ROCmOptimizedPipeline.from_pipeline(live, device="cpu") as made:
        want = made("a cat", **call).images
    live.unet, live.vae = ops.EngineUNet(live.unet), ops.EngineVAE(live.vae)
    with ops.ROCmOptimizedPipeline.from_pipeline(live, device="cpu") as made:
        assert np.array_equal(made("a cat", **call).images, want)


def test_pipelines_leave_what_was_changed_before(ops, tiny_model, monkeypatch):
    """A VAE in the engine's hands keeps the engine; a UNet whose class another program changed is not done again in each call."""
    from diffusers import UNet2DConditionModel
    from rocm_sd_ops import ROCmStableDiffusionPipeline
    from rocm_sd_ops._patching import patches

    plain = pipeline(tiny_model, "sd15")
    plain.vae = ops.EngineVAE(plain.vae)
    pipe = ROCmStableDiffusionPipeline(**plain.components)
    pipe.set_progress_bar_config(disable=True)
    forward = UNet2DConditionModel.forward

    def another(self, *args, **kwargs):
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(UNet2DConditionModel, "forward", another)
    call = dict(prompt="a cat", num_inference_steps=1, output_type="latent")
    pipe(**call)
    held = dict(patches(pipe.unet))
    assert len(held) > 10
    pipe(**call)
    assert dict(patches(pipe.unet)) == held
    with torch.no_grad():
        pipe.vae.decode(randn(1, 4, 6, 6))
    assert ops.engine_reasons(pipe.vae) == {"decoder": "", "encoder": ""} and pipe.vae.declined == ""
