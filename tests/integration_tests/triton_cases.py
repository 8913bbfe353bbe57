"""Triton's kernels by Triton's interpreter against float64; run by test_triton_kernels.py with TRITON_INTERPRET=1 in a process of its
own, because the interpreter is chosen when Triton is imported. Prints one line per case."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch_ops import assert_near, attention_double, channels_last, load_package, packed_heads, randn

# Of one rounding of operands and result, and sums of `terms` products.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def attention(ops, kernels) -> None:
    for dtype in DTYPES[:2]:  # the interpreter multiplies bf16's bits as integers; test_torch_gpu_modes.py has bf16
        for b, h, queries, keys, dim, causal in ((1, 2, 5, 7, 40, False), (2, 1, 130, 77, 64, False), (1, 1, 65, 65, 80, True),
                                                 (1, 1, 3, 1, 160, False), (1, 1, 1, 200, 8, True)):
            q, k, v = (packed_heads(b, h, n, dim, dtype, seed) for seed, n in enumerate((queries, keys, keys)))
            got = kernels.attention(q, k, v, None, causal)
            want = attention_double(q, k, v, causal=causal)
            assert_near(got, want, terms=keys + dim, scale=v.abs().max().item())
            assert got.transpose(1, 2).is_contiguous()
            if dtype == torch.float32 and not causal:
                assert_near(kernels.attention(q.contiguous(), k, v, 0.3), attention_double(q, k, v, scale=0.3), terms=keys + dim,
                            scale=v.abs().max().item())
            print("attention", dtype, list(q.shape), keys, causal)


def group_norm(ops, kernels) -> None:
    for dtype in DTYPES:
        for n, c, h, w, groups in ((2, 8, 5, 3, 4), (1, 64, 9, 11, 32), (1, 6, 1, 1, 2), (2, 4, 40, 33, 1)):
            x = randn(n, c, h, w, dtype=dtype) + 20.0  # a mean far from zero
            gain, offset = randn(c, seed=1), randn(c, seed=2)
            for form in (x.contiguous(), channels_last(x)):
                for silu in (True, False):
                    want = F.group_norm(form.double(), groups, gain.double(), offset.double(), 1e-5)
                    got = kernels.group_norm_silu(form, groups, gain, offset, 1e-5, silu)
                    # Float sums of values about 20 times as large as their spread.
                    assert_near(got, F.silu(want) if silu else want, terms=400 * c // groups * h * w, scale=4.0)
                    assert got.is_contiguous(memory_format=torch.channels_last)
            plain = F.group_norm(x.double(), groups, None, None, 1e-5)
            assert_near(kernels.group_norm_silu(x.contiguous(), groups, silu=False), plain, terms=400 * c // groups * h * w, scale=4.0)
            print("group_norm_silu", dtype, list(x.shape), groups)


def geglu(ops, kernels) -> None:
    for dtype in DTYPES:
        for shape in ((3, 8), (2, 5, 26), (1, 2050)):
            x = randn(*shape, dtype=dtype)
            value, gate = x.double().chunk(2, dim=-1)
            assert_near(kernels.geglu(x), value * F.gelu(gate), scale=value.abs().max().item())
            print("geglu", dtype, list(shape))


def in_place_of_ours(ops, kernels) -> None:
    """use_triton: the package's functions call them where they take the operands, and only there."""
    calls = []
    for name in ("attention", "group_norm_silu", "geglu"):
        original = getattr(kernels, name)
        setattr(kernels, name, lambda *args, original=original, name=name: calls.append(name) or original(*args))
    q, x = randn(1, 2, 5, 16), randn(1, 8, 3, 3)
    gain, offset = torch.ones(8), torch.zeros(8)
    assert ops.use_triton(True) is False
    ops.attention(q, q, q), ops.group_norm_silu(x, 2, gain, offset), ops.geglu(randn(2, 8))
    assert calls == ["attention", "group_norm_silu", "geglu"]
    assert_near(ops.attention(q, q, q, mask=torch.ones(5, 5, dtype=torch.bool)), attention_double(q, q, q), terms=21)
    ops.attention(q.requires_grad_(), q, q).sum().backward()
    assert len(calls) == 3 and ops.use_triton(False) is True
    ops.geglu(randn(2, 8))
    assert len(calls) == 3
    print("in place of ours")


def left_alone(ops, kernels) -> None:
    """What our operators (or PyTorch's) take, or refuse with their own message."""
    q, x, c = randn(1, 2, 5, 16), randn(1, 8, 3, 3), torch.ones(8)
    many = torch.zeros(1, 1, 1, 8).expand(1, 2 ** 16, 1, 8)
    for taken in (kernels.takes_attention(q, q.to("meta"), q), kernels.takes_attention(*[q.to("meta")] * 3),
                  kernels.takes_attention(many, many, many), kernels.takes_group_norm_silu(x, 2, c.to("meta"), c, None),
                  kernels.takes_group_norm_silu(x, 0, c, c, None), kernels.takes_group_norm_silu(x, -2, c, c, None)):
        assert not taken
    print("left alone")


def bad(ops, kernels) -> None:
    for call in (lambda: kernels.attention(randn(1, 1, 2, 300), randn(1, 1, 2, 300), randn(1, 1, 2, 300)),
                 lambda: kernels.group_norm_silu(randn(1, 5, 2, 2), 2), lambda: kernels.geglu(randn(2, 3)),
                 lambda: kernels.geglu(randn(2, 4).double())):
        try:
            call()
        except ValueError as error:
            assert "expected" in str(error)
        else:
            raise AssertionError("taken")
    print("bad operands")


def main() -> None:
    import os

    ops = load_package(Path(os.environ["ROCM_SD_BUILD_DIR"]))
    kernels = ops.triton_kernels
    for cases in (attention, group_norm, geglu, in_place_of_ours, left_alone, bad):
        cases(ops, kernels)


if __name__ == "__main__":
    main()
