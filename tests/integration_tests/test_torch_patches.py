"""What optimize_sd_model changes belongs to the modules: whoever owns, copies, pickles, replicates or patches them gets the plain model's
numbers, by layers and with the C++ engine."""

from __future__ import annotations

import copy
import io
import types

import pytest
import torch
import torch.nn.functional as F
from test_torch_engine import tiny_vae
from test_torch_optimize import draw, pipeline, psnr, tiny_unet, unet_inputs
from torch import nn
from torch_ops import load_package, randn

pytestmark = pytest.mark.in_python


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


@pytest.fixture(params=[False, True], ids=["layers", "engine"])
def optimized(ops, request):
    """(an optimised UNet, the plain one, their inputs), after one call."""
    ours, plain = tiny_unet("sd15"), tiny_unet("sd15")
    ops.optimize_sd_model(ours, "performance", engine=request.param)
    inputs = unet_inputs(plain)
    with torch.no_grad():
        assert psnr(ours(**inputs).sample, plain(**inputs).sample) >= 90
    return ours, plain, inputs


@torch.no_grad()
def agree(ours, plain, inputs, least=90.0, unlike=None):
    want = plain(**inputs).sample
    if unlike is not None:
        assert psnr(want, unlike) < 60, "the change does nothing"
    assert psnr(ours(**inputs).sample, want) >= least


def untouched(*modules) -> bool:
    return not any("rocm_sd" in key for m in modules for c in m.modules() for key in (*c.__dict__, *type(c).__dict__))


# --- owners ---
@pytest.mark.parametrize("order", ["pipe", "unet", "vae"])
def test_two_owners(ops, tiny_model, order):
    pipe = pipeline(tiny_model, "sd15")
    want = draw(pipe)
    part = pipe if order == "pipe" else getattr(pipe, order)
    ops.optimize_sd_model(part)
    ops.optimize_sd_model(pipe)
    ops.optimize_sd_model(pipe.unet, "memory")
    ops.optimize_sd_model(pipe.vae)
    assert psnr(draw(pipe), want) >= 60
    ops.restore(pipe.unet)
    assert psnr(draw(pipe), want) >= 60 and untouched(pipe.unet) and ops.report(pipe)["models"] == 1
    ops.restore(pipe)
    assert torch.equal(draw(pipe), want) and untouched(pipe.unet, pipe.vae)


def test_pipelines_that_share_models(ops, tiny_model):
    from rocm_sd_ops import ROCmStableDiffusionImg2ImgPipeline, ROCmStableDiffusionPipeline

    plain = pipeline(tiny_model, "sd15")
    first = ROCmStableDiffusionPipeline(**plain.components)
    want = draw(plain)
    first.set_progress_bar_config(disable=True)
    assert psnr(draw(first), want) >= 60
    second = ROCmStableDiffusionImg2ImgPipeline(**first.components)
    second.set_progress_bar_config(disable=True)
    call = dict(prompt="a cat", image=torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)), strength=0.6,
                num_inference_steps=4, output_type="np")
    got = second(**call, generator=torch.Generator().manual_seed(1)).images
    assert psnr(draw(first), want) >= 60
    ops.restore(second)
    assert untouched(plain.unet, plain.vae)
    second.rocm_sd_level = None
    assert psnr(torch.from_numpy(got), torch.from_numpy(second(**call, generator=torch.Generator().manual_seed(1)).images)) >= 60


# --- copies ---
def test_deep_copies_have_their_own_weights(ops, optimized):
    ours, plain, inputs = optimized
    twin, plain_twin = copy.deepcopy(ours), copy.deepcopy(plain)
    assert ops.report(twin) == ops.report(ours)
    with torch.no_grad():
        for model in (twin, plain_twin):
            for p in model.parameters():
                p.mul_(1.2)
    agree(twin, plain_twin, inputs, unlike=plain(**inputs).sample.detach())
    agree(ours, plain, inputs)
    ops.restore(twin)
    assert untouched(twin) and ops.report(ours)["models"] == 1
    agree(twin, plain_twin, inputs, least=120)
    agree(ours, plain, inputs)


def test_deep_copies_of_pipelines_and_of_the_engines_modules(ops, tiny_model):
    pipe = pipeline(tiny_model, "sd15")
    want = draw(pipe)
    for make in (lambda: ops.optimize_sd_model(pipe, engine=False), lambda: ops.optimize_sd_model(pipe, engine=True)):
        twin = copy.deepcopy(make())
        with torch.no_grad():
            for p in (*pipe.unet.parameters(), *pipe.vae.parameters()):
                p.mul_(0.5)
        assert psnr(draw(twin), want) >= 60
        with torch.no_grad():
            for p in (*pipe.unet.parameters(), *pipe.vae.parameters()):
                p.mul_(2)
        assert psnr(draw(pipe), want) >= 60
        ops.restore(pipe)
    with torch.no_grad():
        unet, vae, latent = ops.EngineUNet(tiny_unet("sd15")), ops.EngineVAE(tiny_vae()), randn(1, 4, 6, 6)
        inputs = unet_inputs(unet)
        first = unet(**inputs).sample, vae.decode(latent).sample
        twins = copy.deepcopy(unet), copy.deepcopy(vae)
        for p in (*unet.parameters(), *vae.parameters()):
            p.mul_(0.5)
        got = twins[0](**inputs).sample, twins[1].decode(latent).sample
        assert all(torch.equal(a, b) for a, b in zip(got, first)) and twins[0].declined == twins[1].declined == ""


def test_pickles_are_the_plain_model(ops, optimized):
    ours, plain, inputs = optimized
    file = io.BytesIO()
    torch.save(ours, file)
    assert b"rocm_sd" not in file.getvalue()
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert type(loaded) is type(plain) and untouched(loaded) and ops.report(loaded) == {}
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).sample, plain(**inputs).sample)
    agree(ours, plain, inputs)
    ops.optimize_sd_model(loaded)
    agree(loaded, plain, inputs)


def replicate(module):
    """What torch.nn.parallel.replicate makes for one device: parameters are plain attributes."""
    made = module._replicate_for_data_parallel()
    for key, child in module._modules.items():
        made._modules[key] = None if child is None else replicate(child)
    for key, p in module._parameters.items():
        if p is None:
            made._parameters[key] = None
        else:
            made.__dict__[key] = p.detach() * 1.2
    return made


def test_replicas_compute_with_their_own_weights(ops, optimized):
    ours, plain, inputs = optimized
    base = plain(**inputs).sample.detach()
    agree(replicate(ours), replicate(plain), inputs, least=120, unlike=base)
    agree(copy.copy(ours), plain, inputs)
    agree(ours, plain, inputs)


# --- modes of PyTorch ---
def test_autocast(ops, optimized):
    ours, plain, inputs = optimized
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ours(**inputs).sample, plain(**inputs).sample)
    for model in (ours, plain):
        model.requires_grad_(True).zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            model(**inputs).sample.float().square().mean().backward()
    assert torch.equal(ours.conv_in.weight.grad, plain.conv_in.weight.grad)
    agree(ours, plain, inputs)


def test_forward_derivatives_and_vmap(ops, optimized):
    ours, plain, inputs = optimized
    rest = {k: v for k, v in inputs.items() if k != "sample"}
    tangent = randn(*inputs["sample"].shape, seed=8)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # PyTorch's others have no forward derivatives
        got, want = (torch.func.jvp(lambda x, m=m: m(x, **rest).sample, (inputs["sample"],), (tangent,))[1] for m in (ours, plain))
        assert torch.equal(got, want)
        with torch.no_grad(), torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(inputs["sample"], tangent)
            made = torch.autograd.forward_ad.unpack_dual(ours(dual, **rest).sample).tangent
            assert psnr(made, want) >= 90
    agree(ours, plain, inputs)


# --- what others change ---
def _circular(conv):
    def forward(self, x, weight, bias):
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), weight, bias, self.stride)

    conv._conv_forward = types.MethodType(forward, conv)


def _classes(monkeypatch, cls, name, change):
    original = getattr(cls, name)
    monkeypatch.setattr(cls, name, lambda self, *args, **kwargs: change(original(self, *args, **kwargs)))


def _scaled(y):
    return tuple(v * 0.7 for v in y) if isinstance(y, tuple) else y * 0.7


CLASSES = [(nn.Linear, "forward"), (nn.Conv2d, "forward"), (nn.Conv2d, "_conv_forward"), (nn.GroupNorm, "forward"),
           (nn.LayerNorm, "forward"), (nn.SiLU, "forward"), ("BasicTransformerBlock", "forward"), ("ResnetBlock2D", "forward"),
           ("Upsample2D", "forward"), ("Transformer2DModel", "forward"), ("Attention", "forward"), ("FeedForward", "forward"),
           ("GEGLU", "forward"), ("AttnProcessor2_0", "__call__"), ("UNet2DConditionModel", "forward")]


def _class(cls):
    if not isinstance(cls, str):
        return cls
    from diffusers.models import attention, attention_processor, resnet, transformers, unets, upsampling

    for module in (attention, attention_processor, resnet, upsampling, transformers, unets):
        if hasattr(module, cls):
            return getattr(module, cls)
    from diffusers.models.activations import GEGLU

    return {"GEGLU": GEGLU}[cls]


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("engine", [False, True], ids=["layers", "engine"])
def test_methods_replaced_on_classes(ops, monkeypatch, engine, before):
    ours, plain = tiny_unet("sd15"), tiny_unet("sd15")
    inputs = unet_inputs(plain)
    with torch.no_grad():
        base = plain(**inputs).sample
    for cls, name in CLASSES:
        ops.restore(ours)
        if not before:
            ops.optimize_sd_model(ours, "performance", engine=engine)
            agree(ours, plain, inputs)
        with monkeypatch.context() as patch:
            change = _scaled if cls != "UNet2DConditionModel" else lambda y: type(y)(sample=y.sample * 0.7)
            _classes(patch, _class(cls), name, change)
            if before:
                ops.optimize_sd_model(ours, "performance", engine=engine)
            with torch.no_grad():
                want = plain(**inputs).sample
                assert psnr(want, base) < 60, (cls, name)
                assert psnr(ours(**inputs).sample, want) >= 90, (cls, name)
        agree(ours, plain, inputs)


@pytest.mark.parametrize("layer", ["conv_in", "down_blocks.0.resnets.0.conv1", "up_blocks.0.upsamplers.0.conv", "conv_out"])
def test_convolutions_with_a_forward_of_their_own(ops, optimized, layer):
    ours, plain, inputs = optimized
    base = plain(**inputs).sample.detach()
    for model in (ours, plain):
        _circular(model.get_submodule(layer))
    agree(ours, plain, inputs, unlike=base)


def test_hooks_on_all_modules(ops, optimized):
    ours, plain, inputs = optimized
    base = plain(**inputs).sample.detach()
    hook = nn.modules.module.register_module_forward_hook(lambda m, args, y: y * 0.5 if isinstance(m, nn.LayerNorm) else None)
    try:
        agree(ours, plain, inputs, unlike=base)
    finally:
        hook.remove()
    agree(ours, plain, inputs)


def test_classes_made_on_top_of_ours(ops, optimized):
    """As tomesd does it, before or after."""
    ours, plain, inputs = optimized
    base = plain(**inputs).sample.detach()

    def merge(block):
        class Merged(block.__class__):
            def forward(self, hidden_states, *args, **kwargs):
                return super().forward(hidden_states * 0.8, *args, **kwargs)

        block.before, block.__class__ = block.__class__, Merged

    blocks = [m.get_submodule("down_blocks.0.attentions.0.transformer_blocks.0") for m in (ours, plain)]
    for block in blocks:
        merge(block)
    agree(ours, plain, inputs, unlike=base)
    agree(copy.deepcopy(ours), plain, inputs)
    ops.restore(ours)
    agree(ours, plain, inputs, least=120)
    ops.optimize_sd_model(ours, "performance")
    agree(ours, plain, inputs)
    for block in blocks:
        block.__class__ = block.before
    agree(ours, plain, inputs)
    ops.restore(ours)
    assert untouched(ours)


def test_options_of_blocks_that_change_later(ops, optimized):
    ours, plain, inputs = optimized
    base = plain(**inputs).sample.detach()
    for model in (ours, plain):
        model.mid_block.resnets[0].output_scale_factor = 2.0
        model.mid_block.resnets[1].nonlinearity = nn.GELU()
        model.conv_act = nn.Tanh()
    if ops.engine_reasons(ours):
        ops.restore(ours)  # (the engine reads a model's options when it is made)
        ops.optimize_sd_model(ours, "performance", engine=False)
    agree(ours, plain, inputs, unlike=base)


# --- writes that PyTorch does not count ---
def _in_inference_mode(tensors):
    with torch.inference_mode():
        for t in tensors:
            t.mul_(1.25)


def _through_data(tensors):
    for t in tensors:
        t.data.mul_(1.25)


def _averaged(tensors):
    from diffusers.training_utils import EMAModel

    ema = EMAModel([nn.Parameter(t.detach() * 1.25) for t in tensors])
    ema.copy_to(tensors)


@pytest.mark.parametrize("write", [_in_inference_mode, _through_data, _averaged])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("engine", [False, True], ids=["layers", "engine"])
def test_writes_that_are_not_counted(ops, engine, dtype, write):
    ours, plain = tiny_unet("sd15", dtype), tiny_unet("sd15", dtype)
    ops.optimize_sd_model(ours, "performance", engine=engine)
    inputs = unet_inputs(plain, dtype)

    @torch.no_grad()
    def same():  # as a model that never saw other values
        fresh = ops.optimize_sd_model(copy.deepcopy(plain), "performance", engine=engine)
        return torch.equal(ours(**inputs).sample, fresh(**{k: v.clone() for k, v in inputs.items()}).sample)

    with torch.no_grad():
        base = plain(**inputs).sample
        ours(**inputs)
    for pick in ("attn2.to_k.weight", "norm", "conv1.weight", "ff.net.0.proj.weight", "proj_out", ""):
        for model in (ours, plain):
            write([p for n, p in model.named_parameters() if pick in n])
        assert same(), pick
    write([inputs["encoder_hidden_states"]])
    assert same()
    with torch.no_grad():
        assert psnr(ours(**inputs).sample, plain(**inputs).sample) >= (90 if dtype == torch.float32 else 20)
        assert psnr(plain(**inputs).sample, base) < 25


@torch.no_grad()
@pytest.mark.parametrize("engine", [False, True], ids=["layers", "engine"])
def test_a_callback_that_scales_the_text_in_place(ops, tiny_model, engine):
    plain, ours = pipeline(tiny_model, "sd15"), pipeline(tiny_model, "sd15")
    ops.optimize_sd_model(ours, "performance", engine=engine)

    def callback(pipe, step, time, tensors):
        tensors["prompt_embeds"].mul_(0.5)
        return tensors

    call = dict(steps=3, callback_on_step_end=callback, callback_on_step_end_tensor_inputs=["prompt_embeds"])
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            assert psnr(draw(ours, **call), draw(plain, **call)) >= 60


def test_group_offload_to_disk(ops, tmp_path):
    ours, plain = tiny_unet("sd15"), tiny_unet("sd15")
    ops.optimize_sd_model(ours, engine=False)
    assert all(p.is_contiguous() for p in ours.parameters())
    inputs = unet_inputs(plain)
    agree(ours, plain, inputs)
    ours.enable_group_offload(torch.device("cpu"), offload_type="leaf_level", offload_to_disk_path=str(tmp_path))
    agree(ours, plain, inputs)
