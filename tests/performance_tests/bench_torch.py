#!/usr/bin/env python3
"""rocm_sd_ops on a GPU beside PyTorch: operators (distance from float64 and time), then full-size UNets with random weights:
eager, channels_last, torch.compile, and ours, each with its distance from eager.

    ROCM_SD_TORCH_LIBRARY=build/cpu/lib/librocm_sd_torch.so PYTHONPATH=python tests/performance_tests/bench_torch.py

--ops, --vae, --unets (sd15, sdxl) and --beside (likewise) choose a part; --no-compile leaves torch.compile of the plain model out,
--tuned-compile adds its mode max-autotune-no-cudagraphs. Times in ms: "call" is a call and the wait for it (the least and the median),
"host" until a call returns, "in turn" one of twenty calls without a wait between them, as a pipeline's steps come, "graph" one of ten in
a CUDA graph. --kernels lists what the GPU ran in one call of ours.

--beside: torch.compile (reduce-overhead, channels_last) and ours alternated in one process, by device events around each call, in several
call patterns: a GPU that its power limits is slower the less it rests.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from torch_times import in_turn, waited  # noqa: E402


def call_times(call: Callable, rounds: int = 20, warm: int = 3) -> list[float]:
    """Times of calls on the GPU, host included, ms, the least first."""
    for _ in range(warm):
        call()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    return sorted(times)


def timed(call: Callable, rounds: int = 20, warm: int = 3) -> float:
    """Median time of a call on the GPU, host included, ms."""
    return statistics.median(call_times(call, rounds, warm))


def event_times(call: Callable, count: int, pause: float = 0, rest: float = 0) -> list[float]:
    """Times of calls by device events, ms: after `rest` seconds and three calls that do not count, each `pause` seconds after the one
    before."""
    torch.cuda.synchronize()
    time.sleep(rest)
    return waited(call, count + 3, pause=pause)[3:]


def graph_timed(call: Callable, rounds: int = 10) -> float:
    """Time of a call inside a CUDA graph of ten, ms; nan where it cannot be captured."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(10):
                call()
    except RuntimeError as error:
        print("  no graph:", str(error).splitlines()[0][:120])
        return float("nan")
    return timed(graph.replay, rounds) / 10


def db(got: torch.Tensor, want: torch.Tensor) -> float:
    want = want.double()
    error = (got.double() - want).square().mean()
    return (10 * torch.log10((want.max() - want.min()) ** 2 / error.clamp_min(1e-300))).item()


def operator_cases(ops, dtype: torch.dtype):
    """(name, ours, PyTorch's, the same in float64) on the shapes of SD 1.5 and XL."""
    def t(*shape, scale=1.0):
        return (torch.randn(*shape, device="cuda") * scale).to(dtype)

    def nhwc(*shape):
        return t(*shape).contiguous(memory_format=torch.channels_last)

    for b, h, n, m, d in ((2, 8, 4096, 4096, 40), (2, 8, 4096, 77, 40), (2, 10, 4096, 4096, 64), (2, 20, 1024, 1024, 64)):
        q, k, v = (t(b, length, h * d).view(b, length, h, d).transpose(1, 2) for length in (n, m, m))
        yield (f"attention {h}x{n}x{m}x{d}", lambda q=q, k=k, v=v: ops.attention(q, k, v),
               lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v),
               lambda q=q, k=k, v=v: F.scaled_dot_product_attention(*(x[:, :1, :256].double() for x in (q,)),
                                                                    k[:, :1].double(), v[:, :1].double()))
    q = nhwc(1, 512, 64, 64)
    yield ("vae_attention 512x64x64", lambda: ops.vae_attention(q, q, q), lambda: plain_vae(q), None)
    for c, s in ((320, 64), (1280, 16), (640, 64)):
        x, w, bias = nhwc(2, c, s, s), torch.randn(c, device="cuda"), torch.randn(c, device="cuda")
        yield (f"group_norm_silu {c}x{s}", lambda x=x, w=w, b=bias: ops.group_norm_silu(x, 32, w, b),
               lambda x=x, w=w.to(dtype), b=bias.to(dtype): F.silu(F.group_norm(x, 32, w, b)),
               lambda x=x, w=w.double(), b=bias.double(): F.silu(F.group_norm(x.double(), 32, w, b)))
    for c, s in ((320, 64), (640, 32), (1280, 16)):
        x, f, bias = nhwc(2, c, s, s), t(c, c, 3, 3, scale=(9 * c) ** -0.5), torch.randn(c, device="cuda")
        f = f.contiguous(memory_format=torch.channels_last)
        pack, shift = ops.Pack(), t(2, c)
        yield (f"conv2d_epilogue {c}x{s}", lambda x=x, f=f, b=bias, p=pack, r=x, s=shift: ops.conv2d_epilogue(
                   x, f, b, padding=1, residual=r, channel_shift=s, pack=p.id),
               lambda x=x, f=f, b=bias.to(dtype), r=x, s=shift: F.conv2d(x, f, b, padding=1) + s[:, :, None, None] + r,
               lambda x=x, f=f, b=bias, r=x, s=shift: F.conv2d(x.double(), f.double(), b.double(), padding=1)
               + s.double()[:, :, None, None] + r.double())
    for rows, c in ((8192, 320), (2048, 1280)):
        x, w, bias = t(2, rows // 2, c), t(8 * c, c, scale=c ** -0.5), torch.randn(8 * c, device="cuda")
        yield (f"linear geglu {rows}x{c}", lambda x=x, w=w, b=bias: ops.linear_epilogue(x, w, b, geglu=True),
               lambda x=x, w=w, b=bias.to(dtype): gated(F.linear(x, w, b)),
               lambda x=x, w=w, b=bias: gated(F.linear(x.double(), w.double(), b.double())))
        r = t(2, rows // 2, c)
        yield (f"layer_norm_residual {rows}x{c}", lambda x=x, r=r, w=w: ops.layer_norm_residual(x, r, w[:c, 0], w[:c, 1])[0],
               lambda x=x, r=r, w=w: F.layer_norm(x + r, x.shape[-1:], w[:x.shape[-1], 0].contiguous(),
                                                  w[:x.shape[-1], 1].contiguous()), None)


def gated(x: torch.Tensor) -> torch.Tensor:
    value, gate = x.chunk(2, -1)
    return value * F.gelu(gate)


def plain_vae(q: torch.Tensor) -> torch.Tensor:
    x = q.flatten(2).transpose(1, 2).unsqueeze(1)
    return F.scaled_dot_product_attention(x, x, x).squeeze(1).transpose(1, 2).reshape(q.shape)


def bench_operators(ops) -> None:
    print(f"{'operator':<46}{'ours':>9}{'pytorch':>9}{'ours':>9}{'pytorch':>9}{'dB':>8}{'dB pt':>8}")
    print(f"{'':<46}{'eager ms':>18}{'graph ms':>18}")
    for name, ours, theirs, exact in operator_cases(ops, torch.float16):
        try:
            y, z = ours(), theirs()
            want = exact() if exact else theirs().double()
            part = tuple(slice(0, n) for n in want.shape)
            row = (timed(ours), timed(theirs), graph_timed(ours), graph_timed(theirs), db(y[part], want), db(z[part], want))
            print(f"{name:<46}" + "".join(f"{v:>9.3f}" for v in row[:4]) + "".join(f"{v:>8.1f}" for v in row[4:]), flush=True)
        except RuntimeError as error:
            print(f"{name:<46} failed: {str(error).splitlines()[0][:160]}", flush=True)
    for line in ops.fallbacks():
        print("fallback:", line[:200])


UNETS = {
    "sd15": dict(sample_size=64, cross_attention_dim=768, attention_head_dim=8),
    "sdxl": dict(sample_size=128, cross_attention_dim=2048, block_out_channels=(320, 640, 1280),
                 attention_head_dim=(5, 10, 20), down_block_types=("DownBlock2D", *("CrossAttnDownBlock2D",) * 2),
                 up_block_types=(*("CrossAttnUpBlock2D",) * 2, "UpBlock2D"), transformer_layers_per_block=(1, 2, 10),
                 use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=256,
                 projection_class_embeddings_input_dim=2816),
}


def random_unet(kind: str) -> tuple[torch.nn.Module, Callable]:
    """A UNet in f16 with random weights, and a call of it, or of a model like it, with guidance's batch of two."""
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    with torch.device("cuda"):
        unet = UNet2DConditionModel(**UNETS[kind]).half().eval().requires_grad_(False)
    size = UNETS[kind]["sample_size"]
    inputs = dict(sample=torch.randn(2, 4, size, size, device="cuda").half(), timestep=torch.tensor(500, device="cuda"),
                  encoder_hidden_states=torch.randn(2, 77, UNETS[kind]["cross_attention_dim"], device="cuda").half())
    if kind == "sdxl":
        inputs["added_cond_kwargs"] = dict(text_embeds=torch.randn(2, 1280, device="cuda").half(),
                                           time_ids=torch.full((2, 6), 1024.0, device="cuda").half())
    return unet, lambda model=unet: model(**inputs, return_dict=False)[0]


CALL_PATTERNS = (
    ("15 calls", dict(count=15)),
    ("150 calls", dict(count=150)),
    ("20 calls after 3 s of rest", dict(count=20, rest=3)),
    ("25 calls, 40 ms after each", dict(count=25, pause=0.04)),
)


def bench_beside(ops, kind: str, rounds: int = 3) -> None:
    unet, call = random_unet(kind)
    unet.to(memory_format=torch.channels_last)
    with torch.no_grad():
        want = call()
        compiled = torch.compile(copy.deepcopy(unet), mode="reduce-overhead", fullgraph=True)
        theirs = lambda: call(compiled)  # noqa: E731
        distance = db(theirs(), want)
        ops.optimize_sd_model(unet, "performance")
        print(f"{kind}: {distance:.1f} dB torch.compile, {db(call(), want):.1f} dB ours; the engine declined: {ops.engine_reasons(unet)}")
        for _ in range(rounds):
            for name, pattern in CALL_PATTERNS:
                a, b = (statistics.median(event_times(one, **pattern)) for one in (theirs, call))
                print(f"{kind:<6}{name:<30}torch.compile {a:>7.2f}, ours {b:>7.2f}: x{a / b:.3f}", flush=True)
            a, b = in_turn(theirs), in_turn(call)
            print(f"{kind:<6}{'20 that nobody waits for':<30}torch.compile {a:>7.2f}, ours {b:>7.2f}: x{a / b:.3f}", flush=True)
    torch._dynamo.reset()


def bench_unet(ops, kind: str, with_compile: bool, tuned_compile: bool, kernels: bool) -> None:
    unet, call = random_unet(kind)
    with torch.no_grad():
        want = call()
        base = None

        def row(name: str, function: Callable, warm: int = 3) -> None:
            nonlocal base
            begin = time.perf_counter()
            try:
                distance = db(function(), want)
                calls = call_times(function, 25, warm)
                host, turn, graph = host_time(function), in_turn(function), graph_timed(function, 5)
            except Exception as error:  # noqa: BLE001 (a row that fails must not hide the others)
                print(f"{kind:<6}{name:<30} failed: {type(error).__name__}: {str(error).splitlines()[0][:150]}", flush=True)
                return
            ms = statistics.median(calls)
            base = base or ms
            print(f"{kind:<6}{name:<36}{calls[0]:>7.2f}{ms:>7.2f} x{base / ms:<5.2f}{host:>7.2f}{turn:>8.2f}{graph:>7.2f}"
                  f"{distance:>8.1f} dB ({time.perf_counter() - begin:.0f} s)", flush=True)

        print(f"{'':<42}{'call':>7}{'median':>7}{'':<6}{'host':>7}{'in turn':>8}{'graph':>7}", flush=True)
        row("eager", call)
        unet.to(memory_format=torch.channels_last)
        row("eager channels_last", call)
        for mode in [*([None] if with_compile else []), *(["max-autotune-no-cudagraphs"] if tuned_compile else [])]:
            row(f"torch.compile {mode or 'channels_last'}", lambda m=torch.compile(unet, mode=mode): call(m))
            torch._dynamo.reset()
        ops.optimize_sd_model(unet, "performance", engine=False)
        row("optimize_sd_model, layers", call)
        ops.optimize_sd_model(unet, "performance")
        row("optimize_sd_model", call)
        print(f"{kind:<6}the engine declined: {ops.engine_reasons(unet)}")
        if kernels:
            print_kernels(call)
        row("optimize_sd_model + compile", lambda m=torch.compile(unet, fullgraph=True): call(m))
        print(f"{kind:<6}the engine declined: {ops.engine_reasons(unet)}")
        torch._dynamo.reset()
        for line in ops.fallbacks():
            print("fallback:", line[:200])


def host_time(call: Callable, rounds: int = 10) -> float:
    """Median time until a call returns, while the GPU works on, ms."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    torch.cuda.synchronize()
    return statistics.median(times)


def print_kernels(call: Callable, most: int = 14) -> None:
    """What the GPU did in one call: from the host's first step to the first kernel, kernels, and the time between them."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        call()
        torch.cuda.synchronize()
    events = profiler.events()
    gpu = sorted((e for e in events if e.device_type == DeviceType.CUDA), key=lambda e: e.time_range.start)
    if not gpu:
        print("  the profiler saw no kernels")
        return
    first = min(e.time_range.start for e in events if e.device_type == DeviceType.CPU)
    busy = sum(e.time_range.elapsed_us() for e in gpu)
    span = max(e.time_range.end for e in gpu) - gpu[0].time_range.start
    print(f"  {len(gpu)} kernels and copies, {busy / 1e3:.3f} ms in a span of {span / 1e3:.3f} ms, which begins "
          f"{(gpu[0].time_range.start - first) / 1e3:.3f} ms after the call")
    by_name: dict[str, list[float]] = {}
    for e in gpu:
        by_name.setdefault(e.name, []).append(e.time_range.elapsed_us())
    for name, times in sorted(by_name.items(), key=lambda kv: -sum(kv[1]))[:most]:
        print(f"  {len(times):>4} x {sum(times) / len(times):>8.1f} us  {name[:100]}")
    ends = [(b.time_range.start - a.time_range.end, a.name, b.name) for a, b in zip(gpu, gpu[1:])]
    for gap, before, after in sorted(ends, reverse=True)[:4]:
        print(f"  {gap:>6.1f} us between {before[:50]} and {after[:50]}")


def bench_vae(ops, kernels: bool) -> None:
    """The decoder of SD 1.x's VAE, 512 x 512."""
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    with torch.device("cuda"):
        vae = AutoencoderKL(block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=4,
                            down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4)
        vae = vae.half().eval().requires_grad_(False)
        latent = torch.randn(1, 4, 64, 64).half()
    with torch.no_grad():
        call = lambda: vae.decode(latent, return_dict=False)[0]  # noqa: E731
        want = call()
        for name, change in (("eager", lambda: None), ("optimize_sd_model, layers", lambda: ops.optimize_sd_model(vae, engine=False)),
                             ("optimize_sd_model", lambda: ops.optimize_sd_model(vae))):
            change()
            got = call()
            print(f"vae   {name:<30}{timed(call, 10):>9.2f} ms {db(got, want):>7.1f} dB  {ops.engine_reasons(vae)}", flush=True)
            if kernels and change:
                print_kernels(call, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", action="store_true")
    parser.add_argument("--unets", nargs="*", choices=UNETS, default=[])
    parser.add_argument("--beside", nargs="*", choices=UNETS, default=[])
    parser.add_argument("--vae", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--tuned-compile", action="store_true")
    parser.add_argument("--kernels", action="store_true")
    args = parser.parse_args()
    import rocm_sd_ops as ops

    print(torch.__version__, torch.cuda.get_device_name(), ops.ROCmSDBackend("cuda").capabilities(), sep="; ", flush=True)
    if args.ops:
        with torch.no_grad():
            bench_operators(ops)
    if args.vae:
        bench_vae(ops, args.kernels)
    for kind in args.beside:
        bench_beside(ops, kind)
    for kind in args.unets:
        bench_unet(ops, kind, not args.no_compile, args.tuned_compile, args.kernels)


if __name__ == "__main__":
    main()
