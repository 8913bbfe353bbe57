"""ControlNets and embeddings over HTTP draw what the command line draws."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import webuiapi
from control_models import control_folder, drawing
from PIL import Image
from safetensors.torch import save_file
from serving import Server

OPTIONS = {"prompt": "a cat", "steps": 2, "seed": 3, "width": 64, "height": 64, "sampler": "Euler", "cfg_scale": 5}


@pytest.fixture(scope="module")
def place(tiny_model, tmp_path_factory):
    """A folder with a model, two ControlNets, an embedding and a hint."""
    folder = tmp_path_factory.mktemp("control")
    (folder / "model").symlink_to(tiny_model("sd15"))
    (folder / "nets").mkdir()
    (folder / "embeddings").mkdir()
    for seed, name in ((1, "edges"), (2, "depth")):
        control_folder(tiny_model("sd15"), folder / "nets" / name, seed)
    width = json.loads((tiny_model("sd15") / "text_encoder" / "config.json").read_text())["hidden_size"]
    save_file({"emb_params": torch.randn(2, width, generator=torch.Generator().manual_seed(1))}, folder / "embeddings" / "mystyle.safetensors")
    drawing(folder / "hint.png", 64, 64)
    return folder


@pytest.fixture(scope="module")
def server(rocm_sd, place):
    with Server(rocm_sd.path, "--model", place / "model", "--control-dir", place / "nets", "--embedding-dir", place / "embeddings",
                "--dtype", "f32") as running:
        yield running


def cli(rocm_sd, place: Path, out: Path, *args) -> np.ndarray:
    rocm_sd("generate", "--model", place / "model", "--dtype", "f32", "-p", "a cat", "--steps", 2, "--seed", 3, "-W", 64, "-H", 64,
            "--sampler", "Euler", "--cfg-scale", 5, *args, "-o", out)
    return np.asarray(Image.open(out))


def picture(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_two_controls(server, rocm_sd, place, tmp_path):
    hint = picture(place / "hint.png")
    job = server.draw(**OPTIONS, controls=[{"model": "edges", "image": hint, "strength": 0.8, "preprocess": "canny:50:120"},
                                           {"model": "depth", "image": hint, "start": 0.5, "resize": "just"}])
    want = cli(rocm_sd, place, tmp_path / "a.png", "--control", place / "nets" / "edges", "--control-image", place / "hint.png",
               "--control-strength", 0.8, "--control-preprocess", "canny:50:120", "--control-start", 0, "--control-resize", "crop",
               "--control", place / "nets" / "depth", "--control-image", place / "hint.png", "--control-strength", 1,
               "--control-preprocess", "none", "--control-start", 0.5, "--control-resize", "just")
    assert np.array_equal(np.asarray(server.image(job)), want)
    plain = server.draw(**OPTIONS)
    assert not np.array_equal(np.asarray(server.image(plain)), want)


def test_units_of_the_web_ui(server, rocm_sd, place, tmp_path):
    web_ui = webuiapi.WebUIApi(baseurl=server.url + "/sdapi/v1", sampler="Euler", steps=2)
    unit = webuiapi.ControlNetUnit(image=Image.open(place / "hint.png"), module="canny", model="edges", weight=0.5, threshold_a=50,
                                   threshold_b=120, resize_mode="Crop and Resize", guidance_end=0.9)
    result = web_ui.txt2img(prompt="a cat", seed=3, width=64, height=64, cfg_scale=5, controlnet_units=[unit])
    want = cli(rocm_sd, place, tmp_path / "a.png", "--control", place / "nets" / "edges", "--control-image", place / "hint.png",
               "--control-strength", 0.5, "--control-preprocess", "canny:50:120", "--control-end", 0.9)
    assert np.array_equal(np.asarray(result.image), want)
    assert web_ui.controlnet_model_list() == ["depth", "edges"] and "canny" in web_ui.controlnet_module_list()


def test_layers_of_perturbed_attention(server, rocm_sd, place, tmp_path):
    job = server.draw(**OPTIONS, pag_scale=3.0, pag_layers="up_blocks.1")
    want = cli(rocm_sd, place, tmp_path / "a.png", "--pag-scale", 3, "--pag-layers", "up_blocks.1")
    assert np.array_equal(np.asarray(server.image(job)), want)
    assert not np.array_equal(np.asarray(server.image(server.draw(**OPTIONS))), want)


def test_embeddings(server, rocm_sd, place, tmp_path):
    job = server.draw(**(OPTIONS | {"prompt": "a cat, mystyle"}))
    want = cli(rocm_sd, place, tmp_path / "a.png", "-p", "a cat, mystyle", "--embedding-dir", place / "embeddings")
    assert np.array_equal(np.asarray(server.image(job)), want) and "TI hashes" in job["images"][0]["parameters"]
    assert list(server.get("/sdapi/v1/embeddings").json()["loaded"]) == ["mystyle"]
    assert server.get("/v1/capabilities").json()["controls"] == ["depth", "edges"]


@pytest.mark.bad_input
@pytest.mark.parametrize(("control", "message"), [
    ({"model": "none", "image": "P"}, 'controls[0].model: no ControlNet "none"; there are: depth, edges'),
    ({"model": "../nets/edges", "image": "P"}, "no ControlNet"),
    ({"model": "edges"}, 'controls[0]: expected {"model"'),
    ({"model": "edges", "image": "AAAA"}, "controls[0].image: expected a PNG"),
    ({"model": "edges", "image": "P", "strength": "1"}, "controls[0].strength: expected a number"),
    ({"model": "edges", "image": "P", "strength": 11}, "controls[0].strength: "),
    ({"model": "edges", "image": "P", "weight": 1}, "controls[0].weight: unknown field"),
])
def test_bad_controls(server, place, control, message):
    control = {key: picture(place / "hint.png") if value == "P" else value for key, value in control.items()}
    refused = server.post("/v1/jobs", {"prompt": "a", "controls": [control]})
    assert refused.status_code == 400 and message in refused.json()["error"]["message"]


@pytest.mark.bad_input
@pytest.mark.parametrize(("unit", "field"), [({"module": "openpose"}, "module"), ({"control_mode": "ControlNet is more important"}, "control_mode"),
                                             ({"image": ""}, "image"), ({"mask": "x"}, "mask"), ({"other": 1}, "other"), ({"model": "x"}, "model")])
def test_bad_units(server, place, unit, field):
    unit = {"image": picture(place / "hint.png"), "model": "edges"} | unit
    refused = server.post("/sdapi/v1/txt2img", {"prompt": "a", "alwayson_scripts": {"ControlNet": {"args": [unit]}}})
    assert refused.status_code in (400, 422) and f"args[0].{field}" in refused.json()["errors"], refused.text
