#!/usr/bin/env python3
"""integrations/ray in a real Ray on this machine: two replicas on the CPU draw the demo model.

    make test-ray

Concurrent requests come back with the bytes that the engine alone draws, in fewer calls than pictures; bad ones with a sentence; a replica that
is killed is replaced, and the service answers again.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "python")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "python"), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: other work on the machine would stop the replicas
for name in ("PROXY_READY_CHECK", "PROXY_HEALTH_CHECK"):  # on a machine that has much else to do
    os.environ.setdefault(f"RAY_SERVE_{name}_TIMEOUT_S", "120")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two replicas and the reference: the same threads for all

import numpy as np  # noqa: E402
import ray  # noqa: E402
from PIL import Image  # noqa: E402
from ray import serve  # noqa: E402

from integrations.ray.rocm_sd_serve import BadRequest, Refused, app, batches, checked, explained  # noqa: E402

MODEL = str(REPOSITORY / "models" / "demo")
PORT = 18127
SMALL = {"width": 64, "height": 64, "steps": 3}


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def post(body: object, path: str = "/draw") -> tuple[int, bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def check_rules() -> None:
    """Without Ray: what a request may be, and which requests are one batch."""
    def bad(body: object) -> str:
        try:
            checked(body)
        except BadRequest as error:
            return str(error)
        raise AssertionError(f"{body!r} was taken")

    for body, words in (([], "object"), ({}, "prompt"), ({"prompt": 3}, "text"), ({"prompt": "a", "width": 65}, "multiple of 8"),
                        ({"prompt": "a", "width": 1 << 20}, "from 8"), ({"prompt": "a", "steps": True}, "steps"),
                        ({"prompt": "a", "seed": -2}, "seed"), ({"prompt": "a", "lora": "x"}, "'lora' is not known"),
                        ({"prompt": "a", "guidance_scale": float("nan")}, "guidance_scale")):
        assert words in bad(body), (body, bad(body))
    seeds = [5, 6, 7, 9, -1, -1, 8, 100]
    requests = [checked({"prompt": "a", "seed": seed}) for seed in seeds] + [checked({"prompt": "a", "seed": 101, "width": 64})]
    found = batches(requests, 3)
    assert sorted(i for run in found for i in run) == list(range(9)), "each once"
    assert all(len(run) <= 3 for run in found)
    for run in found:
        drawn = [requests[i]["seed"] for i in run]
        assert drawn == list(range(drawn[0], drawn[0] + len(run))), "seeds that follow each other"
        assert len({requests[i].get("width") for i in run}) == 1
    assert [requests[i]["seed"] for i in range(4)] == seeds[:4], "given seeds stay"
    told = pickle.loads(pickle.dumps(Refused(5, "no memory")))
    assert explained(told) == (507, "no memory") and explained(Refused(2, "x")) == (400, "x") and explained(Refused(4, "y"))[0] == 503
    assert explained(BadRequest("x")) == (400, "x") and explained(RuntimeError("y"))[0] == 503
    for settings, words in (({}, "model"), ({"model": "m", "gpu": "1"}, "'gpu' is not a setting"), ({"model": "m", "replicas": "3", "most_replicas": "2"}, "most_replicas")):
        try:
            app(settings)
        except ValueError as error:
            assert words in str(error)
        else:
            raise AssertionError(f"{settings} was taken")


def statuses() -> dict[int, dict]:
    """Of all replicas that answer, by process."""
    handle, found = serve.get_deployment_handle("Drawer", "default"), {}
    for _ in range(30):
        try:
            status = handle.status.remote().result(timeout_s=10)
        except Exception:  # a replica that was just killed
            time.sleep(0.2)
            continue
        found[status["pid"]] = status
        if len(found) == 2:
            break
    return found


def main() -> int:
    check_rules()
    print("rules: as documented", flush=True)
    from rocm_sd_ops.engine import ROCmOptimizedPipeline

    prompts = ["a red apple", "a blue car", "a smiling cat", "a house"]
    wanted = [{"prompt": prompts[i % 4], "seed": 40 + i % 6, **SMALL} | ({"height": 72} if i % 3 == 2 else {}) for i in range(12)]
    with ROCmOptimizedPipeline(MODEL, device="cpu", dtype="f32") as alone:
        want = [alone(w["prompt"], seed=w["seed"], width=w["width"], height=w["height"], num_inference_steps=3, output_type="np").images[0]
                for w in wanted]

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
        serve.run(app({"model": MODEL, "device": "cpu", "dtype": "f32", "gpus": "0", "replicas": "2", "batch": "3", "wait_seconds": "2",
                       "health_seconds": "1"}))
        with ThreadPoolExecutor(len(wanted)) as threads:
            got = list(threads.map(post, wanted))
        for (status, png), picture in zip(got, want):
            assert status == 200, png
            assert np.array_equal(pixels(png), picture), "the engine's own bytes"
        before = statuses()
        assert len(before) == 2, before
        calls, pictures = (sum(status[key] for status in before.values()) for key in ("calls", "pictures"))
        assert pictures == 12 and calls < pictures, before
        print(f"12 requests: byte for byte the engine's, {calls} calls of 2 replicas", flush=True)

        for body, code, words in (({"prompt": "a", "width": 63}, 400, "multiple of 8"), (b"{", 400, "Expecting"), ([1], 400, "object"),
                                  ({"prompt": "a", "sampler": "nobody's", **SMALL}, 400, "nobody's"), (b" " * (2 << 20), 413, "at most")):
            status, answer = post(body)
            assert status == code and words in json.loads(answer)["error"], (status, answer)
        assert post({"prompt": "a"}, "/elsewhere")[0] == 404
        # A bad one in the same batch leaves the others alone.
        with ThreadPoolExecutor(3) as threads:
            answers = list(threads.map(post, [wanted[0], {**wanted[0], "sampler": "nobody's"}, wanted[1]]))
        assert [status for status, _ in answers] == [200, 400, 200], answers
        assert np.array_equal(pixels(answers[0][1]), want[0])
        print("bad requests: a sentence each", flush=True)

        killed = next(iter(before))
        os.kill(killed, signal.SIGKILL)
        deadline = time.monotonic() + 120
        answered = False
        while time.monotonic() < deadline:
            status, png = post(wanted[3])
            answered = answered or status == 200
            after = statuses()
            if answered and len(after) == 2 and killed not in after:
                break
        assert answered and len(after) == 2 and killed not in after, after
        with ThreadPoolExecutor(6) as threads:
            for (status, png), picture in zip(threads.map(post, wanted[:6]), want):
                assert status == 200 and np.array_equal(pixels(png), picture), png
        print("a killed replica: replaced, and the service answers as before", flush=True)
    finally:
        serve.shutdown()
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
