"""Continuous batching: jobs of one size and model join at any step, and each is what it is by itself."""

from __future__ import annotations

import base64
import io
import os
import random
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
from PIL import Image
from serving import FINAL, Server, wait_for

SIZE = {"width": 64, "height": 64}
LONG = {"prompt": "long", "steps": 1000, **SIZE}
SAMPLERS = ["Euler", "Euler a", "Heun", "DPM++ 2M Karras", "DPM++ 2M SDE", "DPM++ SDE", "LMS", "UniPC", "DDIM", "LCM", "DPM2 a", "DPM++ 3M SDE",
            "PLMS", "Restart", "DEIS"]
TEXTS = ["a red apple", "", "a blue circle", "(a fox:1.3) in [snow]", "a green tree with a very long description " * 6, "an apple AND a fox :0.5",
         "a [red|blue] apple", "a [tree:house:0.5]"]
LORA = "<lora:dusk_lora:{}>"


@pytest.fixture(scope="module")
def demo(repository):
    return repository / "models" / "demo"


@pytest.fixture(scope="module")
def loras(repository):
    return repository / "models" / "demo_examples"


def serve(rocm_sd, demo, loras, *args) -> Server:
    return Server(rocm_sd.path, "--model", demo, "--lora-dir", loras, "--queue-per-client", 64, "--dtype", "f32", *args)


@pytest.fixture(scope="module")
def server(rocm_sd, demo, loras):
    with serve(rocm_sd, demo, loras, "--join", 4) as running:
        yield running


@pytest.fixture(scope="module")
def alone(rocm_sd, demo, loras):
    with serve(rocm_sd, demo, loras, "--join", 1) as running:
        yield running


def pixels(server, job, index: int = 0) -> np.ndarray:
    return np.asarray(server.image(job, index)).astype(int)


def png(seed: int) -> str:
    noise = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((64, 64)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def expect_as_alone(server, alone, job: dict, asked: dict) -> None:
    assert job["state"] == "completed", job
    lone = alone.draw(**asked)
    assert len(job["images"]) == len(lone["images"])
    for i, (got, want) in enumerate(zip(job["images"], lone["images"], strict=True)):
        assert (got["seed"], got["parameters"]) == (want["seed"], want["parameters"])
        # Another number of rows, and prompts whose chunks are repeated for longer ones, round otherwise.
        difference = np.abs(pixels(server, job, i) - pixels(alone, lone, i))
        assert difference.max() <= 2 and difference.mean() < 0.05, (asked, difference.max(), difference.mean())


def running_at_once(jobs: list[dict]) -> int:
    moments = sorted([(job["started"], 1) for job in jobs] + [(job["finished"], -1) for job in jobs])
    now = most = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def any_request(draw: random.Random) -> dict:
    text = draw.choice(TEXTS)
    request = {"prompt": text, "seed": draw.randrange(1 << 40), "steps": draw.randint(2, 12), "sampler": draw.choice(SAMPLERS),
               "cfg_scale": draw.choice([1, 3.5, 7]), **SIZE}
    if draw.random() < 0.5:
        request["negative_prompt"] = "blurry"
    if draw.random() < 0.3:
        request |= {"lora_mode": "runtime", "prompt": text + " " + LORA.format(draw.choice([0.4, 0.8, 1]))}
    if draw.random() < 0.2:
        request["batch"] = 2
    if draw.random() < 0.2:
        request["count"] = 2
    if draw.random() < 0.2:
        request |= {"init_image": png(draw.randrange(99)), "strength": 0.6}
    if draw.random() < 0.2:
        request |= {"guidance_start": 0.2, "guidance_end": 0.7}
    return request


def test_jobs_that_join_at_random_steps_are_what_each_is_alone(server, alone):
    draw = random.Random(20261127)
    asked = [any_request(draw) for _ in range(28)]
    ids = []
    for request in asked:
        ids.append(server.submit(**request))
        time.sleep(draw.choice([0, 0.01, 0.05, 0.1]))
    jobs = [server.wait(job_id) for job_id in ids]
    assert running_at_once(jobs) >= 2, "nothing joined"
    for job, request in zip(jobs, asked, strict=True):
        expect_as_alone(server, alone, job, request)
    assert server.worker()["restarts"] == 0


def test_jobs_that_join_on_an_emulated_gpu(rocm_sd, demo):
    """AMD's machine code computes calls of one and of two rows of company: each image is near the one drawn alone, in 16 bits."""
    if "emu:gfx1100" not in rocm_sd("devices").stdout:
        pytest.skip("built without kernels for gfx1100")
    asked = [{"prompt": text, "seed": 10 + i, "steps": steps, "sampler": sampler, "cfg_scale": 4, **SIZE}
             for i, (text, steps, sampler) in enumerate((("a red apple", 5, "Euler"), ("a blue car", 3, "DPM++ 2M")))]
    with Server(rocm_sd.path, "--model", demo, "--device", "emu:gfx1100", "--join", 2) as server:
        first = server.submit(**asked[0])
        server.wait(first, "running", seconds=200)
        ids = [first, server.submit(**asked[1])]
        jobs = [server.wait(job_id, seconds=300) for job_id in ids]
        assert [job["state"] for job in jobs] == ["completed"] * 2 and running_at_once(jobs) == 2
        lone = [server.wait(server.submit(**request), seconds=300) for request in asked]
        for job, other in zip(jobs, lone, strict=True):
            squares = np.mean((pixels(server, job) - pixels(server, other)) ** 2)
            assert 10 * np.log10(255**2 / max(squares, 1e-9)) >= 45


def test_a_lone_request_is_the_command_line_s_to_the_byte(server, rocm_sd, demo, tmp_path):
    """Every value of every pixel, and the parameters, before others and after them; the command line's file has its receipt, too."""
    options = {"prompt": "a red apple on a table", "seed": 12, "steps": 6, "sampler": "DPM++ 2M Karras", **SIZE}
    path = tmp_path / "own.png"
    subprocess.run([rocm_sd.path, "generate", "--model", demo, "--dtype", "f32", "-p", options["prompt"], "--seed", "12", "--steps", "6", "--sampler",
                    options["sampler"], "-W", "64", "-H", "64", "-q", "-o", path], check=True)
    for _ in range(2):
        job = server.draw(**options)
        want = Image.open(path)
        assert np.array_equal(pixels(server, job), np.asarray(want)) and job["images"][0]["parameters"] == want.text["parameters"]
        others = [server.submit(prompt=text, seed=3, steps=8, **SIZE) for text in TEXTS[:3]]
        assert all(server.wait(job_id)["state"] == "completed" for job_id in others)


def test_one_that_is_cancelled_leaves_the_others(server, alone):
    asked = [{"prompt": text, "seed": 5, "steps": steps, "sampler": "Euler a", **SIZE} for text, steps in (("a", 300), ("b", 1000), ("c", 250))]
    ids = [server.submit(**request) for request in asked]
    for job_id in ids:
        wait_for(lambda job_id=job_id: server.job(job_id)["progress"]["step"] > 3, 30, "steps of each")
    server.post(f"/v1/jobs/{ids[1]}/cancel")
    assert server.wait(ids[1], seconds=5)["state"] == "cancelled"
    assert server.job(ids[1])["images"] == []
    assert server.job(ids[0])["state"] == server.job(ids[2])["state"] == "running"
    for i in (0, 2):
        expect_as_alone(server, alone, server.wait(ids[i]), asked[i])


def test_each_has_progress_and_previews_of_its_own(server):
    ids = [server.submit(prompt=text, steps=steps, seed=1, **SIZE) for text, steps in (("a red apple", 200), ("a blue circle", 120))]
    found: dict[str, list] = {}

    def watch(job_id: str) -> None:
        found[job_id] = server.events(job_id, "?previews=true")

    threads = [threading.Thread(target=watch, args=(job_id,)) for job_id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job_id, steps in zip(ids, (200, 120), strict=True):
        totals = {event["progress"]["total"] for name, event in found[job_id] if name == "progress" and event["progress"]["stage"] == "sample"}
        assert totals == {steps}
        previews = [event for name, event in found[job_id] if name == "preview"]
        assert previews and {event["total"] for event in previews} == {steps}
        assert found[job_id][-1][0] == "completed"
    assert running_at_once([server.job(job_id) for job_id in ids]) == 2


def test_merged_loras_join_their_like_alone(server, alone):
    asked = [{"prompt": "a red apple " + lora, "seed": 4, "steps": 60, **SIZE} for lora in (LORA.format(1), "", LORA.format(1), LORA.format(0.5))]
    ids = [server.submit(**request) for request in asked]
    jobs = [server.wait(job_id) for job_id in ids]
    for job, request in zip(jobs, asked, strict=True):
        expect_as_alone(server, alone, job, request)
    assert running_at_once([jobs[0], jobs[2]]) == 2
    assert running_at_once([jobs[0], jobs[1]]) == running_at_once([jobs[1], jobs[3]]) == 1


def test_a_server_may_keep_loras_beside_the_weights(rocm_sd, demo, loras, alone):
    asked = [{"prompt": "a red apple " + lora, "seed": 4, "steps": 60, **SIZE} for lora in (LORA.format(1), "", LORA.format(0.5))]
    with serve(rocm_sd, demo, loras, "--lora-mode", "runtime", "--join", 4) as server:
        jobs = [server.wait(job_id) for job_id in [server.submit(**request) for request in asked]]
        assert running_at_once(jobs) == 3
        for job, request in zip(jobs, asked, strict=True):
            lora_mode = {"lora_mode": "runtime"} if "<" in request["prompt"] else {}
            expect_as_alone(server, alone, job, request | lora_mode)


def test_what_is_drawn_alone_waits_for_the_others_and_is_drawn(server, alone):
    """A second pass cannot join; the text of four chunks finds out when it begins beside one of three."""
    asked = [{"prompt": "tree " * 160, "seed": 1, "steps": 80, **SIZE}, {"prompt": "tree " * 240, "seed": 2, "steps": 5, **SIZE},
             {"prompt": "a", "seed": 3, "steps": 4, "hires_scale": 2, **SIZE}, {"prompt": "b", "seed": 4, "steps": 6, **SIZE}]
    ids = [server.submit(**request) for request in asked]
    jobs = [server.wait(job_id) for job_id in ids]
    for job, request in zip(jobs, asked, strict=True):
        expect_as_alone(server, alone, job, request)


def test_a_bad_one_fails_alone(server):
    bad = "[" * 40 + "a" + ":1]" * 40
    ids = [server.submit(prompt=text, seed=1, steps=100, **SIZE) for text in ("a", bad, "b")]
    jobs = [server.wait(job_id) for job_id in ids]
    assert jobs[0]["state"] == jobs[2]["state"] == "completed"
    assert jobs[1]["state"] in ("completed", "failed")


def kill_worker(server) -> None:
    os.kill(server.worker()["pid"], signal.SIGKILL)


def test_jobs_that_ran_together_are_tried_apart_when_their_worker_is_killed(server, alone):
    asked = [{"prompt": text, "seed": 9, "steps": 400, "sampler": "Euler a", **SIZE} for text in ("a", "b", "c")]
    ids = [server.submit(**request) for request in asked]
    for job_id in ids:
        wait_for(lambda job_id=job_id: server.job(job_id)["progress"]["step"] > 3, 30, "steps of each")
    restarts = server.worker()["restarts"]
    kill_worker(server)
    wait_for(lambda: server.worker()["restarts"] == restarts + 1, 10, "the restart to be noted")
    jobs = [server.wait(job_id) for job_id in ids]
    assert running_at_once(jobs) == 1
    for job, request in zip(jobs, asked, strict=True):
        expect_as_alone(server, alone, job, request)


def test_a_poison_job_ends_only_itself(server, alone):
    """The worker dies whenever the second one is at work: with the others, and by itself."""
    asked = [{"prompt": text, "seed": 9, "steps": 400, **SIZE} for text in ("a", "poison", "c")]
    ids = [server.submit(**request) for request in asked]
    for _ in range(2):
        wait_for(lambda: server.job(ids[1])["progress"]["step"] > 3 and server.worker()["pid"], 60, "the second one's steps")
        kill_worker(server)
        time.sleep(0.3)
    jobs = [server.wait(job_id) for job_id in ids]
    assert [job["state"] for job in jobs] == ["completed", "failed", "completed"]
    assert jobs[1]["error"]["type"] == "worker_died"
    for i in (0, 2):
        expect_as_alone(server, alone, jobs[i], asked[i])


def test_nobody_is_passed_for_ever(server):
    """A job of another size waits for those at work; only eight may pass it meanwhile."""
    first = server.submit(**LONG)
    server.wait(first, "running")
    other = server.submit(prompt="of another size", steps=2, width=72, height=64)
    joining = [server.submit(prompt="a", steps=2, **SIZE) for _ in range(12)]
    wait_for(lambda: sum(server.job(job_id)["state"] == "completed" for job_id in joining) == 8, 30, "eight to pass")
    time.sleep(0.5)
    assert sum(server.job(job_id)["state"] != "queued" for job_id in joining) == 8
    assert server.job(other)["state"] == "queued" and server.job(first)["state"] == "running"
    server.post(f"/v1/jobs/{first}/cancel")
    other = server.wait(other)
    jobs = [server.wait(job_id) for job_id in joining]
    assert other["state"] == "completed" and all(job["state"] == "completed" for job in jobs)
    assert sum(job["started"] > other["started"] for job in jobs) == 4


def sampled_at_once(server, batches: dict[str, int]) -> list[int]:
    """Images between their first step and their last, at each look until all jobs have ended. One that is decoded makes room."""
    counts = []
    while True:
        listed = [job for job in server.get("/v1/jobs").json()["jobs"] if job["id"] in batches]
        if all(job["state"] in FINAL for job in listed):
            return counts
        progress = [(job["progress"], batches[job["id"]]) for job in listed if job["state"] == "running"]
        counts.append(sum(batch for now, batch in progress if now["stage"] == "sample" and now["step"] < now["total"]))


def test_no_more_images_than_join_says(server):
    batches = {server.submit(prompt="a", steps=60, batch=batch, **SIZE): batch for batch in (1, 2, 1, 1, 3, 1)}
    counts = sampled_at_once(server, batches)
    assert all(server.job(job_id)["state"] == "completed" for job_id in batches)
    assert 2 <= max(counts) <= 4


def test_the_next_job_is_there_when_the_last_step_is_over(rocm_sd, demo, loras):
    """It comes to the worker while the one before is decoded, so that no step waits for it or is computed without it."""
    with serve(rocm_sd, demo, loras, "--join", 1) as server:
        ids = [server.submit(prompt="a", steps=1, width=256, height=256) for _ in range(8)]
        jobs = [server.wait(job_id) for job_id in ids]
        assert all(job["state"] == "completed" for job in jobs)
        early = sum(after["started"] < before["finished"] for before, after in zip(jobs, jobs[1:]))
        assert early >= 4, [(job["started"], job["finished"]) for job in jobs]  # others may keep the supervisor waiting


def test_skip_ends_rounds(server):
    ids = [server.submit(prompt=text, steps=1000, count=2, **SIZE) for text in ("a", "b")]
    for job_id in ids:
        wait_for(lambda job_id=job_id: server.job(job_id)["progress"]["step"] > 3, 30, "steps of each")
    server.post("/sdapi/v1/skip")
    for job_id in ids:
        wait_for(lambda job_id=job_id: server.job(job_id)["progress"]["round"] == 1, 30, "the second round")
    server.post("/sdapi/v1/interrupt")
    assert [server.wait(job_id)["state"] for job_id in ids] == ["cancelled"] * 2
