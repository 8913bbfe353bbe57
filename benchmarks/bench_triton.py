#!/usr/bin/env python3
"""Attention, group norm with SiLU and GEGLU of Stable Diffusion's shapes on a GPU: ours, Triton's kernels of rocm_sd_ops, and PyTorch's
own, alternated in one process. Prints a table; --json writes every number.

    ROCM_SD_TORCH_LIBRARY=build/cpu/lib/librocm_sd_torch.so benchmarks/bench_triton.py --dtype f16 --json out.json

A row is the median of the rounds; a round times `--calls` calls between two events, after warm-up calls that compile and load kernels.
Results are compared with PyTorch's own first, so that a speed-up cannot hide a wrong result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import rocm_sd_ops as ops  # noqa: E402

# Of a step with guidance: (images, heads, queries, keys, head_dim); (images, channels, height and width); (rows, width of a half).
ATTENTION = [(2, 8, 4096, 4096, 40), (2, 8, 4096, 77, 40), (2, 8, 1024, 1024, 80), (2, 8, 256, 256, 160), (2, 10, 4096, 4096, 64),
             (2, 20, 1024, 1024, 64), (2, 20, 1024, 77, 64)]
NORMS = [(2, 320, 64), (2, 640, 32), (2, 1280, 16), (2, 2560, 8), (2, 320, 128), (1, 128, 512)]
GATED = [(2 * 4096, 1280), (2 * 1024, 2560), (2 * 256, 5120), (2 * 4096, 2560), (2 * 1024, 5120)]
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def timed(call: Callable, calls: int) -> float:
    """Microseconds of a call."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / calls


def problems(dtype: torch.dtype) -> list[tuple[str, dict[str, Callable]]]:
    kernels = ops.triton_kernels
    rows: list[tuple[str, dict[str, Callable]]] = []
    for b, h, n, m, d in ATTENTION:
        q, k, v = (torch.randn(b, size, h, d, device="cuda", dtype=dtype).transpose(1, 2) for size in (n, m, m))
        rows.append((f"attention {b}x{h} {n}x{m} d{d}", {
            "ours": lambda q=q, k=k, v=v: ops.attention(q, k, v), "triton": lambda q=q, k=k, v=v: kernels.attention(q, k, v),
            "torch": lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v)}))
    for n, c, side in NORMS:
        x = torch.randn(n, c, side, side, device="cuda", dtype=dtype).contiguous(memory_format=torch.channels_last)
        gain, offset = torch.ones(c, device="cuda", dtype=dtype), torch.zeros(c, device="cuda", dtype=dtype)
        rows.append((f"group_norm_silu {n}x{c}x{side}x{side}", {
            "ours": lambda x=x, g=gain, o=offset: ops.group_norm_silu(x, 32, g, o),
            "triton": lambda x=x, g=gain, o=offset: kernels.group_norm_silu(x, 32, g, o),
            "torch": lambda x=x, g=gain, o=offset: F.silu(F.group_norm(x, 32, g, o))}))
    for count, width in GATED:
        x = torch.randn(count, 2 * width, device="cuda", dtype=dtype)
        rows.append((f"geglu {count}x{width}", {
            "ours": lambda x=x: ops.geglu(x), "triton": lambda x=x: kernels.geglu(x),
            "torch": lambda x=x, w=width: x[:, :w] * F.gelu(x[:, w:])}))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=DTYPES, default="f16")
    parser.add_argument("--calls", type=int, default=20, help="calls of a round [20]")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each implementation [15]")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench_triton: PyTorch finds no GPU", file=sys.stderr)
        return 4
    import triton

    found: dict[str, Any] = {"command": " ".join(sys.argv), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
                             "triton": triton.__version__, "hip": torch.version.hip, "dtype": args.dtype, "rows": []}
    print(f"{found['device']}, PyTorch {torch.__version__}, Triton {triton.__version__}, {args.dtype}\n")
    print("| problem | ours, us | Triton, us | PyTorch, us | ours / Triton | ours / PyTorch |\n|---|---|---|---|---|---|")
    with torch.no_grad():
        for name, ways in problems(DTYPES[args.dtype]):
            want = ways["torch"]()
            for way in ("ours", "triton"):
                error = (ways[way]().double() - want.double()).abs().max().item()
                if not error <= 0.05 * max(want.abs().max().item(), 1.0):
                    print(f"bench_triton: {name}: {way} is {error:.3g} from PyTorch's result", file=sys.stderr)
                    return 1
            for call in ways.values():
                timed(call, args.calls)
            times = {way: [] for way in ways}
            for _ in range(args.rounds):
                for way, call in ways.items():
                    times[way].append(timed(call, args.calls))
            median = {way: statistics.median(values) for way, values in times.items()}
            found["rows"].append({"problem": name, "median_us": median, "least_us": {w: min(t) for w, t in times.items()}})
            print(f"| {name} | {median['ours']:.1f} | {median['triton']:.1f} | {median['torch']:.1f} "
                  f"| {median['ours'] / median['triton']:.2f} | {median['ours'] / median['torch']:.2f} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
