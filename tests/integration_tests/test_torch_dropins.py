"""The drop-in calls, the SDPA route, the backend object and the profile; and the front ends' packages against small
stand-ins written from their contracts."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch_ops import REPOSITORY, assert_near, load_package, randn


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


def exact(q, k, v, mask=None, scale=None):
    """On [B,H,N,D], in float64."""
    scores = q.double() @ k.double().transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask.double()
    return scores.softmax(-1).nan_to_num(0) @ v.double()


def heads_first(*tensors):
    return [x.transpose(1, 2) for x in tensors]


@pytest.mark.parametrize("queries,keys", [(7, 7), (5, 9)])
def test_flash_attn(ops, queries, keys):
    f = ops.compat.flash_attn.flash_attn_func
    q, k, v = randn(2, queries, 4, 16), randn(2, keys, 2, 16, seed=1), randn(2, keys, 2, 16, seed=2)
    wide = [x.repeat_interleave(2, dim=2) for x in (k, v)]
    near = torch.arange(keys)[None] - torch.arange(queries)[:, None] - (keys - queries)
    for kwargs, mask in (({}, None), ({"causal": True}, near <= 0), ({"window_size": (2, 1)}, (near >= -2) & (near <= 1)),
                         ({"causal": True, "window_size": (1, -1)}, (near >= -1) & (near <= 0))):
        got = f(q, k, v, softmax_scale=0.3, **kwargs)
        assert got.shape == q.shape
        assert_near(got.transpose(1, 2), exact(*heads_first(q, *wide), mask, 0.3), terms=keys + 16)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    bias = -slopes[:, None, None] * near.abs()
    assert_near(f(q, k, v, alibi_slopes=slopes).transpose(1, 2), exact(*heads_first(q, *wide), bias), terms=keys + 16)
    with pytest.raises(NotImplementedError):
        f(q, k, v, softcap=3.0)
    with pytest.raises(ValueError):
        f(q[:, :, :3], k, v)


def test_xformers(ops):
    x = ops.compat.xformers
    q, k, v = randn(2, 5, 3, 8), randn(2, 6, 3, 8, seed=1), randn(2, 6, 3, 8, seed=2)
    assert_near(x.memory_efficient_attention(q, k, v).transpose(1, 2), exact(*heads_first(q, k, v)), terms=14)
    padded = randn(2, 3, 5, 8, seed=3)[..., :6]  # as xformers wants its biases: a view of a padded buffer
    got = x.memory_efficient_attention(q, k, v, attn_bias=padded, scale=0.5)
    assert_near(got.transpose(1, 2), exact(*heads_first(q, k, v), padded, 0.5), terms=14)
    flat = [t[:, :, 0] for t in (q, k, v)]
    got = x.memory_efficient_attention(*flat, attn_bias=padded[:, 0])
    assert_near(got.unsqueeze(1), exact(*(t.unsqueeze(1) for t in flat), padded[:, :1]), terms=14)
    lower = torch.ones(5, 6, dtype=torch.bool).tril()
    got = x.memory_efficient_attention(q, k, v, attn_bias=x.LowerTriangularMask())
    assert_near(got.transpose(1, 2), exact(*heads_first(q, k, v), lower), terms=14)
    with pytest.raises(NotImplementedError):
        x.memory_efficient_attention(q, k, v, attn_bias="lower")


def test_sage(ops):
    f = ops.compat.sage.sageattn
    q, k, v = (randn(1, 2, 6, 8, seed=i) for i in range(3))
    mask = randn(6, 6, seed=4) > 0
    assert_near(f(q, k, v, attn_mask=mask, smooth_k=True), exact(q, k, v, mask), terms=14)
    got = f(*heads_first(q, k, v), tensor_layout="NHD", is_causal=True)
    assert_near(got.transpose(1, 2), exact(q, k, v, torch.ones(6, 6, dtype=torch.bool).tril()), terms=14)
    with pytest.raises(ValueError):
        f(q, k, v, tensor_layout="DNH")


def test_sdpa_route(ops):
    original, called = F.scaled_dot_product_attention, []
    q, k, v = (randn(1, 4, 6, 8, seed=i) for i in range(3))
    real = ops.ops.attention
    ops.ops.attention = lambda *a, **kw: called.append(1) or real(*a, **kw)
    try:
        with ops.sdpa():
            assert F.scaled_dot_product_attention is ops.scaled_dot_product_attention
            assert_near(F.scaled_dot_product_attention(q, k, v), exact(q, k, v), terms=14)
            assert_near(F.scaled_dot_product_attention(q[0], k[0], v[0])[None], exact(q, k, v), terms=14)
            grouped = F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)
            assert_near(grouped, exact(q, *(x[:, :2].repeat_interleave(2, 1) for x in (k, v))), terms=14)
            assert len(called) == 3
            with ops.sdpa(enabled=False):
                assert F.scaled_dot_product_attention is original
            F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)  # left to PyTorch
            F.scaled_dot_product_attention(q, k[:, :1], v[:, :1])  # broadcast
            assert len(called) == 3
    finally:
        ops.ops.attention = real
    assert F.scaled_dot_product_attention is original


def test_diffusers_backend(ops):
    from diffusers.models.attention_dispatch import AttentionBackendName, dispatch_attention_fn

    ops.register_attention_backend()
    ops.register_attention_backend()
    q, k, v = (randn(1, 6, 2, 8, seed=i) for i in range(3))
    got = dispatch_attention_fn(q, k, v, backend=AttentionBackendName("rocm_sd"))
    assert_near(got.transpose(1, 2), exact(*heads_first(q, k, v)), terms=14)


def test_backend_and_profile(ops, tmp_path):
    backend = ops.ROCmSDBackend("cpu")
    can = backend.capabilities()
    assert can.kernels and torch.bfloat16 in can.dtypes and "cpu" in repr(backend)
    q = randn(1, 2, 9, 16)
    with backend.profile() as profile, torch.no_grad():
        ops.attention(q, q, q)
    assert [r["calls"] for r in profile.rows(ours_only=True) if r["name"] == "rocm_sd::attention"] == [1]
    assert "rocm_sd::attention" in profile.table()
    profile.export_chrome_trace(tmp_path / "trace.json")
    assert any(e.get("name") == "rocm_sd::attention" for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"])


def test_kernels_can_be_switched_off(ops):
    q = randn(1, 2, 9, 16)
    assert ops.set_kernels_enabled(False) is True
    try:
        assert ops.explain("attention", q, q, q).kernel == "pytorch"
        assert_near(ops.attention(q, q, q), exact(q, q, q), terms=25)
    finally:
        assert ops.set_kernels_enabled(True) is False
    assert ops.explain("attention", q, q, q).kernel != "pytorch"


# --- ComfyUI: a ModelPatcher and a VAE of the documented shape ---

class ModelPatcher:
    def __init__(self, options=None):
        self.model_options = options or {"transformer_options": {}}
        self.wrappers: dict = {}
        self.model = None

    def clone(self):
        options = {k: dict(v) if isinstance(v, dict) else v for k, v in self.model_options.items()}
        made = ModelPatcher(options)
        made.model, made.wrappers = self.model, dict(self.wrappers)
        return made

    def add_wrapper_with_key(self, kind, key, wrapper):
        self.wrappers[kind, key] = wrapper


def comfy_attention(q, k, v, heads, mask=None, attn_precision=None, skip_reshape=False, skip_output_reshape=False, **kwargs):
    """What a built-in attention function computes."""
    if not skip_reshape:
        q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    if mask is not None and mask.ndim == 3:
        mask = mask.unsqueeze(1)
    y = exact(q, k, v, mask, kwargs.get("scale")).to(q.dtype)
    return y if skip_output_reshape else y.transpose(1, 2).flatten(2)


class AttnBlock(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = torch.nn.GroupNorm(4, c)
        self.q, self.k, self.v, self.proj_out = (torch.nn.Conv2d(c, c, 1) for _ in range(4))
        self.optimized_attention = lambda q, k, v: F.scaled_dot_product_attention(
            *(x.flatten(2).transpose(1, 2) for x in (q, k, v))).transpose(1, 2).reshape(q.shape)

    def forward(self, x):
        y = self.norm(x)
        return x + self.proj_out(self.optimized_attention(self.q(y), self.k(y), self.v(y)))


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
        assert set(node.INPUT_TYPES()) <= {"required", "optional", "hidden"} and node.CATEGORY == "rocm_sd"
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


class Tree(torch.nn.Module):
    """A UNet of the ldm family as far as its names: parameters from a checkpoint, a forward of our choosing."""

    def __init__(self, state, forward):
        super().__init__()
        self.run = forward
        for name, value in state.items():
            *path, leaf = name.split(".")
            at = self
            for part in path:
                if part not in at._modules:
                    at.add_module(part, torch.nn.Module())
                at = at._modules[part]
            at.register_parameter(leaf, torch.nn.Parameter(value, requires_grad=False))

    def forward(self, x, timesteps, context, y=None, **kwargs):
        return self.run(x, timesteps, context)


Tree.__module__ = "ldm.modules.standin"


def ldm_unet(tiny_model, kind="sd15"):
    """(the model under ldm's names, which counts the calls of its own forward; those calls; Diffusers' model)."""
    from diffusers import UNet2DConditionModel
    from safetensors.torch import load_file

    head = "model.diffusion_model."
    state = {k.removeprefix(head): v for k, v in load_file(tiny_model(kind, "single")).items() if k.startswith(head)}
    unet = UNet2DConditionModel.from_pretrained(tiny_model(kind), subfolder="unet").eval()
    calls: list = []

    def forward(x, timesteps, context):
        calls.append(1)
        return unet(x, timesteps, context).sample

    return Tree(state, forward), calls, unet


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
    ((kind, key, wrapper),) = [(*name, w) for name, w in clone.wrappers.items()]
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


def test_comfyui_doctor(comfyui):
    told = comfyui.NODE_CLASS_MAPPINGS["RocmSDDoctor"]().report()
    assert "ROCmSDBackend" in told["ui"]["text"][0] and told["result"][0] == told["ui"]["text"][0]


# --- AUTOMATIC1111: the modules that an extension imports ---

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
    module("modules.sd_unet", SdUnet=torch.nn.Module, SdUnetOption=type("SdUnetOption", (), {}), current_unet=None)
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


class _Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def test_a1111_optimization(a1111):
    found: list = []
    a1111.callbacks["optimizers"][0](found)
    (optimization,) = found
    assert optimization.is_available() and optimization.priority > 100 and optimization.name == "rocm-sd"
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
    assert methods == ["GET"] and {"device", "kernels", "fallbacks"} <= set(json.loads(json.dumps(function())))


@torch.no_grad()
def test_a1111_engine_unet(a1111, tiny_model, monkeypatch):
    from test_torch_optimize import psnr

    found: list = []
    a1111.callbacks["unets"][0](found)
    (option,) = found
    assert option.label == "rocm-sd engine" and option.model_name is None
    model, calls, unet = ldm_unet(tiny_model)
    monkeypatch.setattr(a1111.modules["modules"].shared, "sd_model",
                        types.SimpleNamespace(model=types.SimpleNamespace(diffusion_model=model)), raising=False)
    engine = option.create_unet()
    engine.activate()
    inputs = randn(2, 4, 8, 8), torch.tensor([500.0, 20.0]), randn(2, 77, unet.config.cross_attention_dim, seed=1)
    assert psnr(engine.forward(*inputs), unet(*inputs).sample) >= 90 and calls == []
    with pytest.raises(NotImplementedError, match="control"):
        engine.forward(*inputs, control=1)
    model.get_parameter("out.2.weight").mul_(2)  # as a LoRA does
    monkeypatch.setattr(a1111.modules["modules.sd_unet"], "current_unet", engine)
    a1111.extension.RocmSDScript().process_batch(None)
    unet.conv_out.weight.mul_(2)
    assert psnr(engine.forward(*inputs), unet(*inputs).sample) >= 90
    engine.deactivate()
    assert engine.engine is None


def test_a1111_level_reaches_the_unet(a1111, ops):
    from test_torch_engine import Ldm

    unet = Ldm().eval()
    p = types.SimpleNamespace(extra_generation_params={},
                              sd_model=types.SimpleNamespace(model=types.SimpleNamespace(diffusion_model=unet)))
    script = a1111.extension.RocmSDScript()
    script.process(p, "memory")
    assert ops.report(unet)["residual blocks"] == 2 and p.extra_generation_params == {"ROCm SD level": "memory"}
    script.postprocess(p, None)
    assert ops.report(unet) == {}
