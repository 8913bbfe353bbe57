"""optimize_sd_model on Diffusers' models with random weights: the same numbers as the plain model, at each level; LoRA,
IP-Adapter, ControlNet, offloading and torch.compile still work; restore() leaves no trace."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager

import pytest
import torch
from tiny_models import random_weights
from torch_ops import load_package, randn

pytestmark = pytest.mark.in_python

LEVELS = ["auto", "performance", "memory"]


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


def psnr(got: torch.Tensor, want: torch.Tensor, least_peak: float = 0.0) -> float:
    """Of a result against the plain model's, its range (at least least_peak) the peak, in dB."""
    want = want.double()
    error = (got.double() - want).square().mean().item()
    peak = max((want.max() - want.min()).item(), least_peak)
    return math.inf if error == 0 else 10 * math.log10(peak ** 2 / error)


def pipeline(tiny_model, kind: str, dtype: torch.dtype = torch.float32, cls=None):
    import diffusers

    cls = cls or diffusers.DiffusionPipeline
    pipe = cls.from_pretrained(tiny_model(kind), torch_dtype=dtype)
    if getattr(pipe, "safety_checker", None) is not None:
        pipe.safety_checker = None
    pipe.set_progress_bar_config(disable=True)
    return pipe


def draw(pipe, steps: int = 2, **kwargs) -> torch.Tensor:
    """[H,W,3] in 0..1."""
    size = dict(width=64, height=64) | kwargs.pop("size", {})
    images = pipe("a cat on a chair", num_inference_steps=steps, generator=torch.Generator().manual_seed(3),
                  output_type="np", **size, **kwargs).images
    return torch.from_numpy(images[0])


def unet_inputs(unet, dtype: torch.dtype = torch.float32, batch: int = 2) -> dict:
    """As a pipeline passes them."""
    config = unet.config
    inputs = dict(sample=randn(batch, config.in_channels, 8, 8, dtype=dtype), timestep=torch.tensor(500),
                  encoder_hidden_states=randn(batch, 77, config.cross_attention_dim, dtype=dtype, seed=1))
    if config.addition_embed_type == "text_time":
        width = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        inputs["added_cond_kwargs"] = dict(text_embeds=randn(batch, width, dtype=dtype, seed=2),
                                           time_ids=torch.tensor([[64.0, 64, 0, 0, 64, 64]] * batch, dtype=dtype))
    return inputs


def tiny_unet(kind: str, dtype: torch.dtype = torch.float32):
    from diffusers import UNet2DConditionModel
    from tiny_models import UNETS

    return random_weights(UNet2DConditionModel(**UNETS[kind]), 5).to(dtype).eval().requires_grad_(False)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl"])
def test_pictures_agree(ops, tiny_model, kind, level):
    pipe = pipeline(tiny_model, kind)
    want = draw(pipe)
    assert ops.optimize_sd_model(pipe, level) is pipe
    counts = ops.report(pipe)
    assert counts["attention layers"] > 10 and counts["residual blocks"] > 10 and counts["transformer blocks"] > 5
    assert psnr(draw(pipe), want) >= 60
    ops.restore(pipe)
    assert torch.equal(draw(pipe), want) or psnr(draw(pipe), want) > 120
    assert ops.report(pipe) == {}


@pytest.mark.parametrize("kind", ["sd15", "sd21", "sdxl", "small-sd"])
@pytest.mark.parametrize("dtype,least", [(torch.float32, 90), (torch.bfloat16, 40)])
def test_unets_agree(ops, kind, dtype, least):
    """bf16 against the plain model in float32: rounding differs at every layer, for PyTorch's own bf16, too."""
    unet = tiny_unet(kind, dtype)
    inputs = unet_inputs(unet, dtype)
    with torch.no_grad():
        reference = tiny_unet(kind)(**{k: _float(v) for k, v in inputs.items()}).sample
        plain = unet(**inputs).sample
        ops.optimize_sd_model(unet, "performance")
        ours = unet(**inputs).sample
    assert psnr(ours, reference) >= min(least, psnr(plain, reference) - 3)
    assert unet.conv_in.weight.is_contiguous()  # as it was: others write and save it
    ops.restore(unet)
    assert not any("rocm_sd" in key for m in unet.modules() for key in (*m.__dict__, *type(m).__dict__))
    with torch.no_grad():
        assert psnr(unet(**inputs).sample, plain) > 100


def _float(value):
    if isinstance(value, dict):
        return {k: _float(v) for k, v in value.items()}
    return value.float() if value.is_floating_point() else value


def test_vae_agrees(ops):
    from diffusers import AutoencoderKL

    vae = random_weights(AutoencoderKL(block_out_channels=(16, 32, 32), norm_num_groups=8, layers_per_block=1,
                                       down_block_types=("DownEncoderBlock2D",) * 3,
                                       up_block_types=("UpDecoderBlock2D",) * 3), 3).eval()
    latent, image = randn(1, 4, 8, 6), randn(1, 3, 32, 24, seed=1)
    with torch.no_grad():
        want = vae.decode(latent).sample, vae.encode(image).latent_dist.mean
        ops.optimize_sd_model(vae)
        got = vae.decode(latent).sample, vae.encode(image).latent_dist.mean
    for a, b in zip(got, want):
        assert psnr(a, b) >= 90


def test_vae_by_layers_calls_no_norm_of_pytorchs(ops, monkeypatch):
    """Both halves: residual blocks, the attention's norm and the last one are ours, in each level."""
    from diffusers import AutoencoderKL

    vae = random_weights(AutoencoderKL(block_out_channels=(16, 32), norm_num_groups=8, layers_per_block=1,
                                       down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2), 3).eval()
    latent, image, calls = randn(1, 4, 8, 6), randn(1, 3, 16, 12, seed=1), []
    for name in ("group_norm", "silu"):
        monkeypatch.setattr(torch.nn.functional, name, _count(getattr(torch.nn.functional, name), calls))
    with torch.no_grad():
        want = vae.decode(latent).sample, vae.encode(image).latent_dist.mean
        assert len(calls) > 20
        for level in LEVELS:
            ops.optimize_sd_model(vae, level, engine=False)
            calls.clear()
            got = vae.decode(latent).sample, vae.encode(image).latent_dist.mean
            assert not calls and all(psnr(a, b) >= 90 for a, b in zip(got, want))


def _count(function, calls):
    return lambda *args, **kwargs: calls.append(1) or function(*args, **kwargs)


@contextmanager
def calls_of(function):
    """Counts calls without replacing the function, which our forwards would notice."""
    calls, code = [], function.__code__
    sys.setprofile(lambda frame, event, arg: calls.append(1) if event == "call" and frame.f_code is code else None)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@torch.no_grad()
def test_plain_blocks_call_no_layers(ops):
    """Their parameters are used directly; a hook, another processor, a layer in place of one, or a mask has the layers called."""
    unet, plain = tiny_unet("sd15"), tiny_unet("sd15")
    inputs = unet_inputs(unet)
    ops.optimize_sd_model(unet, "performance")
    outside = sum(isinstance(m, torch.nn.Linear) for n, m in unet.named_modules() if "transformer_blocks" not in n
                  and "time_emb_proj" not in n)
    for _ in range(2):
        with calls_of(torch.nn.Linear.forward) as calls:
            got = unet(**inputs).sample
        assert psnr(got, plain(**inputs).sample) >= 90 and len(calls) == outside
    within = "mid_block.attentions.0.transformer_blocks.0."
    for layer in (*(within + name for name in ("attn1.to_v", "ff.net.2", "norm2", "attn2")), "mid_block.resnets.0.time_emb_proj"):
        hooks = [m.get_submodule(layer).register_forward_hook(lambda m, a, y: y * 0.5) for m in (unet, plain)]
        assert psnr(unet(**inputs).sample, plain(**inputs).sample) >= 90, layer
        for hook in hooks:
            hook.remove()
    for b in (m.get_submodule(within.rstrip(".")) for m in (unet, plain)):
        b.attn1.to_q = torch.nn.Sequential(b.attn1.to_q, torch.nn.Tanh())
    assert psnr(unet(**inputs).sample, plain(**inputs).sample) >= 90
    mask = dict(encoder_attention_mask=(torch.arange(77) < 20)[None].expand(2, -1))
    assert psnr(unet(**inputs, **mask).sample, plain(**inputs, **mask).sample) >= 90


@torch.no_grad()
@pytest.mark.parametrize("bare", [True, False])
def test_text_keys_are_computed_once_per_picture(ops, monkeypatch, bare):
    """By blocks that use their layers' parameters, and by processors."""
    unet = tiny_unet("sd15")
    ops.optimize_sd_model(unet, "performance")
    block = unet.mid_block.attentions[0].transformer_blocks[0]
    if not bare:
        block.attn1.to_q.register_forward_hook(lambda *a: None)
    calls, linear = [], torch.nn.functional.linear

    def counted(x, weight, bias=None):
        if weight is block.attn2.to_k.weight:
            calls.append(1)
        return linear(x, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    inputs = unet_inputs(unet)
    first = unet(**inputs).sample
    unet(**inputs)
    assert len(calls) == 1
    inputs["encoder_hidden_states"].mul_(0.5)  # seen although the tensor is the same
    second = unet(**inputs).sample
    assert len(calls) == 2 and not torch.allclose(first, second)
    unet(**unet_inputs(unet))
    assert len(calls) == 3


def test_weights_that_change_are_seen(ops):
    unet = tiny_unet("sd15")
    ops.optimize_sd_model(unet, "performance")
    plain, inputs = tiny_unet("sd15"), unet_inputs(unet)
    with torch.no_grad():
        unet(**inputs)
        for model in (unet, plain):
            model.mid_block.resnets[0].conv1.weight.data *= 3  # behind PyTorch's back
            model.mid_block.resnets[0].norm1.weight *= 2
            model.mid_block.attentions[0].transformer_blocks[0].attn2.to_k.weight *= 2
            model.mid_block.attentions[0].proj_out.weight *= 2
        assert psnr(unet(**inputs).sample, plain(**inputs).sample) >= 90


def test_gradients(ops):
    plain, unet = tiny_unet("sd15").requires_grad_(True), tiny_unet("sd15").requires_grad_(True)
    ops.optimize_sd_model(unet)
    inputs = unet_inputs(unet)
    for model in (plain, unet):
        model(**inputs).sample.square().mean().backward()
    # Where a map is one pixel, self-attention has one key and the exact gradients of queries and keys are zero: what either
    # model gives is rounding, to be held against the gradients of the rest.
    floor = 1e-6 * max(p.grad.abs().max().item() for p in plain.parameters())
    for (name, a), b in zip(unet.named_parameters(), plain.parameters()):
        assert psnr(a.grad, b.grad, floor) > 70, name


@pytest.mark.parametrize("engine", [False, True])
def test_compile_without_graph_breaks(ops, engine):
    """By layers; and with the engine as one operator (test_torch_engine_modes.py)."""
    torch._dynamo.reset()
    unet = tiny_unet("sd15")
    inputs = unet_inputs(unet)
    with torch.no_grad():
        want = unet(**inputs).sample
        ops.optimize_sd_model(unet, "performance", engine=engine)
        compiled = torch.compile(unet, fullgraph=True, backend="aot_eager")
        assert psnr(compiled(**inputs).sample, want) >= 90


def lora_weights(unet, conv: bool = True, seed: int = 0) -> dict[str, torch.Tensor]:
    """A LoRA in PEFT's names for the attention of every block, and for a convolution."""
    state = {}
    for name, module in unet.named_modules():
        if name.endswith(("to_q", "to_v", "to_out.0")) or (conv and name.endswith("resnets.0.conv1")):
            w = module.weight
            a = randn(2, *w.shape[1:], seed=seed + len(state)) * 0.2
            b = randn(w.shape[0], 2, *((1, 1) if w.ndim == 4 else ()), seed=seed + len(state) + 1) * 0.2
            state[f"unet.{name}.lora_A.weight"], state[f"unet.{name}.lora_B.weight"] = a, b
    return state


def test_lora(ops, tiny_model):
    plain, ours = pipeline(tiny_model, "sd15"), pipeline(tiny_model, "sd15")
    base = draw(plain)
    ops.optimize_sd_model(ours, "performance")
    draw(ours)  # layouts are made before the LoRA comes
    state = lora_weights(plain.unet)
    steps = [lambda p: p.load_lora_weights(dict(state), adapter_name="a"), lambda p: p.set_adapters(["a"], [0.4]),
             lambda p: p.fuse_lora(), lambda p: p.unload_lora_weights()]
    for step in steps:  # after the last one the fused values stay in the weights
        for pipe in (plain, ours):
            step(pipe)
        want = draw(plain)
        assert psnr(base, want) < 50  # the LoRA does something
        assert psnr(draw(ours), want) >= 60


def test_controlnet(ops, tiny_model):
    from diffusers import ControlNetModel, StableDiffusionControlNetPipeline

    base = pipeline(tiny_model, "sd15")
    net = random_weights(ControlNetModel.from_unet(base.unet, conditioning_embedding_out_channels=(16,) * 4), 9)
    pipe = StableDiffusionControlNetPipeline(**base.components, controlnet=net, requires_safety_checker=False)
    pipe.set_progress_bar_config(disable=True)
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    want = draw(pipe, image=image)
    ops.optimize_sd_model(pipe)
    assert ops.report(pipe)["models"] == 3
    assert psnr(draw(pipe, image=image), want) >= 60


def test_ip_adapter_processors_stay(ops):
    from diffusers.models.attention_processor import IPAdapterAttnProcessor2_0

    unet = tiny_unet("sd15")
    processors = dict(unet.attn_processors)
    for i, name in enumerate(processors):
        if "attn2" in name:
            width = unet.get_submodule(name.removesuffix(".processor")).to_k.out_features
            processors[name] = random_weights(IPAdapterAttnProcessor2_0(width, unet.config.cross_attention_dim), i)
    unet.set_attn_processor(processors)
    from diffusers.models.embeddings import ImageProjection, MultiIPAdapterImageProjection

    projection = random_weights(ImageProjection(32, unet.config.cross_attention_dim, 4), 1)
    unet.encoder_hid_proj = MultiIPAdapterImageProjection([projection])
    unet.register_to_config(encoder_hid_dim_type="ip_image_proj")
    inputs = unet_inputs(unet) | dict(added_cond_kwargs=dict(image_embeds=[randn(2, 1, 32, seed=7)]))
    with torch.no_grad():
        want = unet(**inputs).sample
        ops.optimize_sd_model(unet)
        assert sum(isinstance(p, IPAdapterAttnProcessor2_0) for p in unet.attn_processors.values()) > 5
        assert psnr(unet(**inputs).sample, want) >= 90


@pytest.mark.parametrize("first", ["offload", "optimize"])
def test_sequential_offload(ops, first):
    """accelerate keeps each leaf's weights away until its own forward runs: such leaves keep their own code."""
    from accelerate import cpu_offload

    unet = tiny_unet("sd15")
    inputs = unet_inputs(unet)
    with torch.no_grad():
        want = unet(**inputs).sample
        if first == "offload":
            cpu_offload(unet, torch.device("cpu"))
            ops.optimize_sd_model(unet)
        else:
            ops.optimize_sd_model(unet)
            cpu_offload(unet, torch.device("cpu"))
        assert unet.mid_block.resnets[0].conv1.weight.device.type == "meta"
        assert psnr(unet(**inputs).sample, want) >= 90


@pytest.mark.bad_input
def test_what_cannot_be_optimised(ops):
    with pytest.raises(ValueError, match="expected one of"):
        ops.optimize_sd_model(torch.nn.Linear(2, 2), "fastest")
    with pytest.raises(TypeError, match="no layer"):
        ops.optimize_sd_model(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="expected a Diffusers pipeline"):
        ops.optimize_sd_model("a string")
    model = torch.nn.Linear(2, 2)
    assert ops.restore(model) is model
