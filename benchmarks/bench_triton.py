#!/usr/bin/env python3
"""Attention, group norm with SiLU and GEGLU of Stable Diffusion's shapes on a GPU: ours, Triton's kernels of rocm_sd_ops, and PyTorch's
own, alternated in one process. Prints a table; --record FILE writes the record (benchmarks/record.py), for docs/benchmarks.

    ROCM_SD_TORCH_LIBRARY=build/cpu/lib/librocm_sd_torch.so benchmarks/bench_triton.py --dtype f16 --record h200_triton.json

A row is the median of the rounds; a round replays a CUDA graph of `--calls` calls between two events, so that the host's part of a call does
not count. Errors are relative to PyTorch's own in fp32: the root mean square of the difference over that of the result.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import record  # noqa: E402
import rocm_sd_ops as ops  # noqa: E402
from clocks import ClockLog, meter_for  # noqa: E402

# Of a step with guidance: (images, heads, queries, keys, head_dim); (images, channels, height and width); (rows, width of a half).
ATTENTION = [(2, 8, 4096, 4096, 40), (2, 8, 4096, 77, 40), (2, 8, 1024, 1024, 80), (2, 8, 256, 256, 160), (2, 10, 4096, 4096, 64),
             (2, 20, 1024, 1024, 64), (2, 20, 1024, 77, 64)]
NORMS = [(2, 320, 64), (2, 640, 32), (2, 1280, 16), (2, 2560, 8), (2, 320, 128), (1, 128, 512)]
GATED = [(2 * 4096, 1280), (2 * 1024, 2560), (2 * 256, 5120), (2 * 4096, 2560), (2 * 1024, 5120)]
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def graph_of(call: Callable, calls: int) -> Callable:
    """What replays so many calls: kernels are compiled and loaded by then."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph.replay


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


def timed(call: Callable, calls: int) -> float:
    """Microseconds of a call, of which `call` makes so many."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
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
            "torch": lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v),
            "exact": lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q.float(), k.float(), v.float())}))
    for n, c, side in NORMS:
        x = torch.randn(n, c, side, side, device="cuda", dtype=dtype).contiguous(memory_format=torch.channels_last)
        gain, offset = torch.ones(c, device="cuda", dtype=dtype), torch.zeros(c, device="cuda", dtype=dtype)
        rows.append((f"group_norm_silu {n}x{c}x{side}x{side}", {
            "ours": lambda x=x, g=gain, o=offset: ops.group_norm_silu(x, 32, g, o),
            "triton": lambda x=x, g=gain, o=offset: kernels.group_norm_silu(x, 32, g, o),
            "torch": lambda x=x, g=gain, o=offset: F.silu(F.group_norm(x, 32, g, o)),
            "exact": lambda x=x, g=gain, o=offset: F.silu(F.group_norm(x.float(), 32, g.float(), o.float()))}))
    for count, width in GATED:
        x = torch.randn(count, 2 * width, device="cuda", dtype=dtype)
        rows.append((f"geglu {count}x{width}", {
            "ours": lambda x=x: ops.geglu(x), "triton": lambda x=x: kernels.geglu(x),
            "torch": lambda x=x, w=width: x[:, :w] * F.gelu(x[:, w:]),
            "exact": lambda x=x, w=width: x[:, :w].float() * F.gelu(x[:, w:].float())}))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=DTYPES, default="f16")
    parser.add_argument("--calls", type=int, default=20, help="calls of a round [20]")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each implementation [15]")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the record, docs/benchmarks/NAME.json")
    parser.add_argument("--commit", help="of the library that is measured, where it was built elsewhere")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench_triton: PyTorch finds no GPU", file=sys.stderr)
        return 4
    import triton
    from tables import table

    rows: list[dict[str, Any]] = []
    meter = meter_for("cuda")
    with torch.no_grad(), ClockLog(meter, 0.25) as log:
        for name, ways in problems(DTYPES[args.dtype]):
            want = ways.pop("exact")()
            row: dict[str, Any] = {"problem": name}
            for way, call in ways.items():
                row[f"error_{way}"] = error = relative(call(), want)
                if not error <= 0.02:
                    print(f"bench_triton: {name}: {way} is {error:.3g} from PyTorch's result in fp32", file=sys.stderr)
                    return 1
            graphs = {way: graph_of(call, args.calls) for way, call in ways.items()}
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(args.rounds + 1):
                for way, call in graphs.items():
                    times[way].append(timed(call, args.calls))
            row |= {way: statistics.median(values[1:]) for way, values in times.items()}
            rows.append(row | {"to_triton": row["triton"] / row["ours"], "to_torch": row["torch"] / row["ours"]})
    micro, ratio, error_form = {"significant": 3, "unit": " us"}, {"digits": 2, "unit": "x"}, {"significant": 2}
    made = record.table({"problem": f"{args.dtype}", "ours": micro | {"title": "ours"}, "triton": micro | {"title": "Triton"},
                         "torch": micro | {"title": "PyTorch"}, "to_triton": ratio | {"title": "Triton / ours"},
                         "to_torch": ratio | {"title": "PyTorch / ours"}, "error_ours": error_form | {"title": "error, ours"},
                         "error_triton": error_form | {"title": "Triton"}, "error_torch": error_form | {"title": "PyTorch"}}, rows)
    if args.record:
        command = f"`benchmarks/bench_triton.py --dtype {args.dtype} --calls {args.calls} --rounds {args.rounds}`"
        system = record.system(f"PyTorch {torch.__version__}", f"Triton {triton.__version__}")
        record.write(args.record, record.new("triton", command, torch.cuda.get_device_name(), (meter and meter.driver()) or record.system(), system,
                                             args.commit or record.commit(), log.summary(), ["Triton", "PyTorch"], {"kernels": made}))
    print("\n".join(table(record.rounded(made))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
