"""Requests that fit no device's memory are refused before they wait, and those that savings make fit are not."""

from __future__ import annotations

import random

import pytest
from serving import Server

BUDGET = 90_000_000


@pytest.fixture(scope="module")
def server(rocm_sd, repository):
    with Server(rocm_sd.path, "--model", repository / "models" / "demo", "--vram-budget", BUDGET, "--queue", "200", "--queue-per-client", "200") as running:
        yield running


def test_what_is_needed_and_what_there_is(server):
    refused = server.post("/v1/jobs", {"prompt": "a", "width": 4096, "height": 4096, "batch": 2})
    assert refused.status_code == 422
    error = refused.json()["error"]
    assert error["code"] == "out_of_memory" and error["available_bytes"] == BUDGET < error["needed_bytes"]
    assert "2 images take at least" in error["message"] and "90.0 MB" in error["message"]
    assert server.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(("path", "body", "place"), [
    ("/sdapi/v1/txt2img", {"prompt": "a", "width": 4096, "height": 4096}, "errors"),
    ("/v1/images/generations", {"prompt": "a", "size": "4096x4096"}, "error"),
])
def test_every_api_says_so(server, path, body, place):
    refused = server.post(path, body)
    assert refused.status_code == 422 and "at least" in str(refused.json()[place])


def test_no_request_is_refused_that_the_command_line_draws(server, rocm_sd, repository, tmp_path):
    """The command line saves what it can, and says with exit code 5 that nothing helps."""
    draw = random.Random(11)
    seen = set()
    for _ in range(12):
        side = 8 * draw.randint(4, 160)
        options = {"prompt": "a", "steps": 1, "width": side, "height": 8 * draw.randint(4, 160), "cfg_scale": draw.choice([1, 4]), "batch": draw.choice([1, 1, 3])}
        posted = server.post("/v1/jobs", options)
        assert posted.status_code in (202, 422)
        seen.add(posted.status_code)
        if posted.status_code == 202:
            server.post(f"/v1/jobs/{posted.json()['id']}/cancel")
            continue
        plan = rocm_sd("generate", "--model", repository / "models" / "demo", "-p", "a", "-W", options["width"], "-H", options["height"], "--cfg-scale",
                       options["cfg_scale"], "--batch", options["batch"], "--vram-budget", BUDGET, "--plan", "-o", tmp_path / "a.png", code=None)
        assert plan.returncode == 5, (options, plan.stdout, plan.stderr)
    assert seen == {202, 422}


def test_what_fits_is_drawn(server):
    assert server.draw(prompt="a", steps=1, width=256, height=256)["images"]
