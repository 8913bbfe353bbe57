"""Looks at unfinished images: by events, WebSockets, A1111's progress, ComfyUI's /ws and OpenAI's partial images."""

from __future__ import annotations

import base64
import io
import json
import struct
import threading

import numpy as np
import openai
import pytest
from PIL import Image
from serving import Server, wait_for
from websockets.sync.client import connect

OPTIONS = {"prompt": "a red apple", "steps": 40, "seed": 3, "sampler": "Euler", "width": 64, "height": 64}
GRAPH = {
    "3": {"class_type": "KSampler", "inputs": {"seed": 3, "steps": 40, "cfg": 4, "sampler_name": "euler", "scheduler": "normal", "denoise": 1,
                                               "model": ["4", 0], "positive": ["6", 0], "negative": ["7", 0], "latent_image": ["5", 0]}},
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "demo"}},
    "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a red apple", "clip": ["4", 1]}},
    "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "", "clip": ["4", 1]}},
    "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
    "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "x", "images": ["8", 0]}},
}


@pytest.fixture(scope="module")
def server(rocm_sd, repository):
    with Server(rocm_sd.path, "--model", repository / "models" / "demo") as running:
        yield running


def picture(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def previews_of(events) -> list[dict]:
    return [data for name, data in events if name == "preview"]


def test_events_with_previews(server):
    """They come between the steps, approach the picture, and leave it as it is without them."""
    plain = server.draw(**OPTIONS)
    assert not previews_of(server.events(plain["id"]))
    events = server.events(server.submit(**OPTIONS), "?previews=true")
    previews = previews_of(events)
    assert previews and events[-1][0] == "completed"
    steps = [one["step"] for one in previews]
    assert steps == sorted(set(steps)) and steps[-1] <= 40 and {one["total"] for one in previews} == {40}
    small = [np.asarray(picture(base64.b64decode(one["picture"])).convert("RGB"), float) for one in previews]
    assert {image.shape for image in small} == {(8, 8, 3)}
    drawn = server.image(events[-1][1])
    assert np.array_equal(np.asarray(drawn), np.asarray(server.image(plain)))
    assert drawn.info["parameters"] == server.image(plain).info["parameters"]
    # The matrix is of SD's latents, not of the demo model's, so the colours are no test: the looks converge.
    away = [np.abs(image - small[-1]).mean() for image in small]
    assert away[0] > 2 * away[-2] if len(away) > 4 else True


def test_previews_by_websocket_and_by_path(server):
    job = server.submit(**OPTIONS)
    assert server.get(f"/v1/jobs/{job}/preview").status_code in (200, 404)
    looked = wait_for(lambda: (answer := server.get(f"/v1/jobs/{job}/preview")).status_code == 200 and answer, 30, "a preview")
    assert looked.headers["Content-Type"] == "image/png" and picture(looked.content).size == (8, 8)
    with connect(server.url.replace("http", "ws", 1) + f"/v1/jobs/{job}/events?previews=1") as socket:
        messages = list(socket)
    files = [one for one in messages if isinstance(one, bytes)]
    assert json.loads([one for one in messages if isinstance(one, str)][-1])["event"] == "completed"
    assert all(picture(file).size == (8, 8) for file in files)
    assert server.get(f"/v1/jobs/{job}/preview").status_code == 404  # it has an image now
    assert server.get("/v1/jobs/" + "0" * 32 + "/preview").status_code == 404


def test_current_image_of_a1111(server):
    assert server.get("/sdapi/v1/progress").json()["current_image"] is None
    body = {"prompt": "a red apple", "steps": 400, "sampler_name": "Euler", "width": 64, "height": 64}
    thread = threading.Thread(target=lambda: server.session.post(server.url + "/sdapi/v1/txt2img", json=body, timeout=60))
    thread.start()
    wait_for(lambda: server.get("/sdapi/v1/progress?skip_current_image=true").json()["state"]["sampling_step"] > 2, 30, "a step")
    assert server.get("/sdapi/v1/progress?skip_current_image=true").json()["current_image"] is None  # nobody looked
    seen = wait_for(lambda: server.get("/sdapi/v1/progress").json()["current_image"], 30, "a preview")
    assert picture(base64.b64decode(seen)).size == (8, 8)
    server.post("/sdapi/v1/interrupt")
    thread.join(30)


def test_preview_frames_of_comfyui(server):
    with connect(server.url.replace("http", "ws", 1) + "/ws?clientId=me") as socket:
        server.post("/prompt", {"prompt": GRAPH, "client_id": "me"})
        frames = []
        while True:
            message = socket.recv(timeout=30)
            if isinstance(message, bytes):
                frames.append(message)
            elif (told := json.loads(message))["type"] == "executing" and told["data"]["node"] is None:
                break
    assert frames
    for frame in frames:
        assert struct.unpack(">II", frame[:8]) == (1, 2)  # a preview, PNG
        assert picture(frame[8:]).format == "PNG"


@pytest.mark.parametrize("count", [1, 3])
def test_partial_images_of_openai(server, count):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none is asked for", max_retries=0)
    events = list(client.images.generate(prompt="a bird", stream=True, partial_images=count, size="64x64", extra_body={"steps": 8, "seed": 2}))
    assert [event.type for event in events] == ["image_generation.partial_image"] * count + ["image_generation.completed"]
    assert [event.partial_image_index for event in events[:-1]] == list(range(count))
    images = [np.asarray(picture(base64.b64decode(event.b64_json)).convert("RGB"), float) for event in events]
    assert {image.shape for image in images} == {(64, 64, 3)}  # whole pictures
    errors = [np.abs(image - images[-1]).mean() for image in images[:-1]]
    assert errors[-1] == min(errors) > 0


def test_a_decoder_looks_within_its_time(rocm_sd, repository):
    """The VAE takes longer than a step: its looks are rare. Without previews there are none."""
    with Server(rocm_sd.path, "--model", repository / "models" / "demo", "--preview", "vae") as server:
        events = server.events(server.submit(**OPTIONS), "?previews=true")
        previews = previews_of(events)
        assert 1 <= len(previews) <= 6 and {(one["width"], one["height"]) for one in previews} == {(64, 64)}
    with Server(rocm_sd.path, "--model", repository / "models" / "demo", "--preview", "none") as server:
        assert not previews_of(server.events(server.submit(**OPTIONS), "?previews=true"))
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none is asked for", max_retries=0)
        events = list(client.images.generate(prompt="a bird", stream=True, partial_images=2, extra_body={"steps": 4}))
        assert [event.type for event in events] == ["image_generation.completed"]


def test_bad_options_end_the_server(rocm_sd, repository):
    model = repository / "models" / "demo"
    assert "expected none, proj, tae or vae" in rocm_sd("serve", "--model", model, "--preview", "x", code=2).stderr
    assert "needs --taesd" in rocm_sd("serve", "--model", model, "--preview", "tae", code=2).stderr
