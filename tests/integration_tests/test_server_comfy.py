"""ComfyUI's API: its graphs draw what the command line draws, its errors, its WebSocket, and a client from PyPI."""

from __future__ import annotations

import copy
import io
import json
import uuid

import numpy as np
import pytest
from comfy_api_simplified import ComfyApiWrapper, ComfyWorkflowWrapper
from PIL import Image
from serving import Server, wait_for
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

SIDE = 64


@pytest.fixture(scope="module")
def examples(repository):
    return repository / "models" / "demo_examples"


@pytest.fixture(scope="module")
def server(rocm_sd, repository, examples):
    with Server(rocm_sd.path, "--model", repository / "models" / "demo", "--lora-dir", examples, "--control-dir", examples,
                "--dtype", "f32", "--max-connections", "12", "--join", "1") as running:
        yield running


@pytest.fixture
def client(server):
    return ComfyApiWrapper(server.url)


def node(kind: str, **inputs) -> dict:
    return {"class_type": kind, "inputs": inputs, "_meta": {"title": kind}}


def text_graph(**sampler) -> dict:
    settings = {"seed": 5, "steps": 3, "cfg": 4, "sampler_name": "euler", "scheduler": "normal", "denoise": 1} | sampler
    return {
        "4": node("CheckpointLoaderSimple", ckpt_name="demo"),
        "5": node("EmptyLatentImage", width=SIDE, height=SIDE, batch_size=1),
        "6": node("CLIPTextEncode", text="a red apple", clip=["4", 1]),
        "7": node("CLIPTextEncode", text="blue", clip=["4", 1]),
        "3": node("KSampler", model=["4", 0], positive=["6", 0], negative=["7", 0], latent_image=["5", 0], **settings),
        "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": node("SaveImage", images=["8", 0], filename_prefix="test/apple"),
    }


def changed(graph: dict, **inputs) -> dict:
    """n3_steps=5: another value of node 3."""
    graph = copy.deepcopy(graph)
    for key, value in inputs.items():
        number, name = key[1:].split("_", 1)
        graph[number]["inputs"][name] = value
    return graph


def cli(rocm_sd, repository, out, *args, steps=3) -> np.ndarray:
    rocm_sd("generate", "--model", repository / "models" / "demo", "--dtype", "f32", "-p", "a red apple", "-n", "blue", "--steps", steps,
            "--seed", 5, "-W", SIDE, "-H", SIDE, "--sampler", "euler", "--schedule", "normal", "--cfg-scale", 4, "--rng", "cpu",
            "--emphasis", "no norm", *args, "-o", out)
    return np.asarray(Image.open(out))


def draw(server, graph: dict, expect: str = "success") -> list[np.ndarray]:
    posted = server.post("/prompt", {"prompt": graph})
    assert posted.status_code == 200, posted.text
    prompt_id = posted.json()["prompt_id"]
    history = wait_for(lambda: server.get(f"/history/{prompt_id}").json().get(prompt_id), 60, "a history")
    assert history["status"]["status_str"] == expect, history["status"]
    out = []
    for files in history["outputs"].values():
        for file in files["images"]:
            answer = server.get("/view", params=file)
            assert answer.status_code == 200 and answer.headers["Content-Type"] == "image/png"
            out.append(np.asarray(Image.open(io.BytesIO(answer.content))))
    return out


def upload(server, image: Image.Image, name: str, **fields) -> str:
    data = io.BytesIO()
    image.save(data, "PNG")
    done = server.session.post(server.url + "/upload/image", files={"image": (name, data.getvalue(), "image/png")}, data=fields, timeout=30)
    assert done.status_code == 200, done.text
    return done.json()["name"]


# Graphs


def test_text_to_image(server, rocm_sd, repository, tmp_path):
    want = cli(rocm_sd, repository, tmp_path / "a.png")
    drawn = draw(server, text_graph())
    assert len(drawn) == 1 and np.array_equal(drawn[0], want)
    assert np.array_equal(draw(server, changed(text_graph(), n5_width=SIDE + 3))[0], want)  # whole latents, as there
    both = text_graph() | {"10": node("PreviewImage", images=["8", 0])}
    several = draw(server, changed(both, n5_batch_size=2))
    assert len(several) == 4 and np.array_equal(several[0], several[2]) and np.array_equal(several[1], several[3])
    assert not np.array_equal(several[0], several[1])


@pytest.mark.parametrize("kind", ["KSampler", "KSamplerAdvanced"])
def test_image_to_image(server, rocm_sd, repository, tmp_path, kind):
    """denoise 0.5: the last 3 of 6 steps, as ComfyUI counts them."""
    picture = Image.fromarray(np.random.default_rng(3).integers(0, 255, (SIDE, SIDE, 3), np.uint8))
    picture.save(tmp_path / "init.png")
    name = upload(server, picture, "start.png", overwrite="true")
    want = cli(rocm_sd, repository, tmp_path / "a.png", "-i", tmp_path / "init.png", "--strength", 2.5 / 6, steps=6)
    graph = text_graph(denoise=0.5) | {"10": node("LoadImage", image=name), "5": node("VAEEncode", pixels=["10", 0], vae=["4", 2])}
    if kind == "KSamplerAdvanced":
        inputs = graph["3"]["inputs"]
        for gone in ("seed", "denoise"):
            del inputs[gone]
        graph["3"] = node(kind, **inputs | {"noise_seed": 5, "steps": 6, "add_noise": "enable", "start_at_step": 3, "end_at_step": 10000,
                                            "return_with_leftover_noise": "disable"})
    assert np.array_equal(draw(server, graph)[0], want)
    assert not np.array_equal(want, cli(rocm_sd, repository, tmp_path / "b.png", steps=6))


@pytest.mark.parametrize("channel", ["alpha", "red"])
def test_inpainting(server, rocm_sd, repository, tmp_path, channel):
    """What is transparent, or white in a mask, is drawn anew."""
    right = np.zeros((SIDE, SIDE), np.uint8)
    right[:, SIDE // 2:] = 255
    white = Image.new("RGB", (SIDE, SIDE), "white")
    white.save(tmp_path / "white.png")
    mask = Image.fromarray(right)
    if channel == "alpha":
        mask = Image.merge("RGBA", (*white.split(), Image.fromarray(255 - right)))
    mask.save(tmp_path / "mask.png")
    names = [upload(server, image, name, overwrite="true") for image, name in ((white, "white.png"), (mask, "mask.png"))]
    graph = text_graph() | {
        "10": node("LoadImage", image=names[0]), "11": node("VAEEncode", pixels=["10", 0], vae=["4", 2]),
        "12": node("LoadImageMask", image=names[1], channel=channel),
        "5": node("SetLatentNoiseMask", samples=["11", 0], mask=["12", 0])}
    drawn = draw(server, graph)[0]
    want = cli(rocm_sd, repository, tmp_path / "a.png", "-i", tmp_path / "white.png", "--mask", tmp_path / "mask.png", "--mask-blur", 0,
               "--strength", 1)
    assert np.array_equal(drawn, want) and drawn[:, :SIDE // 2 - 8].min() > 240 > drawn[:, SIDE // 2:].min()
    wrong = server.post("/prompt", {"prompt": changed(graph, n12_channel="red" if channel == "alpha" else "alpha")})
    assert wrong.status_code == 400 and "transparency" in wrong.json()["node_errors"]["12"]["errors"][0]["details"]


@pytest.mark.parametrize("clip", [True, False])
def test_loras(server, rocm_sd, repository, examples, tmp_path, clip):
    want = cli(rocm_sd, repository, tmp_path / "a.png", "--lora", f"{examples / 'dusk_lora.safetensors'}:0.8:{0.6 if clip else 0}")
    graph = text_graph()
    if clip:
        graph["10"] = node("LoraLoader", model=["4", 0], clip=["4", 1], lora_name="dusk_lora.safetensors", strength_model=0.8, strength_clip=0.6)
        graph = changed(graph, n6_clip=["10", 1], n7_clip=["10", 1])
    else:
        graph["10"] = node("LoraLoaderModelOnly", model=["4", 0], lora_name="dusk_lora.safetensors", strength_model=0.8)
    assert np.array_equal(draw(server, changed(graph, n3_model=["10", 0]))[0], want)
    assert not np.array_equal(want, cli(rocm_sd, repository, tmp_path / "b.png"))


def test_controlnets(server, rocm_sd, repository, examples, tmp_path):
    hint = examples / "edges" / "1_apple.png"
    want = cli(rocm_sd, repository, tmp_path / "a.png", "--control", examples / "canny_adapter", "--control-image", hint,
               "--control-strength", 0.9, "--control-end", 0.5)
    name = upload(server, Image.open(hint), "edges.png", subfolder="hints")
    graph = text_graph() | {"10": node("ControlNetLoader", control_net_name="canny_adapter"), "11": node("LoadImage", image=f"hints/{name}")}
    applied = {"control_net": ["10", 0], "image": ["11", 0], "strength": 0.9}
    graph["12"] = node("ControlNetApplyAdvanced", positive=["6", 0], negative=["7", 0], start_percent=0, end_percent=0.5, **applied)
    assert np.array_equal(draw(server, changed(graph, n3_positive=["12", 0], n3_negative=["12", 1]))[0], want)
    graph["12"] = node("ControlNetApply", conditioning=["6", 0], **applied)
    older = draw(server, changed(graph, n3_positive=["12", 0]))[0]
    assert np.array_equal(older, cli(rocm_sd, repository, tmp_path / "b.png", "--control", examples / "canny_adapter", "--control-image", hint,
                                     "--control-strength", 0.9))
    assert not np.array_equal(older, want)


def test_patches_and_clip_skip(server, rocm_sd, repository, tmp_path):
    graph = text_graph() | {"10": node("FreeU_V2", model=["4", 0], b1=1.3, b2=1.4, s1=0.9, s2=0.2),
                            "11": node("CLIPSetLastLayer", clip=["4", 1], stop_at_clip_layer=-2)}
    graph = changed(graph, n3_model=["10", 0], n6_clip=["11", 0], n7_clip=["11", 0])
    want = cli(rocm_sd, repository, tmp_path / "a.png", "--freeu-v2", "1.3,1.4,0.9,0.2", "--clip-skip", 2)
    assert np.array_equal(draw(server, graph)[0], want)


def test_what_was_drawn_can_be_loaded(server):
    draw(server, text_graph())
    newest = server.get("/history", params={"max_items": 1}).json()
    file = next(iter(newest.values()))["outputs"]["9"]["images"][0]
    assert file["subfolder"] == "test" and file["type"] == "output"
    graph = text_graph(denoise=0.5) | {"10": node("LoadImage", image=f"test/{file['filename']} [output]"),
                                       "5": node("VAEEncode", pixels=["10", 0], vae=["4", 2])}
    assert draw(server, graph)[0].shape == (SIDE, SIDE, 3)


# Errors


@pytest.mark.bad_input
@pytest.mark.parametrize(("inputs", "at", "kind", "name"), [
    ({"n3_steps": 0}, "3", "value_smaller_than_min", "steps"),
    ({"n3_steps": 1001}, "3", "value_bigger_than_max", "steps"),
    ({"n3_seed": 2**64}, "3", "invalid_input_type", "seed"),
    ({"n3_seed": -1}, "3", "value_smaller_than_min", "seed"),
    ({"n3_steps": "many"}, "3", "invalid_input_type", "steps"),
    ({"n3_cfg": None}, "3", "required_input_missing", "cfg"),
    ({"n3_sampler_name": "wrong"}, "3", "value_not_in_list", "sampler_name"),
    ({"n3_model": ["4", 1]}, "3", "return_type_mismatch", "model"),
    ({"n3_model": ["4", 7]}, "3", "bad_linked_input", "model"),
    ({"n3_model": "4"}, "3", "bad_linked_input", "model"),
    ({"n3_model": ["77", 0]}, "3", "bad_linked_input", "model"),
    ({"n4_ckpt_name": "../../etc/passwd"}, "4", "value_not_in_list", "ckpt_name"),
    ({"n3_denoise": 0.5}, "3", "custom_validation_failed", "latent_image"),
    ({"n8_samples": ["5", 0]}, "8", "custom_validation_failed", "samples"),
    ({"n3_latent_image": ["3", 0]}, "3", "dependency_cycle", None),
    ({"n6_text": "a <lora:gone:1>"}, "3", "custom_validation_failed", ""),
])
def test_errors_name_node_and_input(server, inputs, at, kind, name):
    refused = server.post("/prompt", {"prompt": changed(text_graph(), **inputs)})
    assert refused.status_code == 400, refused.text
    body = refused.json()
    assert body["error"]["type"] == "prompt_outputs_failed_validation" and set(body["error"]) == {"type", "message", "details", "extra_info"}
    one = body["node_errors"][at]
    assert one["class_type"] == text_graph()[at]["class_type"] and "9" in one["dependent_outputs"]
    assert one["errors"][0]["type"] == kind and set(one["errors"][0]) == {"type", "message", "details", "extra_info"}
    assert name is None or one["errors"][0]["extra_info"]["input_name"] == name


@pytest.mark.bad_input
@pytest.mark.parametrize(("body", "kind"), [
    ({}, "no_prompt"), ([], "no_prompt"), ({"prompt": []}, "invalid_prompt"), ({"prompt": {}}, "prompt_no_outputs"),
    ({"prompt": {"1": {}}}, "invalid_prompt"), ({"prompt": {"1": node("NoSuchNode")}}, "missing_node_type"),
    ({"prompt": {str(i): node("CheckpointLoaderSimple") for i in range(600)}}, "invalid_prompt"),
    ({"prompt": text_graph(), "number": 1}, "invalid_value"), ({"prompt": text_graph(), "client_id": 5}, "invalid_value"),
])
def test_errors_of_the_whole(server, body, kind):
    refused = server.post("/prompt", body)
    assert refused.status_code == 400 and refused.json()["error"]["type"] == kind, refused.text


@pytest.mark.bad_input
def test_two_samplers_are_refused(server):
    graph = text_graph()
    graph["13"] = copy.deepcopy(graph["3"])
    second = changed(graph, n13_latent_image=["3", 0], n8_samples=["13", 0])
    assert "second pass" in server.post("/prompt", {"prompt": second}).text
    graph |= {"18": node("VAEDecode", samples=["13", 0], vae=["4", 2]), "19": node("SaveImage", images=["18", 0], filename_prefix="b")}
    assert "one KSampler" in server.post("/prompt", {"prompt": graph}).text


@pytest.mark.bad_input
@pytest.mark.parametrize(("name", "data", "fields"), [
    ("../x.png", "png", {}), ("", "png", {}), ("x.png", "text", {}), ("x.png", "png", {"subfolder": "../up"}),
    ("x.png", "png", {"subfolder": "/etc"}), ("x.png", "png", {"type": "output"}), ("x.png", "png", {"other": "1"})])
def test_bad_uploads(server, name, data, fields):
    image = io.BytesIO()
    Image.new("RGB", (8, 8)).save(image, "PNG")
    content = image.getvalue() if data == "png" else b"no picture"
    refused = server.session.post(server.url + "/upload/image", files={"image": (name, content, "image/png")}, data=fields, timeout=30)
    assert refused.status_code == 400 and refused.json()["node_errors"] == {}


def test_uploads_of_one_name(server):
    names = [upload(server, Image.new("RGB", (8, 8), colour), "same.png") for colour in ("red", "red", "blue")]
    assert names == ["same.png", "same.png", "same (1).png"]
    assert {"same.png", "same (1).png"} <= set(server.get("/object_info/LoadImage").json()["LoadImage"]["input"]["required"]["image"][0])
    assert server.get("/view", params={"filename": "same (1).png", "type": "input"}).status_code == 200
    for gone in ({"filename": "none.png"}, {"filename": "same.png", "type": "output"}, {"filename": "../same.png", "type": "input"}, {}):
        assert server.get("/view", params=gone).status_code == 404


# Queue, history, WebSocket


def long_graph() -> dict:
    return text_graph(steps=1000)


def test_queue_history_and_interrupt(server):
    first = server.post("/api/prompt", {"prompt": long_graph(), "client_id": "a", "extra_data": {"x": 1}}).json()["prompt_id"]
    wait_for(lambda: [one[1] for one in server.get("/queue").json()["queue_running"]] == [first], 30, "a running prompt")
    second = server.post("/prompt", {"prompt": text_graph()}).json()
    third = server.post("/prompt", {"prompt": text_graph(seed=6), "front": True, "prompt_id": str(uuid.uuid4())}).json()
    queue = server.get("/queue").json()
    assert third["number"] > second["number"] and queue["queue_running"][0][2]["3"]["inputs"]["steps"] == 1000
    assert queue["queue_running"][0][3] == {"x": 1} and queue["queue_running"][0][4] == ["9"]
    assert {one[1] for one in queue["queue_pending"]} == {second["prompt_id"], third["prompt_id"]}
    assert server.job(third["prompt_id"]).get("position") is None  # a name of its own is no job's
    assert server.get("/prompt").json() == {"exec_info": {"queue_remaining": 3}}
    assert server.post("/queue", {"delete": [second["prompt_id"]]}).status_code == 200
    assert server.post("/interrupt", {"prompt_id": third["prompt_id"]}).status_code == 200  # which does not run
    assert [one[1] for one in server.get("/queue").json()["queue_running"]] == [first]
    assert server.post("/interrupt").status_code == 200
    history = wait_for(lambda: server.get(f"/history/{first}").json().get(first), 30, "an end")
    assert history["status"]["status_str"] == "error" and history["status"]["messages"][-1][0] == "execution_interrupted"
    wait_for(lambda: third["prompt_id"] in server.get("/history").json(), 30, "the third")
    assert second["prompt_id"] not in server.get("/history").json()
    assert server.post("/history", {"delete": [first]}).status_code == 200 and server.get(f"/history/{first}").json() == {}
    assert server.post("/history", {"clear": True}).status_code == 200 and server.get("/history").json() == {}
    assert server.post("/history", {"wrong": True}).status_code == 400


def socket_url(server, path: str) -> str:
    return server.url.replace("http", "ws", 1) + path


def messages_until_end(socket) -> list[dict]:
    out = []
    while True:
        message = socket.recv(timeout=30)
        if isinstance(message, bytes):
            continue  # a preview
        out.append(json.loads(message))
        if out[-1]["type"] == "executing" and out[-1]["data"]["node"] is None:
            return out


def test_messages_of_a_prompt(server):
    with connect(socket_url(server, "/ws?clientId=me")) as socket, connect(socket_url(server, "/api/ws?clientId=other")) as other:
        first = json.loads(socket.recv(timeout=10))
        assert first["type"] == "status" and first["data"]["sid"] == "me" and "queue_remaining" in first["data"]["status"]["exec_info"]
        socket.send(json.dumps({"type": "feature_flags", "data": {}}))
        prompt_id = server.post("/prompt", {"prompt": text_graph(steps=40), "client_id": "me"}).json()["prompt_id"]
        messages = [one for one in messages_until_end(socket) if one["type"] != "status"]
        kinds = [one["type"] for one in messages]
        assert kinds[:2] == ["execution_start", "execution_cached"] and kinds[-2:] == ["execution_success", "executing"]
        assert all(one["data"]["prompt_id"] == prompt_id for one in messages)
        nodes = [one["data"]["node"] for one in messages if one["type"] == "executing"]
        assert nodes[-2:] == ["9", None] and nodes.index("3") < nodes.index("8") and len(set(nodes)) == len(nodes)
        steps = [one["data"]["value"] for one in messages if one["type"] == "progress"]
        assert steps == sorted(steps) and steps[-1] == 40 and {one["data"]["node"] for one in messages if one["type"] == "progress"} == {"3"}
        executed = next(one["data"] for one in messages if one["type"] == "executed")
        assert executed["node"] == "9" and executed["output"]["images"][0]["type"] == "output"
        heard = [json.loads(other.recv(timeout=10)) for _ in range(2)]
        assert {one["type"] for one in heard} == {"status"}  # others hear of the queue alone


def test_events_of_a_job_by_websocket(server):
    job = server.submit(prompt="a fish", steps=30, width=SIDE, height=SIDE)
    with connect(socket_url(server, f"/v1/jobs/{job}/events")) as socket:
        events = [json.loads(text) for text in socket]  # until the server closes it
    names = [one["event"] for one in events]
    assert names[-1] == "completed" and "progress" in names and events[-1]["job"]["images"]
    with pytest.raises(InvalidStatus) as refused:
        connect(socket_url(server, "/v1/jobs/" + "0" * 32 + "/events"))
    assert refused.value.response.status_code == 404


@pytest.mark.bad_input
def test_sockets_are_guarded(server):
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert server.get("/ws", headers=upgrade | headers).status_code == 403
    for wrong in ({"Sec-WebSocket-Version": "7"}, {"Sec-WebSocket-Key": ""}):
        refused = server.raw("".join(["GET /ws HTTP/1.1\r\nHost: localhost\r\n",
                                      *(f"{name}: {value}\r\n" for name, value in (upgrade | wrong).items()), "\r\n"]).encode())
        assert refused.startswith((b"HTTP/1.1 4", b"")) and b" 101 " not in refused.split(b"\r\n")[0]
    with pytest.raises(InvalidStatus) as refused:
        connect(socket_url(server, "/health"))
    assert refused.value.response.status_code == 200  # no WebSocket there
    assert server.get("/ws").status_code == 400
    # Half of the connections at most are WebSockets: others are still answered.
    sockets = []
    with pytest.raises(InvalidStatus) as refused:
        for _ in range(12):
            sockets.append(connect(socket_url(server, "/ws")))
    assert refused.value.response.status_code == 503 and len(sockets) == 6
    assert server.get("/health").status_code == 200
    sockets[0].send("x" * 100_000)  # longer than is read
    with pytest.raises(Exception):  # noqa: B017 (closed, by a frame or not)
        while True:
            sockets[0].recv(timeout=10)
    for socket in sockets:
        socket.close()
    wait_for(lambda: connect_or_none(server), 10, "room for a WebSocket")


def connect_or_none(server):
    try:
        with connect(socket_url(server, "/ws")):
            return True
    except InvalidStatus:
        return None


@pytest.mark.bad_input
def test_bodies_without_a_type(server):
    """As Python's urllib posts them; never from a browser."""
    body = json.dumps({"prompt": {}}).encode()
    post = lambda path, headers: server.session.post(server.url + path, data=body, headers=headers, timeout=30).status_code  # noqa: E731
    for kind in ({}, {"Content-Type": "application/x-www-form-urlencoded"}):
        assert post("/prompt", kind) == 400  # read, and refused for what it says
        assert post("/v1/jobs", kind) == 415
        assert post("/prompt", kind | {"Origin": server.url}) == 415
        assert post("/prompt", kind | {"Sec-Fetch-Site": "same-origin"}) == 415


# A client from PyPI, and lists


def test_client_from_pypi(server, client, tmp_path):
    (tmp_path / "graph.json").write_text(json.dumps(text_graph()))
    graph = ComfyWorkflowWrapper(str(tmp_path / "graph.json"))
    graph.set_node_param("KSampler", "seed", 2**63 + 5)
    images = client.queue_and_wait_images(graph, "SaveImage")
    assert [Image.open(io.BytesIO(data)).size for data in images.values()] == [(SIDE, SIDE)]
    Image.new("RGB", (SIDE, SIDE), "red").save(tmp_path / "red.png")
    stored = client.upload_image(str(tmp_path / "red.png"))
    assert f"{stored['subfolder']}/{stored['name']}" in client.get_object_info("LoadImage")["LoadImage"]["input"]["required"]["image"][0]
    assert client.get_system_stats()["devices"][0]["type"] == "cpu" and client.get_system_stats()["system"]["ram_total"] > 0
    assert client.get_queue() == {"queue_running": [], "queue_pending": []} and client.get_embeddings() == []


def test_lists(server):
    info = server.get("/object_info").json()
    assert set(info["KSampler"]) >= {"input", "input_order", "output", "output_is_list", "output_name", "name", "display_name", "category", "output_node"}
    assert {"euler", "euler_ancestral", "dpmpp_2m", "ddim", "uni_pc"} <= set(info["KSampler"]["input"]["required"]["sampler_name"][0])
    assert {"normal", "karras", "simple", "sgm_uniform"} <= set(info["KSampler"]["input"]["required"]["scheduler"][0])
    assert info["SaveImage"]["output_node"] is True and info["KSampler"]["input_order"]["required"][:2] == ["model", "seed"]
    assert server.get("/models").json() == ["checkpoints", "loras", "controlnet", "embeddings", "upscale_models"]
    assert server.get("/models/checkpoints").json() == ["demo"] and "dusk_lora.safetensors" in server.get("/models/loras").json()
    assert server.get("/models/controlnet").json() == ["canny_adapter"] or "canny_adapter" in server.get("/models/controlnet").json()
    assert server.get("/models/none").status_code == 404
    assert server.get("/api/system_stats").json()["system"]["os"] and server.get("/api/v1/jobs").status_code == 404
