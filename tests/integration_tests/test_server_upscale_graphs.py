"""ComfyUI's UpscaleModelLoader and ImageUpscaleWithModel: what is drawn, or loaded, enlarged as the command line does it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from serving import Server
from test_server_comfy import changed, cli, draw, node, text_graph, upload
from upscaler_models import CompactNet, SwinIr, randomised


@pytest.fixture(scope="module")
def upscalers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("upscalers")
    for factor in (2, 3):
        torch.save(randomised(CompactNet(factor=factor)).state_dict(), folder / f"compact_x{factor}.pth")
    torch.save(randomised(SwinIr(factor=4, depths=(1, 2))).state_dict(), folder / "swin_x4.pth")
    return folder


@pytest.fixture(scope="module")
def server(rocm_sd, repository, upscalers):
    with Server(rocm_sd.path, "--model", repository / "models" / "demo", "--upscaler-dir", upscalers, "--dtype", "f32") as running:
        yield running


def name_of(factor: int) -> str:
    return f"{'swin' if factor == 4 else 'compact'}_x{factor}.pth"


def upscale_nodes(images: list, factor: int = 2) -> dict:
    return {"20": node("UpscaleModelLoader", model_name=name_of(factor)),
            "21": node("ImageUpscaleWithModel", upscale_model=["20", 0], image=images)}


def enlarged(rocm_sd, upscalers, path, factor: int) -> np.ndarray:
    rocm_sd("upscale", path, "--upscaler", upscalers / name_of(factor), "-o", path.with_suffix(".large.png"))
    return np.asarray(Image.open(path.with_suffix(".large.png")))


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_what_is_drawn_is_enlarged(server, rocm_sd, repository, upscalers, tmp_path, factor):
    cli(rocm_sd, repository, tmp_path / "a.png")
    graph = changed(text_graph(), n9_images=["21", 0]) | upscale_nodes(["8", 0], factor)
    drawn = draw(server, graph)
    assert len(drawn) == 1 and np.array_equal(drawn[0], enlarged(rocm_sd, upscalers, tmp_path / "a.png", factor))


def test_each_image_of_a_batch(server):
    graph = changed(text_graph(), n9_images=["21", 0], n5_batch_size=2) | upscale_nodes(["8", 0])
    first, second = draw(server, graph)
    assert first.shape == second.shape == (128, 128, 3) and not np.array_equal(first, second)


def test_a_picture_that_was_uploaded(server, rocm_sd, upscalers, tmp_path):
    picture = Image.fromarray(np.random.default_rng(3).integers(0, 256, (24, 40, 3), np.uint8))
    picture.save(tmp_path / "a.png")
    name = upload(server, picture, "small.png")
    graph = {"1": node("LoadImage", image=name), **upscale_nodes(["1", 0], 3), "9": node("SaveImage", images=["21", 0], filename_prefix="x")}
    drawn = draw(server, graph)
    assert len(drawn) == 1 and np.array_equal(drawn[0], enlarged(rocm_sd, upscalers, tmp_path / "a.png", 3))
    start = changed(text_graph(denoise=0.5), n3_latent_image=["23", 0]) | upscale_nodes(["1", 0]) | {
        "1": node("LoadImage", image=name), "23": node("VAEEncode", pixels=["21", 0], vae=["4", 2])}
    refused = server.post("/prompt", {"prompt": start})
    assert refused.status_code == 400
    assert refused.json()["node_errors"]["23"]["errors"][0]["extra_info"]["input_name"] == "pixels"


def test_lists(server):
    assert server.get("/models/upscale_models").json() == ["compact_x2.pth", "compact_x3.pth", "swin_x4.pth"]
    info = server.get("/object_info/UpscaleModelLoader").json()["UpscaleModelLoader"]
    assert info["input"]["required"]["model_name"][0] == ["compact_x2.pth", "compact_x3.pth", "swin_x4.pth"] and info["output"] == ["UPSCALE_MODEL"]


@pytest.mark.bad_input
@pytest.mark.parametrize(("graph", "at", "name"), [
    (text_graph() | upscale_nodes(["8", 0]) | {"10": node("SaveImage", images=["21", 0], filename_prefix="x")}, "9", "images"),
    (changed(text_graph(), n9_images=["22", 0]) | upscale_nodes(["8", 0]) | {"22": node("ImageUpscaleWithModel", upscale_model=["20", 0], image=["21", 0])},
     "22", "image"),
    (changed(text_graph(), n9_images=["21", 0]) | upscale_nodes(["8", 0]) | {"20": node("UpscaleModelLoader", model_name="../compact_x2.pth")}, "20",
     "model_name"),
    (changed(text_graph(), n9_images=["21", 0]) | upscale_nodes(["4", 0]), "21", "image"),
])
def test_errors_name_node_and_input(server, graph, at, name):
    refused = server.post("/prompt", {"prompt": graph})
    assert refused.status_code == 400, refused.text
    errors = refused.json()["node_errors"][at]["errors"]
    assert name is None or errors[0]["extra_info"]["input_name"] == name, errors


def test_a_result_that_would_be_too_large(server):
    """The network's own factor decides, which the worker alone knows."""
    name = upload(server, Image.new("RGB", (4000, 8)), "wide.png")
    graph = {"1": node("LoadImage", image=name), **upscale_nodes(["1", 0], 3), "9": node("SaveImage", images=["21", 0], filename_prefix="x")}
    draw(server, graph, expect="error")
    newest = server.get("/v1/jobs").json()["jobs"][0]
    assert newest["state"] == "failed" and "expected sides of at most 8192 pixels, got 12000 x 24" in newest["error"]["message"]
