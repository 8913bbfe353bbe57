#!/usr/bin/env python3
"""Speed on this CPU: a UNet step with guidance and VAE decoding of a full-size model with random weights.

Beside each time stand its ratio to the floor (what the stage's multiplications alone would take at the speed that oneDNN
sustains, measured in the same run) and PyTorch with Diffusers (interleaved rounds, medians), and beside those the distance
of the picture from the one that PyTorch draws in fp32. Prints Markdown in the form of BENCHMARKS.md; --record FILE writes the record
(benchmarks/record.py) after each part, for docs/benchmarks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tools" / "checkpoints"), str(REPOSITORY / "benchmarks")]
import record  # noqa: E402
from clocks import ClockLog, meter_for  # noqa: E402
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

    from picture_quality import psnr

    return psnr(*(np.asarray(Image.open(path).convert("RGB")) / 255 for path in (a, b)))


def torch_version(without: bool) -> list[str]:
    if without:
        return []
    import torch

    return [f"PyTorch {torch.__version__}"]


def compare(bench: Bench, floor: dict, dtypes: list[str], size: int, rounds: int, with_torch: bool) -> dict:
    """The tables "stages" and "process" of a record."""
    work = bench.flops(size)
    results: dict[tuple[str, str], list[dict]] = {}
    for number in range(rounds):
        for dtype in dtypes:
            for who in ["ours", "torch"] if with_torch else ["ours"]:
                print(f"round {number + 1}/{rounds}: {who} {dtype} ...", file=sys.stderr)
                results.setdefault((who, dtype), []).append(getattr(bench, who)(dtype, size))
    stages = []
    for stage, title in (("step", "UNet step with guidance"), ("decode", "VAE decoding")):
        for dtype in dtypes:
            ours = median(r[stage] for r in results["ours", dtype])
            row = {"work": f"{bench.kind}, {size} x {size}: {title} ({work[stage] / 1e12:.3f} TFLOP)", "type": dtype, "seconds": ours}
            if dtype in floor:  # a type that oneDNN does not multiply here has no floor of its own
                bound = work[stage] / floor[dtype]["gflops"] / 1e9
                row |= {"floor": bound, "times_floor": ours / bound}
            if with_torch:
                theirs = median(r[stage] for r in results["torch", dtype])
                row |= {"torch": theirs, "ahead": theirs / ours}
            stages.append(row)
    reference, process = results.get(("torch", "f32")), []
    for (who, dtype), rows in results.items():
        row = {"program": "rocm-sd" if who == "ours" else "PyTorch", "type": dtype, "peak": rows[0]["peak"] / 1e9}
        if reference and (who, dtype) != ("torch", "f32"):
            row["psnr"] = distance(rows[0]["image"], reference[0]["image"])
        process.append({key: value for key, value in row.items() if value != math.inf})
    seconds = {"digits": 2, "unit": " s"}
    return {"stages": record.table({"work": "stage", "type": "type", "seconds": seconds | {"title": "`rocm-sd`"}, "floor": seconds | {"title": "floor"},
                                    "times_floor": {"title": "times the floor", "digits": 2}, "torch": seconds | {"title": "PyTorch"},
                                    "ahead": {"title": "PyTorch / `rocm-sd`", "digits": 2, "unit": "x"}}, stages),
            "process": record.table({"program": "whole process", "type": "type",
                                     "peak": {"title": "peak resident memory", "digits": 2, "unit": " GB"},
                                     "psnr": {"title": "PSNR to PyTorch in fp32", "digits": 1, "unit": " dB"}}, process)}


def growth(bench: Bench, dtype: str, sizes: list[int], batches: list[int]) -> dict:
    """The table "sizes" of a record."""
    rows = []
    for size, batch in [(size, 1) for size in sizes] + [(min(512, max(sizes)), batch) for batch in batches if batch > 1]:
        print(f"growth: {size} px, batch {batch} ...", file=sys.stderr)
        r = bench.ours(dtype, size, batch)
        rows.append({"image": f"{size} x {size}", "batch": batch, "type": dtype, "step": r["step"], "each": r["step"] / batch,
                     "decode": r["decode"], "peak": r["peak"] / 1e9})
    seconds = {"digits": 2, "unit": " s"}
    return {"sizes": record.table({"image": "image", "batch": "batch", "type": "type", "step": seconds | {"title": "UNet step"},
                                   "each": seconds | {"title": "per image"}, "decode": seconds | {"title": "VAE decoding"},
                                   "peak": {"title": "peak memory", "digits": 2, "unit": " GB"}}, rows)}


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
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the record, docs/benchmarks/NAME.json")
    parser.add_argument("--commit", help="of the programs that are measured, where they were built elsewhere")
    args = parser.parse_args()

    build = args.build.resolve()
    bench = Bench(build, build / "bench", args.kind, args.steps)
    bench.make_model()
    floor = bench.floor()
    speeds = ", ".join(f"{floor[dtype]['gflops']:.0f} GFLOP/s in {dtype}" for dtype in ("f32", "bf16") if dtype in floor)
    from tables import facts, table

    about_files = {"--record", "--build", "--commit"}  # and not about what is measured
    words = [word for i, word in enumerate(sys.argv[1:]) if not about_files & set(sys.argv[i:i + 2])]
    command = "make bench-cpu" + (f" BENCH_ARGS={shlex.quote(shlex.join(words))}" if words else "")
    tables: dict = {}
    peers = [] if args.no_torch else ["PyTorch with Diffusers, channels_last"]

    def keep(log: ClockLog, more: dict) -> None:
        tables.update(more)
        data = record.new("cpu", f"`{command}`", f"{record.cpu_name()}, {floor['threads']} threads; oneDNN sustains {speeds}", record.system(),
                          record.system(f"oneDNN {floor['onednn']}", *torch_version(args.no_torch)), args.commit or record.commit(), log.summary(), peers, tables)
        if args.record:
            record.write(args.record, data)
        if len(tables) == len(more):
            print("\n".join(facts(data)) + "\n")
        for name in more:
            print("\n".join(table(record.rounded(more[name]))) + "\n", flush=True)

    with ClockLog(meter_for("cpu"), 1.0) as log:
        keep(log, compare(bench, floor, args.dtypes, args.size, args.rounds, not args.no_torch))
        if args.sizes:
            keep(log, growth(bench, "bf16" if "bf16" in floor else "f32", args.sizes, args.batches))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
