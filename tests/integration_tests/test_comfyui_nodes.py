"""ComfyUI's node package against small stand-ins written from its contracts: a ModelPatcher and a VAE of the documented shape.
tests/front_ends/run_comfyui.py runs it in the real program."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import types

import pytest
import torch
from front_ends import AttnBlock, exact, ldm_unet
from torch_ops import REPOSITORY, load_package, randn


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


class ModelPatcher:
    """Several wrappers and callbacks may have one key, as in ComfyUI."""

    def __init__(self, options=None):
        self.model_options = options or {"transformer_options": {}}
        self.wrappers: dict = {}
        self.callbacks: dict = {}
        self.model = None

    def clone(self):
        options = {k: dict(v) if isinstance(v, dict) else v for k, v in self.model_options.items()}
        made = ModelPatcher(options)
        made.model = self.model
        made.wrappers, made.callbacks = ({name: list(held) for name, held in of.items()} for of in (self.wrappers, self.callbacks))
        return made

    def add_wrapper_with_key(self, kind, key, wrapper):
        self.wrappers.setdefault((kind, key), []).append(wrapper)

    def remove_wrappers_with_key(self, kind, key):
        self.wrappers.pop((kind, key), None)

    def add_callback_with_key(self, kind, key, callback):
        self.callbacks.setdefault((kind, key), []).append(callback)

    def remove_callbacks_with_key(self, kind, key):
        self.callbacks.pop((kind, key), None)


def comfy_attention(q, k, v, heads, mask=None, attn_precision=None, skip_reshape=False, skip_output_reshape=False, **kwargs):
    """What a built-in attention function computes."""
    if not skip_reshape:
        q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    if mask is not None and mask.ndim == 3:
        mask = mask.unsqueeze(1)
    y = exact(q, k, v, mask, kwargs.get("scale")).to(q.dtype)
    return y if skip_output_reshape else y.transpose(1, 2).flatten(2)


class ComfyVAE:
    """No clone(), as in ComfyUI."""

    def __init__(self):
        torch.manual_seed(0)
        self.first_stage_model, self.patcher = AttnBlock(16).eval().requires_grad_(False), ModelPatcher()

    def decode(self, samples_in, vae_options={}):  # noqa: B006
        return (self.first_stage_model(samples_in).clamp(-1, 1) / 2 + 0.5).movedim(1, -1)


@pytest.fixture
def comfyui(ops, monkeypatch):
    samplers = types.ModuleType("comfy.samplers")
    samplers.KSampler = types.SimpleNamespace(SAMPLERS=["euler"], SCHEDULERS=["normal"])
    comfy = types.ModuleType("comfy")
    comfy.samplers = samplers
    nodes = types.ModuleType("nodes")
    nodes.common_ksampler = lambda *args, **kwargs: ("sampled", args, kwargs)
    for name, stand_in in (("comfy", comfy), ("comfy.samplers", samplers), ("nodes", nodes)):
        monkeypatch.setitem(sys.modules, name, stand_in)
    spec = importlib.util.spec_from_file_location("rocm_sd_comfyui", REPOSITORY / "integrations/comfyui/__init__.py",
                                                  submodule_search_locations=[str(REPOSITORY / "integrations/comfyui")])
    module = importlib.util.module_from_spec(spec)
    sys.modules["rocm_sd_comfyui"] = module
    spec.loader.exec_module(module)
    return module


def test_comfyui_nodes_keep_the_contract(comfyui):
    assert not hasattr(comfyui, "comfy_entrypoint")  # both would hide one of them
    for name, node in comfyui.NODE_CLASS_MAPPINGS.items():
        assert set(node.INPUT_TYPES()) <= {"required", "optional", "hidden"}
        assert node.CATEGORY == ("ROCm Optimizations" if name.startswith("ROCm") else "rocm_sd")
        assert callable(getattr(node, node.FUNCTION)) and isinstance(node.RETURN_TYPES, tuple)
        assert name in comfyui.NODE_DISPLAY_NAME_MAPPINGS


def test_comfyui_attention(comfyui):
    model, seen = ModelPatcher(), []
    node = comfyui.NODE_CLASS_MAPPINGS["RocmSDAttention"]()
    (patched,) = node.patch(model)
    assert model.model_options == {"transformer_options": {}}  # only the clone is changed
    override = patched.model_options["transformer_options"]["optimized_attention_override"]

    def builtin(*args, **kwargs):
        seen.append(1)
        return comfy_attention(*args, **kwargs)

    q, k = randn(2, 9, 24), randn(2, 11, 24, seed=1)
    for mask in (None, randn(9, 11, seed=3), randn(2, 9, 11, seed=4), randn(2, 3, 9, 11, seed=5), randn(2, 1, 11, seed=6) > 0):
        want = comfy_attention(q, k, k, 3, mask=mask)
        torch.testing.assert_close(override(builtin, q, k, k, 3, mask=mask, attn_precision=torch.float32), want,
                                   rtol=1e-5, atol=1e-5)
    split = [x.unflatten(-1, (3, -1)).transpose(1, 2) for x in (q, k, k)]
    want = comfy_attention(*split, 3, skip_reshape=True, skip_output_reshape=True, scale=0.2)
    got = override(builtin, *split, 3, skip_reshape=True, skip_output_reshape=True, scale=0.2, transformer_options={})
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert not seen
    override(builtin, q.double(), k.double(), k.double(), 3)  # not ours
    assert seen == [1]
    earlier = ModelPatcher({"transformer_options": {"optimized_attention_override": lambda func, *a, **kw: "earlier"}})
    (chained,) = node.patch(earlier)
    chain = chained.model_options["transformer_options"]["optimized_attention_override"]
    assert chain(builtin, q.double(), k.double(), k.double(), 3) == "earlier"


def test_comfyui_vae(comfyui):
    vae = ComfyVAE()
    (patched,) = comfyui.NODE_CLASS_MAPPINGS["RocmSDVAE"]().patch(vae)
    latent, before = randn(1, 16, 5, 4), dict(vae.first_stage_model.__dict__)
    want = vae.decode(latent)
    torch.testing.assert_close(patched.decode(latent), want, rtol=1e-5, atol=1e-5)
    assert patched is not vae and patched.first_stage_model is vae.first_stage_model
    assert vae.first_stage_model.__dict__ == before and "forward" not in vae.first_stage_model.norm.__dict__


class Executor:
    """ComfyUI's WrapperExecutor before the last wrapper."""

    def __init__(self, model):
        self.class_obj = model

    def __call__(self, x, timesteps, context, y=None, control=None, transformer_options=None):
        return self.class_obj(x, timesteps, context, y)


@torch.no_grad()
def test_comfyui_optimize_model(comfyui, tiny_model):
    from test_torch_optimize import psnr

    model, calls, unet = ldm_unet(tiny_model)
    inputs = randn(2, 4, 8, 8), torch.tensor([500.0, 20.0]), randn(2, 77, unet.config.cross_attention_dim, seed=1)
    want = unet(*inputs).sample
    node = comfyui.NODE_CLASS_MAPPINGS["RocmSDOptimizeModel"]()
    patcher = ModelPatcher()
    patcher.model = types.SimpleNamespace(diffusion_model=model)
    assert node.patch(patcher, "off")[0].wrappers == {} and patcher.wrappers == {}
    (clone,) = node.patch(patcher, "performance", "on")
    ((kind, key, wrapper),) = [(*name, w) for name, (w,) in clone.wrappers.items()]
    assert (kind, key) == ("diffusion_model", "rocm_sd") and patcher.wrappers == {}
    options = clone.model_options["transformer_options"]
    assert psnr(wrapper(Executor(model), *inputs, None, None, options), want) >= 90 and calls == []
    for changes, reason in ((dict(control={"input": []}), "ControlNet"),
                            (dict(transformer_options=options | {"patches": {"attn1_patch": [1]}}), "patches"),
                            (dict(transformer_options=options | {"optimized_attention_override": len}), "another attention")):
        calls.clear()
        call = dict(y=None, control=None, transformer_options=options) | changes
        assert torch.equal(wrapper(Executor(model), *inputs, **call), want) and calls == [1]
        assert reason in wrapper.declined
    assert not any("forward" in m.__dict__ for m in model.modules())
    sampled = comfyui.NODE_CLASS_MAPPINGS["RocmSDEngineSampler"]().sample(patcher, 1, 2, 3.0, "euler", "normal", "+", "-", {})
    ours, *rest = sampled[1]
    assert sampled[0] == "sampled" and rest == [1, 2, 3.0, "euler", "normal", "+", "-", {}] and sampled[2] == {"denoise": 1.0}
    assert ours is not patcher and len(ours.wrappers) == 1


@torch.no_grad()
def test_nodes_of_ours_in_a_chain(comfyui, tiny_model):
    """Attention, Optimize Model, then the Engine Sampler: one engine, which runs."""
    model, calls, unet = ldm_unet(tiny_model)
    inputs = randn(2, 4, 8, 8), torch.tensor([500.0, 20.0]), randn(2, 77, unet.config.cross_attention_dim, seed=1)
    patcher = ModelPatcher()
    patcher.model = types.SimpleNamespace(diffusion_model=model)
    nodes = comfyui.NODE_CLASS_MAPPINGS
    (first,) = nodes["RocmSDAttention"]().patch(patcher)
    (second,) = nodes["RocmSDOptimizeModel"]().patch(first, "performance", "on")
    third = nodes["RocmSDEngineSampler"]().sample(second, 1, 2, 3.0, "euler", "normal", "+", "-", {})[1][0]
    ((wrapper,),), ((forget,),) = third.wrappers.values(), third.callbacks.values()
    assert second.wrappers != third.wrappers and len(second.wrappers) == len(second.callbacks) == 1 and forget == wrapper.forget
    wrapper(Executor(model), *inputs, None, None, third.model_options["transformer_options"])
    assert wrapper.declined == "" and calls == []


def test_comfyui_workflows(comfyui):
    """The examples hold together, and ask for inputs that the nodes have."""
    files = sorted((REPOSITORY / "integrations/comfyui/workflows").glob("*.json"))
    assert files
    for file in files:
        graph = json.loads(file.read_text())
        nodes = {node["id"]: node for node in graph["nodes"]}
        assert graph["last_node_id"] == max(nodes) and graph["last_link_id"] == max(link[0] for link in graph["links"])
        for number, source, slot, target, place, kind in graph["links"]:
            given, taken = nodes[source]["outputs"][slot], nodes[target]["inputs"][place]
            assert number in given["links"] and taken["link"] == number and given["type"] == taken["type"] == kind
        ours = [node for node in nodes.values() if node["type"] in comfyui.NODE_CLASS_MAPPINGS]
        assert ours
        for node in ours:
            known = comfyui.NODE_CLASS_MAPPINGS[node["type"]].INPUT_TYPES()
            known = known.get("required", {}) | known.get("optional", {})
            linked = {i["name"] for i in node["inputs"]}
            assert linked <= set(known)
            controls = sum(isinstance(spec[-1], dict) and "control_after_generate" in spec[-1] for spec in known.values())
            assert len(node.get("widgets_values", [])) == len(known) - len(linked) + controls


def told_free(text: str) -> str:
    """Free memory changes from one report to the next."""
    return re.sub(r"\([0-9.]+ free\)", "(free)", text)


def test_comfyui_doctor(comfyui, rocm_sd):
    told = comfyui.NODE_CLASS_MAPPINGS["RocmSDDoctor"]().report()
    text = told["result"][0]
    assert "ROCmSDBackend" in text and told["ui"]["text"] == [text] and told_free(text).startswith(told_free(rocm_sd("doctor").stdout.rstrip()))


@torch.no_grad()
@pytest.mark.parametrize("level", ["Auto", "Performance", "Memory"])
def test_nodes_of_the_first_description(comfyui, tiny_model, level):
    from test_torch_engine import Ldm
    from test_torch_optimize import psnr
    from tiny_models import random_weights

    mappings = comfyui.NODE_CLASS_MAPPINGS
    for key in ("ROCmOptimizedAttention", "ROCmOptimizedVAE"):
        assert level in mappings[key].INPUT_TYPES()["required"]["optimization_level"][0]
    model = random_weights(Ldm(), 1).eval().requires_grad_(False)
    inputs = randn(2, 8, 5, 6), randn(2, 12, seed=1), randn(2, 7, 6, seed=2)
    patcher = ModelPatcher()
    patcher.model = types.SimpleNamespace(diffusion_model=model)
    (clone,) = mappings["ROCmOptimizedAttention"]().apply_optimization(patcher, level)
    ((wrapper,),) = clone.wrappers.values()
    assert wrapper.level == level.lower() and patcher.wrappers == {} and "optimized_attention_override" in clone.model_options["transformer_options"]
    want = model(*inputs)
    assert psnr(wrapper(PlainExecutor(model), *inputs), want) >= 100
    model.block.out_layers[3].weight.data.mul_(2)  # as ComfyUI merges a LoRA; it then says that the model was loaded
    wrapper.forget()
    assert psnr(model(*inputs), want) < 60 and psnr(wrapper(PlainExecutor(model), *inputs), model(*inputs)) >= 100
    assert not any("rocm_sd" in key for m in model.modules() for key in (*m.__dict__, *type(m).__dict__))
    vae, samples = ComfyVAE(), randn(1, 16, 4, 5)
    (ours,) = mappings["ROCmOptimizedVAE"]().apply_optimization(vae, level)
    assert psnr(ours.decode(samples), vae.decode(samples)) >= 90


class PlainExecutor:
    def __init__(self, model):
        self.class_obj = model

    def __call__(self, *args, **kwargs):
        return self.class_obj(*args, **kwargs)


def test_comfyui_without_the_package(monkeypatch):
    """Says what to install, and where."""
    monkeypatch.setitem(sys.modules, "rocm_sd_ops", None)
    for name in [n for n in sys.modules if n.startswith("rocm_sd_comfyui")]:
        monkeypatch.delitem(sys.modules, name)
    spec = importlib.util.spec_from_file_location("rocm_sd_comfyui", REPOSITORY / "integrations/comfyui/__init__.py",
                                                  submodule_search_locations=[str(REPOSITORY / "integrations/comfyui")])
    with pytest.raises(ImportError, match="rocm_sd_ops is not installed.*-m pip install"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
