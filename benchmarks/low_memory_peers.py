"""How benchmarks/bench_low_memory.py runs the engine, ComfyUI and stable-diffusion.cpp, and reads what they print.

A run gives {"seconds_first", "seconds", "step_ms", "own_peak_bytes", "note"}: the first image with whatever is loaded for it, the median of the
others, a step of the sampler of these, and the device memory that the program counts itself (0: it counts none).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Callable

REPOSITORY = Path(__file__).resolve().parents[1]
PROMPT, NEGATIVE, GUIDANCE, SEED = "a cat on a chair", "a dog", 7.0, 7


class Failed(Exception):
    """Why a program drew nothing, in a line."""


@dataclass
class Work:
    """What every program draws. budget: bytes of device memory, 0 for no limit; images: of one process, the first is not in the median."""

    model: str
    checkpoint: Path
    size: int
    steps: int
    budget: int
    images: int = 3


# --- what they print ---


def read_engine(text: str, steps: int) -> dict:
    """`rocm-sd generate --repeat N` on its standard error."""
    times = [dict(re.findall(r"(\w+) ([\d.]+) s", stages)) | {"all": total}
             for total, stages in re.findall(r"^time: ([\d.]+) s \((.*?)\)", text, re.MULTILINE)]
    if not times:
        raise Failed(last_line(text))
    later = times[1:] or times
    peak = max((float(gigabytes) for gigabytes in re.findall(r"^device memory: ([\d.]+) GB at most", text, re.MULTILINE)), default=0.0)
    saved = sorted(set(re.findall(r"^saving: (.*)$", text, re.MULTILINE)))
    return {"seconds_first": float(times[0]["all"]), "seconds": median(float(t["all"]) for t in later),
            "step_ms": 1e3 * median(float(t["sample"]) for t in later) / steps, "own_peak_bytes": round(1e9 * peak), "note": "; ".join(saved)}


def read_sd_cpp(text: str, steps: int) -> dict:
    """`sd-cli --batch-count N`: it samples all images, then decodes them all, so that an image is text, a sampling and a decoding."""
    def all_of(pattern: str) -> list[float]:
        return [float(seconds) for seconds in re.findall(pattern + r",? (?:taking|in) ([\d.]+)\s*s", text)]

    texts, samplings, decodings = all_of("get_learned_condition completed"), all_of("sampling completed"), all_of(r"latent \d+ decoded")
    if not samplings or not decodings:
        raise Failed(last_line(text))
    condition = texts[0] if texts else 0.0
    first = condition + samplings[0] + decodings[0]
    sampling, decoding = (median(values[1:] or values) for values in (samplings, decodings))
    return {"seconds_first": first, "seconds": condition + sampling + decoding, "step_ms": 1e3 * sampling / steps, "own_peak_bytes": 0,
            "note": f"text {condition:.2f} s, sampling {sampling:.2f} s, decoding {decoding:.2f} s"}


def tqdm_step_ms(log: str, steps: int) -> float:
    """Of the last progress bar of so many steps that ended; 0: there is none."""
    ended = re.findall(rf"\b{steps}/{steps} \[[^\]]*?, +([\d.]+)(it/s|s/it)\]", log)
    if not ended:
        return 0.0
    number, unit = float(ended[-1][0]), ended[-1][1]
    return 1e3 * number if unit == "s/it" else 1e3 / number if number else 0.0


def comfyui_seconds(entry: dict) -> float:
    """Of a prompt, from the messages of its entry in /history."""
    at = {name: content.get("timestamp") for name, content in entry["status"]["messages"]}
    if entry["status"]["status_str"] != "success" or not at.get("execution_success"):
        error = next((content for name, content in entry["status"]["messages"] if name == "execution_error"), {})
        raise Failed(" ".join(f"{error.get('node_type', '')}: {error.get('exception_message', 'the prompt failed')}".split())[:300])
    return (at["execution_success"] - at["execution_start"]) / 1e3


def last_line(text: str) -> str:
    """What says best why a program failed: its last line that names an error, else its last one."""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\[ERROR|error:|out of memory", line, re.IGNORECASE)]
    return (named or [line for line in lines if re.search(r"error|failed|abort", line, re.IGNORECASE)] or lines or ["it printed nothing"])[-1][:300]


# --- how they are run ---


def output_of(command: list[str], seconds: float, cwd: Path, log: Callable[[str], None]) -> str:
    log(shlex.join(command))
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, cwd=cwd)
    except subprocess.TimeoutExpired as late:
        log((late.stdout or b"").decode(errors="replace"))
        raise Failed(f"not ready after {seconds:.0f} s") from None
    except OSError as error:
        raise Failed(str(error)) from None
    text = done.stdout.decode(errors="replace")
    log(text)
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode}: {last_line(text)}")
    return text


def engine(program: str, device: str, options: list[str], work: Work, folder: Path, seconds: float, log: Callable[[str], None]) -> dict:
    command = [program, "generate", "-m", str(work.checkpoint), "--device", device, "-p", PROMPT, "-n", NEGATIVE, "-c", str(GUIDANCE),
               "--steps", str(work.steps), "-W", str(work.size), "-H", str(work.size), "--sampler", "euler", "--schedule", "normal", "-s", str(SEED),
               "--repeat", str(work.images), "--progress", "none", "-o", str(folder / "{index}.png"), *options]
    return read_engine(output_of(command, seconds, folder, log), work.steps)


def sd_cpp(program: str, options: list[str], work: Work, folder: Path, seconds: float, log: Callable[[str], None]) -> dict:
    command = [program, "-m", str(work.checkpoint), "-p", PROMPT, "-n", NEGATIVE, "--cfg-scale", str(GUIDANCE), "--steps", str(work.steps),
               "-W", str(work.size), "-H", str(work.size), "-s", str(SEED), "--sampling-method", "euler", "--scheduler", "discrete",
               "--batch-count", str(work.images), "-v", "-o", str(folder / "image.png"), *options]
    return read_sd_cpp(output_of(command, seconds, folder, log), work.steps)


def comfyui(checkout: Path, python: str, device: str, options: list[str], work: Work, folder: Path, seconds: float,
            log: Callable[[str], None]) -> dict:
    """The real server without a page, in a folder of its own, on the loopback address."""
    sys.path.insert(0, str(REPOSITORY / "tests" / "front_ends"))
    import run_comfyui
    from checkout_program import Failed as ServerFailed

    for name in ("models/checkpoints", "custom_nodes/rocm_sd_memory", "input", "output", "temp", "user", "page"):
        (folder / name).mkdir(parents=True)
    (folder / "page" / "index.html").write_text("<html></html>")
    (folder / "models" / "checkpoints" / work.checkpoint.name).symlink_to(work.checkpoint.resolve())
    shutil.copy(Path(__file__).with_name("comfyui_memory_node.py"), folder / "custom_nodes" / "rocm_sd_memory" / "__init__.py")
    if device == "cpu":  # for a look at the program alone: ComfyUI takes one of these words
        options = [option for option in options if option not in ("--lowvram", "--novram")]
    before = os.environ.get("ROCM_SD_BENCH_BUDGET")
    os.environ["ROCM_SD_BENCH_BUDGET"] = str(work.budget)
    try:
        server = run_comfyui.Server(checkout, python, folder, device, ["--front-end-root", str(folder / "page"), "--disable-api-nodes",
                                                                       "--database-url", "sqlite:///:memory:", *options], poll=0.02)
    finally:
        if before is None:
            del os.environ["ROCM_SD_BENCH_BUDGET"]
        else:
            os.environ["ROCM_SD_BENCH_BUDGET"] = before
    try:
        return draw_with_comfyui(server, run_comfyui.workflow(work.checkpoint.name, work.size, work.steps), work, seconds)
    except ServerFailed as error:
        raise Failed(str(error).splitlines()[0].strip(":")) from None
    finally:
        server.stop()
        log(server.log.read_text(errors="replace")[-20000:])


def draw_with_comfyui(server, graph: dict, work: Work, seconds: float) -> dict:
    end = time.monotonic() + seconds
    server.wait_until_up(seconds)
    graph["yes"]["inputs"]["text"], graph["no"]["inputs"]["text"] = PROMPT, NEGATIVE
    del graph["save"]
    graph["end"] = {"class_type": "RocmSDMemoryPeak", "inputs": {"images": ["decode", 0]}}
    times, steps, reserved, finite = [], [], [], True
    for index in range(work.images):  # another seed and another text each time: it keeps the results of nodes that read the same
        graph["sample"]["inputs"] |= {"seed": SEED + index, "cfg": GUIDANCE}
        graph["yes"]["inputs"]["text"] = f"{PROMPT} {index}"
        graph["no"]["inputs"]["text"] = f"{NEGATIVE} {index}"
        entry = server.finish(server.start(graph), max(1.0, end - time.monotonic()))
        times.append(comfyui_seconds(entry))
        reserved.append(entry["outputs"]["end"]["reserved"][0])
        finite = finite and entry["outputs"]["end"]["finite"][0]
        steps.append(tqdm_step_ms(server.log.read_text(errors="replace"), work.steps))
    log = server.log.read_text(errors="replace")
    notes = [line for word, line in (("tiled VAE", "the VAE ran out of memory and decoded in tiles"), ("loaded partially", "weights partly loaded"))
             if word in log] + ([] if finite else ["values of the image are not finite"])
    return {"seconds_first": times[0], "seconds": median(times[1:] or times), "step_ms": median(steps[1:] or steps),
            "own_peak_bytes": max(reserved), "note": "; ".join(notes)}
