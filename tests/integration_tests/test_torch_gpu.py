"""The operators on a GPU (CUDA or ROCm) as PyTorch's streams, graphs and allocator use them (test_torch_gpu_modes.py: autograd, the
compiler and autocast): pytest -m gpu.

Needs PyTorch alone. ROCM_SD_TORCH_LIBRARY names the library, else the tested build's; kernels for the GPU's target lie beside it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

pytestmark = pytest.mark.gpu
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ROUNDING = {torch.float32: 2.0 ** -24, torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}
MANY = 1 << 22


@pytest.fixture(scope="module")
def ops(build_dir):
    library = build_dir / "lib" / "librocm_sd_torch.so"
    if "ROCM_SD_TORCH_LIBRARY" not in os.environ:
        if not library.is_file():
            pytest.fail(f"no {library}: run `make torch-ops`, or name the library in ROCM_SD_TORCH_LIBRARY", pytrace=False)
        os.environ["ROCM_SD_TORCH_LIBRARY"] = str(library)
    if not torch.cuda.is_available():
        pytest.fail("PyTorch finds no GPU", pytrace=False)
    import rocm_sd_ops

    told = rocm_sd_ops.ROCmSDBackend("cuda").capabilities()
    if not told.kernels:
        pytest.fail(f"our kernels do not run on {told.name}: {told.reason}", pytrace=False)
    return rocm_sd_ops


def randn(*shape, dtype=torch.float32, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(7919 * seed + sum(shape))
    return (torch.randn(*shape, generator=generator) * scale).to(dtype).cuda()


def cases(dtype):
    """(name, function of tensors, plain function of the same, tensors, length of the sums) of every operator."""
    import rocm_sd_ops as ops
    from rocm_sd_ops import _plain

    def r(*shape, seed=0, scale=1.0):
        return randn(*shape, dtype=dtype, seed=seed, scale=scale)

    sums = {"sample_scale": 0.9, "output_scale": -0.4}
    return [
        ("attention", ops.attention, _plain.attention, [r(2, 4, 100, 40), r(2, 4, 77, 40, seed=1), r(2, 4, 77, 40, seed=2)], 117),
        ("attention 160", ops.attention, _plain.attention, [r(1, 2, 64, 160), r(1, 2, 64, 160, seed=1), r(1, 2, 64, 160, seed=2)], 224),
        ("vae_attention", ops.vae_attention, _plain.vae_attention, [r(1, 64, 8, 8), r(1, 64, 8, 8, seed=1), r(1, 64, 8, 8, seed=2)], 128),
        ("group_norm_silu", lambda x, w, b: ops.group_norm_silu(x, 32, w, b), lambda x, w, b: _plain.group_norm_silu(x, 32, w, b),
         [r(2, 320, 16, 16), r(320, seed=1), r(320, seed=2)], 2560),
        ("layer_norm", ops.layer_norm, _plain.layer_norm, [r(2, 77, 320), r(320, seed=1), r(320, seed=2)], 320),
        ("layer_norm_residual", lambda *a: ops.layer_norm_residual(*a)[0], lambda *a: _plain.layer_norm_residual(*a)[0],
         [r(2, 77, 320), r(2, 77, 320, seed=3), r(320, seed=1), r(320, seed=2)], 320),
        ("geglu", ops.geglu, _plain.geglu, [r(2, 77, 640)], 1),
        ("linear_epilogue", lambda x, w, b, s: ops.linear_epilogue(x, w, b, residual=s),
         lambda x, w, b, s: _plain.linear_epilogue(x, w, b, s),
         [r(2, 77, 320), r(640, 320, seed=1, scale=0.06), r(640, seed=2), r(2, 77, 640, seed=3)], 320),
        ("linear geglu", lambda x, w, b: ops.linear_epilogue(x, w, b, geglu=True),
         lambda x, w, b: _plain.linear_epilogue(x, w, b, gated=True), [r(2, 77, 320), r(640, 320, seed=1, scale=0.06), r(640, seed=2)], 320),
        ("conv2d_epilogue", lambda x, w, b, s: ops.conv2d_epilogue(x, w, b, padding=1, channel_shift=s, act="silu"),
         lambda x, w, b, s: _plain.conv2d_epilogue(x, w, b, padding=[1] * 4, channel_shift=s, act="silu"),
         [r(2, 64, 16, 12), r(128, 64, 3, 3, seed=1, scale=0.04), r(128, seed=2), r(2, 128, seed=3)], 576),
        ("upsample2x_conv", ops.upsample2x_conv, _plain.upsample2x_conv,
         [r(2, 64, 8, 6), r(64, 64, 3, 3, seed=1, scale=0.04), r(64, seed=2)], 576),
        ("scheduler_step", lambda s, o, n: ops.scheduler_step(s, o, **sums, guidance=5.0, noise=n, noise_scale=0.1),
         lambda s, o, n: _plain.scheduler_step(s, o, **sums, guidance=5.0, noise=n, noise_scale=0.1),
         [r(1, 4, 64, 64), r(2, 4, 64, 64, seed=1), r(1, 4, 64, 64, seed=2)], 4),
    ]


NAMES = ["attention", "attention 160", "vae_attention", "group_norm_silu", "layer_norm", "layer_norm_residual", "geglu",
         "linear_epilogue", "linear geglu", "conv2d_epilogue", "upsample2x_conv", "scheduler_step"]


def case(name, dtype=torch.float16):
    """(ours, plain, tensors, terms)"""
    found = next(c for c in cases(dtype) if c[0] == name)
    return found[1:]


def near(got, want, terms):
    """As torch_ops.assert_near; products of f32 may be TF32's where a kernel says so, which none of ours does."""
    assert got.shape == want.shape and not got.isnan().any()
    size = max(want.abs().max().item(), 1.0)
    bound = size * (8 * ROUNDING[got.dtype] + 8 * terms ** 0.5 * ROUNDING[torch.float32])
    error = (got.double() - want).abs().max().item()
    assert error <= bound, f"{error:.3g} of {size:.3g}, at most {bound:.3g}"


def exact(plain, tensors):
    return plain(*(t.double().cpu() for t in tensors)).cuda()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_numbers(ops, name, dtype):
    ours, plain, tensors, terms = case(name, dtype)
    before = len(ops.fallbacks())
    with torch.no_grad():
        got = ours(*tensors)
        near(got, exact(plain, tensors), terms * (4 if dtype != torch.float32 and "attention" in name else 1))
        assert torch.equal(got, ours(*tensors))  # the same bits again
    assert len(ops.fallbacks()) == before, "PyTorch's own ran"


@pytest.mark.parametrize("name", NAMES)
def test_side_streams(ops, name):
    """What a stream of the caller's makes is ready for what follows on it, and other streams are not waited for."""
    ours, _, tensors, _ = case(name)
    with torch.no_grad():
        want = ours(*tensors)
        torch.cuda.synchronize()
        sources = [t.clone() for t in tensors]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            held = [torch.full_like(t, float("nan")) for t in tensors]
            torch.cuda._sleep(20_000_000)  # some 10 ms
            for h, s in zip(held, sources):
                h.copy_(s)
            got = ours(*held)
            for h in held:
                h.zero_()  # after the operator, on its stream
        assert not stream.query(), "the operator waited for its stream"
        stream.synchronize()
        assert torch.equal(got, want)


def test_order_across_streams(ops):
    """A chain over two streams, each waiting for the other by events alone."""
    ours, _, (x, gain, offset), _ = case("group_norm_silu")
    with torch.no_grad():
        want = x
        for _ in range(4):
            want = ours(want, gain, offset)
        torch.cuda.synchronize()
        streams, got = [torch.cuda.Stream(), torch.cuda.Stream()], x
        streams[0].wait_stream(torch.cuda.current_stream())
        for i in range(4):
            here, before = streams[i % 2], streams[(i + 1) % 2]
            here.wait_stream(before)
            with torch.cuda.stream(here):
                torch.cuda._sleep(3_000_000)
                got.record_stream(here)
                got = ours(got, gain, offset)
        torch.cuda.current_stream().wait_stream(streams[1])
        assert torch.equal(got, want)


@pytest.mark.parametrize("name", NAMES)
def test_graphs(ops, name):
    """Captured after a warm-up, replayed with other values in the same memory."""
    ours, _, tensors, _ = case(name)
    with torch.no_grad():
        others = [t.flip(0) if t.ndim > 1 else t * 0.5 for t in tensors]
        wants = [ours(*tensors), ours(*others)]
        held = [t.clone() for t in tensors]
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            ours(*held)
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = ours(*held)
            second = ours(*held)  # memory of the first call's temporaries may be used again
        for values, want in zip((others, tensors), reversed(wants)):
            for h, v in zip(held, values):
                h.copy_(v)
            made.fill_(float("nan"))
            graph.replay()
            assert torch.equal(made, want) and torch.equal(second, want)


def test_a_pack_in_a_graph(ops):
    """The packed weight is laid out before the capture and lives as long as the Pack."""
    x, weight = randn(1, 64, 8, 8, dtype=torch.float16), randn(64, 64, 3, 3, dtype=torch.float16, seed=1, scale=0.04)
    pack = ops.Pack()
    with torch.no_grad():
        want = ops.conv2d_epilogue(x, weight, padding=1)
        ops.conv2d_epilogue(x, weight, padding=1, pack=pack.id)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = ops.conv2d_epilogue(x, weight, padding=1, pack=pack.id)
        junk = [torch.full((MANY,), float("nan"), device="cuda") for _ in range(4)]
        graph.replay()
        assert torch.equal(made, want) and len(junk) == 4


@pytest.mark.parametrize("name", NAMES)
def test_freed_memory_is_used_again(ops, name):
    """Operands and results that are dropped at once: the allocator gives their memory to the next call of the same stream while the
    GPU is still behind, and nothing is read after it was overwritten."""
    ours, _, tensors, _ = case(name)
    with torch.no_grad():
        want = ours(*tensors)
        torch.cuda.synchronize()
        results = []
        torch.cuda._sleep(20_000_000)
        for _ in range(8):
            got = ours(*(t.clone() for t in tensors))
            results.append((got != want).any())
            del got
            torch.full((tensors[0].numel(),), float("nan"), device="cuda", dtype=tensors[0].dtype)
        assert not torch.stack(results).any().item()


def test_record_stream(ops):
    """An operand of another stream that is freed while the operator waits: its memory is kept for as long as record_stream says."""
    ours, _, (x, gain, offset), _ = case("group_norm_silu")
    with torch.no_grad():
        want = ours(x, gain, offset)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        held = x.clone()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            got = ours(held, gain, offset)
            held.record_stream(side)
        del held
        junk = [torch.full_like(x, float("nan")) for _ in range(8)]
        torch.cuda.current_stream().wait_stream(side)
        assert torch.equal(got, want) and len(junk) == 8


def test_memory_is_given_back(ops):
    """No growth over many calls, and all of it is PyTorch's allocator's."""
    ours, _, tensors, _ = case("conv2d_epilogue")
    with torch.no_grad():
        ours(*tensors)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(50):
            ours(*tensors)
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() == before
        assert before < torch.cuda.max_memory_allocated() < before + (1 << 28)


@pytest.mark.parametrize("name", NAMES)
def test_no_hidden_synchronisation(ops, name):
    ours, _, tensors, _ = case(name)
    with torch.no_grad():
        ours(*tensors)  # loads the code
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            begin, end = torch.cuda.Event(), torch.cuda.Event()
            torch.cuda._sleep(50_000_000)  # some 25 ms
            begin.record()
            ours(*tensors)
            end.record()
            assert not end.query(), "the call returned only after the GPU was done"
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
