"""AUTOMATIC1111's extension against stand-ins for the modules that an extension imports. tests/front_ends/run_a1111.py runs it in the real
program."""

from __future__ import annotations

import importlib.util
import json
import sys
import types

import pytest
import torch
from front_ends import AttnBlock, exact, ldm_unet
from torch_ops import REPOSITORY, load_package, randn


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


class CrossAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = 2
        self.to_q, self.to_k, self.to_v = (torch.nn.Linear(8, 8, bias=False) for _ in range(3))
        self.to_out = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.0))


@pytest.fixture
def a1111(ops, monkeypatch):
    made: dict[str, types.ModuleType] = {}

    def module(name, **content):
        made[name] = types.ModuleType(name)
        made[name].__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, made[name])
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(made[parent], child, made[name])

    callbacks = {"optimizers": [], "app": [], "unets": []}
    module("modules", shared=types.SimpleNamespace(loaded_hypernetworks=[], opts=types.SimpleNamespace(upcast_attn=False)))
    monkeypatch.setitem(sys.modules, "modules.shared", made["modules"].shared)
    module("modules.script_callbacks", on_list_optimizers=callbacks["optimizers"].append,
           on_app_started=callbacks["app"].append, on_list_unets=callbacks["unets"].append)
    module("modules.devices", device=torch.device("cpu"), dtype_unet=torch.float32)
    module("modules.sd_unet", SdUnet=torch.nn.Module, SdUnetOption=type("SdUnetOption", (), {}), current_unet=None,
           current_unet_option=None, get_unet_option=lambda: None)
    module("modules.sd_hijack", current_optimizer=None)
    module("modules.scripts", Script=object, AlwaysVisible=object())
    module("modules.sd_hijack_optimizations", SdOptimization=type("SdOptimization", (), {}))
    module("modules.hypernetworks")
    module("modules.hypernetworks.hypernetwork", apply_hypernetworks=lambda nets, context: (context, context))
    module("gradio", Accordion=lambda *a, **k: _Nothing(), Dropdown=lambda choices, **k: ("dropdown", choices, k))
    for stack in ("ldm", "sgm"):
        module(stack)
        module(f"{stack}.modules")
        module(f"{stack}.modules.attention", CrossAttention=type("CrossAttention", (CrossAttention,), {}))
        module(f"{stack}.modules.diffusionmodules")
        module(f"{stack}.modules.diffusionmodules.model", AttnBlock=type("AttnBlock", (AttnBlock,), {}))
    spec = importlib.util.spec_from_file_location(
        "rocm_sd_a1111", REPOSITORY / "integrations/automatic1111/scripts/rocm_sd.py")
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    return types.SimpleNamespace(extension=extension, callbacks=callbacks, modules=made)


def test_another_program_is_told(ops, monkeypatch):
    """Forge has no such modules: one message, and the program goes on."""
    for name in ("modules", "modules.hypernetworks"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "gradio", types.ModuleType("gradio"))
    spec = importlib.util.spec_from_file_location("rocm_sd_forge", REPOSITORY / "integrations/automatic1111/scripts/rocm_sd.py")
    with pytest.raises(ImportError, match="not loaded.*Forge.*docs/reference/pytorch.md"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class _Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def test_a1111_optimization(a1111, monkeypatch):
    found: list = []
    a1111.callbacks["optimizers"][0](found)
    (optimization,) = found
    assert optimization.is_available() and optimization.priority > 1000 and optimization.name == "rocm-sd"
    with monkeypatch.context() as patch:  # a GPU without kernels of ours
        patch.setattr(a1111.extension.rocm_sd_ops.ROCmSDBackend, "_probe", staticmethod(lambda device: "no archive"))
        assert optimization.priority == 0
    optimization.apply()
    for stack in ("ldm", "sgm"):
        torch.manual_seed(0)
        layer = a1111.modules[f"{stack}.modules.attention"].CrossAttention().requires_grad_(False)
        x, context = randn(2, 5, 8), randn(2, 7, 8, seed=1)
        for c, mask in ((context, None), (None, None), (context, randn(2, 7, seed=2) > -1)):
            states = x if c is None else c
            q, k, v = (f(t).unflatten(-1, (2, 4)).transpose(1, 2) for f, t in
                       ((layer.to_q, x), (layer.to_k, states), (layer.to_v, states)))
            want = exact(q, k, v, None if mask is None else mask[:, None, None]).float().transpose(1, 2).flatten(2)
            torch.testing.assert_close(layer(x, context=c, mask=mask), layer.to_out(want), rtol=1e-5, atol=1e-5)
        block = a1111.modules[f"{stack}.modules.diffusionmodules.model"].AttnBlock(16).requires_grad_(False)
        picture = randn(1, 16, 4, 3)
        torch.testing.assert_close(block(picture), AttnBlock.forward(block, picture), rtol=1e-5, atol=1e-5)


def test_a1111_script(a1111, ops):
    script = a1111.extension.RocmSDScript()
    (level,) = script.ui(False)
    assert level[1] == ["auto", "performance", "memory", "off"] and script.infotext_fields[0][1] == "ROCm SD level"
    p = types.SimpleNamespace(extra_generation_params={})
    script.process(p, "off")
    try:
        assert p.extra_generation_params == {"ROCm SD level": "off"}
        q = randn(1, 1, 4, 8)
        assert ops.explain("attention", q, q, q).kernel == "pytorch"
    finally:
        script.postprocess(p, None)
    assert ops.explain("attention", q, q, q).kernel != "pytorch"
    with pytest.raises(ValueError, match="expected one of"):
        script.process(p, "fastest")


def test_a1111_api(a1111):
    routes = {}
    app = types.SimpleNamespace(add_api_route=lambda path, function, methods: routes.update({path: (function, methods)}))
    a1111.callbacks["app"][0](None, app)
    function, methods = routes["/rocm_sd/v1/status"]
    told = json.loads(json.dumps(function()))
    assert methods == ["GET"] and {"device", "kernels", "fallbacks"} <= set(told) and told["attention"] is told["unet"] is None
    a1111.modules["modules.sd_hijack"].current_optimizer = types.SimpleNamespace(name="rocm-sd")
    assert function()["attention"] == "rocm-sd"


@torch.no_grad()
def test_a1111_engine_unet(a1111, tiny_model, monkeypatch):
    from test_torch_optimize import psnr

    found: list = []
    a1111.callbacks["unets"][0](found)
    (option,) = found
    assert option.label == "rocm-sd engine" and option.model_name is None
    model, calls, unet = ldm_unet(tiny_model)
    shared = a1111.modules["modules"].shared
    monkeypatch.setattr(shared, "sd_model",
                        types.SimpleNamespace(model=types.SimpleNamespace(diffusion_model=model)), raising=False)
    engine = option.create_unet()
    engine.activate()
    inputs = randn(2, 4, 8, 8), torch.tensor([500.0, 20.0]), randn(2, 77, unet.config.cross_attention_dim, seed=1)
    assert psnr(engine.forward(*inputs), unet(*inputs).sample) >= 90 and calls == []
    with pytest.raises(NotImplementedError, match="control"):
        engine.forward(*inputs, control=1)
    engine.coarsest = 8  # what three halvings need
    with pytest.raises(NotImplementedError, match="multiples of 64 pixels"):
        engine.forward(inputs[0][..., :7], *inputs[1:])
    engine.coarsest = 1
    model.get_parameter("out.2.weight").mul_(2)  # as a LoRA does
    monkeypatch.setattr(a1111.modules["modules.sd_unet"], "current_unet", engine)
    a1111.extension.RocmSDScript().process_batch(None)
    unet.conv_out.weight.mul_(2)
    assert psnr(engine.forward(*inputs), unet(*inputs).sample) >= 90
    other, _, refiner = ldm_unet(tiny_model)  # another checkpoint in the middle of a picture
    for weights in (other.get_parameter("out.2.weight"), refiner.conv_out.weight):
        weights.mul_(3)
    shared.sd_model.model.diffusion_model = other
    assert psnr(engine.forward(*inputs), refiner(*inputs).sample) >= 90
    engine.deactivate()
    assert engine.engine is None


def test_a1111_level_reaches_the_unet(a1111, ops):
    from test_torch_engine import Ldm

    unet = Ldm().eval()
    p = types.SimpleNamespace(extra_generation_params={},
                              sd_model=types.SimpleNamespace(model=types.SimpleNamespace(diffusion_model=unet)))
    script = a1111.extension.RocmSDScript()
    script.process(p, "memory")
    assert ops.report(unet)["residual blocks"] == script.changed["residual blocks"] == 2 and p.extra_generation_params == {"ROCm SD level": "memory"}
    script.postprocess(p, None)
    assert ops.report(unet) == {}


@torch.no_grad()
def test_a1111_level_with_the_engine_chosen(a1111, ops, monkeypatch):
    """The program applies the option "SD Unet" after the scripts have seen the picture: what counts is the option."""
    from test_torch_engine import Ldm

    unet = Ldm().eval()
    p = types.SimpleNamespace(extra_generation_params={},
                              sd_model=types.SimpleNamespace(model=types.SimpleNamespace(diffusion_model=unet)))
    monkeypatch.setattr(a1111.modules["modules.sd_unet"], "get_unet_option", a1111.extension.EngineUnetOption)
    script, q = a1111.extension.RocmSDScript(), randn(1, 1, 4, 8)
    for level in ("performance", "off"):
        script.process(p, level)
        assert ops.report(unet) == {} and ops.explain("attention", q, q, q).kernel != "pytorch"
        script.postprocess(p, None)
