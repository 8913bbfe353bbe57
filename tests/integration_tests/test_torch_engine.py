"""The C++ engine's UNet and VAE inside PyTorch: the same numbers as the modules, on the modules' weights; what the engine does
not have is left to the module; optimize_sd_model(engine=True); the layers of the ldm family."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from test_torch_optimize import draw, lora_weights, pipeline, psnr, tiny_unet, unet_inputs
from tiny_models import random_weights
from torch import nn
from torch_ops import load_package, randn

pytestmark = pytest.mark.in_python


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


@pytest.mark.parametrize("kind", ["sd15", "sd21", "sdxl", "small-sd"])
@pytest.mark.parametrize("dtype,least", [(torch.float32, 90), (torch.bfloat16, 40)])
def test_engine_unet(ops, kind, dtype, least):
    """bf16 against float32: rounding differs at every layer, for PyTorch's own, too."""
    unet, exact = tiny_unet(kind, dtype), tiny_unet(kind)
    engine = ops.EngineUNet(unet)
    inputs = unet_inputs(unet, dtype)
    wide = {k: _float(v) for k, v in inputs.items()}
    with torch.no_grad():
        want, plain = exact(**wide).sample, unet(**inputs).sample
        got = engine(**inputs).sample
        assert engine.declined == "" and engine.config is unet.config and engine.dtype == dtype
        assert psnr(got, want) >= min(least, psnr(plain, want) - 3)
        assert torch.equal(engine(**inputs, return_dict=False)[0], got)
        wider = {k: torch.cat([v, v[:, :, :, :5]], dim=3) if k == "sample" else v for k, v in inputs.items()}
        assert psnr(engine(**wider).sample, unet(**wider).sample) >= min(least, psnr(plain, want) - 3)  # an odd size


def _float(value):
    if isinstance(value, dict):
        return {k: _float(v) for k, v in value.items()}
    return value.float() if value.is_floating_point() else value


@pytest.fixture(params=["look first", "run first"])
def order(ops, request, monkeypatch):
    """A GPU is started before the module is looked at; here the host is, too."""
    if request.param == "run first":
        from rocm_sd_ops._engine_forward import EngineForward

        monkeypatch.setattr(EngineForward, "_may_run_first", lambda self, sample: self._model is not None)
    return request.param


def test_engine_sees_what_changes(ops, order):
    unet, plain = tiny_unet("sd15"), tiny_unet("sd15")
    engine, inputs = ops.EngineUNet(unet), unet_inputs(unet)
    with torch.no_grad():
        engine(**inputs)
        inputs["encoder_hidden_states"].mul_(0.5)  # the same tensor with other values
        assert psnr(engine(**inputs).sample, plain(**inputs).sample) >= 90
        for model in (unet, plain):
            model.mid_block.resnets[0].conv1.weight *= 3
            model.up_blocks[1].attentions[0].transformer_blocks[0].attn1.to_k.weight *= 2
        assert psnr(engine(**inputs).sample, plain(**inputs).sample) >= 90 and engine.declined == ""
        for model in (unet, plain):
            model.load_state_dict(tiny_unet("sd15").state_dict())
        assert psnr(engine(**inputs).sample, plain(**inputs).sample) >= 90 and engine.declined == ""


def _hook(unet):
    return unet.down_blocks[0].resnets[0].register_forward_hook(lambda module, args, y: y * 0.5)


def _forward(unet):
    unet.down_blocks[0].resnets[0].forward = lambda x, temb=None, *args, **kwargs: x


def _layer(unet):
    unet.down_blocks[0].resnets[0].conv1 = nn.Sequential(unet.down_blocks[0].resnets[0].conv1, nn.Tanh())


def _processor(unet):
    from diffusers.models.attention_processor import AttnAddedKVProcessor2_0

    class Other(AttnAddedKVProcessor2_0):
        def __call__(self, attn, hidden_states, *args, **kwargs):
            return hidden_states

    unet.down_blocks[0].attentions[0].transformer_blocks[0].attn1.processor = Other()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("change,word", [(_hook, "hooks"), (_forward, "forward"), (_layer, "replaced|missing"),
                                         (_processor, "processor"), (lambda u: u.enable_freeu(0.9, 0.2, 1.2, 1.4), "FreeU")],
                         ids=["hook", "forward", "layer", "processor", "freeu"])
def test_engine_leaves_changed_modules_alone(ops, order, change, word, before):
    unet = tiny_unet("sd15")
    engine, inputs = ops.EngineUNet(unet), unet_inputs(unet)
    with torch.no_grad():
        base = unet(**inputs).sample
        if not before:
            engine(**inputs)
        change(unet)
        want = unet(**inputs).sample
        assert psnr(base, want) < 60
        assert torch.equal(engine(**inputs).sample, want)
    assert re.search(word, engine.declined), engine.declined


def test_a_run_before_the_look_is_the_only_one(ops, monkeypatch):
    """And a second one follows where the module had changed."""
    from rocm_sd_ops import engine_modules
    from rocm_sd_ops._engine_forward import EngineForward

    calls, run = [], torch.ops.rocm_sd._engine_unet
    monkeypatch.setattr(EngineForward, "_may_run_first", lambda self, sample: self._model is not None)
    monkeypatch.setattr(engine_modules, "_ops", type("Ops", (), {
        "_engine_unet": staticmethod(lambda *args: calls.append(args[0]) or run(*args)),
        "_new_engine_unet": torch.ops.rocm_sd._new_engine_unet}))
    unet = tiny_unet("sd15")
    engine, inputs = ops.EngineUNet(unet), unet_inputs(unet)
    with torch.no_grad():
        engine(**inputs)
        engine(**inputs)
        assert len(calls) == 2
        unet.conv_in.weight.mul_(2)
        engine(**inputs)
    assert len(calls) == 4 and calls[2] == calls[0] != calls[3] and engine.declined == ""
    engine(**inputs)  # with gradients
    assert len(calls) == 4 and engine.declined == "gradients"


def test_engine_leaves_options_to_the_module(ops):
    unet = tiny_unet("sd15")
    engine, inputs = ops.EngineUNet(unet), unet_inputs(unet)
    want = unet(**inputs).sample
    assert torch.equal(engine(**inputs).sample, want) and engine.declined == "gradients"
    with torch.no_grad():
        mask = dict(encoder_attention_mask=(torch.arange(77) < 20)[None].expand(2, -1))
        assert torch.equal(engine(**inputs, **mask).sample, unet(**inputs, **mask).sample) and "masks" in engine.declined
        residual = dict(down_block_additional_residuals=tuple(torch.ones(()) for _ in range(12)),
                        mid_block_additional_residual=torch.ones(()))
        assert torch.equal(engine(**inputs, **residual).sample, unet(**inputs, **residual).sample)
        assert "residuals" in engine.declined
        for name in ("scale", "mine"):  # of which Diffusers' processors ignore the second
            given = dict(cross_attention_kwargs={name: torch.ones(2)})
            engine(**inputs, **given)
            assert engine.declined == "cross_attention_kwargs"
        engine(**inputs)
        assert engine.declined == ""


def test_a_model_that_the_engine_does_not_have(ops):
    from diffusers import UNet2DConditionModel
    from tiny_models import UNETS

    unet = UNet2DConditionModel(**UNETS["sd15"] | dict(resnet_time_scale_shift="scale_shift")).eval()
    engine, inputs = ops.EngineUNet(unet), unet_inputs(unet)
    with torch.no_grad():
        assert torch.equal(engine(**inputs).sample, unet(**inputs).sample)
    assert "resnet_time_scale_shift" in engine.declined


def tiny_vae():
    from diffusers import AutoencoderKL

    return random_weights(AutoencoderKL(block_out_channels=(16, 32, 32), norm_num_groups=8, layers_per_block=1,
                                        down_block_types=("DownEncoderBlock2D",) * 3,
                                        up_block_types=("UpDecoderBlock2D",) * 3), 3).eval().requires_grad_(False)


def test_engine_vae(ops):
    vae = tiny_vae()
    latent, image = randn(2, 4, 8, 6), randn(1, 3, 32, 24, seed=1)
    with torch.no_grad():
        want = vae.decode(latent).sample, vae.encode(image).latent_dist.mean
        engine = ops.EngineVAE(vae)
        got = engine.decode(latent).sample, engine.encode(image).latent_dist.mean
        assert engine.declined == "" and all(psnr(a, b) >= 90 for a, b in zip(got, want))
        engine.enable_slicing()
        assert psnr(engine.decode(latent).sample, want[0]) >= 90
        engine.disable_slicing()
        assert engine.detach() is vae and psnr(vae.decode(latent).sample, want[0]) > 120
        assert not any("forward" in m.__dict__ for m in vae.modules())


def test_bands_give_the_whole_picture(ops):
    from rocm_sd_ops.engine_modules import VaeHalfForward

    vae = tiny_vae()
    engine, latent = VaeHalfForward(vae, "decoder"), randn(2, 4, 12, 6)
    with torch.no_grad():
        want = vae.decoder(latent)
        for bands in (1, 2, 3, 5):
            assert psnr(engine.try_forward(None, latent, bands=bands), want) >= 90 and engine.reason == ""


def test_our_own_forwards_do_not_stop_the_engine(ops):
    """Nodes put them on for one call and take them off again, so that each call meets other objects."""
    from rocm_sd_ops.engine_modules import VaeHalfForward

    vae = tiny_vae()
    norm = vae.decoder.conv_norm_out
    engine, latent = VaeHalfForward(vae, "decoder"), randn(1, 4, 6, 6)
    with torch.no_grad():
        want = vae.decoder(latent)
        for put_on in (None, True, True, None):
            if put_on:
                norm.forward = lambda x: type(norm).forward(norm, x)
                norm.forward.rocm_sd_forward = True
            else:
                norm.__dict__.pop("forward", None)
            assert psnr(engine.try_forward(vae.decoder, latent), want) >= 90 and engine.reason == ""
        norm.forward = lambda x: x
        engine.try_forward(vae.decoder, latent)
        assert "forward was replaced" in engine.reason


@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_pipelines_on_the_engine(ops, tiny_model, kind):
    pipe = pipeline(tiny_model, kind)
    want = draw(pipe)
    ops.optimize_sd_model(pipe, "performance", engine=True)
    assert ops.report(pipe)["engine models"] == 3
    assert psnr(draw(pipe), want) >= 60
    assert ops.engine_reasons(pipe) == {"unet": "", "decoder": "", "encoder": ""}
    ops.restore(pipe)
    assert psnr(draw(pipe), want) > 120


def test_lora_beside_the_engine(ops, tiny_model):
    plain, ours = pipeline(tiny_model, "sd15"), pipeline(tiny_model, "sd15")
    ops.optimize_sd_model(ours, "performance", engine=True)
    draw(ours)
    state = lora_weights(plain.unet)
    for step, on_engine in ((lambda p: p.load_lora_weights(dict(state), adapter_name="a"), False),
                            (lambda p: p.fuse_lora(), False), (lambda p: p.unload_lora_weights(), True)):
        for pipe in (plain, ours):
            step(pipe)
        assert psnr(draw(ours), draw(plain)) >= 60
        assert (ops.engine_reasons(ours)["unet"] == "") == on_engine


# --- the layers of ldm, written from their contract ---
def ldm_class(cls):
    cls.__module__ = cls.forward.__module__ = "ldm.modules.standin"
    return cls


@ldm_class
class ResBlock(nn.Module):
    def __init__(self, channels, out, emb):
        super().__init__()
        self.in_layers = nn.Sequential(nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, out))
        self.out_layers = nn.Sequential(nn.GroupNorm(4, out), nn.SiLU(), nn.Dropout(0), nn.Conv2d(out, out, 3, padding=1))
        self.skip_connection = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x, emb):
        h = self.in_layers(x) + self.emb_layers(emb)[:, :, None, None]
        return self.skip_connection(x) + self.out_layers(h)


@ldm_class
class GEGLU(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, 8 * width)

    def forward(self, x):
        value, gate = self.proj(x).chunk(2, dim=-1)
        return value * F.gelu(gate)


@ldm_class
class Upsample(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, output_shape=None):
        size = [2 * n for n in x.shape[2:]] if output_shape is None else output_shape[2:]
        return self.conv(F.interpolate(x, size=size, mode="nearest"))


@ldm_class
class CrossAttention(nn.Module):
    heads = 2

    def __init__(self, width, context):
        super().__init__()
        self.to_q, self.to_k, self.to_v = nn.Linear(width, width), nn.Linear(context, width), nn.Linear(context, width)
        self.to_out = nn.Sequential(nn.Linear(width, width), nn.Dropout(0))

    def forward(self, x, context=None, mask=None):
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        mask = None if mask is None else mask[:, None, None]
        return self.to_out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


@ldm_class
class Ldm(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.same, self.up = ResBlock(8, 16, 12), ResBlock(16, 16, 12), Upsample(16)
        self.attention, self.gated, self.down = CrossAttention(16, 6), GEGLU(16), nn.Linear(64, 16)

    def forward(self, x, emb, context, mask=None, size=None):
        x = self.up(self.same(self.block(x, emb), emb), **({} if size is None else {"output_shape": size}))
        tokens = x.flatten(2).transpose(1, 2)
        tokens = tokens + self.attention(tokens, context, mask=mask)
        return tokens + self.down(self.gated(tokens))


@pytest.mark.parametrize("level", ["performance", "memory"])
def test_ldm_layers(ops, level):
    model = random_weights(Ldm(), 1).eval().requires_grad_(False)
    inputs = randn(2, 8, 5, 6), randn(2, 12, seed=1), randn(2, 7, 6, seed=2)
    options = [{}, {"mask": torch.arange(7)[None].expand(2, -1) < 4}, {"size": (2, 16, 9, 11)}]
    with torch.no_grad():
        wants = [model(*inputs, **o) for o in options]
        tokens, by_place = randn(2, 5, 16, seed=3), (inputs[2], options[1]["mask"])
        masked = model.attention(tokens, *by_place)
        ops.optimize_sd_model(model, level)
        assert ops.report(model) == {"residual blocks": 2, "upsamplings": 1, "attention layers": 1, "gated layers": 1}
        for o, want in zip(options, wants):
            assert psnr(model(*inputs, **o), want) >= 100
        assert psnr(model.attention(tokens, *by_place), masked) >= 100
        model.block.in_layers[2].register_forward_hook(lambda module, args, y: y * 2)  # as LoRA extensions do
        assert psnr(model(*inputs), wants[0]) < 60
        ops.restore(model)
    assert not any("forward" in m.__dict__ for m in model.modules())


def test_ldm_names_make_the_same_unet(ops, tiny_model):
    """A single file's names through the engine against the Diffusers folder of the same weights."""
    from rocm_sd_ops.engine_modules import new_unet
    from safetensors.torch import load_file

    unet = pipeline(tiny_model, "sd15").unet
    head = "model.diffusion_model."
    state = {k.removeprefix(head): v.contiguous() for k, v in load_file(tiny_model("sd15", "single")).items() if k.startswith(head)}
    inputs = unet_inputs(unet)
    model = new_unet(state)
    with torch.no_grad():
        got = torch.ops.rocm_sd._engine_unet(model.id, inputs["sample"], torch.full((2,), 500.0), inputs["encoder_hidden_states"],
                                             None, None, None, False)
        assert psnr(got, unet(**inputs).sample) >= 90


@pytest.mark.bad_input
def test_bad_engine_calls(ops):
    from rocm_sd_ops.engine_modules import new_unet

    with pytest.raises(RuntimeError, match="expected a unet"):
        new_unet({"a": randn(2, 2)})
    with pytest.raises(RuntimeError, match="no engine model"):
        torch.ops.rocm_sd._engine_vae(10 ** 9, randn(1, 4, 8, 8), 1)
    unet = tiny_unet("sd15")
    engine = ops.EngineUNet(unet)
    with torch.no_grad():
        inputs = unet_inputs(unet)
        with pytest.raises(RuntimeError, match="expected sample"):
            engine(**inputs | dict(encoder_hidden_states=randn(3, 77, unet.config.cross_attention_dim)))
        with pytest.raises(RuntimeError, match="text states"):
            engine(**inputs | dict(encoder_hidden_states=randn(2, 77, 5)))
