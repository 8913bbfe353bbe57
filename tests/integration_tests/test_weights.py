"""The weights module against Diffusers and the safetensors package: names, values, configurations, conversions.

weights_main dumps every canonical tensor of a checkpoint; what it must hold is the model that Diffusers builds from the
same configuration and values, or what Diffusers' own converters make of the single file.
"""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from make_random_checkpoint import KINDS
from model_shapes import shapes

BASES = {"unet": "diffusion_pytorch_model", "vae": "diffusion_pytorch_model", "text_encoder": "model",
         "text_encoder_2": "model"}
KIND_NAMES = {"sd15": "sd1", "sd15-inpaint": "sd1", "sd15-pix2pix": "sd1", "sd21v": "sd2", "sdxl": "sdxl",
              "refiner": "sdxl_refiner"}


@pytest.fixture
def dump(weights_main, tmp_path):
    """dump(model, "vae=...") -> ({component: {name: tensor}}, metadata)."""

    def call(model, *options):
        out = tmp_path / "dump.safetensors"
        weights_main("dump", model, out, *options)
        components: dict[str, dict[str, torch.Tensor]] = {}
        for name, value in load_file(out).items():
            component, _, rest = name.partition("/")
            components.setdefault(component, {})[rest] = value
        with safe_open(out, "pt") as file:
            return components, file.metadata()

    return call


def folder_components(folder, kind):
    spec = shapes(kind, tiny=True)
    out = {}
    for component in ["unet", "vae", *spec["text"]]:
        tensors = load_file(folder / component / f"{BASES[component]}.safetensors")
        if component.startswith("text"):
            tensors = {canonical_text(name): value for name, value in tensors.items()}
        out[component] = tensors
    return out


def canonical_text(name):
    return name if name.startswith(("text_model.", "text_projection.")) else "text_model." + name


def assert_same(got, want, what):
    assert set(got) == set(want), (what, sorted(set(got) ^ set(want))[:6])
    wrong = [n for n in want if not torch.equal(got[n].reshape(want[n].shape), want[n].to(got[n].dtype))]
    assert not wrong, (what, wrong[:6])


@pytest.mark.parametrize("kind", KINDS)
def test_single_file_gives_the_folders_tensors(tiny_model, dump, kind):
    """Names and values of every component: the LDM file and the Diffusers folder hold the same random model."""
    folder, single = tiny_model(kind), tiny_model(kind, "single", small_vocab=True)
    want = folder_components(folder, kind)
    got, metadata = dump(single)
    assert metadata["kind"] == KIND_NAMES[kind]
    assert metadata["in_channels"] == str(shapes(kind)["unet"]["in_channels"])
    assert json.loads(metadata["unexpected"]) == []
    assert set(got) == set(want)
    for component in want:
        if kind == "sd21v" and component == "text_encoder":  # the file has a last layer and a projection that SD 2 drops
            extra = set(got[component]) - set(want[component])
            assert all(".layers.3." in name or name == "text_projection.weight" for name in extra), extra
            for name in extra:
                del got[component][name]
        assert_same(got[component], want[component], component)


@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl", "refiner"])
def test_folder_opens_with_its_configuration(tiny_model, dump, kind):
    folder = tiny_model(kind)
    got, metadata = dump(folder)
    assert metadata["kind"] == KIND_NAMES[kind]
    for component, tensors in folder_components(folder, kind).items():
        assert_same(got[component], tensors, component)
        assert json.loads(metadata[f"config.{component}"]) == json.loads((folder / component / "config.json").read_text())
    scheduler = json.loads((folder / "scheduler/scheduler_config.json").read_text())
    assert metadata["prediction"] == scheduler.get("prediction_type", "epsilon")


def test_names_agree_with_diffusers_converters(tiny_model, dump):
    from diffusers.loaders import single_file_utils as convert

    single = tiny_model("sdxl", "single", small_vocab=True)
    got, _ = dump(single)
    loaded, config = load_file(single), shapes("sdxl", tiny=True)
    unet = convert.convert_ldm_unet_checkpoint(dict(loaded), config=dict(config["unet"], class_embed_type=None))
    assert_same(got["unet"], unet, "unet")
    vae = convert.convert_ldm_vae_checkpoint(dict(loaded), config=config["vae"])
    assert_same(got["vae"], vae, "vae")
    clip = convert.convert_ldm_clip_checkpoint(loaded)
    clip.pop("text_model.embeddings.position_ids")
    assert_same(got["text_encoder"], clip, "text_encoder")


def test_mapped_reading_gives_the_same_bits(tiny_model, dump):
    single = tiny_model("sd15", "single", small_vocab=True)
    plain, _ = dump(single)
    mapped, _ = dump(single, "mmap=1")
    for component in plain:
        assert_same(mapped[component], plain[component], component)


@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl", "refiner"])
def test_folder_to_single_file_and_back(tiny_model, weights_main, dump, tmp_path, kind):
    folder, single, again = tiny_model(kind), tmp_path / "single.safetensors", tmp_path / "again"
    weights_main("convert", folder, single)
    weights_main("convert", single, again)
    want = folder_components(folder, kind)
    got = folder_components(again, kind)
    for component in want:
        assert_same(got[component], want[component], component)
        # Every setting survives, not only the tensors.
        assert json.loads((again / component / "config.json").read_text()) == json.loads(
            (folder / component / "config.json").read_text())
    names = json.loads((again / "model_index.json").read_text())
    assert names["_class_name"] == json.loads((folder / "model_index.json").read_text())["_class_name"]
    other = load_file(tiny_model(kind, "single", small_vocab=True))
    ours = load_file(single)
    dropped = {n for n in other if n not in ours}
    assert all("position_ids" in n or "logit_scale" in n or ".resblocks.3." in n or "text_projection" in n
               for n in dropped), dropped
    assert_same(ours, {n: v for n, v in other.items() if n not in dropped}, "single file")


@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_diffusers_loads_a_converted_folder(tiny_model, weights_main, tmp_path, kind):
    import diffusers

    weights_main("convert", tiny_model(kind), tmp_path / "a.safetensors", "f16")
    weights_main("convert", tmp_path / "a.safetensors", tmp_path / "b", "f32")
    spec = shapes(kind, tiny=True)
    unet, info = diffusers.UNet2DConditionModel.from_pretrained(tmp_path / "b" / "unet", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    vae, info = diffusers.AutoencoderKL.from_pretrained(tmp_path / "b" / "vae", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert unet.dtype == torch.float32
    assert list(unet.config.block_out_channels) == list(spec["unet"]["block_out_channels"])
    want = load_file(tiny_model(kind) / "unet" / "diffusion_pytorch_model.safetensors")
    assert_same(unet.state_dict(), {n: v.half().float() for n, v in want.items()}, "unet")


@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl", "refiner"])
def test_derived_configurations_of_real_shapes(weights_main, dump, tmp_path, kind):
    """Without config.json the real architectures are told from shapes alone. Tensors have the real shapes' topology, with
    one element per dimension that no derivation reads, so that the file stays small."""
    import diffusers

    spec = shapes(kind)
    with torch.device("meta"):
        unet = diffusers.UNet2DConditionModel(**spec["unet"])
    sizes = {name: tuple(value.shape) for name, value in unet.state_dict().items()}
    wanted = (".norm1.weight", ".norm.weight", "attn2.to_k.weight", ".resnets.0.norm1.weight")
    tensors = {}
    for name, size in sizes.items():
        if name.endswith(".conv1.weight"):
            tensors[name] = torch.zeros(size[0], 1, 1, 1, dtype=torch.float16)
        elif name.endswith("proj_in.weight"):
            tensors[name] = torch.zeros([1] * len(size), dtype=torch.float16)
        elif name in ("conv_in.weight", "conv_out.weight"):
            tensors[name] = torch.zeros(size, dtype=torch.float16)
        elif name.endswith("attn2.to_k.weight"):
            tensors[name] = torch.zeros(1, size[1], dtype=torch.float16)
        elif name.endswith(wanted) or name == "time_embedding.linear_1.weight":
            tensors[name] = torch.zeros(1, dtype=torch.float16)
        elif name == "add_embedding.linear_1.weight":
            tensors[name] = torch.zeros(1, size[1], dtype=torch.float16)
    save_file(tensors, tmp_path / "unet.safetensors")
    _, metadata = dump(tmp_path / "unet.safetensors")
    assert metadata["kind"] == KIND_NAMES[kind]
    derived = json.loads(metadata["config.unet"])
    derived.pop("_class_name")
    with torch.device("meta"):
        again = diffusers.UNet2DConditionModel(**derived)
    assert {n: tuple(v.shape) for n, v in again.state_dict().items()} == sizes
    for block, other in zip(unet.down_blocks, again.down_blocks):
        for a, b in zip(getattr(block, "attentions", []), getattr(other, "attentions", [])):
            assert a.transformer_blocks[0].attn1.heads == b.transformer_blocks[0].attn1.heads


def test_taesd_in_both_forms(dump, tmp_path):
    import diffusers

    tiny = diffusers.AutoencoderTiny().state_dict()
    for half, shift in (("encoder", 0), ("decoder", 1)):
        flat = {}
        for name, value in tiny.items():
            head, _, number, rest = name.split(".", 3)
            if head == half:
                flat[f"{int(number) + shift}.{rest}"] = value.contiguous()
        save_file(flat, tmp_path / f"taesd_{half}.safetensors")
    save_file(tiny, tmp_path / "whole.safetensors")
    whole, metadata = dump(tmp_path / "whole.safetensors")
    assert_same(whole["tiny_vae"], tiny, "AutoencoderTiny")
    derived = json.loads(metadata["config.tiny_vae"])
    assert diffusers.AutoencoderTiny.from_config(derived).state_dict().keys() == tiny.keys()
    for half in ("encoder", "decoder"):
        got, _ = dump(tmp_path / f"taesd_{half}.safetensors")
        assert_same(got["tiny_vae"], {n: v for n, v in tiny.items() if n.startswith(half)}, half)


def test_taesd_halves_are_joined(tiny_model, dump, tmp_path):
    import diffusers

    tiny = diffusers.AutoencoderTiny().state_dict()
    paths = []
    for half in ("encoder", "decoder"):
        paths.append(tmp_path / f"{half}.safetensors")
        save_file({n: v for n, v in tiny.items() if n.startswith(half)}, paths[-1])
    got, _ = dump(tiny_model("sd15"), *(f"tiny_vae={path}" for path in paths))
    assert_same(got["tiny_vae"], tiny, "joined")


def test_bare_components_and_replacements(tiny_model, dump, tmp_path):
    """A UNet and a VAE alone, with and without their prefixes, stand in for a model's own."""
    donor = load_file(tiny_model("sd15", "single", seed=9, small_vocab=True))
    model = tiny_model("sd15")
    want = folder_components(tiny_model("sd15", seed=9), "sd15")
    for prefix, component in (("model.diffusion_model.", "unet"), ("first_stage_model.", "vae"),
                              ("cond_stage_model.transformer.", "text_encoder")):
        part = {n: v for n, v in donor.items() if n.startswith(prefix)}
        for tensors in (part, {n.removeprefix(prefix): v for n, v in part.items()}, want[component]):
            path = tmp_path / f"{component}.safetensors"
            save_file(tensors, path)
            got, _ = dump(model, f"{component}={path}")
            assert_same(got[component], want[component], component)


def test_old_vae_attention_names(tiny_model, dump, tmp_path):
    vae = load_file(tiny_model("sd15") / "vae" / "diffusion_pytorch_model.safetensors")
    old = {}
    for name, value in vae.items():
        for new, was in (("to_q", "query"), ("to_k", "key"), ("to_v", "value"), ("to_out.0", "proj_attn")):
            name = name.replace(f"attentions.0.{new}.", f"attentions.0.{was}.")
        old[name] = value
    assert set(old) != set(vae)
    save_file(old, tmp_path / "vae.safetensors")
    got, _ = dump(tiny_model("sd15"), f"vae={tmp_path / 'vae.safetensors'}")
    assert_same(got["vae"], vae, "vae")


def test_sharded_folder(tiny_model, dump, tmp_path):
    import shutil

    folder = tmp_path / "sharded"
    shutil.copytree(tiny_model("sd15"), folder)
    path = folder / "unet" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(path)
    path.unlink()
    names = sorted(tensors)
    weight_map = {}
    for i, part in enumerate((names[::2], names[1::2])):
        shard = f"diffusion_pytorch_model-0000{i + 1}-of-00002.safetensors"
        save_file({n: tensors[n] for n in part}, folder / "unet" / shard)
        weight_map |= dict.fromkeys(part, shard)
    (folder / "unet" / "diffusion_pytorch_model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    got, _ = dump(folder)
    assert_same(got["unet"], tensors, "unet")


def test_inspect_counts_what_is_there(tiny_model, weights_main):
    single = tiny_model("sdxl", "single", "fp16", small_vocab=True)
    report = json.loads(weights_main("inspect", single, "json").stdout)
    tensors = load_file(single)
    assert report["type"] == "sdxl" and report["tensors"] == len(tensors)
    unet = [v for n, v in tensors.items() if n.startswith("model.diffusion_model.")]
    row = next(c for c in report["components"] if c["name"] == "unet")
    assert row["parameters"] == sum(v.numel() for v in unet)
    assert row["dtypes"] == {"f16": {"tensors": len(unet), "bytes": 2 * row["parameters"]}}
    largest = max(tensors.values(), key=lambda v: v.nbytes)
    assert report["largest"][0]["bytes"] == largest.nbytes
    assert "sdxl" in weights_main("inspect", single).stdout


def test_v_prediction_is_told_by_statistics(tiny_model, dump, tmp_path):
    tensors = load_file(tiny_model("sd21v", "single", small_vocab=True))
    key = "model.diffusion_model.output_blocks.11.1.transformer_blocks.0.norm1.bias"
    for spread, expected in ((0.2, "v_prediction"), (0.02, "epsilon")):
        bias = torch.linspace(-1, 1, tensors[key].numel())
        tensors[key] = bias / bias.std() * spread
        save_file(tensors, tmp_path / "sd2.safetensors")
        assert dump(tmp_path / "sd2.safetensors")[1]["prediction"] == expected
