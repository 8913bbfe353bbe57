#!/usr/bin/env python3
"""Times of the kernels by the time model, by which AMD's kernels are chosen untuned: "time_model" of share/cost/<family>.json.

  model_costs.py --card "RX 7900 XTX" --target gfx1100 --rocm-sd build/cpu/apps/cli/rocm-sd --write
      plays each 16-bit configuration of the target's products, convolutions and attention on the card four times: at two depths,
      and with one workgroup to each compute unit as well as with twice as many as fit. A workgroup's time is taken as linear in
      its steps. Some minutes. Without --write it prints what it would write.

Kernels are played in f16 on grids that fill every compute unit alike; bf16's are taken to be as fast. Nothing here is measured
(docs/explanation/time-model.md). `ctest -R ModelledCosts` holds the files against the tables of configurations.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = {"gfx9": "cdna3", "gfx11": "rdna3", "gfx12": "rdna4"}
HEADS = (40, 64, 80, 160, 512)  # of Stable Diffusion
FIELDS = ("alone_ns", "alone_step_ns", "full_ns", "full_step_ns")


@dataclass
class Kernel:
    """A configuration, by its choice's name and its kernel's; and problems that it makes `groups` workgroups of."""
    op: str
    choice: str
    name: str
    rows: int        # of the output, that a workgroup makes
    columns: int
    step: int        # of the depth (channels of a tap, keys), that a turn of the main loop takes
    depths: tuple[int, int]

    def steps(self, depth: int) -> int:
        taps = 9 if self.op == "conv2d" and self.choice != "winograd" else 1
        return math.ceil(depth * taps / self.step)

    def problem(self, groups: int, depth: int) -> str:
        if self.op == "attention":
            heads, head_dim = (1 if groups < 8 or self.columns > 256 else 8), self.columns
            return f"attention f16 [1,{heads},{groups // heads * self.rows}x{depth},{head_dim}]"
        # About square, so that neither operand is read more often than in a layer; what the rows leave over is less than any card's units.
        across = max(1, min(groups, 16, round(math.sqrt(groups * self.rows / self.columns))))
        rows, outputs = groups // across * self.rows, across * self.columns
        if self.op == "geglu":
            return f"linear {rows}x{outputs}x{depth} f16 bias geglu"  # values and gates
        if self.op == "linear":
            return f"linear {rows}x{outputs}x{depth} f16 bias"
        return f"conv2d 1x{rows // 32}x32x{depth}->{outputs} 3x3 s1 p1,1,1,1 f16 bias"


class Player:
    def __init__(self, args: argparse.Namespace, machine: dict) -> None:
        self.program, self.card, self.target = args.rocm_sd, args.card, args.target
        self.launch_ns = machine["launch_us"]["value"] * 1e3

    def bench(self, *args: str, times: Path | None = None) -> dict:
        env = os.environ | {"ROCM_SD_TUNING": "off", "OMP_NUM_THREADS": "1"}
        if times:
            env |= {"ROCM_SD_EMULATOR_TIME": str(times), "ROCM_SD_EMULATOR_MACHINE": self.card}
        done = subprocess.run([self.program, "bench", "--device", f"emu:{self.target}", *args, "--json", "-", "--quiet"], env=env,
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"model_costs: {' '.join(args)}: {done.stderr}")
        return json.loads(done.stdout)

    def choices(self, problem: str) -> list[str]:
        listed = self.bench("--mode", "list", "--impl", "gpu", problem)["rows"]
        return [row["choice"].removeprefix("gpu ") for row in listed]

    def launch(self, kernel: Kernel, problem: str) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            times = Path(folder) / "times.jsonl"
            self.bench("--impl", f"=gpu {kernel.choice}", problem, times=times)
            lines = [json.loads(line) for line in times.read_text().splitlines()]
        return next(line for line in lines if line["kernel"] == kernel.name)

    def time(self, kernel: Kernel) -> dict:
        """The entry of a kernel: ns outside its loop and of a step, alone and with all workgroups that fit."""
        near, far = kernel.depths
        first = self.launch(kernel, kernel.problem(64, near))
        units, resident = first["processors"], first["resident_groups"]
        entry = {"resident": resident}
        for each, rounds, (start, step) in ((1, 1, FIELDS[:2]), (2 * resident, 2, FIELDS[2:])):
            ns = []
            for depth in kernel.depths:
                line = self.launch(kernel, kernel.problem(each * units, depth))
                if line["groups_of_busiest"] != each:
                    sys.exit(f"model_costs: {kernel.name}: {line['groups_of_busiest']} workgroups to a processor, wanted {each}")
                ns.append((line["microseconds"] * 1e3 - self.launch_ns) / rounds)
            slope = (ns[1] - ns[0]) / (kernel.steps(far) - kernel.steps(near))
            entry |= {start: round(max(0.0, ns[0] - slope * kernel.steps(near)), 1), step: round(slope, 2)}
        return entry


def kernels_of(player: Player) -> list[Kernel]:
    out = []
    probes = {"linear": "linear 4096x1280x640 f16 bias", "geglu": "linear 4096x2560x640 f16 bias geglu",
              "conv2d": "conv2d 2x64x64x320->320 3x3 s1 p1,1,1,1 f16 bias"}
    for op, probe in probes.items():
        for choice in player.choices(probe):
            tile = re.fullmatch(r"(\d+)x(\d+)x(\d+)(l?)(/1)?", choice)
            if choice == "winograd":  # the shape is fused/winograd.hpp's: 2x2 pixels a tile
                tiles = 64 if player.target.startswith("gfx9") else 32
                out.append(Kernel(op, choice, "conv_winograd_f16", 4 * tiles, 64, 32, (128, 512)))
            elif tile:
                kind = {"linear": "gemm", "geglu": "geglu", "conv2d": "conv"}[op] + ("_to_lds" if tile[4] else "")
                name = f"{kind}_f16_{tile[1]}x{tile[2]}x{tile[3]}"
                rows, columns, step = (int(tile[i]) for i in (1, 2, 3))
                out.append(Kernel(op, choice, name, rows, columns, step, (64, 256) if op == "conv2d" else (640, 1920)))
    for head_dim in HEADS:
        for choice in player.choices(f"attention f16 [1,8,4096x1024,{head_dim}]"):
            large = re.fullmatch(r"flash_large_d_f16_d\d+_q(\d+)_k(\d+)_.*", choice)
            waves = re.fullmatch(r"flash_f16_d\d+_q(\d+)_k(\d+)_w(\d+)_s\d+", choice)
            if not (large or waves):
                continue
            rows = int(large[1]) if large else int(waves[1]) * int(waves[3])
            step = int((large or waves)[2])
            if "/" not in choice:
                out.append(Kernel("attention", choice, choice, rows, head_dim, step, (512, 2048)))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rocm-sd", type=Path, default=ROOT / "build/cpu/apps/cli/rocm-sd")
    parser.add_argument("--card", required=True)
    parser.add_argument("--target", required=True, help="whose kernels are played")
    parser.add_argument("--only", default="", help="kernels whose name matches this expression; the others' entries stay")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    machine = json.loads((ROOT / "share/machines" / (re.sub("[^a-z0-9]+", "-", args.card.lower()) + ".json")).read_text())["figures"]
    player = Player(args, machine)
    kernels = [k for k in kernels_of(player) if re.search(args.only, k.name)]
    with ThreadPoolExecutor(args.jobs) as pool:
        times = dict(zip((k.name for k in kernels), pool.map(player.time, kernels), strict=True))
    family = next(name for prefix, name in FAMILIES.items() if args.target.startswith(prefix))
    path = ROOT / "share/cost" / f"{family}.json"
    model = json.loads(path.read_text())
    source = f"time_model_{args.target}"
    model["sources"][source] = {
        "origin": "modelled", "date": datetime.now(UTC).date().isoformat(),
        "note": f"the time model of {args.card}, the kernels of {args.target}, f16 (tools/report/model_costs.py); nothing was measured"}
    targets = model.setdefault("time_model", {})
    old = targets.get(args.target, {}).get("kernels", {}) if args.only else {}
    targets[args.target] = {"source": source, "launch_ns": player.launch_ns, "memory_bytes_per_ns": machine["memory_gb"]["value"],
                            "kernels": dict(sorted((old | times).items()))}
    if not args.write:
        print(json.dumps(targets[args.target], indent=1))
        return
    # One kernel a line.
    text = json.dumps(model, indent=1)
    text = re.sub(r'\{\n\s+("resident": [^{}]*?)\n\s+\}', lambda m: "{" + re.sub(r"\s*\n\s*", " ", m[1]) + "}", text)
    path.write_text(text + "\n")
    print(f"{path.relative_to(ROOT)}: {len(times)} kernels of {args.target}")


if __name__ == "__main__":
    main()
