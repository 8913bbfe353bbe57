"""A running `rocm-sd serve` for tests: started on a free port, asked over HTTP, ended with the test.

    with Server(rocm_sd.path, "--model", demo) as server:
        job = server.draw(prompt="a red apple", steps=4)
        assert server.image(job).size == (128, 128)
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import requests
from PIL import Image

FINAL = ("completed", "failed", "cancelled")


class Server:
    def __init__(self, program: Path, *args, env: dict[str, str] | None = None, ready: bool = True):
        command = [str(program), "serve", "--port", "0", *map(str, args)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=os.environ | (env or {}))
        line = self.process.stdout.readline()
        if not line.startswith("http://"):
            raise RuntimeError(f"the server did not start: {line}{self.process.stderr.read()}")
        self.url = line.strip().rstrip("/")
        self.port = int(self.url.rsplit(":", 1)[1])
        self.session = requests.Session()
        if ready:
            self.wait_ready()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.stdout.close()
        self.process.stderr.close()
        self.session.close()

    def get(self, path: str, **how) -> requests.Response:
        return self.session.get(self.url + path, timeout=60, **how)

    def post(self, path: str, body=None, **how) -> requests.Response:
        return self.session.post(self.url + path, json=body, timeout=60, **how)

    def worker(self) -> dict:
        return self.get("/ready").json()["workers"][0]

    def wait_ready(self, seconds: float = 60) -> None:
        wait_for(lambda: self.get("/ready").status_code == 200, seconds, "a model to be loaded")

    def submit(self, **options) -> str:
        done = self.post("/v1/jobs", options)
        assert done.status_code == 202, done.text
        return done.json()["id"]

    def job(self, job_id: str) -> dict:
        return self.get(f"/v1/jobs/{job_id}").json()

    def wait(self, job_id: str, *states: str, seconds: float = 60) -> dict:
        states = states or FINAL
        return wait_for(lambda: (job := self.job(job_id))["state"] in states and job, seconds, f"{job_id} to be {states}")

    def draw(self, **options) -> dict:
        job = self.wait(self.submit(**options))
        assert job["state"] == "completed", job
        return job

    def image(self, job: dict, index: int = 0) -> Image.Image:
        return Image.open(io.BytesIO(self.get(job["images"][index]["url"]).content))

    def raw(self, data: bytes, seconds: float = 5) -> bytes:
        """What comes back for these bytes until the connection ends, or for so long."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            connection.sendall(data)
            return read_all(connection)

    def events(self, job_id: str, query: str = "") -> list[tuple[str, dict]]:
        found, name = [], ""
        with self.session.get(f"{self.url}/v1/jobs/{job_id}/events{query}", stream=True, timeout=60) as stream:
            for line in stream.iter_lines(decode_unicode=True):
                if line.startswith("event: "):
                    name = line[len("event: "):]
                if line.startswith("data: "):
                    found.append((name, json.loads(line[len("data: "):])))
        return found


def read_all(connection: socket.socket) -> bytes:
    out = b""
    try:
        while piece := connection.recv(65536):
            out += piece
    except (TimeoutError, ConnectionResetError):
        pass
    return out


def wait_for(ask, seconds: float, what: str):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := ask():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s for {what}")
