"""Jobs that outlive the server: ended, or killed at random moments, with a journal; none is lost, none is drawn twice but one that ran."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time

import numpy as np
import pytest
from serving import Server, wait_for

KILLS = int(os.environ.get("ROCM_SD_TEST_KILLS", "4"))  # drawn by hand with 40
FAST = {"steps": 3, "width": 64, "height": 64, "sampler": "Euler"}


@pytest.fixture
def serve(rocm_sd, repository, tmp_path):
    def start(*more, **how) -> Server:
        return Server(rocm_sd.path, "--model", repository / "models" / "demo", "--journal", tmp_path / "jobs.sqlite", "--queue-per-client", "64",
                      *more, **how)

    return start


def kill(server: Server) -> None:
    worker = server.worker()["pid"]
    server.process.kill()
    server.process.wait(10)
    wait_for(lambda: not worker or not os.path.exists(f"/proc/{worker}") or b"Z" in open(f"/proc/{worker}/stat", "rb").read().split()[2], 20,
             "the worker to end")


def test_killed_at_random_moments(serve):
    """Every job that was accepted ends once, with its own image; a run counts as one more only where a kill ended it."""
    chance = random.Random(7)
    jobs: dict[str, int] = {}
    done: dict[str, str] = {}
    for round_ in range(KILLS + 1):
        last = round_ == KILLS
        with serve(ready=last) as server:
            for _ in range(0 if last else 3):
                seed = len(jobs)
                jobs[server.submit(prompt=f"picture {seed}", seed=seed, **FAST)] = seed
            if last:
                for job_id in jobs:
                    server.wait(job_id)
            else:
                time.sleep(chance.uniform(0, 1.5))
            for job_id in jobs:
                job = server.job(job_id)
                if done.setdefault(job_id, str(job["finished"])) != str(job["finished"]):
                    assert done[job_id] == "None", (job_id, done[job_id], job)  # what had ended is not drawn again
                    done[job_id] = str(job["finished"])
            if not last:
                kill(server)
                continue
            for job_id, seed in jobs.items():
                job = server.job(job_id)
                assert job["state"] == "completed" and [one["seed"] for one in job["images"]] == [seed], job
                assert server.image(job).info["parameters"].startswith(f"picture {seed}\n")
            alone = server.draw(prompt="picture 1", seed=1, **FAST)
            of_seed = next(job_id for job_id, seed in jobs.items() if seed == 1)
            assert np.array_equal(np.asarray(server.image(alone)), np.asarray(server.image(server.job(of_seed))))


def test_an_end_puts_back_what_runs(serve):
    """SIGTERM: the running job and the queue go on with the next server, whose results and cancels are kept, too."""
    long = {"prompt": "long", "steps": 1000, "width": 64, "height": 64, "sampler": "Euler"}
    with serve("--grace", "0", "--join", "1") as server:
        result = server.draw(prompt="first", seed=1, **FAST)
        running, queued, cancelled = server.submit(**long), server.submit(prompt="queued", **FAST), server.submit(prompt="cancelled", **FAST)
        server.wait(running, "running")
        server.post(f"/v1/jobs/{cancelled}/cancel")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
    with serve("--join", "1") as server:
        assert server.job(cancelled)["state"] == "cancelled"
        assert server.image(server.job(result["id"])).size == (64, 64)
        server.wait(running, "running")
        assert server.job(queued)["state"] == "queued"
        server.post(f"/v1/jobs/{running}/cancel")
        assert server.wait(queued)["state"] == "completed"


def test_results_expire_from_the_journal(serve):
    with serve("--keep", "1") as server:
        job = server.draw(prompt="a cup", **FAST)
        wait_for(lambda: server.get(f"/v1/jobs/{job['id']}").status_code == 410, 10, "the result to be dropped")
    with serve() as server:
        assert server.get("/v1/jobs").json()["jobs"] == []


def test_awaited_requests_end_with_their_connection(serve):
    """A1111's clients wait for their answer; without them nobody would ask for the image."""
    with serve() as server:
        body = {"prompt": "a", "steps": 2, "width": 64, "height": 64}
        assert server.post("/sdapi/v1/txt2img", body).status_code == 200
    with serve() as server:
        assert server.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.bad_input
def test_journals_that_cannot_be(serve, rocm_sd, repository, tmp_path):
    model = repository / "models" / "demo"
    with serve(ready=False):
        assert "another server has it open" in rocm_sd("serve", "--model", model, "--port", 0, "--journal", tmp_path / "jobs.sqlite", code=2).stderr
    (tmp_path / "text").write_text("no database, however long this text may be: " * 20)
    assert "expected a journal" in rocm_sd("serve", "--model", model, "--port", 0, "--journal", tmp_path / "text", code=3).stderr
    assert "journal" in rocm_sd("serve", "--model", model, "--port", 0, "--journal", tmp_path / "none" / "x", code=3).stderr


def test_a_model_that_is_no_longer_offered(serve, rocm_sd, repository, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(repository / "models" / "demo", other)
    with serve("--model", other, "--grace", "0") as server:
        first = server.submit(prompt="long", steps=1000, width=64, height=64)
        job_id = server.submit(prompt="a", model="other", **FAST)
        server.wait(first, "running")
    with serve() as server:
        server.post(f"/v1/jobs/{first}/cancel")
        job = server.wait(job_id)
        assert job["state"] == "failed" and 'no "other"' in job["error"]["message"]
        assert server.draw(prompt="a", **FAST)["images"]
