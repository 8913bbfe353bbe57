"""Block weights of LoRAs against Diffusers with a LoRA whose parts were scaled beforehand, and LoRAs that a converter bakes into a
checkpoint against the same merged at run time."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from pictures import psnr, read_parameters, read_picture
from safetensors.torch import load_file, save_file
from test_lora import ATTENTION, CONVOLUTIONS, SIZE, add_random_lora, draw, encoders, load, made, to_kohya  # noqa: F401 (fixture)
from test_pipeline import NEGATIVE, PROMPT, SCALE, SEED, drawing, our_picture

# The blocks of each list, as the web UI's extension documents them.
IDS = {17: "BASE IN01 IN02 IN04 IN05 IN07 IN08 MID OUT03 OUT04 OUT05 OUT06 OUT07 OUT08 OUT09 OUT10 OUT11".split(),
       26: ["BASE", *(f"IN{i:02}" for i in range(12)), "MID", *(f"OUT{i:02}" for i in range(12))],
       12: "BASE IN04 IN05 IN07 IN08 MID OUT00 OUT01 OUT02 OUT03 OUT04 OUT05".split(),
       20: ["BASE", *(f"IN{i:02}" for i in range(9)), "MID", *(f"OUT{i:02}" for i in range(9))]}


def block_of(name: str) -> str:
    """The block of a module by Diffusers' name: kohya's rule, two residual blocks a level."""
    if name.startswith("text_encoder"):
        return "BASE"
    if "mid_block" in name:
        return "MID"
    way, level, kind, index = re.search(r"(down|up)_blocks\.(\d+)\.(resnets|attentions|downsamplers|upsamplers)\.(\d+)", name).groups()
    step = {"downsamplers": 3 if way == "down" else 0, "upsamplers": 2}.get(kind, int(index) + (way == "down"))
    return f"{'IN' if way == 'down' else 'OUT'}{3 * int(level) + step:02}"


def scaled(lora: dict, factors: dict[str, float]) -> dict:
    """The LoRA with each module's change multiplied; blocks that no factor names get 0."""
    return {key: value * factors.get(block_of(key), 0.0) if "lora_B" in key else value for key, value in lora.items()}


@pytest.mark.parametrize("kind, count, targets", [("sd15", 17, ATTENTION), ("sd15", 26, ATTENTION + CONVOLUTIONS),
                                                  ("sdxl", 12, ATTENTION), ("sdxl", 20, ATTENTION + CONVOLUTIONS)])
def test_lists(rocm_sd, made, tmp_path, kind, count, targets):  # noqa: F811
    model, folder, lora, whole, plain = made(kind, tuple(targets))
    values = np.random.default_rng(count).choice([0, 0.25, 0.5, 1, 1.5, -0.5], count).tolist()
    list_text = ",".join(f"{v:g}" for v in values)
    save_file(lora, tmp_path / "x y.safetensors")
    pipeline = load(model)
    add_random_lora(pipeline, 0, list(targets))
    factors = dict(zip(IDS[count], values))
    with torch.no_grad():
        for component, module in {"unet": pipeline.unet, **encoders(pipeline)}.items():
            for name, parameter in module.named_parameters():
                if "lora_B" in name:
                    parameter.mul_(factors.get(block_of(f"{component}.{name}"), 0.0))
    want = draw(pipeline)
    got = our_picture(rocm_sd, model, tmp_path / "got.png", SIZE, "--lora", f"{tmp_path / 'x y.safetensors'}:1:lbw={list_text}")
    assert psnr(got, want) >= 60 and psnr(got, whole) < 50 and psnr(got, plain) < 50
    shown = read_parameters(tmp_path / "got.png")
    assert f"<lora:x y:1:lbw={list_text}>" in shown
    # The same as tags: named, and as the third part.
    for i, tag in enumerate([f"<lora:x y:1:lbw={list_text}>", f"<lora:x y:1:{list_text}>"]):
        rocm_sd("generate", "--model", model, "--prompt", PROMPT + tag, "--negative-prompt", NEGATIVE, "--rng", "cpu", "--seed", SEED, "--steps", 6,
                "--cfg-scale", SCALE, "-W", SIZE, "-H", SIZE, "--dtype", "f32", "--lora-dir", tmp_path, "-o", tmp_path / f"{i}.png")
        assert np.array_equal(read_picture(tmp_path / f"{i}.png"), got)


@pytest.mark.parametrize("preset, blocks", [("OUTALL", ["BASE", *(f"OUT{i:02}" for i in range(3, 12))]), ("INS", ["BASE", "IN01", "IN02", "IN04"])])
def test_presets(rocm_sd, made, tmp_path, preset, blocks):  # noqa: F811
    model, _, lora, _, _ = made("sd15")
    save_file(scaled(lora, dict.fromkeys(blocks, 1.0)), tmp_path / "scaled.safetensors")
    save_file(to_kohya(lora), tmp_path / "x.safetensors")
    want = our_picture(rocm_sd, model, tmp_path / "want.png", SIZE, "--lora", f"{tmp_path / 'scaled.safetensors'}:0.7")
    got = our_picture(rocm_sd, model, tmp_path / "got.png", SIZE, "--lora", f"{tmp_path / 'x.safetensors'}:0.7:lbw={preset}")
    assert psnr(got, want) >= 60


@pytest.mark.bad_input
@pytest.mark.parametrize("kind, blocks, message", [
    ("sd15", "1,1,1", "17 or 26"), ("sdxl", ",".join("1" * 17), "12 or 20"), ("sd15", ",".join("1" * 16) + ",x", 'found "x"'),
    ("sd15", ",".join("1" * 16) + ",1e9", "from -100 to 100"), ("sd15", "OUTALLL", "OUTALL"), ("sd15", "", "block weights")])
def test_bad_block_weights(rocm_sd, made, tmp_path, kind, blocks, message):  # noqa: F811
    model, _, lora, _, _ = made(kind)
    save_file(lora, tmp_path / "x.safetensors")
    done = rocm_sd(*drawing(model, SIZE), "--lora", f"{tmp_path / 'x.safetensors'}:1:lbw={blocks}", "-o", tmp_path / "a.png", code=None)
    assert done.returncode == 2 and message in done.stderr and "lora" in done.stderr
    assert not (tmp_path / "a.png").exists()


# --- baking ---

@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl"])
@pytest.mark.parametrize("form", ["folder", "single"])
def test_baked(rocm_sd, made, tmp_path, kind, form):  # noqa: F811
    """In f32 the picture is that of the run-time merge to the bit, text encoders too, in both layouts and with two LoRAs."""
    model, folder, lora, _, plain = made(kind, tuple(ATTENTION + CONVOLUTIONS) if kind == "sd15" else tuple(ATTENTION))
    save_file(lora, tmp_path / "one.safetensors")
    save_file({k: v * 0.5 if "lora_B" in k else v for k, v in lora.items() if "to_q" in k or "to_v" in k or k.startswith("text")},
              tmp_path / "two.safetensors")
    uses = [f"{tmp_path / 'one.safetensors'}:0.8:0.6", f"{tmp_path / 'two.safetensors'}:-0.5"]
    want = our_picture(rocm_sd, model, tmp_path / "want.png", SIZE, "--lora", uses[0], "--lora", uses[1])
    target = tmp_path / ("baked" if form == "folder" else "baked.safetensors")
    rocm_sd("convert", model, target, "--bake-lora", uses[0], "--bake-lora", uses[1])
    if form == "single":  # a single file has the model's own vocabulary no more: back to a folder that has
        rocm_sd("convert", target, tmp_path / "back", "--vocabulary", model / "tokenizer")
        target = tmp_path / "back"
        for path in model.glob("tokenizer*"):
            import shutil

            shutil.copytree(path, target / path.name, dirs_exist_ok=True)
    got = our_picture(rocm_sd, target, tmp_path / "got.png", SIZE)
    assert np.array_equal(got, want) and psnr(got, plain) < 40


@pytest.mark.parametrize("dtype, torch_dtype", [("f16", torch.float16), ("bf16", torch.bfloat16), ("f32", torch.float32)])
def test_baked_types(rocm_sd, made, tmp_path, dtype, torch_dtype):  # noqa: F811
    """Every written value is that of the merged weight, rounded once; what no LoRA changes stays as it was."""
    model, _, lora, _, _ = made("sd15")
    save_file(lora, tmp_path / "x.safetensors")
    rocm_sd("convert", model, tmp_path / "baked", "--dtype", dtype, "--bake-lora", f"x:0.7:lbw={','.join(['1'] * 16)},0.5",
            "--lora-dir", tmp_path)
    before, after = (load_file(f / "unet" / "diffusion_pytorch_model.safetensors") for f in (model, tmp_path / "baked"))
    changed = 0
    for name, weight in before.items():
        want = weight.double()
        key = f"unet.{name.removesuffix('.weight')}"
        if f"{key}.lora_A.weight" in lora:
            factor = 0.7 * (0.5 if block_of(key) == "OUT11" else 1.0) * 6 / 4
            down, up = lora[f"{key}.lora_A.weight"].double(), lora[f"{key}.lora_B.weight"].double()
            want, changed = want + factor * (up.flatten(1) @ down.flatten(1)).reshape(want.shape), changed + 1
        assert after[name].dtype == torch_dtype
        error = (after[name].double() - want).abs().max() / want.abs().max()
        assert error <= {"f32": 1e-6, "f16": 2**-11, "bf16": 2**-8}[dtype], name
    assert changed > 50


@pytest.mark.bad_input
def test_bad_baking(rocm_sd, tiny_model, made, tmp_path):  # noqa: F811
    _, _, lora, _, _ = made("sdxl")
    save_file(to_kohya(lora, True, True), tmp_path / "x.safetensors", metadata={"ss_base_model_version": "sdxl_base_v1-0"})
    model = tiny_model("sd15")
    for use, code, message in ((f"{tmp_path / 'x.safetensors'}", 3, "sdxl_base_v1-0"), (f"{tmp_path / 'y.safetensors'}", 3, "no such file"),
                               ("stile", 2, "lora-dir"), (f"{tmp_path / 'x.safetensors'}:1:lbw=1,2", 2, "17 or 26")):
        done = rocm_sd("convert", model, tmp_path / "out", "--bake-lora", use, code=None)
        assert done.returncode == code and message in done.stderr, done.stderr
        assert not (tmp_path / "out").exists() and not list(tmp_path.glob("out.*"))
