#!/usr/bin/env python3
"""Speed on this CPU: a UNet step with guidance and VAE decoding of a full-size model with random weights.

Beside each time stand its ratio to the floor (what the stage's multiplications alone would take at the speed that oneDNN
sustains, measured in the same run) and PyTorch with Diffusers (interleaved rounds, medians), and beside those the distance
of the picture from the one that PyTorch draws in fp32. Prints Markdown in the form of BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tools" / "checkpoints"))
PROMPT, SEED, SCALE = "a photo of a red cat", 7, 7.5


def run(command: list) -> tuple[str, str, int]:
    """stdout, stderr and the peak resident memory in bytes; a failure ends the benchmark with its error text."""
    words = [str(word) for word in command]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(words, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        texts = out.read(), err.read()
    if process.returncode != 0:
        raise SystemExit(f"{shlex.join(words)}\nexit code {process.returncode}\n{texts[1][-3000:]}")
    return *texts, usage.ru_maxrss * 1024


class Bench:
    def __init__(self, build: Path, work: Path, kind: str, steps: int):
        self.build, self.work, self.kind, self.steps = build, work, kind, steps
        self.model = work / kind
        work.mkdir(parents=True, exist_ok=True)

    def make_model(self) -> None:
        import diffusers
        from make_random_checkpoint import write_checkpoint

        if not (self.model / "model_index.json").is_file():
            print(f"making {self.model} ...", file=sys.stderr)
            write_checkpoint(self.kind, self.model, dtype="fp16")
        # Euler: one UNet call a step, and the same picture in both programs.
        scheduler = json.loads((self.model / "scheduler" / "scheduler_config.json").read_text())
        diffusers.EulerDiscreteScheduler.from_config(scheduler).save_config(self.model / "scheduler")
        index = json.loads((self.model / "model_index.json").read_text())
        index["scheduler"] = ["diffusers", "EulerDiscreteScheduler"]
        (self.model / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")

    def floor(self) -> dict:
        return json.loads(run([self.build / "tests" / "performance_tests" / "bench_product_floor"])[0])

    def ours(self, dtype: str, size: int, batch: int = 1) -> dict:
        image = self.work / f"ours-{dtype}-{size}{'' if batch == 1 else '-{index}'}.png"
        _, err, peak = run([
            self.build / "apps" / "cli" / "rocm-sd", "generate", "--device", "cpu", "--model", self.model, "--prompt", PROMPT,
            "--plain-prompt", "--rng", "cpu", "--seed", SEED, "--steps", self.steps, "--cfg-scale", SCALE, "-W", size,
            "-H", size, "--batch", batch, "--dtype", dtype, "--progress", "json",
            "-o", image])
        events = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
        ends = [event["seconds"] for event in events if event["stage"] == "sample"]
        steps = [b - a for a, b in zip([0.0, *ends], ends) if b > a]
        decode = max(event["seconds"] for event in events if event["stage"] == "decode")
        return {"step": min(steps), "decode": decode, "peak": peak, "image": image}

    def torch(self, dtype: str, size: int) -> dict:
        image = self.work / f"torch-{dtype}-{size}.png"
        out, _, peak = run([sys.executable, REPOSITORY / "benchmarks" / "bench_torch.py", self.model, "--dtype", dtype,
                            "--size", size, "--steps", self.steps, "--image", image])
        return json.loads(out.splitlines()[-1]) | {"peak": peak, "image": image}

    def flops(self, size: int) -> dict[str, float]:
        """Multiply-adds times two of one guided step and one decoding, counted by PyTorch on shapes alone."""
        import diffusers
        import torch
        from model_shapes import shapes
        from torch.utils.flop_counter import FlopCounterMode

        spec, side = shapes(self.kind), size // 8
        with torch.device("meta"):
            unet = diffusers.UNet2DConditionModel(**spec["unet"])
            vae = diffusers.AutoencoderKL(**spec["vae"])
            latents = torch.empty(2, spec["unet"]["in_channels"], side, side)
            states = torch.empty(2, 77, spec["unet"]["cross_attention_dim"])
            added = None
            if "projection_class_embeddings_input_dim" in spec["unet"]:
                ids = 5 if self.kind == "refiner" else 6
                pooled = spec["unet"]["projection_class_embeddings_input_dim"] - ids * 256
                added = {"text_embeds": torch.empty(2, pooled), "time_ids": torch.empty(2, ids)}
            with torch.no_grad(), FlopCounterMode(display=False) as step:
                unet(latents, torch.empty(()), states, added_cond_kwargs=added)
            with torch.no_grad(), FlopCounterMode(display=False) as decode:
                vae.decode(latents[:1, :4])
        return {"step": step.get_total_flops(), "decode": decode.get_total_flops()}


def distance(a: Path, b: Path) -> float:
    """PSNR in dB."""
    import numpy as np
    from PIL import Image

    x, y = (np.asarray(Image.open(path).convert("RGB"), dtype=np.float64) for path in (a, b))
    error = float(np.mean((x - y) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255 * 255 / error)


def circumstances(device: str, floor: dict) -> str:
    commit = subprocess.run(["git", "-C", REPOSITORY, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
    dirty = subprocess.run(["git", "-C", REPOSITORY, "status", "--porcelain"], capture_output=True, text=True).stdout
    import torch

    return (f"- Command: `make bench-cpu{' BENCH_ARGS=' + shlex.quote(' '.join(sys.argv[3:])) if sys.argv[3:] else ''}`\n"
            f"- Device: {device}\n"
            f"- System: {platform.system()} {platform.release()}, oneDNN {floor['onednn']}, PyTorch {torch.__version__}\n"
            f"- Commit: {commit.stdout.strip()}{' with uncommitted changes' if dirty else ''}\n")


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def compare(bench: Bench, floor: dict, dtypes: list[str], size: int, rounds: int, with_torch: bool) -> str:
    work = bench.flops(size)
    results: dict[tuple[str, str], list[dict]] = {}
    for number in range(rounds):
        for dtype in dtypes:
            for who in ["ours", "torch"] if with_torch else ["ours"]:
                print(f"round {number + 1}/{rounds}: {who} {dtype} ...", file=sys.stderr)
                results.setdefault((who, dtype), []).append(getattr(bench, who)(dtype, size))
    lines = [f"| {bench.kind}, {size} x {size} | type | seconds | times the floor | PyTorch, seconds | ahead of PyTorch |",
             "|---|---|---|---|---|---|"]
    for stage, title in (("step", "UNet step with guidance"), ("decode", "VAE decoding")):
        for dtype in dtypes:
            ours = median(r[stage] for r in results["ours", dtype])
            # A type that oneDNN does not multiply here has no floor of its own.
            bound = work[stage] / floor[dtype]["gflops"] / 1e9 if dtype in floor else math.nan
            row = [f"{title} ({work[stage] / 1e12:.3f} TFLOP)", dtype, f"{ours:.2f}",
                   f"{ours / bound:.2f} (floor {bound:.2f} s)" if dtype in floor else "-"]
            if with_torch:
                theirs = median(r[stage] for r in results["torch", dtype])
                row += [f"{theirs:.2f}", f"{theirs / ours:.2f}x"]
            lines.append("| " + " | ".join(row + ["-"] * (6 - len(row))) + " |")
    lines += ["", "| whole process | type | peak resident memory | PSNR against PyTorch in fp32 |", "|---|---|---|---|"]
    reference = results.get(("torch", "f32"))
    for (who, dtype), rows in results.items():
        psnr = f"{distance(rows[0]['image'], reference[0]['image']):.1f} dB" if reference else "-"
        lines.append(f"| {'rocm-sd' if who == 'ours' else 'PyTorch'} | {dtype} | {rows[0]['peak'] / 1e9:.2f} GB | {psnr} |")
    return "\n".join(lines) + "\n"


def growth(bench: Bench, dtype: str, sizes: list[int], batches: list[int]) -> str:
    lines = ["| picture | batch | type | UNet step, seconds | per picture | VAE decoding, seconds | peak memory |",
             "|---|---|---|---|---|---|---|"]
    for size, batch in [(size, 1) for size in sizes] + [(min(512, max(sizes)), batch) for batch in batches if batch > 1]:
        print(f"growth: {size} px, batch {batch} ...", file=sys.stderr)
        r = bench.ours(dtype, size, batch)
        lines.append(f"| {size} x {size} | {batch} | {dtype} | {r['step']:.2f} | {r['step'] / batch:.2f} | {r['decode']:.2f} | "
                     f"{r['peak'] / 1e9:.2f} GB |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build" / "cpu")
    parser.add_argument("--kind", default="sd15", choices=("sd15", "sd21v", "sdxl"))
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3, help="steps of each run; the fastest counts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"], choices=("f32", "bf16"))
    parser.add_argument("--sizes", type=int, nargs="*", default=[256, 512, 768, 1024], help="for the growth of time; none: off")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--no-torch", action="store_true")
    args = parser.parse_args()

    build = args.build.resolve()
    bench = Bench(build, build / "bench", args.kind, args.steps)
    bench.make_model()
    floor = bench.floor()
    speeds = ", ".join(f"{floor[dtype]['gflops']:.0f} GFLOP/s in {dtype}" for dtype in ("f32", "bf16") if dtype in floor)
    print(circumstances(f"{cpu_name()}, {floor['threads']} threads; oneDNN sustains {speeds}", floor))
    print(compare(bench, floor, args.dtypes, args.size, args.rounds, not args.no_torch), flush=True)
    if args.sizes:
        print(growth(bench, "bf16" if "bf16" in floor else "f32", args.sizes, args.batches))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
