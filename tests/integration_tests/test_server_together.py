"""Jobs that wait together and differ in prompt, negative prompt and seed alone: one batch of the UNet."""

from __future__ import annotations

import numpy as np
import pytest
from serving import Server, wait_for

COMMON = {"steps": 4, "width": 64, "height": 64, "sampler": "Euler a", "cfg_scale": 4}
TEXTS = ["a red apple", "a blue circle", "a green tree with a very long description " * 6, "a fox"]
LONG = {"prompt": "long", "steps": 1000, "width": 64, "height": 64}


@pytest.fixture(scope="module")
def demo(repository):
    return repository / "models" / "demo"


@pytest.fixture(scope="module")
def server(rocm_sd, demo):
    with Server(rocm_sd.path, "--model", demo, "--join", 4, "--queue-per-client", 64, "--dtype", "f32") as running:
        yield running


@pytest.fixture(scope="module")
def alone(rocm_sd, demo):
    with Server(rocm_sd.path, "--model", demo, "--queue-per-client", 64, "--dtype", "f32") as running:
        yield running


def steps_made(server) -> int:
    for line in server.get("/metrics").text.splitlines():
        if line.startswith("rocm_sd_steps_total"):
            return int(float(line.split()[-1]))
    raise AssertionError("no count of steps")


def queue(server, jobs: list[dict]) -> list[dict]:
    """All wait behind one job, which then ends."""
    first = server.submit(**LONG)
    server.wait(first, "running")
    ids = [server.submit(**job) for job in jobs]
    server.post(f"/v1/jobs/{first}/cancel")
    wait_for(lambda: server.job(first)["state"] == "cancelled", 30, "the first to end")
    return [server.wait(job_id) for job_id in ids]


def pixels(server, job) -> np.ndarray:
    return np.asarray(server.image(job)).astype(int)


def test_one_batch_draws_what_each_draws_alone(server, alone):
    jobs = [{"prompt": text, "seed": 40 + 7 * i, "negative_prompt": "blurry" if i % 2 else "", **COMMON} for i, text in enumerate(TEXTS)]
    drawn = queue(server, jobs)
    assert [job["state"] for job in drawn] == ["completed"] * 4
    assert len({job["started"] for job in drawn}) <= 4 and max(job["started"] for job in drawn) < min(job["finished"] for job in drawn)
    for job, asked in zip(drawn, jobs, strict=True):
        lone = alone.draw(**asked)
        assert [image["seed"] for image in job["images"]] == [asked["seed"]]
        assert job["images"][0]["parameters"] == lone["images"][0]["parameters"]
        # Prompts of other lengths are read with their chunks repeated, which rounds otherwise.
        assert np.abs(pixels(server, job) - pixels(alone, lone)).max() <= 1
    # Not the others' pictures.
    assert min(np.abs(pixels(server, a) - pixels(server, b)).max() for a in drawn for b in drawn if a is not b) > 50


def test_what_differs_is_drawn_apart(server):
    jobs = [{"prompt": "a", "seed": 1, **COMMON}, {"prompt": "b", "seed": 2, **COMMON | {"steps": 5}}, {"prompt": "c", "seed": 3, **COMMON, "count": 2},
            {"prompt": "d AND e", "seed": 4, **COMMON}, {"prompt": "f", "seed": 5, **COMMON, "format": "jpeg"}]
    drawn = queue(server, jobs)
    assert [job["state"] for job in drawn] == ["completed"] * 5
    times = sorted((job["started"], job["finished"]) for job in drawn)
    assert all(a[1] <= b[0] for a, b in zip(times, times[1:], strict=False))


def test_one_leaves_the_others_go_on(server):
    first = server.submit(**LONG)
    server.wait(first, "running")
    ids = [server.submit(prompt=text, seed=3, **COMMON | {"steps": 200}) for text in ("a", "b", "c")]
    server.post(f"/v1/jobs/{first}/cancel")
    for job_id in ids:
        server.wait(job_id, "running")
    server.post(f"/v1/jobs/{ids[1]}/cancel")
    assert server.wait(ids[1], seconds=5)["state"] == "cancelled"
    assert server.job(ids[0])["state"] == "running"
    assert [server.wait(job_id)["state"] for job_id in (ids[0], ids[2])] == ["completed"] * 2
    assert server.job(ids[1])["images"] == []


def test_a_bad_one_fails_alone(server):
    """A size that the engine refuses for one prompt's sake is no reason for the others' end."""
    bad = "[" * 40 + "a" + ":1]" * 40
    drawn = queue(server, [{"prompt": text, "seed": 1, **COMMON} for text in ("a", bad, "b")])
    assert [job["state"] for job in drawn if job["state"] != "completed"] in ([], ["failed"])
    assert drawn[0]["state"] == drawn[2]["state"] == "completed"
