"""The engine behind Ray Serve: one pipeline for each GPU actor, requests of one size drawn in one batch.

    serve run integrations.ray.rocm_sd_serve:app model=models/demo device=cpu gpus=0 replicas=2
    curl localhost:8000/draw --json '{"prompt": "a red apple", "seed": 5}' -o apple.png

or from Python:

    from integrations.ray.rocm_sd_serve import app
    handle = serve.run(app({"model": "sdxl.safetensors", "replicas": "4"}))
    png = handle.draw.remote({"prompt": "a red apple", "seed": 5}).result()

A picture is that of the engine alone with the same options and seed. Ray gives each actor its GPU (it sets CUDA_VISIBLE_DEVICES or
HIP_VISIBLE_DEVICES), so that every replica opens the only one that it sees. README.md beside this file has the settings.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import time
from typing import Any, Optional

from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

# Of a request; everything else is refused by name. Those that pictures of one batch may differ in come first.
OWN = ("prompt", "seed")
SHARED = ("negative_prompt", "width", "height", "steps", "guidance_scale", "sampler", "schedule", "clip_skip")
LIMITS = {"width": (8, 4096), "height": (8, 4096), "steps": (1, 1000), "clip_skip": (0, 12)}
MOST_BYTES = 1 << 20  # of a request's body
SEEDS = 2**32


class BadRequest(ValueError):
    """The request cannot be drawn, whoever draws it: HTTP 400."""


class Refused(RuntimeError):
    """The engine's sentence, with its exit code as status. The engine's own error does not pass between processes."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(status, sentence)
        self.status, self.sentence = status, sentence

    def __str__(self) -> str:
        return self.sentence


def checked(body: Any) -> dict[str, Any]:
    """The request with what is missing filled in. Raises BadRequest with a sentence that names the field."""
    if not isinstance(body, dict):
        raise BadRequest(f"expected an object with a prompt, got {type(body).__name__}")
    for name in body:
        if name not in OWN + SHARED:
            raise BadRequest(f"{name!r} is not known; there are {', '.join(OWN + SHARED)}")
    wanted = {name: value for name, value in body.items() if value is not None}
    for name in ("prompt", "negative_prompt", "sampler", "schedule"):
        if not isinstance(wanted.get(name, ""), str):
            raise BadRequest(f"{name}: expected a text, got {wanted[name]!r}")
    if "prompt" not in wanted:
        raise BadRequest("prompt: expected a text, got nothing")
    for name, (least, most) in LIMITS.items():
        value = wanted.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise BadRequest(f"{name}: expected a whole number from {least} to {most}, got {value!r}")
    for name in ("width", "height"):
        if wanted.get(name, 8) % 8:
            raise BadRequest(f"{name}: expected a multiple of 8, got {wanted[name]}")
    scale = wanted.get("guidance_scale", 1)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0 <= scale <= 1000:
        raise BadRequest(f"guidance_scale: expected a number from 0 to 1000, got {scale!r}")
    seed = wanted.get("seed", -1)
    if isinstance(seed, bool) or not isinstance(seed, int) or not -1 <= seed < 2**53:
        raise BadRequest(f"seed: expected -1 (a random one) or a whole number from 0, got {seed!r}")
    wanted["seed"] = seed
    return wanted


def batches(requests: list[dict[str, Any]], most: int) -> list[list[int]]:
    """The numbers of the requests that one call of the engine draws: alike in all but prompt and seed, with seeds that follow each
    other, as the pictures of a batch have them. Requests without a seed take one that fits."""
    alike: dict[str, list[int]] = {}
    for i, request in enumerate(requests):
        alike.setdefault(json.dumps({name: request.get(name) for name in SHARED}), []).append(i)
    out: list[list[int]] = []
    for group in alike.values():
        free = [i for i in group if requests[i]["seed"] < 0]
        runs: list[list[int]] = []
        for i in sorted((i for i in group if requests[i]["seed"] >= 0), key=lambda i: requests[i]["seed"]):
            if runs and len(runs[-1]) < most and requests[runs[-1][-1]]["seed"] + 1 == requests[i]["seed"]:
                runs[-1].append(i)
            else:
                runs.append([i])
        for i in free:
            run = next((run for run in runs if len(run) < most), None)
            if run is None:
                requests[i]["seed"] = random.randrange(SEEDS)
                runs.append([i])
            else:
                requests[i]["seed"] = requests[run[-1]]["seed"] + 1
                run.append(i)
        out += runs
    return out


@serve.deployment
class Drawer:
    """A replica: one pipeline on one device."""

    def __init__(self, model: str, device: str = "auto", dtype: str = "auto", batch: int = 4, wait_seconds: float = 0.05,
                 stuck_seconds: float = 600, options: Optional[dict[str, Any]] = None) -> None:
        from rocm_sd_ops.engine import ROCmOptimizedPipeline  # here: the driver needs neither PyTorch nor a GPU

        self._pipeline = ROCmOptimizedPipeline(model, device=device, dtype=dtype, **(options or {}))
        self._most, self._stuck = batch, stuck_seconds
        self._began: Optional[float] = None  # of the call at work
        self._lost = ""  # why this replica draws no more
        self._drawn = self._calls = 0
        self._collect.set_max_batch_size(batch)
        self._collect.set_batch_wait_timeout_s(wait_seconds)

    def check_health(self) -> None:
        """Ray Serve asks every health_check_period_s, and replaces a replica that raises."""
        if self._lost:
            raise RuntimeError(self._lost)
        if self._began is not None and time.monotonic() - self._began > self._stuck:
            raise RuntimeError(f"a call of the engine has taken longer than {self._stuck} s")

    async def status(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "pictures": self._drawn, "calls": self._calls, "lost": self._lost}

    async def draw(self, body: Any) -> bytes:
        """A PNG. Raises BadRequest, or Refused with the engine's sentence and its exit code."""
        found = await self._collect(checked(body))
        if isinstance(found, Exception):
            raise found
        return found

    @serve.batch
    async def _collect(self, requests: list[dict[str, Any]]) -> list[Any]:
        """A PNG or an exception for each: one bad request does not spoil the others."""
        out: list[Any] = [None] * len(requests)
        for numbers in batches(requests, self._most):
            chosen = [requests[i] for i in numbers]
            drawn = await asyncio.to_thread(self._draw_or_say_why, chosen)
            if isinstance(drawn, Exception) and len(chosen) > 1 and not self._lost:
                drawn = [await asyncio.to_thread(self._draw_or_say_why, [request]) for request in chosen]
                drawn = [one if isinstance(one, Exception) else one[0] for one in drawn]
            for at, i in enumerate(numbers):
                out[i] = drawn if isinstance(drawn, Exception) else drawn[at]
        return out

    def _draw_or_say_why(self, requests: list[dict[str, Any]]) -> Any:
        from rocm_sd_ops.engine import EngineError

        self._began = time.monotonic()
        try:
            return self._draw(requests)
        except EngineError as error:
            if error.status in (4, 70):  # the device, or the engine itself: another replica must do it
                self._lost = str(error)
            return Refused(error.status, str(error))
        except (TypeError, ValueError) as error:
            return BadRequest(str(error))
        finally:
            self._began = None

    def _draw(self, requests: list[dict[str, Any]]) -> list[bytes]:
        shared = {name: requests[0][name] for name in SHARED if name in requests[0]}
        if "steps" in shared:
            shared["num_inference_steps"] = shared.pop("steps")
        prompts = [request["prompt"] for request in requests]
        drawn = self._pipeline(prompts if len(prompts) > 1 else prompts[0], seed=requests[0]["seed"], **shared)
        self._calls += 1
        self._drawn += len(requests)
        out = []
        for image in drawn.images:
            file = io.BytesIO()
            image.save(file, "PNG")
            out.append(file.getvalue())
        return out


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0})
class Ingress:
    """HTTP: POST /draw a JSON request, get a PNG; errors are {"error": "a sentence"}. It checks before a GPU is asked."""

    def __init__(self, drawers: Any) -> None:
        self._drawers = drawers

    async def draw(self, body: Any) -> bytes:
        return await self._drawers.draw.remote(checked(body))

    async def __call__(self, request: Request) -> Response:
        if request.method != "POST" or request.url.path.rstrip("/").rsplit("/", 1)[-1] != "draw":
            return JSONResponse({"error": "expected POST /draw with a JSON object such as {\"prompt\": \"a red apple\"}"}, 404)
        text = await request.body()
        if len(text) > MOST_BYTES:
            return JSONResponse({"error": f"a request of {len(text)} bytes: expected at most {MOST_BYTES}"}, 413)
        try:
            return Response(await self.draw(json.loads(text)), media_type="image/png")
        except Exception as error:
            status, sentence = explained(error)
            return JSONResponse({"error": sentence}, status)


def explained(error: BaseException) -> tuple[int, str]:
    """The HTTP status and the sentence: what a replica raised arrives wrapped."""
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, (BadRequest, json.JSONDecodeError, UnicodeDecodeError)):
        return 400, str(cause)
    status = getattr(cause, "status", None)
    if status in (2, 3):
        return 400, str(cause)
    if status == 5:
        return 507, str(cause)
    return 503, f"{type(cause).__name__}: {cause}".splitlines()[0]


def app(args: dict[str, str]) -> Any:
    """The application, of settings as `serve run` and its YAML have them: README.md lists them."""
    known = {"model": "", "device": "auto", "dtype": "auto", "gpus": "1", "cpus": "1", "replicas": "1", "most_replicas": "", "batch": "4",
             "wait_seconds": "0.05", "requests_per_replica": "", "idle_seconds": "600", "stuck_seconds": "600", "health_seconds": "10",
             "options": "{}"}
    unknown = sorted(set(args) - set(known))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a setting; there are {', '.join(known)}")
    settings = known | {name: str(value) for name, value in args.items()}
    if not settings["model"]:
        raise ValueError("model: expected the path of a checkpoint, which every node can read")
    batch, least = int(settings["batch"]), int(settings["replicas"])
    most = int(settings["most_replicas"] or least)
    if batch < 1 or least < 0 or most < max(1, least):
        raise ValueError(f"expected batch >= 1 and 0 <= replicas <= most_replicas, got batch={batch}, replicas={least}, most_replicas={most}")
    target = float(settings["requests_per_replica"] or 2 * batch)
    scaling: dict[str, Any] = {"num_replicas": least}
    if most > least:
        scaling = {"autoscaling_config": {"min_replicas": least, "max_replicas": most, "initial_replicas": max(1, least),
                                          "target_ongoing_requests": target, "downscale_delay_s": float(settings["idle_seconds"])}}
    drawers = Drawer.options(
        ray_actor_options={"num_gpus": float(settings["gpus"]), "num_cpus": float(settings["cpus"])},
        max_ongoing_requests=max(4 * batch, int(2 * target)), health_check_period_s=float(settings["health_seconds"]),
        graceful_shutdown_timeout_s=120, **scaling)
    return Ingress.bind(drawers.bind(settings["model"], settings["device"], settings["dtype"], batch, float(settings["wait_seconds"]),
                                     float(settings["stuck_seconds"]), json.loads(settings["options"])))
