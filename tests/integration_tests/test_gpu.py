"""Pictures of the command line on a GPU (ROCM_SD_TEST_DEVICE, else cuda) against the CPU's in f32: pytest -m gpu."""

from __future__ import annotations

import os
import re

import pytest

from pictures import psnr, read_parameters, read_picture

pytestmark = pytest.mark.gpu
DEVICE = os.environ.get("ROCM_SD_TEST_DEVICE", "cuda")
ARGS = ["--prompt", "a photo of the red cat", "--negative-prompt", "blurry", "--steps", "6", "--cfg-scale", "5", "--seed", "7"]


@pytest.fixture(scope="module")
def host_picture(rocm_sd, tmp_path_factory):
    made = {}

    def make(model, *args):
        key = (str(model), args)
        if key not in made:
            path = tmp_path_factory.mktemp("host") / "a.png"
            rocm_sd("generate", "--model", model, "--device", "cpu", "--dtype", "f32", *ARGS, *args, "-o", path)
            made[key] = read_picture(path)
            assert made[key].std() > 5, "a flat picture would prove nothing"
        return made[key]

    return make


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("kind", ["sd15", "sd21v", "sdxl", "demo"])
def test_picture(rocm_sd, tiny_model, repository, host_picture, tmp_path, kind, dtype):
    model = repository / "models" / "demo" if kind == "demo" else tiny_model(kind)
    size = [] if kind == "demo" else ["-W", "64", "-H", "64"]
    done = rocm_sd("generate", "--model", model, "--device", DEVICE, "--dtype", dtype, *ARGS, *size, "-o", tmp_path / "a.png")
    assert psnr(read_picture(tmp_path / "a.png"), host_picture(model, *size)) >= 40
    assert f"computing in {dtype}" in done.stderr
    assert re.search(r"device memory: [\d.]+ GB at most", done.stderr)
    assert re.search(rf'Compute type: "?{dtype}\b', read_parameters(tmp_path / "a.png"))


def test_offload_and_budget(rocm_sd, repository, tmp_path):
    args = ["generate", "--model", repository / "models" / "demo", "--device", DEVICE, *ARGS, "-W", "256", "-H", "256"]
    plain = rocm_sd(*args, "-o", tmp_path / "a.png").stderr
    rocm_sd(*args, "--offload", "-o", tmp_path / "b.png")
    assert (read_picture(tmp_path / "a.png") == read_picture(tmp_path / "b.png")).all()
    plan = re.search(r"memory plan: ([\d.]+) GB = weights ([\d.]+) GB \+ arena ([\d.]+) GB", plain)
    budget = int((float(plan[1]) - 0.3 * float(plan[3])) * 1e9)
    banded = rocm_sd(*args, "--vram-budget", budget, "-o", tmp_path / "c.png").stderr
    assert "bands" in banded
    assert psnr(read_picture(tmp_path / "a.png"), read_picture(tmp_path / "c.png")) >= 50


def test_lora_comes_and_goes(rocm_sd, tiny_model, tmp_path):
    """Merged on the GPU: the CPU's picture with the same file, and without it the first picture to the bit."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    model, torch_random, lora = tiny_model("sd15"), torch.Generator().manual_seed(1), {}
    with safe_open(model / "unet" / "diffusion_pytorch_model.safetensors", "pt") as unet:
        for name in unet.keys():
            shape = unet.get_slice(name).get_shape()
            if name.endswith("weight") and len(shape) > 1 and any(part in name for part in (".to_", ".ff.net", ".proj_", ".conv1", ".conv2")):
                stem = "unet." + name.removesuffix(".weight")
                rank = 5
                lora[f"{stem}.lora_A.weight"] = torch.randn([rank, *shape[1:]], generator=torch_random) * 0.7 / shape[1] ** 0.5
                lora[f"{stem}.lora_B.weight"] = torch.randn([shape[0], rank, *[1] * (len(shape) - 2)], generator=torch_random) * 0.3
    save_file(lora, tmp_path / "style.safetensors")
    prompts = ["a cat", "a cat <lora:style:0.8>", "a cat <lora:style:-0.5>", "a cat"]
    (tmp_path / "prompts.txt").write_text("\n".join(prompts))
    args = ["generate", "--model", model, "--prompts-file", tmp_path / "prompts.txt", "--lora-dir", tmp_path, "--steps", "3", "--seed", "7", "-W", "64",
            "-H", "64"]
    done = rocm_sd(*args, "--device", DEVICE, "--dtype", "f16", "-o", tmp_path / "gpu{index}.png", env={"ROCM_SD_LOG": "debug"})
    rocm_sd(*args, "--device", "cpu", "--dtype", "f32", "-o", tmp_path / "cpu{index}.png")
    gpu, cpu = ([read_picture(tmp_path / f"{who}{i}.png") for i in range(1, 5)] for who in ("gpu", "cpu"))
    assert psnr(cpu[1], cpu[0]) < 35 and psnr(cpu[2], cpu[0]) < 40, "the LoRA changes too little to prove anything"
    assert all(psnr(a, b) >= 40 for a, b in zip(gpu, cpu))
    assert (gpu[0] == gpu[3]).all()
    kept = [float(size) for size in re.findall(r"merged in [\d.]+ s, ([\d.]+) MB of weights kept", done.stderr)]
    assert len(kept) == 3 and kept[0] == kept[1] > 0 and kept[2] == 0
