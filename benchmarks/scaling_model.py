#!/usr/bin/env python3
"""Writes docs/benchmarks/scaling_model.json: what `rocm-sd predict --gpus` makes of several GPUs. Nothing of it is measured but the
times of one H200 that the model takes from docs/benchmarks/h200_models.json.

    benchmarks/scaling_model.py --program build/cpu/apps/cli/rocm-sd      # then make docs, which puts the tables into the page

The program needs kernels for gfx1100, gfx942 and sm_90 (ROCM_SD_ARCHS): the plans choose among them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import record  # noqa: E402

BENCHMARKS = record.REPOSITORY / "docs" / "benchmarks"
SIDES = (1024, 2048, 3840)
MACHINES = {  # table -> (GPU, how many, link)
    "radeon": [("RX 7900 XTX", 2, "pcie4"), ("RX 7900 XTX", 4, "pcie4"), ("Radeon PRO W7900", 2, "pcie4")],
    "instinct": [("MI300X", 8, "xgmi")],
    "nvidia": [("H200 SXM", 2, "nvlink"), ("H200 SXM", 4, "nvlink"), ("H200 SXM", 8, "nvlink")],
}
COLUMNS = {
    "gpus": "GPUs", "size": "pixels", "split": "`--split`",
    "one": {"title": "one GPU, s", "significant": 3},
    "peer": {"title": "peer copies, s", "significant": 3}, "peer_speedup": {"title": "speed-up", "digits": 2},
    "peer_efficiency": {"title": "efficiency", "digits": 0, "unit": " %"}, "peer_share": {"title": "transfers", "digits": 0, "unit": " %"},
    "host": {"title": "through the host, s", "significant": 3}, "host_speedup": {"title": "speed-up", "digits": 2},
    "host_share": {"title": "transfers", "digits": 0, "unit": " %"},
    "sent": {"title": "sent a picture, GB", "significant": 3},
    "memory": "memory of a GPU, GB",
}


def measured_h200() -> list[str]:
    """A step and decoding on one H200 at 1024 x 1024, in ms."""
    rows = {row["work"]: row["own_ms"] for row in record.read(BENCHMARKS / "h200_models.json")["tables"]["models"]["rows"]}
    return [str(rows["SDXL UNet, 1024 x 1024"]), str(rows["VAE decoder, 1024 x 1024"])]


def predict(program: Path, gpu: str, count: int, link: str, side: int, split: str, way: str) -> dict:
    command = [str(program), "predict", "--json", "--model", "sdxl", "--gpu", gpu, "--gpus", str(count), "--link", link, "--size",
               f"{side}x{side}", "--split", split, "--way", way]
    if gpu.startswith("H200"):
        command += ["--measured", *measured_h200()]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def row(program: Path, gpu: str, count: int, link: str, side: int, split: str) -> dict:
    peer, host = (predict(program, gpu, count, link, side, split, way) for way in ("peer", "host"))
    alone, each = (peer[key] / 1e9 for key in ("one_gpu_peak_bytes", "peak_bytes"))
    return {"gpus": f"{count} x {gpu}", "size": f"{side}", "split": split, "one": peer["one_gpu_ms"] / 1e3,
            "peer": peer["request_ms"] / 1e3, "peer_speedup": peer["speedup"], "peer_efficiency": 100 * peer["efficiency"],
            "peer_share": 100 * peer["transfer_share"], "host": host["request_ms"] / 1e3, "host_speedup": host["speedup"],
            "host_share": 100 * host["transfer_share"], "sent": peer["bytes"] / 1e9,
            "memory": f"{each:.1f} of {alone:.1f} alone{'' if peer['fits'] else ', too much'}"}


def splits_of(count: int) -> tuple[str, ...]:
    return ("guidance", "rows", "displaced") if count == 2 else ("guidance-rows", "guidance-displaced", "rows", "displaced")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=record.REPOSITORY / "build" / "cpu" / "apps" / "cli" / "rocm-sd")
    parser.add_argument("--out", type=Path, default=BENCHMARKS / "scaling_model.json")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    tables = {}
    with ThreadPoolExecutor(args.jobs) as threads:
        waiting = {name: [threads.submit(row, args.program, gpu, count, link, side, split) for gpu, count, link in machines for side in SIDES
                          for split in splits_of(count)]
                   for name, machines in MACHINES.items()}
        for name, rows in waiting.items():
            tables[name] = record.table(COLUMNS, [one.result() for one in rows])
    links = [{"link": path.stem, "figure": figure, "value": of["value"], "kind": of["kind"], "source": of["source"]}
             for path in sorted((record.REPOSITORY / "share" / "links").glob("*.json"))
             for figure, of in json.loads(path.read_text(encoding="utf-8"))["figures"].items()]
    tables["links"] = record.table({"link": "link", "figure": "figure", "value": "value", "kind": "kind", "source": "source"}, links)
    record.write(args.out, record.new("model of scaling", "benchmarks/scaling_model.py", "none: modelled, nobody ran it", "",
                                      record.system(), record.commit(), None, [], tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
