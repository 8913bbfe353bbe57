"""What tests in a checkout of another program share: that program as a process with a web API, a checkpoint, pictures compared.

Used by tests/front_ends/run_comfyui.py and tests/front_ends/run_a1111.py.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LEAST_DB = 50.0


class Failed(Exception):
    pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class WebProgram:
    """A running program with a web API at `port`, which finds this checkout's rocm_sd_ops."""

    def __init__(self, command: list[str], checkout: Path, log: Path, port: int) -> None:
        self.port, self.log = port, log
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "python"), os.environ.get("PYTHONPATH", "")])}
        self.process = subprocess.Popen(command, cwd=checkout, env=env, stdout=log.open("w"), stderr=subprocess.STDOUT)

    def request(self, path: str, body: Any = None, seconds: float = 60) -> Any:
        """The answer: parsed where it is JSON, else its bytes."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=seconds) as reply:
                content = reply.read()
        except urllib.error.HTTPError as error:
            raise Failed(f"{path}: {error.code} {error.read().decode()[:2000]}") from None
        return json.loads(content) if reply.headers.get_content_type() == "application/json" else content

    def wait_for(self, path: str, seconds: float) -> Any:
        """The answer at `path`, once the program is up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check_alive()
            try:
                return self.request(path, seconds=10)
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(1)
        raise Failed(f"the program did not come up:\n{self.last_lines()}")

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            raise Failed(f"the program ended with {self.process.returncode}:\n{self.last_lines()}")

    def last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def psnr(a: bytes, b: bytes) -> float:
    import numpy as np
    from PIL import Image

    x, y = (np.asarray(Image.open(io.BytesIO(p)).convert("RGB"), dtype=np.float64) for p in (a, b))
    if x.shape != y.shape:
        raise Failed(f"pictures of {x.shape} and {y.shape}")
    error = np.mean((x - y) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255.0 ** 2 / error))


def make_checkpoint() -> Path:
    path = Path(tempfile.gettempdir()) / "rocm-sd-random-sd15.safetensors"
    if not path.is_file():
        sys.path.insert(0, str(REPOSITORY / "tools" / "checkpoints"))
        from make_random_checkpoint import write_checkpoint

        write_checkpoint("sd15", path, tiny=False, seed=0, dtype="fp16")
    return path
