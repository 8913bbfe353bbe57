#!/usr/bin/env python3
"""`rocm-sd serve` under load, beside the command line on the same machine, in turns.

- Throughput: --clients clients that each wait for one image and ask for the next, with prompts and seeds of their own,
  beside `generate --batch B` for each of --batches. Images per second, and processor seconds of an image, which other load
  on the machine disturbs less; medians of the turns. The first batch, or the first image of each client, is left out.
- Cancel to idle: from the request that cancels the only job to a worker that waits, beside the median step.
- /health while the queue is full: median and 99th percentile.

Prints tables; --json writes all numbers.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from bench_server import REPOSITORY, start_server


class Client:
    """One connection that is kept."""

    def __init__(self, url: str):
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=600)

    def ask(self, path: str, body: dict | None = None) -> dict:
        headers = {"Content-Type": "application/json"}
        self.connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{path}: {answer.status} {text[:200]!r}")
        return json.loads(text)


def request_of(args: argparse.Namespace, client: int, number: int) -> dict:
    return {"prompt": f"{args.prompt}, {client}", "steps": args.steps, "seed": 1000 * client + number, "width": args.size, "height": args.size}


def processor_seconds(*processes: int) -> float:
    """Of the processes so far, on all cores."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def offline(program: str, args: argparse.Namespace, batch: int) -> tuple[float, float]:
    """Images per second of batches one after the other, and processor seconds of an image; without the first batch."""
    batches = max(2, args.images // batch) + 1
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.Popen([program, "generate", "--model", args.model, "--device", args.device, "-p", args.prompt, "--steps", str(args.steps),
                                "-W", str(args.size), "-H", str(args.size), "--batch", str(batch), "--seed", "1", "--repeat", str(batches), "-q",
                                "-o", f"{folder}/{{index}}.png"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        times, begun = [], 0.0
        for _ in run.stdout:
            times.append(time.perf_counter())
            if len(times) == batch:
                begun = processor_seconds(run.pid)
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        if run.returncode != 0:
            raise SystemExit("bench_server_load: generate failed")
    images = len(times) - batch
    return images / (times[-1] - times[batch - 1]), (usage.ru_utime + usage.ru_stime - begun) / images


def online(url: str, args: argparse.Namespace, turn: int, supervisor: int) -> tuple[float, float, list[float]]:
    """Images per second while all clients are at work, processor seconds of an image, and how long each took its client.

    From an image's end to another's, as offline(): what is unfinished at the beginning and at the end is alike. The first two images
    of each client, on the average, are left out.
    """
    each = max(2, args.images // args.clients) + 2
    processes = (supervisor, Client(url).ask("/ready")["workers"][0]["pid"])
    lock = threading.Lock()
    ends: list[tuple[float, float, float]] = []  # when, how long it took, processor seconds so far
    over: list[float] = []

    def client(number: int) -> None:
        connection = Client(url)
        for i in range(each):
            begin = time.perf_counter()
            connection.ask("/sdapi/v1/txt2img", request_of(args, number, each * turn + i))
            with lock:
                ends.append((time.perf_counter(), time.perf_counter() - begin, processor_seconds(*processes)))
        with lock:
            over.append(ends[-1][0])

    threads = [threading.Thread(target=client, args=(i,)) for i in range(args.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = [end for end in ends[2 * args.clients:] if end[0] <= over[0]]
    seconds = counted[-1][0] - counted[0][0]
    return (len(counted) - 1) / seconds, (counted[-1][2] - counted[0][2]) / (len(counted) - 1), [took for _, took, _ in counted]


def cancel_times(url: str, args: argparse.Namespace) -> tuple[list[float], list[float]]:
    """From each cancel to an idle worker, and the seconds of a step at that time."""
    client, times, steps = Client(url), [], []
    for i in range(args.cancels):
        job = client.ask("/v1/jobs", request_of(args, 1, i) | {"steps": 1000})["id"]
        while (progress := client.ask(f"/v1/jobs/{job}")["progress"])["step"] < 20:
            time.sleep(0.01)
        time.sleep(0.003 * (i % 20))  # anywhere within a step
        steps.append(progress["seconds"] / progress["step"])
        begin = time.perf_counter()
        client.ask(f"/v1/jobs/{job}/cancel", {})
        while client.ask("/ready")["workers"][0]["state"] != "idle":
            time.sleep(0.001)
        times.append(time.perf_counter() - begin)
    return times, steps


def health_times(url: str, args: argparse.Namespace) -> list[float]:
    client, times, jobs = Client(url), [], []
    try:
        while True:
            jobs.append(client.ask("/v1/jobs", request_of(args, 2, len(jobs)) | {"steps": 1000})["id"])
    except RuntimeError as full:
        if "429" not in str(full):
            raise
    for _ in range(args.health):
        begin = time.perf_counter()
        client.ask("/health")
        times.append(time.perf_counter() - begin)
    for job in jobs:
        client.ask(f"/v1/jobs/{job}/cancel", {})
    return sorted(times)


def percentile(times: list[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build" / "cpu")
    parser.add_argument("--model", default=str(REPOSITORY / "models" / "demo"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompt", default="a red apple on a white background")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", type=int, default=128, help="width and height")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--join", type=int, default=8, help="the server's --join")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--images", type=int, default=64, help="of each way in a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cancels", type=int, default=40)
    parser.add_argument("--health", type=int, default=1000, help="requests of /health")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    program = str(args.build / "apps" / "cli" / "rocm-sd")
    served = f"{args.clients} clients"
    rates: dict[str, list[float]] = {name: [] for name in [f"generate --batch {b}" for b in args.batches] + [served]}
    processor: dict[str, list[float]] = {name: [] for name in rates}
    taken: list[float] = []
    server, url = start_server(program, args, "--join", str(args.join), "--queue-per-client", "64")
    try:
        for turn in range(args.turns):
            for batch in args.batches:
                rate, seconds = offline(program, args, batch)
                rates[f"generate --batch {batch}"].append(rate)
                processor[f"generate --batch {batch}"].append(seconds)
            rate, seconds, times = online(url, args, turn, server.pid)
            rates[served].append(rate)
            processor[served].append(seconds)
            taken += times
        cancels, steps = cancel_times(url, args)
        health = health_times(url, args)
    finally:
        server.terminate()
        server.wait()
    rate = {name: statistics.median(values) for name, values in rates.items()}
    seconds = {name: statistics.median(values) for name, values in processor.items()}
    best_rate = max(value for name, value in rate.items() if name != served)
    best_seconds = min(value for name, value in seconds.items() if name != served)
    print("| | images/s | to the best batch | processor s of an image | the best batch's to it |\n|---|---|---|---|---|")
    for name in rates:
        print(f"| {name} | {rate[name]:.2f} | {rate[name] / best_rate:.3f} | {seconds[name]:.3f} | {best_seconds / seconds[name]:.3f} |")
    step = statistics.median(steps)
    print(f"\n{served}: an image takes its client {statistics.median(taken):.2f} s (median), {percentile(taken, 0.99):.2f} s (99 %)")
    print(f"cancel to idle: median {1e3 * statistics.median(cancels):.1f} ms, 99 % {1e3 * percentile(cancels, 0.99):.1f} ms; "
          f"a step takes {1e3 * step:.1f} ms")
    print(f"/health with a full queue: median {1e3 * statistics.median(health):.2f} ms, 99 % {1e3 * percentile(health, 0.99):.2f} ms")
    if args.json:
        args.json.write_text(json.dumps({"images_per_second": rates, "processor_seconds": processor, "seconds_of_image": taken, "cancel": cancels, "step": steps, "health": health}))


if __name__ == "__main__":
    main()
