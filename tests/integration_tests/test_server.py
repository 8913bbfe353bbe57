"""rocm-sd serve: jobs, limits of HTTP, and what happens to workers. The demo model draws; one server a module."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import signal
import socket
import time

import numpy as np
import pytest
import requests
from PIL import Image
from serving import Server, read_all, wait_for

JSON = {"Content-Type": "application/json"}
LONG = {"prompt": "a red apple", "steps": 1000, "sampler": "Euler"}  # seconds of work, to be ended early


@pytest.fixture(scope="module")
def demo(repository):
    return repository / "models" / "demo"


@pytest.fixture(scope="module")
def server(rocm_sd, demo):
    with Server(rocm_sd.path, "--model", demo, "--join", "1", "--step-timeout", "5", "--queue", "6", "--queue-per-client", "6",
                "--max-connections", "40", "--max-body", "1", "--max-image-body", "8") as running:
        yield running


@pytest.fixture(autouse=True)
def idle(request):
    """Each test begins with an empty queue and a worker that waits."""
    yield
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
        for job in server.get("/v1/jobs").json()["jobs"]:
            server.post(f"/v1/jobs/{job['id']}/cancel")
        wait_for(lambda: server.worker()["state"] == "idle", 30, "an idle worker")


def png(side: int = 64, colour=(200, 30, 30)) -> str:
    out = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def test_draws_what_the_command_line_draws(server, rocm_sd, demo, tmp_path):
    options = {"prompt": "a red apple on a white background", "steps": 4, "seed": 7, "sampler": "DPM++ 2M Karras", "cfg_scale": 4}
    job = server.draw(**options, count=2)
    rocm_sd("generate", "--model", demo, "-p", options["prompt"], "--steps", 4, "--seed", 7, "--sampler", "DPM++ 2M Karras",
            "--cfg-scale", 4, "--repeat", 2, "-o", tmp_path / "{seed}.png")
    for i, seed in enumerate((7, 8)):
        assert job["images"][i]["seed"] == seed
        drawn, wanted = server.image(job, i), Image.open(tmp_path / f"{seed}.png")
        assert np.array_equal(np.asarray(drawn), np.asarray(wanted))
        assert drawn.info["parameters"] == wanted.info["parameters"] == job["images"][i]["parameters"]


def test_init_image_and_mask_from_base64(server):
    kept = server.draw(prompt="a blue circle", steps=4, seed=1, init_image=png(128, (255, 255, 255)),
                       mask="data:image/png;base64," + png(128, (0, 0, 0)), mask_blur=0)
    assert np.asarray(server.image(kept)).min() > 200  # a black mask keeps everything
    repainted = server.draw(prompt="a blue circle", steps=4, seed=1, strength=1, init_image=png(128, (255, 255, 255)),
                            mask=png(128, (0, 0, 0)), invert_mask=True, mask_blur=0)
    assert np.asarray(server.image(repainted)).min() < 100


@pytest.mark.parametrize(("format", "kind"), [("jpeg", "JPEG"), ("webp", "WEBP")])
def test_formats(server, format, kind):
    job = server.draw(prompt="a tree", steps=2, format=format, quality=80)
    response = server.get(job["images"][0]["url"])
    assert response.headers["Content-Type"] == f"image/{format}"
    assert Image.open(io.BytesIO(response.content)).format == kind


def test_events_tell_every_state_in_order(server):
    job_id = server.submit(prompt="a fish", steps=60)
    events = server.events(job_id)
    names = [name for name, _ in events]
    assert names[0] in ("queued", "running") and names[-1] == "completed" and "progress" in names and "image" in names
    fractions = [job["progress"]["fraction"] for _, job in events]
    assert fractions == sorted(fractions) and fractions[-1] == 1
    assert events[-1][1]["images"][0]["url"].endswith("/images/0")
    assert server.events(job_id)[0][0] == "completed"  # of a finished job: its end


def test_cancel_of_running_and_queued_jobs(server):
    running, queued = server.submit(**LONG), server.submit(**LONG)
    server.wait(running, "running")
    assert server.job(queued)["position"] == 0
    assert server.post(f"/v1/jobs/{queued}/cancel").json()["state"] == "cancelled"
    server.post(f"/v1/jobs/{running}/cancel")
    assert server.wait(running)["state"] == "cancelled"
    assert server.post(f"/v1/jobs/{running}/cancel").json()["state"] == "cancelled"  # twice does no harm
    assert server.draw(prompt="a cat", steps=2)["images"]  # the same worker goes on
    assert server.worker()["restarts"] == 0


def test_cancel_to_idle_takes_a_step(server):
    """From the request to a worker that waits: the rest of the step at work, and 50 ms; generously, on a machine with other load."""
    job = server.submit(**LONG)
    server.wait(job, "running")
    wait_for(lambda: server.job(job)["progress"]["step"] > 20, 60, "steps")
    progress = server.job(job)["progress"]
    step = progress["seconds"] / progress["step"]
    begin = time.monotonic()
    server.post(f"/v1/jobs/{job}/cancel")
    wait_for(lambda: server.worker()["state"] == "idle", 30, "an idle worker")
    assert time.monotonic() - begin < 5 * step + 0.5, step


def test_results_are_removed(server):
    job = server.draw(prompt="a cup", steps=2)
    assert server.session.delete(f"{server.url}/v1/jobs/{job['id']}").status_code == 204
    assert server.get(f"/v1/jobs/{job['id']}").status_code == 410
    assert server.get(job["images"][0]["url"]).status_code == 410
    assert server.get("/v1/jobs/" + "0" * 32).status_code == 404


def test_full_queue_is_refused_at_once(server):
    first = server.submit(**LONG)
    server.wait(first, "running")
    for _ in range(6):
        server.submit(**LONG)
    refused = server.post("/v1/jobs", LONG)
    assert refused.status_code == 429 and "queue is full" in refused.json()["error"]["message"]
    assert refused.headers["Retry-After"]
    assert server.get("/health").status_code == 200


@pytest.mark.bad_input
@pytest.mark.parametrize(("body", "message"), [
    ({}, "prompt: is required"),
    ([], "expected an object"),
    ({"prompt": 1}, "prompt: expected a text, got a number"),
    ({"prompt": "a", "steps": "20"}, "steps: expected a whole number"),
    ({"prompt": "a", "steps": 0}, "steps: expected a whole number from 1 to 1000"),
    ({"prompt": "a", "steps": 2**64}, "steps: expected a whole number"),
    ({"prompt": "a", "steps": 4.5}, "steps: expected a whole number"),
    ({"prompt": "a", "stepz": 4}, 'did you mean "steps"'),
    ({"prompt": "a", "width": 7}, "width: expected a multiple of 8"),
    ({"prompt": "a", "width": 2**31}, "width: expected"),
    ({"prompt": "a", "batch": 9}, "batch: expected at most 8"),
    ({"prompt": "a", "batch": 8, "count": 3}, "at most 16 images"),
    ({"prompt": "a", "seed": -2}, "seed: expected"),
    ({"prompt": "a", "width": 1024, "height": 1024, "hires_scale": 8}, "would become 8192 x 8192"),
    ({"prompt": "a", "hires_width": 8192}, "hires_width: expected"),
    ({"prompt": "a", "hires_scale": 8, "hires_steps": 5000}, "hires_"),
    ({"prompt": "a", "hires_upscaler": "/etc/passwd"}, 'hires_upscaler: no upscaler "/etc/passwd"'),
    ({"prompt": "a", "outpaint": "4096,4096,4096,4096"}, "unknown field"),
    ({"prompt": "a", "preview": "vae"}, "unknown field"),
    ({"prompt": "a", "sampler": "no such"}, "sampler: "),
    ({"prompt": "a", "schedule": "no such"}, "schedule: "),
    ({"prompt": "a", "model": "other"}, 'no "other"'),
    ({"prompt": "a", "model": "/etc/passwd"}, "there are: demo"),
    ({"prompt": "a", "init_image": "http://localhost/a.png"}, "fetches nothing"),
    ({"prompt": "a", "init_image": "/etc/passwd"}, "init_image: expected"),
    ({"prompt": "a", "init_image": base64.b64encode(b"no picture").decode()}, "expected a PNG, JPEG or WebP"),
    ({"prompt": "a <lora:../../x:1>"}, "prompt: "),
    ({"prompt": "a <lora:x:1>"}, 'no LoRA "x"; this server has none'),
    ({"prompt": "a", "loras": [{"name": "/etc/passwd"}]}, "loras[0].name"),
    ({"prompt": "a", "lora": "x"}, "lora: unknown field"),
    ({"prompt": "a", "init_latents": "/etc/passwd"}, "unknown field"),
    ({"prompt": "a", "device": "cpu"}, "unknown field"),
    ({"prompt": "a" * 32001}, "prompt: "),
    ({"prompt": "a", "sigmas": [1, "2"]}, "sigmas: expected a number"),
    ({"prompt": "a", "format": "gif"}, "png, jpeg or webp"),
])
def test_bad_jobs_name_the_field(server, body, message):
    refused = server.post("/v1/jobs", body)
    assert refused.status_code in (400, 404), refused.text
    assert message in refused.json()["error"]["message"]


@pytest.mark.bad_input
def test_a_damaged_picture_fails_its_job_alone(server):
    whole = base64.b64decode(png(64))
    job = server.wait(server.submit(prompt="a", steps=2, init_image=base64.b64encode(whole[:-20]).decode()))
    assert job["state"] == "failed" and job["error"]["type"] in ("invalid_file", "invalid_request")
    assert "init-image" in job["error"]["message"] and "/proc" not in job["error"]["message"]
    assert server.worker()["restarts"] == 0


@pytest.mark.bad_input
@pytest.mark.parametrize(("data", "status"), [
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n", b" 431 "),
    (b"GET /" + b"a" * 10000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 414 "),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X%d: 1\r\n" % i for i in range(150)) + b"\r\n", b" 431 "),
    (b"GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 400 "),
    (b"GET /v1/%2e%2e%2fjobs HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 400 "),
    (b"GET /v1/jobs/%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 400 "),
    (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b" 404 "),
    (b"BREW /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b" 405 "),
    (b"nonsense\r\n\r\n", b" 400 "),
    (b"GET / HTTP/9.9\r\n\r\n", b" 400 "),
    (b"GET /health HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n", b" 403 "),
    (b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", b" 403 "),
    (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n", b" 413 "),
    (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\n", b" 400 "),
    (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
     b"Content-Length: 3\r\n\r\n{}", b" 400 "),
    (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b" 400 "),
    (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n",
     b" 400 "),
    (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b" 400 "),
    (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", b" 415 "),
    (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
     b"Content-Length: 2\r\n\r\n{}", b" 415 "),
    (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.com\r\nContent-Type: application/json\r\n"
     b"Content-Length: 2\r\n\r\n{}", b" 403 "),
    (b"OPTIONS /v1/jobs HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.com\r\nConnection: close\r\n\r\n", b" 403 "),
])
def test_bad_http(server, data, status):
    answer = server.raw(data, seconds=1)
    assert status in answer.split(b"\r\n", 1)[0], answer[:300]
    assert server.get("/health").status_code == 200


@pytest.mark.bad_input
@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"prompt":"a","prompt":"b"}', b"[" * 100_000, b'{"prompt":"a","steps":1e999}',
                                  b'{"prompt":"a\\ud800"}', b'{"prompt":"a\x00"}', b'{"prompt":"a"} x', b""])
def test_bad_json(server, body):
    refused = requests.post(server.url + "/v1/jobs", data=body, headers=JSON, timeout=30)
    assert refused.status_code == 400 and refused.json()["error"]["message"]


def test_head_keep_alive_and_pipelined_requests(server):
    head = requests.head(server.url + "/health", timeout=10)
    assert head.status_code == 200 and int(head.headers["Content-Length"]) > 0 and not head.content
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = server.raw(one + one + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    old = server.raw(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert b" 200 " in old.split(b"\r\n")[0]


def test_expect_100_continue(server):
    body = json.dumps({"prompt": 1}).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                           b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(body)
        assert b" 400 " in read_all(connection).split(b"\r\n")[0]


def test_silent_connections_make_room_for_others(server):
    """Slow-loris: more connections than the server takes, none of which ends its head."""
    silent = []
    try:
        for _ in range(60):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
            silent.append(connection)
        assert requests.get(server.url + "/health", timeout=5).status_code == 200
    finally:
        for connection in silent:
            connection.close()


def test_a_killed_worker_ends_one_job(server):
    hit, next_one = server.submit(**LONG), server.submit(prompt="a dog", steps=2)
    server.wait(hit, "running")
    restarts = server.worker()["restarts"]
    wait_for(lambda: server.job(hit)["progress"]["step"] > 1, 30, "a step")
    os.kill(server.worker()["pid"], signal.SIGKILL)
    job = server.wait(hit)
    assert job["state"] == "failed" and job["error"]["type"] == "worker_died" and "signal 9" in job["error"]["message"]
    assert server.get("/health").status_code == 200
    assert server.wait(next_one)["state"] == "completed"
    assert server.worker()["restarts"] == restarts + 1


def test_a_stuck_worker_is_stopped(server):
    stuck, next_one = server.submit(**LONG), server.submit(prompt="a dog", steps=2)
    server.wait(stuck, "running")
    wait_for(lambda: server.job(stuck)["progress"]["step"] > 1, 30, "a step")
    os.kill(server.worker()["pid"], signal.SIGSTOP)
    job = server.wait(stuck, seconds=30)
    assert job["state"] == "failed" and "no sign of life" in job["error"]["message"]
    assert server.wait(next_one)["state"] == "completed"


def test_probes_and_metrics(server):
    server.draw(prompt="a tree", steps=20)
    assert server.get("/health").json()["status"] == "ok"
    values = dict(line.rsplit(" ", 1) for line in server.get("/metrics").text.splitlines() if not line.startswith("#"))
    assert float(values['rocm_sd_jobs_total{state="completed"}']) >= 1 and float(values["rocm_sd_steps_total{device=\"auto\"}"]) >= 10
    assert float(values["rocm_sd_resident_bytes"]) > 1e6


def test_bad_requests_leave_memory_and_descriptors_flat(server):
    def bad(count: int) -> None:
        with requests.Session() as session:
            for i in range(count):
                data = json.dumps({"prompt": "a", f"field{i}": "x" * 2000}) if i % 2 else "{" * 1000
                assert session.post(server.url + "/v1/jobs", data=data, headers=JSON, timeout=30).status_code == 400

    pid = server.process.pid
    bad(200)
    before = resident(pid), len(os.listdir(f"/proc/{pid}/fd"))
    bad(int(os.environ.get("ROCM_SD_BAD_REQUESTS", "800")))
    time.sleep(0.2)
    assert resident(pid) < before[0] + (4 << 20)
    assert len(os.listdir(f"/proc/{pid}/fd")) <= before[1] + 2


def resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_key_and_addresses(rocm_sd, demo, tmp_path):
    refused = rocm_sd("serve", "--model", demo, "--listen", "0.0.0.0", "--port", 0, code=2)
    assert "--api-key-file, or --insecure" in refused.stderr
    (tmp_path / "short").write_text("abc\n")
    assert "at least 8" in rocm_sd("serve", "--model", demo, "--api-key-file", tmp_path / "short", code=2).stderr
    (tmp_path / "key").write_text("correct-horse\n")
    with Server(rocm_sd.path, "--model", demo, "--listen", "0.0.0.0", "--api-key-file", tmp_path / "key", "--cors-origin",
                "https://example.org", ready=False) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert requests.get(url + "/health", timeout=10).status_code == 200  # probes need none
        refused = requests.get(url + "/v1/jobs", timeout=10)
        assert refused.status_code == 401 and "Basic" in refused.headers["WWW-Authenticate"]
        for how in ({"headers": {"Authorization": "Bearer correct-horse"}}, {"headers": {"X-API-Key": "correct-horse"}},
                    {"auth": ("anyone", "correct-horse")}):
            assert requests.get(url + "/v1/jobs", timeout=10, **how).status_code == 200
        for wrong in ("correct-hors", "correct-horsee", "xorrect-horse", ""):
            assert requests.get(url + "/v1/jobs", headers={"X-API-Key": wrong}, timeout=10).status_code == 401
        allowed = requests.options(url + "/v1/jobs", headers={"Origin": "https://example.org"}, timeout=10)
        assert allowed.status_code == 204 and allowed.headers["Access-Control-Allow-Origin"] == "https://example.org"


@pytest.mark.bad_input
def test_options_that_cannot_be(rocm_sd, demo, tmp_path):
    assert "expected --model" in rocm_sd("serve", code=2).stderr
    assert "no such file" in rocm_sd("serve", "--model", tmp_path / "none", code=3).stderr
    (tmp_path / "empty.safetensors").write_bytes(b"")
    assert "empty.safetensors" in rocm_sd("serve", "--model", tmp_path / "empty.safetensors", code=3).stderr
    assert "expected an IP address" in rocm_sd("serve", "--model", demo, "--listen", "nowhere", "--insecure", code=2).stderr
    assert "vram-budget" in rocm_sd("serve", "--model", demo, "--vram-budget", "much", code=2).stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "cannot listen" in rocm_sd("serve", "--model", demo, "--port", taken.getsockname()[1], code=2).stderr


def test_ends_with_grace(rocm_sd, demo):
    with Server(rocm_sd.path, "--model", demo, "--grace", "1") as server:
        worker = server.worker()["pid"]
        server.wait(server.submit(**LONG), "running")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0
        assert not os.path.exists(f"/proc/{worker}") or open(f"/proc/{worker}/stat").read().split()[2] == "Z"


def test_a_killed_supervisor_takes_its_worker_along(rocm_sd, demo):
    server = Server(rocm_sd.path, "--model", demo)
    worker = server.worker()["pid"]
    server.process.kill()
    server.process.wait()
    with server:
        wait_for(lambda: not os.path.exists(f"/proc/{worker}") or open(f"/proc/{worker}/stat").read().split()[2] == "Z", 10,
                 "the worker's end")


def test_two_models_and_two_workers(rocm_sd, demo, tiny_model):
    other = tiny_model("sd15")
    with Server(rocm_sd.path, "--model", demo, "--model", other, "--device", "cpu", "--device", "cpu", "--threads", "1") as server:
        wait_for(lambda: all(w["state"] == "idle" for w in server.get("/ready").json()["workers"]), 60, "both workers")
        jobs = [server.submit(prompt="a cat", steps=2, width=64, height=64, model=name)
                for name in (demo.name, other.name, demo.name, other.name)]
        done = [server.wait(job) for job in jobs]
        assert [job["state"] for job in done] == ["completed"] * 4
        assert [f"Model: {job['model']}" in job["images"][0]["parameters"] for job in done] == [True] * 4
        names = [model["name"] for model in server.get("/v1/capabilities").json()["models"]]
        assert names == [demo.name, other.name]


def test_a_model_that_cannot_be_loaded_fails_its_job(rocm_sd, demo, tmp_path):
    """Found whole when the server starts, gone when it is asked for."""
    other = tmp_path / "other"
    shutil.copytree(demo, other)
    with Server(rocm_sd.path, "--model", demo, "--model", other) as server:
        shutil.rmtree(other / "unet")
        job = server.wait(server.submit(prompt="a cat", steps=2, model="other"))
        assert job["state"] == "failed" and job["error"]["type"] == "invalid_file" and "unet" in job["error"]["message"]
        assert server.worker()["model"] is None and server.get("/ready").status_code == 503
        assert server.draw(prompt="a cat", steps=2)["model"] == "demo"  # the same worker goes on
        assert server.worker()["restarts"] == 0 and server.get("/ready").status_code == 200
