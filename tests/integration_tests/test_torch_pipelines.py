"""The subclasses of Diffusers' pipelines: made in every way that Diffusers makes pipelines, the plain pipeline's pictures,
callbacks and schedulers as before; the attention backend for transformer models."""

from __future__ import annotations

import pytest
import torch
from test_torch_optimize import draw, pipeline, psnr
from torch_ops import REPOSITORY, load_package, randn


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


@pytest.fixture(scope="module")
def kin(ops):
    import rocm_sd_ops.diffusers_pipelines

    return rocm_sd_ops.diffusers_pipelines


@pytest.mark.parametrize("kind,name", [("sd15", "ROCmStableDiffusionPipeline"), ("sdxl", "ROCmStableDiffusionXLPipeline")])
def test_from_pretrained(ops, kin, tiny_model, kind, name):
    want = draw(pipeline(tiny_model, kind))
    pipe = pipeline(tiny_model, kind, cls=getattr(kin, name))
    assert ops.report(pipe) == {}
    assert psnr(draw(pipe), want) >= 60 and ops.report(pipe)["residual blocks"] > 10
    assert pipe.optimize(None) is pipe and ops.report(pipe) == {}
    assert psnr(draw(pipe), want) > 120  # None: plain
    seen: list = []

    def callback(pipe, step, timestep, state):
        seen.append(step)
        return state

    pipe.optimize("memory")
    assert psnr(draw(pipe, callback_on_step_end=callback), want) >= 60
    assert seen == list(range(len(pipe.scheduler.timesteps)))  # PNDM takes one more than it is asked for


@pytest.mark.parametrize("kind,file", [("sd15", "stable_diffusion"), ("sdxl", "stable_diffusion_xl")])
def test_custom_pipeline(kin, tiny_model, kind, file):
    from diffusers import DiffusionPipeline

    pipe = DiffusionPipeline.from_pretrained(tiny_model(kind), trust_remote_code=True,
                                             custom_pipeline=str(REPOSITORY / "integrations/diffusers" / f"{file}.py"))
    assert isinstance(pipe, kin._Optimized) and isinstance(pipe, DiffusionPipeline)
    pipe.set_progress_bar_config(disable=True)
    assert psnr(draw(pipe), draw(pipeline(tiny_model, kind))) >= 60


def test_from_single_file(kin, tiny_model):
    folder = tiny_model("sd15")
    single = tiny_model("sd15", "single", small_vocab=True)
    pipe = kin.ROCmStableDiffusionPipeline.from_single_file(str(single), config=str(folder), local_files_only=True)
    pipe.safety_checker = None
    pipe.set_progress_bar_config(disable=True)
    assert psnr(draw(pipe), draw(pipeline(tiny_model, "sd15"))) >= 60


def test_image_to_image_and_inpainting(ops, kin, tiny_model):
    import diffusers

    image, mask = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)), torch.zeros(1, 1, 64, 64)
    mask[..., 20:40, 10:50] = 1
    base = pipeline(tiny_model, "sd15")
    for theirs, ours, inputs in (("StableDiffusionImg2ImgPipeline", "ROCmStableDiffusionImg2ImgPipeline", {}),
                                 ("StableDiffusionInpaintPipeline", "ROCmStableDiffusionInpaintPipeline",
                                  dict(mask_image=mask))):
        call = dict(steps=4, image=image, strength=0.5, **inputs)
        plain = getattr(diffusers, theirs)(**base.components)
        plain.set_progress_bar_config(disable=True)
        want = _draw_image(plain, **call)
        pipe = getattr(kin, ours)(**base.components)
        pipe.set_progress_bar_config(disable=True)
        assert psnr(_draw_image(pipe, **call), want) >= 60
        assert ops.report(pipe)["models"] == 2
        ops.restore(pipe)


def _draw_image(pipe, steps, image, strength, **inputs):
    images = pipe("a cat", num_inference_steps=steps, image=image, strength=strength, output_type="np",
                  generator=torch.Generator().manual_seed(3), **inputs).images
    return torch.from_numpy(images[0])


def test_every_subclass_is_diffusers_own(kin):
    import diffusers

    ours = [c for n, c in vars(kin).items() if n.startswith("ROCm")]
    assert len(ours) == 11
    for cls in ours:
        assert issubclass(cls, getattr(diffusers, cls.__name__.removeprefix("ROCm"))) and issubclass(cls, kin._Optimized)


def test_attention_backend(ops):
    from diffusers import FluxTransformer2DModel  # SD3's processor calls PyTorch's function, whatever the backend

    model = FluxTransformer2DModel(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
                                   num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=12,
                                   axes_dims_rope=(4, 4, 8)).eval()
    inputs = dict(hidden_states=randn(2, 16, 4), encoder_hidden_states=randn(2, 7, 32, seed=1),
                  pooled_projections=randn(2, 12, seed=2), timestep=torch.tensor([0.3, 0.4]),
                  img_ids=torch.arange(48.0).reshape(16, 3) % 5, txt_ids=torch.zeros(7, 3))
    ops.register_attention_backend()
    ops.register_attention_backend()  # again: nothing changes
    with torch.no_grad():
        want = model(**inputs).sample
        model.set_attention_backend("rocm_sd")
        with ops.profile() as profile:
            got = model(**inputs).sample
        model.reset_attention_backend()
    assert psnr(got, want) >= 90
    assert sum(row["calls"] for row in profile.rows(ours_only=True) if row["name"] == "rocm_sd::attention") == 2
