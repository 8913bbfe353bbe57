"""The server's APIs as their own clients speak them: webuiapi (AUTOMATIC1111), openai, and schemathesis' reading of
/openapi.json."""

from __future__ import annotations

import base64
import io
import json
import re
import threading

import numpy as np
import openai
import pytest
import torch
import webuiapi
from PIL import Image
from serving import Server, wait_for
from upscaler_models import CompactNet, SwinIr, randomised


@pytest.fixture(scope="module")
def upscalers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("upscalers")
    torch.save(randomised(CompactNet(factor=2)).state_dict(), folder / "compact.pth")
    torch.save(randomised(SwinIr()).state_dict(), folder / "swin.pth")
    return folder


@pytest.fixture(scope="module")
def server(rocm_sd, repository, tmp_path_factory, upscalers):
    with Server(rocm_sd.path, "--model", repository / "models" / "demo", "--lora-dir", tmp_path_factory.mktemp("loras"),
                "--upscaler-dir", upscalers) as running:
        yield running


@pytest.fixture(scope="module")
def web_ui(server):
    return webuiapi.WebUIApi(baseurl=server.url + "/sdapi/v1", sampler="DPM++ 2M", scheduler="Karras", steps=4)


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none is asked for", max_retries=0)


def square(colour, side: int = 128, mode: str = "RGB") -> Image.Image:
    return Image.new(mode, (side, side), colour)


# AUTOMATIC1111


def test_txt2img(server, web_ui):
    result = web_ui.txt2img(prompt="a red apple", negative_prompt="blue", seed=5, width=128, height=128, cfg_scale=4, batch_size=2, n_iter=2)
    info = result.info
    assert [image.size for image in result.images] == [(128, 128)] * 4
    assert info["all_seeds"] == [5, 6, 7, 8] and info["seed"] == 5
    assert info["sampler_name"] == "DPM++ 2M" and info["steps"] == 4 and info["cfg_scale"] == 4 and info["width"] == 128
    assert info["all_prompts"] == ["a red apple"] * 4 and info["negative_prompt"] == "blue"
    assert info["infotexts"][2] == result.images[2].info["parameters"] and "Schedule type: Karras" in info["infotexts"][0]
    assert result.parameters["prompt"] == "a red apple"
    job = server.draw(prompt="a red apple", negative_prompt="blue", seed=5, cfg_scale=4, batch=2, steps=4, sampler="dpmpp_2m", schedule="karras",
                      width=128, height=128, eta=1.0)
    assert np.array_equal(np.asarray(server.image(job)), np.asarray(result.images[0]))


def test_old_names_of_samplers(server):
    done = server.post("/sdapi/v1/txt2img", {"prompt": "a fox", "sampler_index": "DPM++ 2M Karras", "steps": 2, "width": 64.0, "height": 64})
    info = json.loads(done.json()["info"])
    assert info["sampler_name"] == "DPM++ 2M" and info["scheduler"] == "Karras" and info["width"] == 64


def test_img2img_and_inpainting(web_ui):
    white = square((255, 255, 255))
    result = web_ui.img2img(images=[white], prompt="a red apple", seed=1, width=128, height=128, denoising_strength=0.5)
    assert result.info["denoising_strength"] == 0.5 and result.parameters["init_images"] is None
    left = Image.fromarray(np.repeat(np.arange(128)[None, :] < 64, 128, 0).astype(np.uint8) * 255)
    keywords = dict(images=[white], prompt="a black cat", seed=1, width=128, height=128, denoising_strength=1, mask_blur=0,
                    inpainting_fill=1, inpaint_full_res=False)
    painted = np.asarray(web_ui.img2img(mask_image=left, **keywords).image.convert("L"))
    inverted = np.asarray(web_ui.img2img(mask_image=left, inpainting_mask_invert=1, **keywords).image.convert("L"))
    assert painted[:, 64:].min() > 200 > painted[:, :64].min()
    assert inverted[:, :64].min() > 200 > inverted[:, 64:].min()


def test_second_pass(web_ui, rocm_sd, repository, upscalers, tmp_path):
    """The web UI's fields draw what the command line's options draw, by latents, a filter and a network."""
    for name, option in (("Latent", "Latent"), ("Lanczos", "Lanczos"), ("compact", upscalers / "compact.pth"), ("swin", upscalers / "swin.pth")):
        drawn = web_ui.txt2img(prompt="a red apple", seed=5, width=64, height=64, cfg_scale=4, enable_hr=True, hr_scale=1.5, hr_upscaler=name,
                               hr_second_pass_steps=3, denoising_strength=0.6, eta=1.0)
        rocm_sd("generate", "-m", repository / "models" / "demo", "-p", "a red apple", "-s", 5, "-W", 64, "-H", 64, "--cfg-scale", 4, "--steps", 4,
                "--sampler", "DPM++ 2M", "--schedule", "karras", "--eta", 1, "--hires-scale", 1.5, "--hires-upscaler", option, "--hires-steps", 3,
                "--hires-denoising-strength", 0.6, "-o", tmp_path / "a.png")
        wanted = Image.open(tmp_path / "a.png")
        assert drawn.image.size == (96, 96) and np.array_equal(np.asarray(drawn.image), np.asarray(wanted)), name
        assert f"Hires upscaler: {name}" in drawn.info["infotexts"][0]
    by_size = web_ui.txt2img(prompt="a", seed=5, width=64, height=64, enable_hr=True, hr_resize_x=96, hr_resize_y=80, hr_upscaler="Nearest",
                             hr_prompt="a pear")
    assert by_size.image.size == (96, 80) and "Hires prompt: a pear" in by_size.info["infotexts"][0]


def test_masks_as_the_web_ui_has_them(web_ui, rocm_sd, repository, tmp_path):
    """What lies under the mask, and the masked part alone; both have the web UI's defaults."""
    white = square((255, 255, 255))
    mask = np.zeros((128, 128), np.uint8)
    mask[40:80, 40:90] = 255
    white.save(tmp_path / "white.png")
    Image.fromarray(mask).save(tmp_path / "mask.png")
    common = dict(images=[white], mask_image=Image.fromarray(mask), prompt="a black cat", seed=1, width=64, height=64, cfg_scale=4, mask_blur=2,
                  denoising_strength=0.8, eta=1.0)
    for fields, options in (({"inpainting_fill": 1, "inpaint_full_res": False}, ["--masked-content", "original"]),
                            ({"inpainting_fill": 2, "inpaint_full_res": False}, ["--masked-content", "latent noise"]),
                            ({"inpaint_full_res_padding": 16}, ["--masked-content", "fill", "--only-masked", "--only-masked-padding", 16])):
        drawn = web_ui.img2img(**common, **fields).image
        rocm_sd("generate", "-m", repository / "models" / "demo", "-p", "a black cat", "-s", 1, "-W", 64, "-H", 64, "--cfg-scale", 4, "--steps", 4,
                "--sampler", "DPM++ 2M", "--schedule", "karras", "--eta", 1, "-i", tmp_path / "white.png", "--mask", tmp_path / "mask.png",
                "--mask-blur", 2, "--strength", 0.8, *options, "-o", tmp_path / "a.png")
        assert np.array_equal(np.asarray(drawn), np.asarray(Image.open(tmp_path / "a.png"))), fields


def test_seeds_of_another_size(web_ui):
    one = web_ui.txt2img(prompt="a tree", seed=5, width=96, height=64, seed_resize_from_w=64, seed_resize_from_h=64)
    assert "Seed resize from: 64x64" in one.info["infotexts"][0]
    assert (one.info["seed_resize_from_w"], one.info["seed_resize_from_h"]) == (64, 64)
    plain = web_ui.txt2img(prompt="a tree", seed=5, width=96, height=64)
    assert plain.info["seed_resize_from_w"] == -1 and not np.array_equal(np.asarray(one.image), np.asarray(plain.image))


def test_extras(server, web_ui, rocm_sd, upscalers, tmp_path):
    picture = Image.fromarray(np.random.default_rng(3).integers(0, 256, (24, 40, 3), np.uint8))
    picture.save(tmp_path / "a.png")
    for name, option in (("Lanczos", "lanczos"), ("compact", upscalers / "compact.pth"), ("swin", upscalers / "swin.pth")):
        large = web_ui.extra_single_image(image=picture, upscaler_1=name, upscaling_resize=2).image
        rocm_sd("upscale", tmp_path / "a.png", "--upscaler", option, "--factor", 2, "-o", tmp_path / "b.png")
        assert large.size == (80, 48) and np.array_equal(np.asarray(large), np.asarray(Image.open(tmp_path / "b.png"))), name
    covered = web_ui.extra_single_image(image=picture, upscaler_1="Nearest", resize_mode=1, upscaling_resize_w=60, upscaling_resize_h=60).image
    assert covered.size == (60, 60)
    batch = web_ui.extra_batch_images(images=[picture, picture.rotate(90, expand=True)], upscaler_1="Bicubic", upscaling_resize=3)
    assert [image.size for image in batch.images] == [(120, 72), (72, 120)]


@pytest.mark.bad_input
@pytest.mark.parametrize(("body", "field"), [
    ({}, "image"), ({"image": "%%%"}, "image"), ({"image": "P", "upscaler_1": "ESRGAN_4x"}, "upscaler_1"), ({"image": "P", "upscaling_resize": 0}, "upscaling_resize"),
    ({"image": "P", "gfpgan_visibility": 1}, "gfpgan_visibility"), ({"image": "P", "resize_mode": 2}, "resize_mode"), ({"image": "P", "wrong": 1}, "wrong"),
    ({"image": "P", "resize_mode": 1, "upscaling_resize_w": 100000}, "upscaling_resize_w"),
])
def test_bad_extras(server, body, field):
    out = io.BytesIO()
    square(0, 8).save(out, "PNG")
    picture = base64.b64encode(out.getvalue()).decode()
    refused = server.post("/sdapi/v1/extra-single-image", {key: picture if value == "P" else value for key, value in body.items()})
    assert refused.status_code == 422 and field in refused.json()["errors"], refused.text


@pytest.mark.bad_input
@pytest.mark.parametrize(("body", "field"), [
    ({"enable_hr": 1}, "enable_hr"),
    ({"enable_hr": True, "hr_upscaler": "none such"}, "hr_upscaler"),
    ({"enable_hr": True, "hr_scale": 9}, "hr_scale"),
    ({"enable_hr": True, "hr_scale": "2"}, "hr_scale"),
    ({"enable_hr": True, "hr_checkpoint_name": "other"}, "hr_checkpoint_name"),
    ({"enable_hr": True, "hr_sampler_name": "Wrong"}, "hr_sampler_name"),
    ({"enable_hr": True, "denoising_strength": 0}, "denoising"),
    ({"enable_hr": True, "hr_second_pass_steps": 1001}, "hr_second_pass_steps"),
    ({"hr_wrong": 1}, "hr_wrong"),
    ({"seed_resize_from_w": 64}, "seed_resize_from_h"),
    ({"seed_resize_from_w": 5000, "seed_resize_from_h": 64}, "seed_resize_from_w"),
    ({"restore_faces": True}, "restore_faces"),
    ({"styles": ["anime"]}, "styles"),
    ({"s_churn": 1}, "s_churn"),
    ({"script_name": "x/y/z plot"}, "script_name"),
    ({"alwayson_scripts": {"ControlNet": {"args": [{"image": "x"}]}}}, "alwayson_scripts.ControlNet"),
    ({"override_settings": {"sd_vae": "other.safetensors"}}, "override_settings.sd_vae"),
    ({"override_settings": {"sd_model_checkpoint": "../../etc/passwd"}}, "model"),
    ({"save_images": True}, "save_images"),
    ({"sampler_name": "Wrong"}, "sampler_name"),
    ({"scheduler": "Wrong"}, "scheduler"),
    ({"no_such_field": 1}, "no_such_field"),
    ({"steps": "20"}, "steps"),
    ({"steps": 2.5}, "steps"),
    ({"n_iter": 100}, "images"),
    ({"width": 100}, "width"),
    ({"subseed_strength": 2}, "subseed_strength"),
])
def test_what_is_not_supported_is_named(server, body, field):
    refused = server.post("/sdapi/v1/txt2img", {"prompt": "a"} | body)
    assert refused.status_code in (404, 422), refused.text
    answer = refused.json()
    assert field in answer["errors"] and {"error", "detail", "body"} <= answer.keys()


@pytest.mark.bad_input
@pytest.mark.parametrize(("body", "field"), [
    ({}, "init_images"), ({"init_images": []}, "init_images"), ({"init_images": ["x", "y"]}, "init_images"),
    ({"init_images": ["http://example.org/a.png"]}, "init_images"), ({"init_images": "abc"}, "init_images"),
    ({"mask": "P", "inpainting_fill": 4}, "inpainting_fill"), ({"mask": "P", "inpaint_full_res": 2}, "inpaint_full_res"),
    ({"mask": "P", "inpaint_full_res_padding": -1}, "inpaint_full_res_padding"), ({"enable_hr": True}, "enable_hr"),
    ({"resize_mode": 1}, "resize_mode"), ({"mask": "P", "mask_blur_x": 4, "mask_blur_y": 5}, "mask_blur_y"),
])
def test_bad_img2img(server, body, field):
    out = io.BytesIO()
    square(0, 64).save(out, "PNG")
    picture = base64.b64encode(out.getvalue()).decode()
    body = {"prompt": "a", "init_images": [picture]} | body if body else {"prompt": "a"}
    body = {key: picture if value == "P" else value for key, value in body.items()}
    refused = server.post("/sdapi/v1/img2img", body)
    assert refused.status_code == 422 and field in refused.json()["errors"]


def test_interrupt_and_progress(web_ui):
    results = []
    thread = threading.Thread(target=lambda: results.append(web_ui.txt2img(prompt="a", steps=1000, sampler_name="Euler", width=128, height=128)))
    thread.start()
    progress = wait_for(lambda: (p := web_ui.get_progress())["progress"] > 0 and p, 30, "progress")
    assert progress["state"]["sampling_steps"] == 1000 and progress["eta_relative"] > 0
    assert web_ui.interrupt() == {}
    thread.join(30)
    assert not thread.is_alive() and results[0].images == [] and results[0].info["interrupted"]
    assert web_ui.get_progress()["progress"] == 0


def test_skip_goes_on_with_the_next_batch(web_ui):
    results = []
    thread = threading.Thread(target=lambda: results.append(
        web_ui.txt2img(prompt="a", steps=300, n_iter=2, seed=3, sampler_name="Euler", width=128, height=128)))
    thread.start()
    wait_for(lambda: web_ui.get_progress()["state"]["sampling_step"] > 1, 30, "a step")
    assert web_ui.skip() == {}
    thread.join(60)
    assert results[0].info["all_seeds"] == [4]


def test_lists_and_options(server, web_ui):
    assert {"Euler a", "DPM++ 2M", "DDIM"} <= set(web_ui.util_get_sampler_names())
    assert {"automatic", "karras"} <= set(web_ui.util_get_scheduler_names())
    assert web_ui.util_get_model_names() == ["demo"] and web_ui.util_get_current_model() == "demo"
    web_ui.util_set_model("demo")
    for empty in (web_ui.get_loras(), web_ui.get_sd_vae()):
        assert empty == []
    assert [one["name"] for one in web_ui.get_upscalers()] == ["None", "Lanczos", "Nearest", "Bicubic", "compact", "swin"]
    assert {"name": "Latent (bicubic antialiased)"} in web_ui.get_latent_upscale_modes()
    assert web_ui.get_embeddings() == {"loaded": {}, "skipped": {}}
    assert web_ui.get_memory()["ram"]["total"] > 0 and web_ui.get_cmd_flags()["api"] is True
    assert web_ui.refresh_checkpoints() is None
    assert server.post("/sdapi/v1/options", {"sd_vae": "x"}).status_code == 422
    assert server.post("/sdapi/v1/options", {"sd_model_checkpoint": "other"}).status_code == 404


def test_png_info(server, web_ui):
    drawn = web_ui.txt2img(prompt="a frog, green", seed=9, width=64, height=64)
    answer = server.post("/sdapi/v1/png-info", {"image": raw_picture(server)}).json()
    assert answer["info"] == answer["items"]["parameters"] and answer["parameters"]["Prompt"] == "a frog, green"
    assert answer["parameters"]["Seed"] == "9" and drawn.info["infotexts"][0] == answer["info"]
    out = io.BytesIO()
    square(0, 8).save(out, "PNG")
    plain = server.post("/sdapi/v1/png-info", {"image": base64.b64encode(out.getvalue()).decode()}).json()
    assert plain == {"info": "", "items": {}, "parameters": {}}
    assert server.post("/sdapi/v1/png-info", {"image": "%%%"}).status_code == 422


def raw_picture(server) -> str:
    newest = server.get("/v1/jobs").json()["jobs"][0]
    return "data:image/png;base64," + base64.b64encode(server.get(newest["images"][0]["url"]).content).decode()


# OpenAI


def test_generations(server, client):
    result = client.images.generate(prompt="a red apple", n=2, size="64x128", quality="low", output_format="png",
                                    extra_body={"seed": 11, "cfg_scale": 4})
    pictures = [Image.open(io.BytesIO(base64.b64decode(one.b64_json))) for one in result.data]
    assert [picture.size for picture in pictures] == [(64, 128)] * 2 and result.size == "64x128"
    assert "Steps: 10" in pictures[0].info["parameters"] and "Seed: 12" in pictures[1].info["parameters"]


def test_formats_and_urls(server, client):
    jpeg = client.images.generate(prompt="a tree", size="auto", output_format="jpeg", output_compression=70, extra_body={"steps": 2})
    assert Image.open(io.BytesIO(base64.b64decode(jpeg.data[0].b64_json))).format == "JPEG"
    linked = client.images.generate(prompt="a tree", response_format="url", extra_body={"steps": 2})
    picture = Image.open(io.BytesIO(server.session.get(linked.data[0].url, timeout=30).content))
    assert picture.size == (128, 128)


def test_stream(client):
    events = list(client.images.generate(prompt="a bird", stream=True, partial_images=0, extra_body={"steps": 2}))
    assert [event.type for event in events] == ["image_generation.completed"]
    assert Image.open(io.BytesIO(base64.b64decode(events[0].b64_json))).size == (128, 128)


def test_edits_repaint_what_is_transparent(client):
    def file(image: Image.Image):
        out = io.BytesIO()
        image.save(out, "PNG")
        return ("a.png", out.getvalue(), "image/png")

    mask = np.zeros((128, 128, 4), np.uint8)
    mask[:, 64:, 3] = 255  # the right half is kept
    result = client.images.edit(image=file(square((255, 255, 255))), mask=file(Image.fromarray(mask, "RGBA")), prompt="a black cat", n=1,
                                extra_body={"steps": 6, "strength": 1, "mask_blur": 0, "seed": 2})
    drawn = np.asarray(Image.open(io.BytesIO(base64.b64decode(result.data[0].b64_json))).convert("L"))
    assert drawn[:, 64:].min() > 200 > drawn[:, :64].min()


def test_models(client):
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").owned_by == "rocm-sd"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("dall-e-3")


@pytest.mark.bad_input
@pytest.mark.parametrize(("options", "param"), [
    ({"size": "65x64"}, "width"), ({"size": "huge"}, "size"), ({"n": 11}, "n"), ({"background": "transparent"}, "background"),
    ({"quality": "best"}, "quality"), ({"style": "vivid"}, "style"), ({"extra_body": {"steps": 0}}, "steps"),
    ({"model": "dall-e-3"}, "model"), ({"output_format": "gif"}, "output_format"),
])
def test_errors_are_openais(client, options, param):
    with pytest.raises(openai.APIStatusError) as caught:
        client.images.generate(**({"prompt": "a"} | options))
    assert caught.value.status_code in (400, 404)
    assert caught.value.body["param"] == param and caught.value.body["type"] == "invalid_request_error" and caught.value.body["code"]


@pytest.mark.bad_input
@pytest.mark.parametrize("body", [
    b"", b"--x", b"--x\r\n\r\n\r\n--x--", b'--x\r\nContent-Disposition: form-data; name="image"\r\n\r\nabc',
    b'--x\r\nContent-Disposition: form-data; name="prompt"\r\n\r\na\r\n--x--', b"--x\r\n" * 1000,
    b'--x\r\nContent-Disposition: form-data; name="image"; filename="../../x.py"\r\n\r\nabc\r\n--x--'])
@pytest.mark.parametrize("boundary", ["boundary=x", "", "boundary=" + "y" * 100])
def test_bad_forms(server, body, boundary):
    refused = server.session.post(server.url + "/v1/images/edits", data=body, timeout=30,
                                  headers={"Content-Type": "multipart/form-data; " + boundary})
    assert refused.status_code == 400 and refused.json()["error"]["message"]


def test_a_client_that_leaves_cancels_its_job(server):
    import socket
    body = json.dumps({"prompt": "a", "steps": 1000, "sampler_name": "Euler"}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST /sdapi/v1/txt2img HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: server.get("/v1/jobs").json()["jobs"][0]["state"] == "running", 30, "a running job")
        newest = server.get("/v1/jobs").json()["jobs"][0]["id"]
    assert server.wait(newest)["state"] == "cancelled"


# The document


def test_openapi_names_every_route_and_no_other(server, repository):
    document = server.get("/openapi.json").json()
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    source = "".join(path.read_text() for path in (repository / "src" / "server").glob("api_*.cpp"))
    assert described == set(re.findall(r'\{"(GET|POST|DELETE)", "(/[^"]*)"', source))


def test_answers_are_as_the_document_says(server):
    """Every GET without a part to fill in, and a job, by a validator of JSON schemas."""
    import jsonschema_rs

    document = server.get("/openapi.json").json()
    schemas = json.loads(json.dumps(document["components"]["schemas"]).replace("#/components/schemas/", "#/$defs/"))

    def closed(schema):
        """OpenAPI 3.0's nullable as JSON schema has it."""
        if isinstance(schema, list):
            return [closed(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        out = {key: closed(value) for key, value in schema.items() if key != "nullable"}
        return {"anyOf": [out, {"type": "null"}]} if schema.get("nullable") is True else out

    definitions = {name: closed(schema) for name, schema in schemas.items()}
    job = server.draw(prompt="a cup", steps=2)
    answers = {"Job": job}
    for path, item in document["paths"].items():
        if "get" in item and "{" not in path:
            content = item["get"]["responses"].get("200", {}).get("content", {}).get("application/json")
            if content and "$ref" in content["schema"]:
                answers[content["schema"]["$ref"].rsplit("/", 1)[1] + " " + path] = server.get(path).json()
    assert len(answers) > 15
    for name, answer in answers.items():
        schema = {"$defs": definitions, "$ref": "#/$defs/" + name.split()[0]}
        problems = [error.message for error in jsonschema_rs.validator_for(schema).iter_errors(answer)]
        assert not problems, (name, problems)


@pytest.mark.bad_input
@pytest.mark.parametrize("rest", ["%01", "%zz", "%ff", "../x", "a" * 10000, "?x=%01"])
def test_an_error_of_a_path_has_the_form_of_its_api(server, rest):
    def error(path: str) -> dict:
        answer = server.raw(f"GET {path}{rest} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(), seconds=1)
        assert answer.split(b" ")[1] in (b"400", b"414"), answer[:300]
        return json.loads(answer.split(b"\r\n\r\n", 1)[1])

    assert error("/object_info/")["node_errors"] == {} and error("/api/object_info/")["error"]["details"] == ""
    assert "detail" in error("/sdapi/v1/")
    assert error("/v1/models/")["error"]["param"] is None
