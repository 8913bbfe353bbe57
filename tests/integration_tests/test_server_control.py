"""ControlNets and embeddings over HTTP draw what the command line draws."""

from __future__ import annotations

import base64
import io
import json
import shutil
from pathlib import Path

import diffusers
import numpy as np
import pytest
import torch
import webuiapi
from control_models import adapter_folder, control_folder, drawing
from ip_models import FACE, adapter_file, encoder_folder, image_encoder
from PIL import Image
from safetensors.torch import load_file, save_file
from serving import Server

IPS = ["ip_face", "ip_face_plus", "ip_plain", "ip_plus"]
NETS = ["depth", "edges", *IPS, "sketch"]
OPTIONS = {"prompt": "a cat", "steps": 2, "seed": 3, "width": 64, "height": 64, "sampler": "Euler", "cfg_scale": 5}


@pytest.fixture(scope="module")
def place(tiny_model, tmp_path_factory):
    """A folder with a model, two ControlNets, a T2I-Adapter, four IP-Adapters and their image encoder, an embedding, a LoRA and pictures."""
    folder = tmp_path_factory.mktemp("control")
    (folder / "model").symlink_to(tiny_model("sd15"))
    (folder / "nets").mkdir()
    (folder / "embeddings").mkdir()
    for seed, name in ((1, "edges"), (2, "depth")):
        control_folder(tiny_model("sd15"), folder / "nets" / name, seed)
    channels = diffusers.UNet2DConditionModel.load_config(tiny_model("sd15") / "unet")["block_out_channels"]
    adapter_folder(folder / "nets" / "sketch", "full_adapter", channels)
    unet = diffusers.UNet2DConditionModel.from_pretrained(tiny_model("sd15") / "unet")
    encoder_folder(folder / "nets" / "image_encoder")
    for kind in ("plain", "plus"):
        adapter_file(folder / "nets" / f"ip_{kind}.safetensors", kind, unet, image_encoder())
    for kind, name in (("faceid", "ip_face"), ("faceid-plus", "ip_face_plus")):
        adapter_file(folder / "nets" / f"{name}.safetensors", kind, unet, image_encoder())
    faces = torch.randn(2, FACE, generator=torch.Generator().manual_seed(8))
    save_file({"faces": faces}, folder / "faces.safetensors")
    save_file({"face": faces[:1].clone()}, folder / "face0.safetensors")
    torch.save(faces[1:].clone(), folder / "face1.pt")
    for i in range(2):
        drawing(folder / f"seen{i}.png", 50 + 9 * i, 40, seed=i + 3)
    half = np.zeros((64, 64), np.uint8)
    half[:, :32] = 255
    Image.fromarray(half).save(folder / "half.png")
    (folder / "loras").mkdir()
    generator = torch.Generator().manual_seed(5)
    lora = {}
    for name, module in unet.named_modules():
        if name.endswith("attn1.to_v"):
            out, wide = module.weight.shape
            lora[f"lora_unet_{name.replace('.', '_')}.lora_down.weight"] = torch.randn(2, wide, generator=generator) * wide ** -0.5
            lora[f"lora_unet_{name.replace('.', '_')}.lora_up.weight"] = torch.randn(out, 2, generator=generator)
    save_file(lora, folder / "loras" / "style.safetensors")
    width = json.loads((tiny_model("sd15") / "text_encoder" / "config.json").read_text())["hidden_size"]
    save_file({"emb_params": torch.randn(2, width, generator=torch.Generator().manual_seed(1))}, folder / "embeddings" / "mystyle.safetensors")
    drawing(folder / "hint.png", 64, 64)
    return folder


@pytest.fixture(scope="module")
def server(rocm_sd, place):
    with Server(rocm_sd.path, "--model", place / "model", "--control-dir", place / "nets", "--embedding-dir", place / "embeddings",
                "--lora-dir", place / "loras", "--dtype", "f32") as running:
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
    assert web_ui.controlnet_model_list() == NETS and {"canny", "ip-adapter-auto"} <= set(web_ui.controlnet_module_list())


def same(server, drawn: dict, unit_or_job: str, want: np.ndarray) -> None:
    """drawn: fields of a job, or units of the extension; each drawn as such."""
    if unit_or_job == "job":
        got = np.asarray(server.image(server.draw(**OPTIONS, **drawn)))
    else:
        body = {"prompt": "a cat", "steps": 2, "seed": 3, "width": 64, "height": 64, "sampler_name": "Euler", "cfg_scale": 5,
                "alwayson_scripts": {unit_or_job: {"args": drawn}}}
        done = server.post("/sdapi/v1/txt2img", body)
        assert done.status_code == 200, done.text
        got = np.asarray(Image.open(io.BytesIO(base64.b64decode(done.json()["images"][0]))))
    assert np.array_equal(got, want)


def test_masks_of_units(server, rocm_sd, place, tmp_path):
    """The second of two has a mask; the extension's names for it and Forge's."""
    hint, half = picture(place / "hint.png"), picture(place / "half.png")
    units = ["--control-image", place / "hint.png"]
    want = cli(rocm_sd, place, tmp_path / "a.png", "--control", place / "nets" / "edges", *units, "--control-mask", "none",
               "--control", place / "nets" / "depth", *units, "--control-mask", place / "half.png")
    plain = cli(rocm_sd, place, tmp_path / "b.png", "--control", place / "nets" / "edges", *units, "--control", place / "nets" / "depth", *units)
    assert not np.array_equal(want, plain)
    same(server, {"controls": [{"model": "edges", "image": hint}, {"model": "depth", "image": hint, "mask": half}]}, "job", want)
    first = {"enabled": True, "model": "edges", "image": hint, "mask": None, "effective_region_mask": None}
    same(server, [first, {"model": "depth [0123abcd]", "image": hint, "effective_region_mask": half}], "ControlNet", want)
    same(server, [first, {"model": "depth", "image": {"image": hint, "mask": half}}, {"enabled": False, "model": "gone"}], "controlnet", want)
    forge = {"model": "depth", "image": hint, "mask_image": half, "use_mask": True, "type_filter": "All", "generated_image": None,
             "hr_option": "Both", "image_fg": None, "mask_image_fg": None, "batch_image_dir": "", "threshold_a": -1, "threshold_b": -1}
    same(server, [first, forge], "ControlNet", want)


@pytest.mark.parametrize(("given", "mode"), [("My prompt is more important", "prompt"), (2, "control")])
def test_control_modes(server, rocm_sd, place, tmp_path, given, mode):
    want = cli(rocm_sd, place, tmp_path / "a.png", "--control", place / "nets" / "edges", "--control-image", place / "hint.png", "--control-mode", mode)
    same(server, [{"model": "edges", "image": picture(place / "hint.png"), "control_mode": given}], "ControlNet", want)


def test_t2i_adapters(server, rocm_sd, place, tmp_path):
    want = cli(rocm_sd, place, tmp_path / "a.png", "--control", place / "nets" / "sketch", "--control-image", place / "hint.png",
               "--control-strength", 0.7, "--control-preprocess", "invert")
    unit = {"model": "sketch", "module": "invert", "image": picture(place / "hint.png"), "weight": 0.7}
    same(server, [unit], "ControlNet", want)
    assert not np.array_equal(want, cli(rocm_sd, place, tmp_path / "b.png"))


def test_ip_adapters(server, rocm_sd, place, tmp_path):
    """Two at once, the second with two pictures and masks; as jobs and as units of the extension, beside a ControlNet."""
    seen = [picture(place / f"seen{i}.png") for i in range(2)]
    half, hint = picture(place / "half.png"), picture(place / "hint.png")
    plain, plus, edges = (place / "nets" / name for name in ("ip_plain.safetensors", "ip_plus.safetensors", "edges"))
    pair = [place / "seen0.png", place / "seen1.png"]
    want = cli(rocm_sd, place, tmp_path / "a.png", "--ip-adapter", plain, "--ip-image", pair[0], "--ip-weight", 0.6, "--ip-end", 0.5)
    same(server, {"ip_adapters": [{"model": "ip_plain", "images": seen[:1], "weight": 0.6, "end": 0.5}]}, "job", want)
    same(server, [{"model": "ip_plain", "module": "ip-adapter_clip_sd15", "image": seen[0], "weight": 0.6, "guidance_end": 0.5}], "ControlNet", want)
    both = cli(rocm_sd, place, tmp_path / "b.png", "--control", edges, "--control-image", place / "hint.png",
               "--ip-adapter", plus, "--ip-image", f"{pair[0]},{pair[1]}", "--ip-mask", f"{place / 'half.png'},{place / 'half.png'}",
               "--ip-weight", 0.9)
    net = {"model": "edges", "image": hint}
    same(server, {"controls": [net], "ip_adapters": [{"model": "ip_plus", "images": seen, "masks": [half, half], "weight": 0.9}]}, "job", both)
    unit = {"model": "ip_plus", "module": "ip-adapter-auto", "image": [{"image": one, "mask": None} for one in seen], "weight": 0.9,
            "effective_region_mask": half}
    same(server, [unit, net], "ControlNet", both)
    assert not np.array_equal(want, both) and not np.array_equal(want, cli(rocm_sd, place, tmp_path / "c.png"))
    named = server.get("/v1/capabilities").json()
    assert named["ip_adapters"] == IPS and named["controls"] == NETS


def test_faces(server, rocm_sd, place, tmp_path):
    """What a face model gave of two faces: as numbers, as one file, as a file for each; alone, and beside the faces' pictures."""
    nets, rows = place / "nets", load_file(place / "faces.safetensors")["faces"].tolist()
    files = [picture(place / name) for name in ("face0.safetensors", "face1.pt")]
    seen = [picture(place / f"seen{i}.png") for i in range(2)]
    half = picture(place / "half.png")
    want = cli(rocm_sd, place, tmp_path / "a.png", "--ip-adapter", nets / "ip_face.safetensors", "--ip-embeds", place / "faces.safetensors",
               "--ip-weight", 0.8)
    assert not np.array_equal(want, cli(rocm_sd, place, tmp_path / "b.png"))
    for embeds in (rows, picture(place / "faces.safetensors"), [picture(place / "faces.safetensors")], files):
        same(server, {"ip_adapters": [{"model": "ip_face", "embeds": embeds, "weight": 0.8}]}, "job", want)
        same(server, [{"model": "ip_face", "module": "ip-adapter_face_id", "ipadapter_input": embeds, "weight": 0.8}], "ControlNet", want)
    masked = cli(rocm_sd, place, tmp_path / "c.png", "--ip-adapter", nets / "ip_face.safetensors", "--ip-embeds", place / "faces.safetensors",
                 "--ip-mask", f"{place / 'half.png'},{place / 'half.png'}")
    same(server, {"ip_adapters": [{"model": "ip_face", "embeds": rows, "masks": [half, half]}]}, "job", masked)
    same(server, [{"model": "ip_face", "module": "InsightFace (IPAdapter)", "ipadapter_input": files, "effective_region_mask": half}], "ControlNet",
         masked)
    both = cli(rocm_sd, place, tmp_path / "d.png", "--ip-adapter", nets / "ip_face_plus.safetensors",
               "--ip-image", f"{place / 'seen0.png'},{place / 'seen1.png'},{place / 'faces.safetensors'}", "--ip-weight", 0.7)
    assert not np.array_equal(both, want)
    same(server, {"ip_adapters": [{"model": "ip_face_plus", "images": seen, "embeds": rows, "weight": 0.7}]}, "job", both)
    unit = {"model": "ip_face_plus", "module": "ip-adapter_face_id_plus", "image": [{"image": one} for one in seen], "ipadapter_input": files,
            "weight": 0.7}
    same(server, [unit], "ControlNet", both)


def test_embeddings_of_images(server, rocm_sd, place, tmp_path):
    """An image encoder's, for a plain adapter, and an adapter that sees pictures beside it."""
    width = image_encoder().config.projection_dim
    save_file({"seen": torch.randn(1, width, generator=torch.Generator().manual_seed(4))}, tmp_path / "seen.safetensors")
    given = {"model": "ip_plain", "embeds": load_file(tmp_path / "seen.safetensors")["seen"].tolist()}
    plus = {"model": "ip_plus", "images": [picture(place / "seen1.png")]}
    want = cli(rocm_sd, place, tmp_path / "a.png", "--ip-adapter", place / "nets" / "ip_plus.safetensors", "--ip-image", place / "seen1.png",
               "--ip-adapter", place / "nets" / "ip_plain.safetensors", "--ip-embeds", tmp_path / "seen.safetensors")
    same(server, {"ip_adapters": [plus, given]}, "job", want)
    other = np.asarray(server.image(server.draw(**OPTIONS, ip_adapters=[given, plus]))).astype(int)
    assert np.abs(other - want).max() <= 1  # the sum of both, in another order


@pytest.mark.bad_input
@pytest.mark.parametrize(("adapter", "message"), [
    ({}, 'ip_adapters[0]: expected {"model"'), ({"embeds": []}, "ip_adapters[0].embeds: expected a file in base64, or a list of 1 to 16"),
    ({"embeds": [[]]}, "ip_adapters[0].embeds[0]: expected a list of 1 to"), ({"embeds": [[1, "a"]]}, "ip_adapters[0].embeds[0][1]: expected a number"),
    ({"embeds": [[1, 2], [1]]}, "ip_adapters[0].embeds[1]: expected 2 numbers, as many as the first has, got 1"),
    ({"embeds": "?"}, "ip_adapters[0].embeds: expected base64"), ({"embeds": "AAAA"}, "ip_adapters[0].embeds: "),
    ({"embeds": [[1.0]] * 17}, "list of 1 to 16"), ({"embeds": [[1.0]], "masks": ["P", "P"]}, "ip_adapters[0].masks: expected one for each of the 1 embeddings"),
    ({"embeds": ["F", "PIL"]}, "ip_adapters[0].embeds[1]: "), ({"embeds": ["ALL", "F"]}, "ip_adapters[0].embeds[0]: expected one embedding, [1,width]"),
    ({"embeds": 3}, "ip_adapters[0].embeds: expected a file in base64"), ({"embeds": [["x"]]}, "expected a number, got a text")])
def test_bad_embeddings(server, place, adapter, message):
    stand = {"P": picture(place / "half.png"), "F": picture(place / "face0.safetensors"), "ALL": picture(place / "faces.safetensors"),
             "PIL": picture(place / "half.png")}
    adapter = {key: [stand.get(v, v) if isinstance(v, str) else v for v in value] if isinstance(value, list) else value
               for key, value in adapter.items()}
    refused = server.post("/v1/jobs", {"prompt": "a", "ip_adapters": [{"model": "ip_face"} | adapter]})
    assert refused.status_code == 400 and message in refused.json()["error"]["message"], refused.text
    assert "/proc/" not in refused.text


@pytest.mark.bad_input
@pytest.mark.parametrize(("fields", "message"), [
    ({"images": ["P"]}, "is a FaceID adapter"), ({"embeds": [[1.0, 2.0]]}, "expected embeddings [images,20]"),
    ({"embeds": [[0.5] * 20], "images": ["P"]}, "expected one of them, got several"),
    ({"model": "ip_face_plus", "embeds": [[0.5] * 20]}, "got the embedding alone"),
    ({"model": "ip_face_plus", "embeds": [[0.5] * 20] * 2, "images": ["P"]}, "expected a face's embedding for each of the 1 images, got 2"),
    ({"model": "ip_face_plus", "images": ["P"]}, "got the picture alone")])
def test_embeddings_that_the_adapter_does_not_read(server, place, fields, message):
    fields = {key: [picture(place / "seen0.png") if v == "P" else v for v in value] if isinstance(value, list) else value
              for key, value in fields.items()}
    failed = server.wait(server.submit(**OPTIONS, ip_adapters=[{"model": "ip_face"} | fields]), "failed", "completed")
    assert failed["state"] == "failed" and message in failed["error"]["message"], failed


def test_a_mask_of_one_adapter_alone(server, rocm_sd, place, tmp_path):
    """Beside one without a mask, which then acts everywhere."""
    Image.new("L", (8, 8), 255).save(tmp_path / "white.png")
    want = cli(rocm_sd, place, tmp_path / "a.png", "--ip-adapter", place / "nets" / "ip_plain.safetensors", "--ip-image", place / "seen0.png",
               "--ip-mask", tmp_path / "white.png", "--ip-adapter", place / "nets" / "ip_plus.safetensors", "--ip-image", place / "seen1.png",
               "--ip-mask", place / "half.png")
    seen = [picture(place / f"seen{i}.png") for i in range(2)]
    second = {"model": "ip_plus", "images": seen[1:], "masks": [picture(place / "half.png")]}
    same(server, {"ip_adapters": [{"model": "ip_plain", "images": seen[:1]}, second]}, "job", want)
    refused = server.post("/v1/jobs", {"prompt": "a", "ip_adapters": [{"model": "ip_plain", "images": seen}, second]})
    assert refused.status_code == 400 and "ip_adapters[0].masks: expected one for each picture" in refused.json()["error"]["message"]


def test_a_prompt_for_each_image(server, rocm_sd, place, tmp_path):
    """With LoRAs of their own, by name from --lora-dir."""
    prompts = ["a cat <lora:style:0.9>", "a blue dog"]
    settings = {key: value for key, value in OPTIONS.items() if key != "prompt"}
    job = server.draw(**settings, prompts=prompts, lora_mode="runtime")
    assert len(job["images"]) == 2 and [image["seed"] for image in job["images"]] == [3, 4]
    for i, text in enumerate(prompts):
        want = cli(rocm_sd, place, tmp_path / "a.png", "-p", text, "--lora-dir", place / "loras", "--seed", 3 + i)
        got = np.asarray(server.image(job, i)).astype(int)
        assert np.abs(got - want).max() <= 1 and text in job["images"][i]["parameters"]
    for more, message in ((dict(batch=3), "batch: expected 2"), (dict(prompts=[]), "prompts: expected a list of 1 to"),
                          (dict(prompts=["a <lora:none:1>"]), 'no LoRA "none"')):
        refused = server.post("/v1/jobs", {"prompts": prompts} | more)
        assert refused.status_code == 400 and message in refused.json()["error"]["message"], refused.text


@pytest.mark.parametrize("path", ["/v1/jobs", "/sdapi/v1/txt2img"])
def test_loras_of_prompts(server, rocm_sd, place, tmp_path, path):
    prompt = "a cat <lora:style:0.8>"
    want = cli(rocm_sd, place, tmp_path / "a.png", "-p", prompt, "--lora-dir", place / "loras")
    assert not np.array_equal(want, cli(rocm_sd, place, tmp_path / "b.png"))
    if path == "/v1/jobs":
        got = server.image(server.draw(**OPTIONS | {"prompt": prompt}))
    else:
        done = server.post(path, {"prompt": prompt, "steps": 2, "seed": 3, "width": 64, "height": 64, "sampler_name": "Euler", "cfg_scale": 5})
        got = Image.open(io.BytesIO(base64.b64decode(done.json()["images"][0])))
    assert np.array_equal(np.asarray(got), want)


def test_proposals_of_distilled_models(rocm_sd, place, tmp_path):
    """What a client does not send is what the model asks for; what it sends counts."""
    shutil.copytree(place / "model", tmp_path / "tiny-turbo")
    with Server(rocm_sd.path, "--model", tmp_path / "tiny-turbo", "--dtype", "f32") as own:
        shown = own.draw(prompt="a cat", seed=3, width=64, height=64)["images"][0]["parameters"]
        assert "Steps: 4," in shown and "CFG scale: 1," in shown, shown  # its configuration names the sampler
        shown = own.draw(prompt="a cat", seed=3, width=64, height=64, steps=2, cfg_scale=3, sampler="Euler")["images"][0]["parameters"]
        assert "Steps: 2, Sampler: Euler," in shown and "CFG scale: 3," in shown, shown
        info = json.loads(own.post("/sdapi/v1/txt2img", {"prompt": "a cat", "width": 64, "height": 64}).json()["info"])
        assert info["steps"] == 4 and info["cfg_scale"] == 1
        for quality in ("low", "auto", "high"):
            done = own.post("/v1/images/generations", {"prompt": "a cat", "size": "64x64", "quality": quality})
            assert done.status_code == 200
            file = base64.b64decode(done.json()["data"][0]["b64_json"])
            assert "Steps: 4," in Image.open(io.BytesIO(file)).info["parameters"], quality


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
    assert server.get("/v1/capabilities").json()["controls"] == NETS


@pytest.mark.bad_input
@pytest.mark.parametrize(("control", "message"), [
    ({"model": "none", "image": "P"}, 'controls[0].model: no ControlNet or IP-Adapter "none"; there are: depth, edges, ip_face'),
    ({"model": "../nets/edges", "image": "P"}, "no ControlNet"),
    ({"model": "edges"}, 'controls[0]: expected {"model"'),
    ({"model": "edges", "image": "AAAA"}, "controls[0].image: expected a PNG"),
    ({"model": "edges", "image": "P", "strength": "1"}, "controls[0].strength: expected a number"),
    ({"model": "edges", "image": "P", "strength": 11}, "controls[0].strength: "),
    ({"model": "edges", "image": "P", "weight": 1}, "controls[0].weight: unknown field"),
    ({"model": "edges", "image": "P", "mask": "AAAA"}, "controls[0].mask: expected a PNG"),
])
def test_bad_controls(server, place, control, message):
    control = {key: picture(place / "hint.png") if value == "P" else value for key, value in control.items()}
    refused = server.post("/v1/jobs", {"prompt": "a", "controls": [control]})
    assert refused.status_code == 400 and message in refused.json()["error"]["message"]


@pytest.mark.bad_input
@pytest.mark.parametrize(("unit", "field"), [({"module": "openpose"}, "module"), ({"control_mode": "Nobody is more important"}, "control_mode"),
                                             ({"image": ""}, "image"), ({"mask": "x"}, "mask"), ({"other": 1}, "other"), ({"model": "x"}, "model"),
                                             ({"control_mode": 3}, "control_mode"), ({"union_control_type": "Edges"}, "union_control_type"),
                                             ({"module": "ip-adapter_face_id"}, "module"),
                                             ({"module": "ip-adapter_face_id", "model": "ip_face", "ipadapter_input": ["x"]}, "ipadapter_input[0]"),
                                             ({"module": "openpose", "ipadapter_input": [[1.0]]}, "ipadapter_input"), ({"advanced_weighting": [1]}, "advanced_weighting"),
                                             ({"ipadapter_input": [[1.0]]}, "ipadapter_input"), ({"image": ["x"]}, "image"),
                                             ({"effective_region_mask": "x"}, "effective_region_mask"), ({"image": {"other": 1}}, "image.other"),
                                             ({"module": "inpaint_only", "mask": "P"}, "mask"),
                                             ({"module": "ip-adapter-auto", "model": "ip_plain", "mask": "P"}, "mask")])
def test_bad_units(server, place, unit, field):
    hint = picture(place / "hint.png")
    unit = {"image": hint, "model": "edges"} | {key: hint if value == "P" else value for key, value in unit.items()}
    refused = server.post("/sdapi/v1/txt2img", {"prompt": "a", "alwayson_scripts": {"ControlNet": {"args": [unit]}}})
    assert refused.status_code in (400, 422) and f"args[0].{field}" in refused.json()["errors"], refused.text
