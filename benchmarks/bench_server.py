#!/usr/bin/env python3
"""What a request to `rocm-sd serve` costs beside the same image on the command line: one client, one image at a time.

Both draw the same prompt with the same options, in turns of --turn images; the first image of each turn is left out. `generate
--repeat` encodes an image while it draws the next, so it has two times: from the end of an image to the end of the next, and, as a
lone image takes it, from the end of an image to the next one's file. A time of the server lies between a request and its whole answer.
Prints a table with medians, and with the median of what each turn's median is to both of the command line in the same turn, since the
speed of a machine drifts; --json writes all times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def start_server(program: str, args: argparse.Namespace, *more: str) -> tuple[subprocess.Popen, str]:
    server = subprocess.Popen([program, "serve", "--model", args.model, "--device", args.device, "--port", "0", "--no-page", *more],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = server.stdout.readline().strip().rstrip("/")
    while True:
        try:
            urllib.request.urlopen(url + "/ready", timeout=10)
            return server, url
        except OSError:
            time.sleep(0.1)


def ask(url: str, body: dict) -> bytes:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as response:
        return response.read()


def own_api(url: str, args: argparse.Namespace, seed: int) -> float:
    """Submits, waits for the events' end, fetches the file."""
    begin = time.perf_counter()
    job = json.loads(ask(url + "/v1/jobs", {"prompt": args.prompt, "steps": args.steps, "seed": seed}))
    with urllib.request.urlopen(f"{url}/v1/jobs/{job['id']}/events", timeout=600) as events:
        events.read()
    with urllib.request.urlopen(f"{url}/v1/jobs/{job['id']}/images/0", timeout=60) as image:
        image.read()
    return time.perf_counter() - begin


def web_ui(url: str, args: argparse.Namespace, seed: int) -> float:
    begin = time.perf_counter()
    ask(url + "/sdapi/v1/txt2img", {"prompt": args.prompt, "steps": args.steps, "seed": seed})
    return time.perf_counter() - begin


def command_line(program: str, args: argparse.Namespace, seed: int) -> tuple[list[float], list[float]]:
    """Of all images of a run but the first: seconds from the end of the one before to its own end, and to its file."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.Popen([program, "generate", "--model", args.model, "--device", args.device, "-p", args.prompt, "--steps",
                                str(args.steps), "--seed", str(seed), "--repeat", str(args.turn + 1), "--progress", "json",
                                "-o", f"{folder}/{{index}}.png"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        ends: list[float] = []
        reader = threading.Thread(target=lambda: ends.extend(time.perf_counter() for line in run.stderr if '"stage":"decode"' in line))
        reader.start()
        files: list[float] = []
        while len(files) <= args.turn:
            ended = run.poll() is not None
            if os.path.exists(f"{folder}/{len(files) + 1}.png"):  # it gets this name when it is whole
                files.append(time.perf_counter())
            elif ended:
                break
            else:
                time.sleep(0.0002)
        reader.join()
        if run.wait() != 0 or not len(ends) == len(files) == args.turn + 1:
            raise SystemExit(f"bench_server: generate ended with {run.returncode}, told of {len(ends)} images and wrote {len(files)}")
    return [b - a for a, b in zip(ends, ends[1:])], [file - end for end, file in zip(ends, files[1:])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build" / "cpu")
    parser.add_argument("--model", default=str(REPOSITORY / "models" / "demo"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompt", default="a red apple on a white background")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turn", type=int, default=20, help="images of each kind in a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    program = str(args.build / "apps" / "cli" / "rocm-sd")
    times: dict[str, list[float]] = {"command line": [], "command line, to the file": [], "/v1/jobs": [], "/sdapi/v1/txt2img": []}
    server, url = start_server(program, args)
    try:
        for turn in range(args.turns):
            drawn, written = command_line(program, args, turn * 1000)
            times["command line"] += drawn
            times["command line, to the file"] += written
            for name, draw in (("/v1/jobs", own_api), ("/sdapi/v1/txt2img", web_ui)):
                draw(url, args, 1)
                times[name] += [draw(url, args, turn * 1000 + i) for i in range(args.turn)]
    finally:
        server.terminate()
        server.wait()
    print("| | median | to the command line | to its file | least |\n|---|---|---|---|---|")
    turns = {name: [statistics.median(all_times[i:i + args.turn]) for i in range(0, len(all_times), args.turn)] for name, all_times in times.items()}
    for name, all_times in times.items():
        line, file = (statistics.median(own / base for own, base in zip(turns[name], turns[of]))
                      for of in ("command line", "command line, to the file"))
        print(f"| {name} | {1e3 * statistics.median(all_times):.1f} ms | {line:.3f} | {file:.3f} | {1e3 * min(all_times):.1f} ms |")
    if args.json:
        args.json.write_text(json.dumps(times))


if __name__ == "__main__":
    main()
