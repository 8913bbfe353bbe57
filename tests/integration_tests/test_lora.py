"""LoRA and its relatives on whole pictures, against Diffusers with the same file (LoRA, DoRA) or with weights that PEFT's
or LyCORIS's formulas changed (the others)."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import load_file, save_file

from pictures import psnr, read_parameters, read_picture
from test_pipeline import NEGATIVE, PROMPT, SCALE, SEED, drawing, our_picture

SIZE = 64
ATTENTION = ["to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "ff.net.2", "proj_in", "proj_out"]
CONVOLUTIONS = ["conv1", "conv2", "conv_shortcut", "time_emb_proj"]
TEXT = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]


def load(model):
    pipeline = diffusers.DiffusionPipeline.from_pretrained(model, torch_dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def draw(pipeline, **kwargs) -> np.ndarray:
    images = pipeline(PROMPT, negative_prompt=NEGATIVE, num_inference_steps=6, guidance_scale=SCALE, width=SIZE, height=SIZE,
                      generator=torch.Generator().manual_seed(SEED), output_type="np", **kwargs).images
    return np.rint(images[0] * 255).astype(np.uint8)


def encoders(pipeline) -> dict:
    return {name: getattr(pipeline, name) for name in ("text_encoder", "text_encoder_2") if getattr(pipeline, name, None) is not None}


def add_random_lora(pipeline, seed: int = 0, targets=ATTENTION, dora: bool = False, scale: float = 0.8) -> None:
    """A LoRA of rank 4 with random values on the UNet and every text encoder; alpha is not the rank. Much larger values saturate
    attention, where two orders of summation give two pictures."""
    torch.manual_seed(seed)
    config = {"r": 4, "lora_alpha": 6, "use_dora": dora, "init_lora_weights": True}
    pipeline.unet.add_adapter(LoraConfig(target_modules=targets, **config))
    for encoder in encoders(pipeline).values():
        encoder.add_adapter(LoraConfig(target_modules=TEXT, **config))
    with torch.no_grad():
        for module in (pipeline.unet, *encoders(pipeline).values()):
            for name, parameter in module.named_parameters():
                if "lora_A" in name or "lora_B" in name:
                    parameter.normal_(0, scale / parameter.shape[1] ** 0.5)
                elif "lora_magnitude" in name:
                    parameter.mul_(torch.rand_like(parameter) * 0.4 + 0.8)


def state(pipeline) -> dict[str, torch.Tensor]:
    """The LoRA as Diffusers names it: unet.x.lora_A.weight, text_encoder.x.lora_A.weight."""
    out = {f"unet.{key}": value for key, value in get_peft_model_state_dict(pipeline.unet).items()}
    for name, encoder in encoders(pipeline).items():
        out |= {f"{name}.{key}": value for key, value in get_peft_model_state_dict(encoder).items()}
    return {key: value.detach().clone().contiguous() for key, value in out.items()}


def with_alpha(lora: dict) -> dict:
    return lora | {key.replace(".lora_A.weight", ".alpha"): torch.tensor(6.0) for key in lora if key.endswith("lora_A.weight")}


# Diffusers' names of SDXL's blocks in LDM's numbering, which kohya uses for SDXL: two residual blocks a level.
def to_ldm(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "mid_block":
        step = 1 if parts[1] == "attentions" else 2 * int(parts[2])
        return ".".join(["middle_block", str(step), *parts[3:]])
    level, kind, index = int(parts[1]), parts[2], int(parts[3])
    per_level = 3
    number = (1 if parts[0] == "down_blocks" else 0) + per_level * level + index
    block = "input_blocks" if parts[0] == "down_blocks" else "output_blocks"
    return ".".join([block, str(number), {"resnets": "0", "attentions": "1"}[kind], *parts[4:]])


def to_kohya(lora: dict, ldm: bool = False, second: bool = False) -> dict:
    out = {}
    for key, value in lora.items():
        for ending, renamed in ((".lora_A.weight", ".lora_down.weight"), (".lora_B.weight", ".lora_up.weight"), (".alpha", ".alpha"),
                                (".lora_magnitude_vector", ".dora_scale")):
            if key.endswith(ending):
                component, module = key.removesuffix(ending).split(".", 1)
                if component == "unet":
                    prefix, module = "lora_unet_", to_ldm(module) if ldm else module
                else:
                    prefix = "lora_te2_" if component == "text_encoder_2" else "lora_te1_" if second else "lora_te_"
                    module = module if module.startswith("text_model.") else "text_model." + module
                out[prefix + module.replace(".", "_") + renamed] = value.reshape(-1, 1) if renamed == ".dora_scale" else value
    return out


def old_diffusers(lora: dict) -> dict:
    """The names that Diffusers wrote before it used PEFT: attention processors and lora_linear_layer."""
    out = {}
    for key, value in lora.items():
        if key.startswith("unet.") and ".to_" in key and ".lora_" in key:
            head, tail = key.rsplit(".to_", 1)
            module, half = tail.split(".lora_")
            out[f"{head}.processor.to_{module.removesuffix('.0')}_lora.{'down' if half[0] == 'A' else 'up'}.weight"] = value
        else:
            out[key.replace(".lora_A.weight", ".lora_linear_layer.down.weight").replace(".lora_B.weight", ".lora_linear_layer.up.weight")] = value
    return out


@pytest.fixture(scope="module")
def made(tiny_model, tmp_path_factory):
    """made(kind, ...): (model, folder, LoRA in Diffusers' names, picture with it, picture without)."""
    known = {}

    def make(kind: str, targets=tuple(ATTENTION), dora=False, seed=0):
        key = (kind, targets, dora, seed)
        if key not in known:
            model = tiny_model(kind)
            pipeline = load(model)
            plain = draw(pipeline)
            add_random_lora(pipeline, seed, list(targets), dora)
            with_lora = draw(pipeline)
            assert psnr(with_lora, plain) < 35 and with_lora.std() > 5, "the LoRA changes too little to prove anything"
            known[key] = model, tmp_path_factory.mktemp("lora"), with_alpha(state(pipeline)), with_lora, plain
        return known[key]

    return make


@pytest.mark.parametrize("kind, style", [("sd15", "peft"), ("sd15", "kohya"), ("sd21v", "kohya"), ("sdxl", "peft"), ("sdxl", "kohya"),
                                         ("sdxl", "kohya-ldm")])
def test_styles(rocm_sd, made, tmp_path, kind, style):
    model, folder, lora, want, _ = made(kind)
    tensors = lora if style == "peft" else to_kohya(lora, style == "kohya-ldm", second=kind == "sdxl")
    assert len(tensors) == len(lora)
    save_file(tensors, folder / f"{style}.safetensors")
    assert psnr(our_picture(rocm_sd, model, tmp_path / "a.png", SIZE, "--lora", folder / f"{style}.safetensors"), want) >= 60


def test_names_of_old_attention_processors(rocm_sd, tiny_model, tmp_path):
    model = tiny_model("sd15")
    pipeline = load(model)
    add_random_lora(pipeline, targets=["to_q", "to_k", "to_v", "to_out.0"])
    # These files know no alpha: it is the rank.
    for module in (pipeline.unet, pipeline.text_encoder):
        for layer in module.modules():
            if hasattr(layer, "scaling"):
                layer.scaling["default"] = 1.0
    want = draw(pipeline)
    save_file(old_diffusers(state(pipeline)), tmp_path / "old.safetensors")
    assert psnr(our_picture(rocm_sd, model, tmp_path / "a.png", SIZE, "--lora", tmp_path / "old.safetensors"), want) >= 60


@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_as_diffusers_loads_it(rocm_sd, made, tmp_path, kind):
    """The file itself goes through Diffusers' reader, at another strength; alphas lie in its metadata."""
    model, _, lora, _, _ = made(kind)
    halves = {key: value for key, value in lora.items() if not key.endswith(".alpha")}
    import json
    components = {key.split(".")[0] for key in halves}
    config = {f"{c}.{k}": v for c in components for k, v in {"r": 4, "lora_alpha": 3, "target_modules": sorted(
        {k.split(".", 1)[1].rsplit(".lora_", 1)[0] for k in halves if k.startswith(c + ".")})}.items()}
    save_file(halves, tmp_path / "x.safetensors", metadata={"format": "pt", "lora_adapter_metadata": json.dumps(config)})
    pipeline = load(model)
    pipeline.load_lora_weights(tmp_path, weight_name="x.safetensors")
    pipeline.set_adapters(pipeline.get_active_adapters(), adapter_weights=[0.7])
    got = our_picture(rocm_sd, model, tmp_path / "a.png", SIZE, "--lora", f"{tmp_path / 'x.safetensors'}:0.7")
    assert psnr(got, draw(pipeline)) >= 60


def test_convolutions(rocm_sd, made, tmp_path):
    model, _, lora, want, _ = made("sd15", tuple(ATTENTION + CONVOLUTIONS))
    save_file(to_kohya(lora), tmp_path / "locon.safetensors")
    assert psnr(our_picture(rocm_sd, model, tmp_path / "a.png", SIZE, "--lora", tmp_path / "locon.safetensors"), want) >= 60


def test_dora(rocm_sd, made, tmp_path):
    model, _, lora, want, _ = made("sd15", tuple(ATTENTION), True)
    assert any("magnitude" in key for key in lora)
    save_file(lora, tmp_path / "dora.safetensors")
    assert psnr(our_picture(rocm_sd, model, tmp_path / "a.png", SIZE, "--lora", tmp_path / "dora.safetensors"), want) >= 60
    save_file(to_kohya(lora), tmp_path / "kohya.safetensors")
    assert psnr(our_picture(rocm_sd, model, tmp_path / "b.png", SIZE, "--lora", tmp_path / "kohya.safetensors"), want) >= 60


def lycoris_loha(weight, r=3):
    out, rest = weight.shape[0], weight[0].numel()
    a1, b1, a2, b2 = (torch.randn(s) * 0.3 for s in ((out, r), (r, rest), (out, r), (r, rest)))
    parts = {"hada_w1_a": a1, "hada_w1_b": b1, "hada_w2_a": a2, "hada_w2_b": b2, "alpha": torch.tensor(2.0)}
    return parts, weight + ((a1 @ b1) * (a2 @ b2)).reshape(weight.shape) * 2.0 / r


def lycoris_loha_tucker(weight, r=3):
    if weight.dim() < 4:
        return lycoris_loha(weight, r)
    out, rest, kh, kw = weight.shape
    a1, a2, b1, b2 = torch.randn(r, out) * 0.3, torch.randn(r, out) * 0.3, torch.randn(r, rest) * 0.3, torch.randn(r, rest) * 0.3
    t1, t2 = torch.randn(r, r, kh, kw), torch.randn(r, r, kh, kw)
    half = [torch.einsum("ijkl,jr,ip->prkl", t, b, a) for t, b, a in ((t1, b1, a1), (t2, b2, a2))]
    parts = {"hada_w1_a": a1, "hada_w1_b": b1, "hada_w2_a": a2, "hada_w2_b": b2, "hada_t1": t1, "hada_t2": t2, "alpha": torch.tensor(1.5)}
    return parts, weight + half[0] * half[1] * 1.5 / r


def lycoris_lokr(weight, r=2):
    out, rest = weight.shape[:2]
    if weight.dim() == 2:
        w1, a, b = torch.randn(2, 4), torch.randn(out // 2, r) * 0.2, torch.randn(r, rest // 4)
        return {"lokr_w1": w1, "lokr_w2_a": a, "lokr_w2_b": b, "alpha": torch.tensor(1.0)}, weight + torch.kron(w1, a @ b) / r * 0.5 * 2.0
    w1, w2 = torch.randn(2, 2) * 0.3, torch.randn(out // 2, rest // 2, *weight.shape[2:]) * 0.3
    delta = torch.einsum("ab,cdkl->acbdkl", w1, w2).reshape(weight.shape)
    return {"lokr_w1": w1, "lokr_w2": w2, "alpha": torch.tensor(7.0)}, weight + delta  # alpha is not used where both are whole


def lora_tucker(weight, r=3):
    if weight.dim() < 4:
        down, up = torch.randn(r, weight.shape[1]) * 0.3, torch.randn(weight.shape[0], r) * 0.3
        return {"lora_down.weight": down, "lora_up.weight": up}, weight + up @ down
    out, rest, kh, kw = weight.shape
    down, mid, up = torch.randn(r, rest, 1, 1) * 0.3, torch.randn(r, r, kh, kw) * 0.5, torch.randn(out, r, 1, 1) * 0.3
    delta = torch.einsum("oa,abkl,bi->oikl", up[:, :, 0, 0], mid, down[:, :, 0, 0])
    return {"lora_down.weight": down, "lora_mid.weight": mid, "lora_up.weight": up}, weight + delta


def ia3(weight, on_input):
    v = torch.randn(weight.shape[1] if on_input else weight.shape[0]) * 0.5
    shape = [1, -1] if on_input else [-1, 1]
    return ({"weight": v.reshape(shape), "on_input": torch.tensor(bool(on_input))},
            weight * (1 + v.reshape(shape + [1] * (weight.dim() - 2))))


def dora(weight, on_input, r=3):
    """LyCORIS's dora_scale: [1,in,...] where its option wd_on_output is off, [out,1,...] where it is on."""
    down, up = torch.randn(r, weight[0].numel()) * 0.2, torch.randn(weight.shape[0], r) * 0.2
    changed = weight + (up @ down).reshape(weight.shape)
    axes = [d for d in range(weight.dim()) if d != (1 if on_input else 0)]
    norm = changed.pow(2).sum(dim=axes, keepdim=True).sqrt()
    magnitude = norm * (torch.rand_like(norm) * 0.4 + 0.8)
    parts = {"lora_down.weight": down.reshape(r, *weight.shape[1:]), "lora_up.weight": up.reshape(-1, r, *[1] * (weight.dim() - 2)),
             "dora_scale": magnitude}
    return parts, changed * magnitude / norm


def difference(weight):
    d = torch.randn(weight.shape) * 0.1
    return {"diff": d}, weight + d


ALGORITHMS = {"loha": lycoris_loha, "loha-tucker": lycoris_loha_tucker, "lokr": lycoris_lokr, "lora-tucker": lora_tucker,
              "ia3-in": lambda w: ia3(w, True), "ia3-out": lambda w: ia3(w, False), "diff": difference,
              "dora-in": lambda w: dora(w, True), "dora-out": lambda w: dora(w, False)}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms(rocm_sd, tiny_model, tmp_path, algorithm):
    """Written-down formulas on linear layers and 3x3 filters; the oracle draws with the changed weights."""
    model = tiny_model("sd15")
    pipeline = load(model)
    plain = draw(pipeline)
    torch.manual_seed(3)
    tensors = {}
    with torch.no_grad():
        for name, layer in pipeline.unet.named_modules():
            if name.endswith(("attn1.to_q", "attn2.to_v", "ff.net.2", "conv1")):
                parts, changed = ALGORITHMS[algorithm](layer.weight)
                layer.weight.copy_(changed)
                tensors |= {f"lora_unet_{name.replace('.', '_')}.{part}": value.contiguous() for part, value in parts.items()}
    want = draw(pipeline)
    assert psnr(want, plain) < 48
    save_file(tensors, tmp_path / "x.safetensors")
    assert psnr(our_picture(rocm_sd, model, tmp_path / "a.png", SIZE, "--lora", tmp_path / "x.safetensors"), want) >= 60


def test_several_come_and_go(rocm_sd, made, tmp_path):
    """Two at once equal Diffusers with two; without them the picture is that of a fresh start, to the bit."""
    model, _, first, _, _ = made("sd15")
    _, _, second, _, _ = made("sd15", seed=1)
    folder = tmp_path / "loras"
    (folder / "below").mkdir(parents=True)
    save_file(to_kohya(first), folder / "one two.safetensors")
    save_file(to_kohya(second), folder / "below" / "größe.safetensors")
    pipeline = load(model)
    pipeline.load_lora_weights(folder, weight_name="one two.safetensors", adapter_name="a")
    pipeline.load_lora_weights(folder / "below", weight_name="größe.safetensors", adapter_name="b")
    pipeline.set_adapters(["a", "b"], adapter_weights=[0.8, -0.5])
    lines = ["x", "x <lora:one two:0.8><lora:größe:-0.5>", "x<lora:größe:1>", "x"]
    (tmp_path / "prompts.txt").write_text("\n".join(lines).replace("x", PROMPT))
    args = ["generate", "--model", model, "--negative-prompt", NEGATIVE, "--rng", "cpu", "--seed", SEED, "--steps", 6, "--cfg-scale", SCALE,
            "-W", SIZE, "-H", SIZE, "--dtype", "f32", "--lora-dir", folder]
    rocm_sd(*args, "--prompts-file", tmp_path / "prompts.txt", "-o", tmp_path / "{index}.png")
    pictures = [read_picture(tmp_path / f"{i}.png") for i in (1, 2, 3, 4)]
    assert psnr(pictures[1], draw(pipeline)) >= 60
    assert (pictures[0] == pictures[3]).all() and psnr(pictures[0], pictures[2]) < 40
    shown = read_parameters(tmp_path / "2.png")
    assert "<lora:one two:0.8><lora:größe:-0.5>" in shown and 'Lora hashes: "one two: ' in shown
    assert "Lora hashes" not in read_parameters(tmp_path / "4.png")
    rocm_sd(*args, "--prompt", PROMPT, "--lora", "one two:0.8", "--lora", f"{folder}/below/größe.safetensors:-0.5", "-o", tmp_path / "b.png")
    assert (read_picture(tmp_path / "b.png") == pictures[1]).all()


def test_weights_of_parts(rocm_sd, made, tmp_path):
    model, _, lora, _, plain = made("sdxl")
    save_file(lora, tmp_path / "x.safetensors")
    unet_only = {key: value for key, value in lora.items() if key.startswith("unet.")}
    save_file(unet_only, tmp_path / "u.safetensors")
    one = our_picture(rocm_sd, model, tmp_path / "a.png", SIZE, "--lora", f"{tmp_path / 'x.safetensors'}:0.9:0")
    other = our_picture(rocm_sd, model, tmp_path / "b.png", SIZE, "--lora", f"{tmp_path / 'u.safetensors'}:0.9")
    assert (one == other).all() and psnr(one, plain) < 40
    none = our_picture(rocm_sd, model, tmp_path / "c.png", SIZE, "--lora", f"{tmp_path / 'x.safetensors'}:0")
    assert psnr(none, plain) >= 60


@pytest.mark.parametrize("args, floor", [(["--weights", "int8"], 35), (["--dtype", "bf16"], 38), (["--offload"], 200), (["--batch", "2"], 200)])
def test_with(rocm_sd, made, tmp_path, args, floor):
    """8-bit weights are quantised after merging; weights that wait in host memory and batches give the same picture."""
    model, folder, lora, _, _ = made("sd15")
    save_file(lora, folder / "with.safetensors")
    want = our_picture(rocm_sd, model, tmp_path / "a.png", SIZE, "--lora", folder / "with.safetensors")
    rocm_sd(*drawing(model, SIZE), "--dtype", "f32", *args, "--lora", folder / "with.safetensors", "-o", tmp_path / "b{index}.png")
    got = read_picture(tmp_path / "b1.png")
    assert (got == want).all() if floor == 200 else psnr(got, want) >= floor


def broken(tensors: dict, what: str) -> dict:
    key = next(k for k in tensors if k.endswith("lora_A.weight") and "attn1.to_k" in k)
    up = key.replace("lora_A", "lora_B")
    match what:
        case "nan":
            tensors[key] = tensors[key].clone()
            tensors[key][0, 0] = float("nan")
        case "rank":
            tensors[key] = torch.randn(5, tensors[key].shape[1])
        case "half":
            del tensors[up]
        case "width":
            tensors[key] = torch.randn(4, tensors[key].shape[1] + 8)
        case "key":
            tensors["unet.down_blocks.7.attn1.to_k.lora_A.weight"] = tensors[key].clone()
        case "empty":
            tensors[key], tensors[up] = tensors[key][:0], tensors[up][:, :0].contiguous()
        case "strange":
            tensors["something.else"] = tensors[key].clone()
    return tensors


@pytest.mark.bad_input
@pytest.mark.parametrize("what, message", [("nan", "values are not finite"), ("rank", "rank 5"), ("half", "no up"), ("empty", "expected at least one value"),
                                           ("width", "made for another base model"), ("key", "belong to no layer of this sd1 model"),
                                           ("strange", "something.else")])
def test_bad_files(rocm_sd, made, tmp_path, what, message):
    model, _, lora, _, _ = made("sd15")
    save_file(broken(dict(lora), what), tmp_path / "x.safetensors")
    done = rocm_sd(*drawing(model, SIZE), "--lora", tmp_path / "x.safetensors", "-o", tmp_path / "a.png", code=None)
    assert done.returncode == 3 and message in done.stderr and "x.safetensors" in done.stderr
    assert not (tmp_path / "a.png").exists()


@pytest.mark.bad_input
def test_wrong_base_model_and_names(rocm_sd, tiny_model, made, tmp_path):
    _, _, lora, _, _ = made("sdxl")
    save_file(to_kohya(lora, True, True), tmp_path / "style.safetensors", metadata={"ss_base_model_version": "sdxl_base_v1-0"})
    model = tiny_model("sd15")

    def refused(*args, cwd=None):
        return rocm_sd(*drawing(model, SIZE), *args, "-o", tmp_path / "a.png", code=None, cwd=cwd)

    done = refused("--lora", tmp_path / "style.safetensors")
    assert done.returncode == 3 and "for sdxl_base_v1-0" in done.stderr and "sd1 model" in done.stderr
    done = refused("--lora", "stile", "--lora-dir", tmp_path)
    assert done.returncode == 2 and 'did you mean "style"?' in done.stderr
    assert refused("--lora", "style").returncode == 2
    # A name is looked for in the folder, whatever lies in the working folder.
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "style").write_bytes(b"no LoRA")
    done = refused("--lora", "style", "--lora-dir", tmp_path, cwd=tmp_path / "here")
    assert done.returncode == 3 and "for sdxl_base_v1-0" in done.stderr
    assert refused("--lora", tmp_path / "none.safetensors").returncode == 3
    assert refused("--lora", "style:1e9", "--lora-dir", tmp_path).returncode == 2
    done = refused("--lora", model / "unet" / "diffusion_pytorch_model.safetensors")
    assert done.returncode == 3 and "not a LoRA" in done.stderr


def test_inspect(rocm_sd, made, tmp_path):
    _, _, lora, _, _ = made("sdxl")
    save_file(to_kohya(lora, True, True), tmp_path / "x.safetensors", metadata={"ss_base_model_version": "sdxl_base_v1-0"})
    shown = rocm_sd("inspect", tmp_path / "x.safetensors").stdout
    modules = {c: sum(k.startswith(c) and k.endswith("lora_A.weight") for k in lora) for c in ("unet.", "text_encoder.", "text_encoder_2.")}
    assert "sdxl_base_v1-0" in shown and "rank 4" in shown
    for component, count in modules.items():
        assert f"{component[:-1]}: {count} modules" in shown
    assert load_file(tmp_path / "x.safetensors")
