#!/usr/bin/env python3
"""An image in less device memory than the model's weights: rocm-sd, ComfyUI and stable-diffusion.cpp within the same budget, from the same files.

    benchmarks/bench_low_memory.py --sdxl out/sdxl.safetensors --sd15 out/sd15.safetensors --out out/low-memory.json
    ROCM_SD_PEER_COMFYUI=../ComfyUI ROCM_SD_PEER_SDCPP=../stable-diffusion.cpp/build/bin/sd-cli benchmarks/bench_low_memory.py ...

Files in the LDM layout, which all three read (tools/checkpoints/make_random_checkpoint.py makes such files). Euler's method, guidance 7, SDXL at
1024 x 1024 in 3 GiB, SD 1.5 at 512 x 512 in 1 GiB, and without a budget. A peer that no variable names is skipped, and said so:

    ROCM_SD_PEER_COMFYUI          ComfyUI's folder (ROCM_SD_PEER_COMFYUI_PYTHON: a Python with its requirements)
    ROCM_SD_PEER_SDCPP            stable-diffusion.cpp's sd-cli, built for this GPU

A line of JSON a run as it ends; --out is rewritten with each. "peak_bytes" is read from the device and counts all alike: with the driver's
context ("context_bytes") and kernels. "own_peak_bytes" is what the program counts of its own allocations. rocm-sd keeps to the
budget by itself; ComfyUI's allocator is limited to it (comfyui_memory_node.py); stable-diffusion.cpp is told it (--max-vram), and nothing limits it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Optional

import device_memory
import low_memory_peers as peers
import record
from low_memory_peers import Failed, Work

REPOSITORY = record.REPOSITORY
WORKS = {"sdxl": (1024, "3G"), "sd15": (512, "1G")}  # size, budget
PROGRAMS = ("rocm-sd", "sd.cpp", "comfyui")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# {gib} and {budget} stand for the budget. The first of each is without one, the second is what each offers for least memory.
MODES = {
    "rocm-sd": ["", "--vram-budget {budget}"],
    "sd.cpp": ["--eager-load --diffusion-fa",
               "--eager-load --diffusion-fa --offload-to-cpu --vae-tiling --max-vram {gib} --stream-layers",
               "--eager-load --diffusion-fa --offload-to-cpu --vae-tiling --max-vram {gib}",
               "--eager-load --diffusion-fa --offload-to-cpu --vae-tiling"],
    "comfyui": ["", "--lowvram --reserve-vram 0", "--novram --reserve-vram 0", "--lowvram --reserve-vram 0 --async-offload"],
}
COLUMNS = {"model": "model", "program": "program", "options": "options", "budget_gb": {"title": "budget, GB", "digits": 2},
           "seconds": {"title": "seconds an image", "significant": 3}, "step_ms": {"title": "ms a step", "significant": 3},
           "seconds_first": {"title": "seconds, first image", "significant": 3},
           "peak_gb": {"title": "device memory, GB", "digits": 2}, "own_peak_gb": {"title": "own count, GB", "digits": 2}, "note": "note", "failed": "failed"}


def bytes_of(text: str) -> int:
    """"3G" and the like, in powers of two, as --vram-budget reads them."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if unit not in UNITS:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of bytes, or one with K, M or G")
    try:
        return round(float(number) * UNITS[unit])
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of bytes, or one with K, M or G") from None


def options_of(mode: str, budget: int) -> list[str]:
    return shlex.split(mode.format(budget=budget, gib=f"{budget / UNITS['G']:g}"))


def missing_peers(environment: dict[str, str], engine: Path) -> dict[str, str]:
    """Of each program that can not be run, why."""
    missing = {}
    if not engine.is_file():
        missing["rocm-sd"] = f"{engine} is not built (--program)"
    comfyui, sd_cpp = environment.get("ROCM_SD_PEER_COMFYUI", ""), environment.get("ROCM_SD_PEER_SDCPP", "")
    if not comfyui:
        missing["comfyui"] = "ROCM_SD_PEER_COMFYUI is not set: a ComfyUI folder"
    elif not (Path(comfyui) / "main.py").is_file():
        missing["comfyui"] = f"ROCM_SD_PEER_COMFYUI={comfyui} has no main.py"
    if not sd_cpp:
        missing["sd.cpp"] = "ROCM_SD_PEER_SDCPP is not set: stable-diffusion.cpp's sd-cli"
    elif not os.access(sd_cpp, os.X_OK) or not Path(sd_cpp).is_file():
        missing["sd.cpp"] = f"ROCM_SD_PEER_SDCPP={sd_cpp} is no program"
    return missing


def run_one(args: argparse.Namespace, program: str, mode: str, work: Work, seconds: float, read: Optional[device_memory.Reader]) -> dict:
    def log(text: str) -> None:
        if args.log:
            with args.log.open("a") as file:
                file.write(f"--- {program} {mode} {work.model}\n{text}\n")

    options = options_of(mode, work.budget)
    row = {"model": work.model, "size": work.size, "steps": work.steps, "program": program, "options": " ".join(options),
           "budget_bytes": work.budget, "images": work.images,
           "load_average": os.getloadavg()[0]}  # of others: a busy machine is seen
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rocm-sd-low-memory-") as folder, device_memory.Peak(read) as peak:
        try:
            if program == "rocm-sd":
                row |= peers.engine(str(args.program.resolve()), args.device, options, work, Path(folder), seconds, log)
            elif program == "sd.cpp":
                row |= peers.sd_cpp(os.path.abspath(os.environ["ROCM_SD_PEER_SDCPP"]), options, work, Path(folder), seconds, log)
            else:
                row |= peers.comfyui(Path(os.environ["ROCM_SD_PEER_COMFYUI"]).resolve(), os.environ.get("ROCM_SD_PEER_COMFYUI_PYTHON", sys.executable),
                                     args.device, options, work, Path(folder), seconds, log)
        except Failed as error:
            row["failed"] = str(error)
    return row | {"peak_bytes": peak.bytes, "process_seconds": round(time.monotonic() - begin, 1)}


def plan(args: argparse.Namespace, missing: dict[str, str]) -> list[tuple[str, str, Work]]:
    """Program by program; what matters most comes first, in case the time is short."""
    runs = []
    for program in args.programs:
        free, least, *others = MODES[program]
        for model in WORKS:
            checkpoint = getattr(args, model)
            if program in missing or checkpoint is None:
                continue
            budget = getattr(args, f"{model}_budget")
            for mode, limit in [(least, budget), (free, 0), *((mode, budget) for mode in others)]:
                runs.append((program, mode, Work(model, checkpoint, args.size or WORKS[model][0], args.steps, limit, args.images)))
    return runs


def measure(args: argparse.Namespace, report: Callable[[list[dict], list[str], int, str], None]) -> int:
    read, source = device_memory.reader()
    if args.device == "cpu":
        read, source = None, "none: a CPU"
    context = device_memory.cuda_context_bytes(read) if source != "amdgpu" else 0
    missing = missing_peers(dict(os.environ), args.program)
    left_out = [f"{program}: {missing[program]}" for program in args.programs if program in missing]
    for line in left_out:
        print(f"skipped: {line}", file=sys.stderr)
    rows: list[dict] = []
    end = time.monotonic() + args.seconds if args.seconds else float("inf")
    for program, mode, work in plan(args, missing):
        left = end - time.monotonic()
        if left < 5:
            left_out.append(f"{program} {' '.join(options_of(mode, work.budget))} {work.model}: no time was left")
            print(f"skipped: {left_out[-1]}", file=sys.stderr)
            continue
        device_memory.settled(read)
        rows.append(run_one(args, program, mode, work, min(left, args.limit), read) | {"context_bytes": context})
        print(json.dumps(record.rounded(rows[-1])), flush=True)
        report(rows, left_out, context, source)
    report(rows, left_out, context, source)
    return 0 if rows and not all("failed" in row for row in rows) else 1


def described_device() -> tuple[str, str]:
    """Name and driver of the first GPU where nvidia-smi or amdgpu tell."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0"], capture_output=True, text=True)
        name, driver = (part.strip() for part in done.stdout.strip().split(","))
        return name, driver
    except (OSError, ValueError):
        pass
    names = sorted(Path("/sys/class/drm").glob("card*/device/product_name"))
    return (names[0].read_text().strip() if names else record.cpu_name()), "unknown"


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for model, (size, budget) in WORKS.items():
        parser.add_argument(f"--{model}", type=Path, metavar="FILE", help=f"a single file; drawn at {size} x {size}")
        parser.add_argument(f"--{model}-budget", type=bytes_of, default=bytes_of(budget), metavar="BYTES", help=f"[{budget}]")
    parser.add_argument("--program", type=Path, default=REPOSITORY / "build" / "cpu" / "apps" / "cli" / "rocm-sd", help="rocm-sd [that of build/cpu]")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--device", default="auto", help="rocm-sd's, and cpu for ComfyUI's CPU [auto]")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", type=int, default=0, help="of all models [the model's own]")
    parser.add_argument("--images", type=int, default=3, help="of a process; the first is told apart [3]")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="of one run [600]")
    parser.add_argument("--seconds", type=float, default=0, help="start nothing after so long; 0: no limit [0]")
    parser.add_argument("--out", type=Path, help="a record (benchmarks/record.py)")
    parser.add_argument("--log", type=Path, help="append what the programs print")
    args = parser.parse_args(words)
    args.words = words
    if args.sd15 is None and args.sdxl is None:
        parser.error("expected --sd15 FILE, --sdxl FILE or both")
    return args


def main() -> int:
    args = parse(sys.argv[1:])
    device, driver = described_device()

    def report(rows: list[dict], left_out: list[str], context: int, source: str) -> None:
        if args.out:
            in_gb = [row | {f"{key}_gb": 1e-9 * row.get(f"{key}_bytes", 0) for key in ("budget", "peak", "own_peak")} for row in rows]
            shown = [{key: row[key] for key in COLUMNS if row.get(key)} for row in in_gb]
            data = record.new("low_memory", shlex.join(["benchmarks/bench_low_memory.py", *args.words]), device, driver, record.system(),
                              record.commit(), None, [p for p in args.programs if p != "rocm-sd"], {"runs": record.table(COLUMNS, shown)}, left_out)
            record.write(args.out, data | {"context_bytes": context, "memory_from": source, "rows": rows})

    return measure(args, report)


if __name__ == "__main__":
    raise SystemExit(main())
