"""Every API at once against two workers that are killed meanwhile, then ends by SIGTERM: no wrong answer, no report of a sanitizer.

`make test-server-sanitized` runs it on the builds with AddressSanitizer, UBSan and ThreadSanitizer. ROCM_SD_LOAD_SECONDS: the load's
length. Reports of the supervisor and of its workers lie in files, since a worker ends without a word to anybody.
"""

from __future__ import annotations

import base64
import collections
import io
import itertools
import json
import os
import random
import re
import signal
import socket
import struct
import threading
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
import requests
from PIL import Image
from serving import FINAL, Server, wait_for
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect

pytestmark = pytest.mark.full

SECONDS = float(os.environ.get("ROCM_SD_LOAD_SECONDS", "60"))
CLIENTS = 12
SIDE = 64
LORA = "<lora:dusk_lora:0.7>"
# What a client may be told: done, its own fault, gone, a full queue, a worker that died under it, a server that ends.
EXPECTED = {200, 202, 204, 400, 404, 409, 410, 422, 429, 500, 503}

# Written by every process that uses fibers; ours tell ASan of each switch.
A_WARNING = re.compile(r"==\d+==WARNING: ASan doesn't fully support makecontext/swapcontext functions [^\n]*\n")


def file_of(side: int, mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(side).integers(0, 256, (side, side, len(mode)), np.uint8)
    Image.fromarray(noise, mode).save(out, "PNG")
    return out.getvalue()


PICTURE = base64.b64encode(file_of(SIDE)).decode()


def graph(seed: int, upload: str | None = None) -> dict:
    """Text to image; with an upload from that image on."""
    nodes = {
        "4": ("CheckpointLoaderSimple", {"ckpt_name": "demo"}),
        "5": ("VAEEncode", {"pixels": ["10", 0], "vae": ["4", 2]}) if upload else ("EmptyLatentImage", {"width": SIDE, "height": SIDE, "batch_size": 1}),
        "6": ("CLIPTextEncode", {"text": "a red apple", "clip": ["4", 1]}),
        "7": ("CLIPTextEncode", {"text": "blue", "clip": ["4", 1]}),
        "3": ("KSampler", {"model": ["4", 0], "positive": ["6", 0], "negative": ["7", 0], "latent_image": ["5", 0], "seed": seed, "steps": 3, "cfg": 4,
                           "sampler_name": "euler", "scheduler": "normal", "denoise": 0.7 if upload else 1}),
        "8": ("VAEDecode", {"samples": ["3", 0], "vae": ["4", 2]}),
        "9": ("SaveImage", {"images": ["8", 0], "filename_prefix": "load"}),
    }
    if upload:
        nodes["10"] = ("LoadImage", {"image": upload})
    return {number: {"class_type": kind, "inputs": inputs} for number, (kind, inputs) in nodes.items()}


class Client:
    """One of many: a random walk over the APIs. What is wrong is kept in `failures`."""

    def __init__(self, server: Server, seed: int):
        self.server, self.random, self.session = server, random.Random(seed), requests.Session()
        self.name = f"client-{seed}"
        self.failures: list[str] = []
        self.done: dict[str, int] = {}

    def ask(self, method: str, path: str, **how) -> requests.Response:
        answer = self.session.request(method, self.server.url + path, timeout=300, **how)
        worker_died = "worker_died" in answer.text or "killed by signal" in answer.text if answer.status_code == 500 else True
        if answer.status_code not in EXPECTED or not worker_died:
            self.failures.append(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return answer

    def job(self) -> dict:
        draw = self.random
        job = {"prompt": draw.choice(["a red apple", "a tree " * 30, "a [red|blue] apple", ""]), "steps": draw.randint(1, 5),
               "seed": draw.randrange(1 << 40), "sampler": draw.choice(["Euler a", "DPM++ 2M", "Heun", "UniPC"]), "width": SIDE, "height": SIDE}
        more = [{}, {"count": 2}, {"batch": 2}, {"init_image": PICTURE, "strength": 0.6}, {"prompt": "a fox " + LORA, "lora_mode": "runtime"},
                {"prompt": "a fox " + LORA}, {"format": "webp"}, {"width": 72}, {"hires_scale": 2, "hires_steps": 1},
                {"controls": [{"model": "canny_adapter", "image": PICTURE, "preprocess": "canny"}]}, {"steps": 1000}, {"steps": 0}, {"nothing": 1}]
        return job | draw.choice(more)

    def submit(self) -> str | None:
        body = self.job()
        answer = self.ask("POST", "/v1/jobs", json=body)
        if answer.status_code == 202 and body["steps"] == 1000:
            threading.Timer(self.random.uniform(0.1, 2), self.cancel, [answer.json()["id"]]).start()
        return answer.json()["id"] if answer.status_code == 202 else None

    def cancel(self, job_id: str) -> None:
        requests.post(f"{self.server.url}/v1/jobs/{job_id}/cancel", timeout=300)

    # What a client may do.

    def polls(self) -> None:
        if job_id := self.submit():
            while (job := self.ask("GET", f"/v1/jobs/{job_id}").json()).get("state") not in (*FINAL, None):
                time.sleep(0.05)
            for image in job.get("images", []):
                answer = self.ask("GET", image["url"])
                if answer.status_code == 200:
                    Image.open(io.BytesIO(answer.content)).load()
            if self.random.random() < 0.3:
                self.ask("DELETE", f"/v1/jobs/{job_id}")

    def cancels(self) -> None:
        if job_id := self.submit():
            time.sleep(self.random.choice([0, 0.01, 0.3]))
            self.ask("POST", f"/v1/jobs/{job_id}/cancel")

    def hears_events(self) -> None:
        if job_id := self.submit():
            whole = self.random.random() < 0.5
            with self.session.get(f"{self.server.url}/v1/jobs/{job_id}/events?previews=true", stream=True, timeout=300) as events:
                for count, _ in enumerate(events.iter_lines()):
                    if not whole and count > 3:
                        return self.cancel(job_id)

    def hears_a_socket(self) -> None:
        job_id = self.submit()
        path = f"/v1/jobs/{job_id}/events?previews=true" if job_id else f"/ws?clientId={self.name}"
        try:
            with connect(self.server.url.replace("http", "ws", 1) + path, open_timeout=60) as heard:
                for _ in range(self.random.choice([0, 2, 10])):
                    heard.recv(timeout=5)
        except (ConnectionClosed, InvalidHandshake, TimeoutError, OSError):
            pass  # the last event, too many sockets, or silence
        if job_id:
            self.cancel(job_id)

    def uses_web_ui(self) -> None:
        body = {"prompt": "a cat", "steps": 2, "width": SIDE, "height": SIDE}
        draw = self.random.random()
        if draw < 0.4:
            self.ask("POST", "/sdapi/v1/txt2img", json=body)
        elif draw < 0.6:
            self.ask("POST", "/sdapi/v1/img2img", json=body | {"init_images": [PICTURE], "mask": PICTURE})
        elif draw < 0.75:
            self.ask("POST", "/sdapi/v1/extra-single-image", json={"image": PICTURE, "upscaler_1": "Lanczos", "upscaling_resize": 2})
        elif draw < 0.85:
            self.ask("POST", self.random.choice(["/sdapi/v1/interrupt", "/sdapi/v1/skip"]), json={})
        else:
            self.ask("POST", "/sdapi/v1/png-info", json={"image": PICTURE})
        self.ask("GET", "/sdapi/v1/progress")

    def uses_open_ai(self) -> None:
        if self.random.random() < 0.5:
            self.ask("POST", "/v1/images/generations", json={"prompt": "a bird", "size": f"{SIDE}x{SIDE}", "steps": 3,
                                                             "stream": self.random.random() < 0.5, "partial_images": 1})
        else:
            self.ask("POST", "/v1/images/edits", data={"prompt": "a cat", "steps": "2", "size": f"{SIDE}x{SIDE}"},
                     files={"image": ("a.png", file_of(SIDE), "image/png"), "mask": ("m.png", file_of(SIDE, "RGBA"), "image/png")})

    def uses_comfy(self) -> None:
        upload = None
        if self.random.random() < 0.5:
            answer = self.ask("POST", "/upload/image", files={"image": (f"{self.name}.png", file_of(SIDE), "image/png")}, data={"overwrite": "true"})
            upload = answer.json()["name"] if answer.status_code == 200 else None
        posted = self.ask("POST", "/prompt", json={"prompt": graph(self.random.randrange(1 << 30), upload), "client_id": self.name,
                                                   "prompt_id": str(uuid.UUID(int=self.random.getrandbits(128)))})
        if posted.status_code != 200:
            return
        prompt_id = posted.json()["prompt_id"]
        self.ask(*self.random.choice([("GET", "/queue"), ("GET", "/object_info"), ("POST", "/interrupt"), ("GET", "/system_stats")]))
        for _ in range(self.random.choice([1, 200])):
            if history := self.ask("GET", f"/history/{prompt_id}").json().get(prompt_id):
                for image in itertools.chain(*(output["images"] for output in history["outputs"].values())):
                    self.ask("GET", "/view", params=image)
                return
            time.sleep(0.05)

    def vanishes(self) -> None:
        """Resets the connection at any byte of a request, or while it is answered."""
        body = json.dumps({"prompt": "a", "steps": 3, "width": SIDE, "height": SIDE}).encode()
        path = self.random.choice([b"/v1/jobs", b"/sdapi/v1/txt2img", b"/v1/images/generations"])
        whole = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        sent = bytearray(whole[:self.random.choice([len(whole), self.random.randrange(1, len(whole))])])
        if self.random.random() < 0.3:
            sent[self.random.randrange(len(sent))] = self.random.randrange(256)
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(sent)
            time.sleep(self.random.choice([0, 0.01, 0.2]))

    def looks_around(self) -> None:
        for path in self.random.sample(["/health", "/ready", "/metrics", "/openapi.json", "/v1/capabilities", "/v1/jobs", "/sdapi/v1/sd-models", "/history",
                                        "/sdapi/v1/memory", "/sdapi/v1/loras", "/v1/models", "/", "/app.js", "/none", "/%ff", "/v1/jobs/x"], 4):
            self.ask("GET", path)

    def walk(self, end: float) -> None:
        ways = [self.polls, self.cancels, self.hears_events, self.hears_a_socket, self.uses_web_ui, self.uses_open_ai, self.uses_comfy,
                self.vanishes, self.looks_around]
        while time.monotonic() < end:
            way = self.random.choice(ways)
            try:
                way()
            except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError, OSError):
                self.session.close()  # more connections than there may be: the one that is longest silent is closed
            except Exception as e:  # noqa: BLE001  the load goes on, and the test fails at its end
                self.failures.append(f"{way.__name__}: {e!r}")
            self.done[way.__name__] = self.done.get(way.__name__, 0) + 1


@pytest.fixture
def reports(tmp_path):
    """The environment of the server, and what sanitizers have written so far."""
    folder = tmp_path / "reports"
    folder.mkdir()
    names = {"ASAN_OPTIONS": "asan", "UBSAN_OPTIONS": "ubsan", "TSAN_OPTIONS": "tsan", "LSAN_OPTIONS": "lsan"}
    env = {name: f"{os.environ.get(name, '')}:log_path={folder / kind}".lstrip(":") for name, kind in names.items()}

    def written() -> str:
        texts = {path.name: A_WARNING.sub("", path.read_text(errors="replace")).strip() for path in sorted(Path(folder).iterdir())}
        return "\n".join(f"--- {name}\n{text[:6000]}" for name, text in texts.items() if text)

    return env, written


def test_mixed_load(rocm_sd, repository, tmp_path, reports):
    env, written = reports
    examples = repository / "models" / "demo_examples"

    def serve(*more) -> Server:
        return Server(rocm_sd.path, "--model", repository / "models" / "demo", "--lora-dir", examples, "--control-dir", examples, "--device", "cpu",
                      "--device", "cpu", "--threads", "1", "--join", "3", "--queue-per-client", "64", "--max-connections", "24", "--keep", "5",
                      "--step-timeout", "60", "--journal", tmp_path / "jobs.sqlite", *more, env=env, ready=False)

    with serve("--grace", "2") as server:
        server.wait_ready(300)
        clients = [Client(server, seed) for seed in range(CLIENTS)]
        threads = [threading.Thread(target=client.walk, args=(time.monotonic() + SECONDS,)) for client in clients]
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(SECONDS / 4)
            workers = [worker["pid"] for worker in server.get("/ready").json()["workers"] if worker["pid"]]
            if workers:
                os.kill(random.Random(len(workers)).choice(workers), signal.SIGKILL)
        for thread in threads:
            thread.join()
        failures = list(itertools.chain(*(client.failures for client in clients)))
        done = sum((collections.Counter(client.done) for client in clients), collections.Counter())
        counts = [line for line in server.get("/metrics").text.splitlines() if line.startswith(("rocm_sd_jobs_total", "rocm_sd_images_total"))]
        print(f"\n{dict(done)}; {counts}")
        assert not failures, failures[:5]
        assert any("completed" in line and float(line.split()[-1]) > 0 for line in counts), counts
        server.wait_ready(300)
        for _ in range(6):  # at work, and queued, when the end comes
            server.submit(prompt="a", steps=1000, width=SIDE, height=SIDE)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0, written()
    with serve("--grace", "0") as server:  # the journal's jobs go on, then a second end
        server.wait_ready(300)
        kept = [job for job in server.get("/v1/jobs").json()["jobs"] if job["state"] not in FINAL]
        assert len(kept) >= 6
        for job in kept[1:]:
            server.post(f"/v1/jobs/{job['id']}/cancel")
        wait_for(lambda: sum(job["state"] not in FINAL for job in server.get("/v1/jobs").json()["jobs"]) <= 1, 120, "the cancels")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0, written()
    assert not written(), written()
